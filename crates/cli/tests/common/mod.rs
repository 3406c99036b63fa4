//! Runs the program in a directory of its own, as a user would.

pub mod garbage;
pub mod http;
pub mod relay;
pub mod running;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything that should happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A state directory and the program on it. A cluster that runs there is stopped in the end.
pub struct E3 {
    /// Temporary.
    pub dir: tempfile::TempDir,
    /// Compiled modules. All tests share them, since compiling takes a good part of the tests' time.
    pub code_cache: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Modules, if they have been built.
pub fn services() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/services");
    let dir = std::env::var_os("E3_SERVICES").map_or(built, PathBuf::from);
    dir.join("chain.wasm").is_file().then_some(dir)
}

/// Whether the modules have been built; says so if not.
pub fn are_services_built() -> bool {
    let built = services().is_some();
    if !built {
        println!("SKIPPED: target/services is not built (cargo xtask build-services)");
    }
    built
}

impl Drop for E3 {
    fn drop(&mut self) {
        if !self.dir.path().join("state/run").exists() {
            return;
        }
        if std::thread::panicking() {
            println!("{}", self.run(&["logs", "--lines", "60"]).out);
        }
        self.run(&["down"]);
    }
}

impl E3 {
    /// An empty directory.
    pub fn new() -> E3 {
        E3 {
            dir: tempfile::tempdir().unwrap(),
            code_cache: Path::new(env!("CARGO_TARGET_TMPDIR")).join("code"),
        }
    }

    /// The same, if the modules have been built; otherwise says that the test is skipped.
    pub fn with_services() -> Option<E3> {
        are_services_built().then(E3::new)
    }

    /// A file in it.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    }

    /// A copy of a program that can be run at once. Another process writes it: if this one did, a
    /// process that another thread starts meanwhile could inherit the open file, and running the
    /// copy would fail with "Text file busy".
    pub fn program(&self, name: &str, from: &str) -> String {
        let path = self.dir.path().join(name);
        let mut install = Command::new("install");
        let ended = install.args(["-D", "-m", "755", from]).arg(&path).status();
        assert!(ended.unwrap().success(), "cannot copy {from}");
        path.to_str().unwrap().to_string()
    }

    /// What presents the token in a file of the state directory to the controller.
    pub fn authorization(&self, file: &str) -> String {
        let state = self.dir.path().join("state");
        let token = std::fs::read_to_string(state.join(file)).unwrap();
        format!("Bearer {}", token.trim())
    }

    /// The program with these arguments, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_e3"));
        let state = self.dir.path().join("state");
        command.args(arguments).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("E3_") {
                command.env_remove(name);
            }
        }
        command
            .env("E3_DIR", state)
            .env("E3_CODE_CACHE", &self.code_cache)
            .env("XDG_CONFIG_HOME", self.dir.path());
        if let Some(dir) = services() {
            command.env("E3_SERVICES", dir);
        }
        command
    }

    /// Runs another program, with this one's surroundings, to its end.
    #[cfg(feature = "formats")]
    pub fn run_as(&self, program: &str, arguments: &[&str]) -> Ended {
        let of_this = self.command(arguments);
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        for (name, value) in of_this.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        ended(command.output().unwrap())
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        ended(self.command(arguments).output().unwrap())
    }

    /// Runs it and expects it to succeed.
    #[track_caller]
    pub fn good(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended.out
    }

    /// Starts it in the background; the words are separated by spaces.
    pub fn spawn(&self, words: &str) -> Child {
        let words: Vec<&str> = words.split(' ').collect();
        let mut command = self.command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Starts a cluster.
    #[track_caller]
    pub fn up(&self) {
        self.good(&["up", "--detach", "--port", "0"]);
    }

    /// Starts a cluster whose state is in memory only.
    pub fn up_in_memory(&self) {
        self.good(&["up", "--detach", "--port", "0", "--durability", "memory"]);
    }

    /// Deploys an application that is shipped, and waits until it is ready.
    #[track_caller]
    pub fn deploy_shipped(&self, app: &str) {
        let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps");
        let manifest = apps.join(format!("{app}.yaml"));
        self.good(&["deploy", manifest.to_str().unwrap(), "--wait"]);
    }

    /// Runs it and reads what it prints as JSON.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let arguments = [arguments, &["-o", "json"]].concat();
        serde_json::from_str(&self.good(&arguments)).unwrap()
    }

    /// Waits until something is so.
    #[track_caller]
    pub fn until(&self, what: &str, mut so: impl FnMut(&E3) -> bool) {
        let begin = Instant::now();
        while !so(self) {
            assert!(
                begin.elapsed() < PATIENCE,
                "not within {PATIENCE:?}: {what}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What a finished process left.
pub fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
