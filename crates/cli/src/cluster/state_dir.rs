//! The state directory: the files of a cluster on this machine.
//!
//! ```text
//! DIR/token                the owner's token (mode 0600)
//! DIR/node-token           the nodes' token (mode 0600)
//! DIR/secret-key           the key that secrets are encrypted under (mode 0600)
//! DIR/secret-key-file      the path of its file, if it is another one
//! DIR/topology.yaml        the topology that it was started with
//! DIR/controller/          the controller's log and snapshots
//! DIR/durability           the durability of services whose manifest says nothing of it
//! DIR/nodes/               files of the nodes: compiled code, and journals in nodes/NAME/journal
//! DIR/logs/NAME.log        log of each process
//! DIR/run/lock             locked by the supervisor while it runs; contains its process id
//! DIR/run/load-APP.lock    locked by a load of an application while it runs
//! DIR/run/cluster.json     supervisor, port, whether it is ready
//! DIR/run/process-NAME.json  id and start time of each process
//! DIR/run/program.json     the program of the processes, if `e3 upgrade` has changed it
//! DIR/run/upgrading.json   the node that `e3 upgrade` has drained
//! DIR/run/failure-NAME.json  why the start of a process failed
//! ```

mod lock;

pub use lock::Lock;

use crate::cluster::credentials;
use crate::cluster::durable;
use crate::cluster::process::Process;
use crate::documents::files::read_topology;
use crate::ui::failure::{Exit, Failure};
use e3_model::Topology;
use e3_model::application::Durability;
use e3_model::document::parse_topology;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Name of the record of the node that an upgrade has drained.
const UPGRADING: &str = "upgrading";

/// The state directory.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
}

/// The running cluster, as recorded by its supervisor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningCluster {
    /// The supervisor.
    pub supervisor: Process,
    /// Port of the controller.
    pub port: u16,
    /// Name of the topology.
    pub topology: String,
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// All nodes have been up, but for those that did not start.
    pub ready: bool,
    /// Why nodes did not start.
    #[serde(default)]
    pub not_started: Vec<String>,
    /// Processes that exit are not restarted.
    #[serde(default)]
    pub no_restart: bool,
}

impl RunningCluster {
    /// URL of the controller.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// The entries of a state directory.
pub const PARTS: [&str; 11] = [
    "run",
    "controller",
    "nodes",
    "logs",
    "topology.yaml",
    "durability",
    "token",
    "node-token",
    "secret-key",
    // Of a controller that was killed while it made the key.
    "secret-key.new",
    "secret-key-file",
];

/// Name of the supervisor process.
pub const SUPERVISOR: &str = "supervisor";

/// What a start chooses for its cluster, and later ones keep. Without a choice it is as before.
#[derive(Clone, Default, Debug)]
pub struct Choices {
    /// The durability of services whose manifests give none.
    pub durability: Option<Durability>,
    /// File of the key that secrets are encrypted under.
    pub secret_key_file: Option<PathBuf>,
}

/// Reads "disk" or "memory".
pub fn parse_durability(text: &str) -> Result<Durability, String> {
    let all = [Durability::Disk, Durability::Memory];
    let found = all.into_iter().find(|d| durability_name(*d) == text);
    found.ok_or_else(|| "must be disk or memory".into())
}

/// What [`parse_durability`] reads.
pub(super) fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Disk => "disk",
        Durability::Memory => "memory",
    }
}

/// A node that an upgrade drains.
#[derive(Serialize, Deserialize)]
pub struct Upgrading {
    /// Its name.
    pub node: String,
    /// Whether it was cordoned before.
    pub cordoned: bool,
}

/// Why a start failed, for the process that waits for it.
#[derive(Serialize, Deserialize)]
struct StartFailure {
    exit: u8,
    message: String,
    hint: Option<String>,
}

impl StateDir {
    /// The directory, which need not exist yet.
    pub fn new(root: &Path) -> StateDir {
        StateDir {
            root: root.to_path_buf(),
        }
    }

    /// Its path.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// File of the topology.
    pub fn topology_file(&self) -> PathBuf {
        self.root.join("topology.yaml")
    }
    /// The topology that the cluster was first started with, if there is a cluster.
    pub fn topology(&self) -> Result<Option<Topology>, Failure> {
        if self.topology_file().exists() {
            self.stored_topology().map(Some)
        } else {
            Ok(None)
        }
    }
    /// The same, where there must be a cluster.
    pub fn stored_topology(&self) -> Result<Topology, Failure> {
        let path = self.topology_file();
        Ok(parse_topology(
            &path.display().to_string(),
            &read_topology(&path)?,
        )?)
    }
    /// File of the owner's token.
    pub fn token_file(&self) -> PathBuf {
        self.root.join("token")
    }
    /// File of the nodes' token.
    pub fn node_token_file(&self) -> PathBuf {
        self.root.join("node-token")
    }
    fn own_secret_key_file(&self) -> PathBuf {
        self.root.join("secret-key")
    }
    fn secret_key_choice(&self) -> PathBuf {
        self.root.join("secret-key-file")
    }
    /// File of the key that secrets are encrypted under: the one that was chosen, else that of this
    /// directory.
    pub fn secret_key_file(&self) -> Result<PathBuf, Failure> {
        let path = self.secret_key_choice();
        match std::fs::read(&path) {
            Ok(bytes) => Ok(PathBuf::from(OsString::from_vec(bytes))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(self.own_secret_key_file()),
            Err(e) => Err(Failure::file("read", &path, &e)),
        }
    }
    /// Whether the key is made if it is missing: not one that is kept elsewhere.
    pub fn makes_secret_key(&self) -> bool {
        !self.secret_key_choice().exists()
    }
    /// Chooses the file of the key that secrets are encrypted under.
    pub fn set_secret_key_file(&self, file: &Path) -> Result<(), Failure> {
        let path = self.secret_key_choice();
        let file = std::path::absolute(file).map_err(|e| Failure::file("find", file, &e))?;
        let same = std::path::absolute(self.own_secret_key_file()).is_ok_and(|own| own == file);
        let chosen = if same {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            }
        } else {
            durable::write(&path, 0o600, file.as_os_str().as_bytes())
        };
        chosen.map_err(|e| Failure::file("write", &path, &e))
    }
    /// Directory of the controller.
    pub fn controller_dir(&self) -> PathBuf {
        self.root.join("controller")
    }
    /// Directory of an application's secrets in clusters before format 8.
    pub fn secrets_dir(&self, app: &str) -> PathBuf {
        self.controller_dir().join("secrets").join(app)
    }
    fn nodes_dir(&self) -> PathBuf {
        self.root.join("nodes")
    }
    /// Where nodes keep compiled modules.
    pub fn code_cache_dir(&self) -> PathBuf {
        self.nodes_dir().join("code")
    }
    /// Where a node keeps the state of services with `durability: disk`.
    pub fn journal_dir(&self, node: &str) -> PathBuf {
        self.nodes_dir().join(node).join("journal")
    }
    /// The files of what the operator chose, which the next starts keep.
    pub fn choices(&self) -> [PathBuf; 2] {
        [self.durability_file(), self.secret_key_choice()]
    }
    fn durability_file(&self) -> PathBuf {
        self.root.join("durability")
    }

    /// Durability of services whose manifests give none: on disk, unless something else was chosen.
    pub fn durability(&self) -> Durability {
        match std::fs::read_to_string(self.durability_file()) {
            Ok(text) if text.trim() == "memory" => Durability::Memory,
            _ => Durability::Disk,
        }
    }

    /// Stores the topology of a new cluster.
    pub fn write_topology(&self, text: &str) -> Result<(), Failure> {
        let path = self.topology_file();
        durable::write(&path, 0o600, text.as_bytes()).map_err(|e| Failure::file("write", &path, &e))
    }

    /// Stores what a start has chosen. Whoever calls it holds the lock: another start may choose otherwise.
    pub fn choose(&self, choices: &Choices) -> Result<(), Failure> {
        if let Some(durability) = choices.durability {
            self.set_durability(durability)?;
        }
        if let Some(file) = &choices.secret_key_file {
            self.set_secret_key_file(file)?;
        }
        Ok(())
    }

    /// Chooses the durability of services whose manifests give none.
    pub fn set_durability(&self, durability: Durability) -> Result<(), Failure> {
        let text = format!("{}\n", durability_name(durability));
        let path = self.durability_file();
        durable::write(&path, 0o600, text.as_bytes()).map_err(|e| Failure::file("write", &path, &e))
    }

    /// Directory of the logs.
    pub fn logs_dir(&self) -> PathBuf {
        self.root.join("logs")
    }
    /// Log of a process.
    pub fn log_file(&self, name: &str) -> PathBuf {
        self.logs_dir().join(format!("{name}.log"))
    }
    fn run_dir(&self) -> PathBuf {
        self.root.join("run")
    }
    fn run_file(&self, name: &str) -> PathBuf {
        self.run_dir().join(format!("{name}.json"))
    }

    /// What the clock of a node is off by in milliseconds, in builds for tests; removed with the other
    /// records of a run.
    #[cfg(feature = "clock-offset")]
    pub fn clock_offset_file(&self, node: &str) -> PathBuf {
        self.run_file(&format!("clock-offset-{node}"))
    }

    /// Creates the directories, accessible only to their owner.
    pub fn create(&self) -> Result<(), Failure> {
        credentials::make_private_dir(&self.root)?;
        for dir in [
            self.controller_dir(),
            self.nodes_dir(),
            self.logs_dir(),
            self.run_dir(),
        ] {
            std::fs::create_dir_all(&dir).map_err(|e| {
                Failure::file("create", &dir, &e).hint("give another directory with --dir DIR")
            })?;
        }
        Ok(())
    }

    /// The running cluster, if there is one. The record of a supervisor that was killed does not count.
    pub fn running(&self) -> Result<Option<RunningCluster>, Failure> {
        let cluster: Option<RunningCluster> = self.read("cluster")?;
        Ok(cluster.filter(|c| c.supervisor.alive()))
    }

    /// The running cluster; an error if there is none.
    pub fn require_running(&self) -> Result<RunningCluster, Failure> {
        self.running()?.ok_or_else(|| {
            let message = format!("no cluster is up in {}", self.root.display());
            Failure::new(Exit::Unreachable, message).hint("start one with: e3 up --detach")
        })
    }

    /// The cluster that was last recorded, running or not.
    pub fn recorded(&self) -> Result<Option<RunningCluster>, Failure> {
        self.read("cluster")
    }

    /// Records the cluster.
    pub fn write_cluster(&self, cluster: &RunningCluster) -> Result<(), Failure> {
        self.write("cluster", cluster)
    }

    /// Records the process of this name.
    pub fn write_process(&self, name: &str, process: &Process) -> Result<(), Failure> {
        self.write(&format!("process-{name}"), process)
    }

    /// The recorded process of this name.
    pub fn process(&self, name: &str) -> Option<Process> {
        self.read(&format!("process-{name}")).ok().flatten()
    }

    /// Names and processes that are recorded and still run.
    pub fn processes_alive(&self) -> Vec<(String, Process)> {
        let Ok(entries) = std::fs::read_dir(self.run_dir()) else {
            return Vec::new();
        };
        let name = |e: std::fs::DirEntry| {
            let file = e.file_name().into_string().ok()?;
            Some(
                file.strip_prefix("process-")?
                    .strip_suffix(".json")?
                    .to_string(),
            )
        };
        let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
        names.sort();
        let alive = |name: String| {
            let process = self.process(&name).filter(Process::alive)?;
            Some((name, process))
        };
        names.into_iter().filter_map(alive).collect()
    }

    /// Records why the start of a process failed.
    pub fn write_start_failure(&self, name: &str, failure: &Failure) -> Result<(), Failure> {
        let view = StartFailure {
            exit: failure.exit as u8,
            message: failure.message.clone(),
            hint: failure.hint.clone(),
        };
        self.write(&format!("failure-{name}"), &view)
    }

    /// Why the start of a process failed, if it recorded that.
    pub fn start_failure(&self, name: &str) -> Option<Failure> {
        let found: Option<StartFailure> = self.read(&format!("failure-{name}")).ok().flatten();
        let found = found?;
        Some(Failure {
            exit: Exit::of(found.exit),
            message: found.message,
            hint: found.hint,
        })
    }

    /// Removes the record of a failed start.
    pub fn remove_start_failure(&self, name: &str) {
        let _ = std::fs::remove_file(self.run_file(&format!("failure-{name}")));
    }

    /// The program that `e3 upgrade` has chosen for the processes; none if it is the supervisor's.
    pub fn program(&self) -> Result<Option<PathBuf>, Failure> {
        self.read("program")
    }

    /// Chooses the program of processes that start from now on, until the supervisor ends.
    pub fn write_program(&self, program: &Path) -> Result<(), Failure> {
        self.write("program", &program)
    }

    /// Chooses the program that was chosen before; none stands for the supervisor's.
    pub fn restore_program(&self, before: Option<&Path>) -> Result<(), Failure> {
        let Some(before) = before else {
            let path = self.run_file("program");
            return match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    Err(Failure::file("remove", &path, &e))
                }
                _ => Ok(()),
            };
        };
        self.write_program(before)
    }

    /// The node that an upgrade has drained.
    pub fn upgrading(&self) -> Result<Option<Upgrading>, Failure> {
        self.read::<Option<Upgrading>>(UPGRADING)
            .map(Option::flatten)
    }

    /// Records which node an upgrade drains, so that the next one resumes it if this one is killed.
    pub fn write_upgrading(&self, upgrading: Option<&Upgrading>) -> Result<(), Failure> {
        let path = self.run_file(UPGRADING);
        let text = serde_json::to_vec(&upgrading).expect("it has text keys only");
        durable::write(&path, 0o600, &text).map_err(|e| Failure::file("write", &path, &e))
    }

    /// Removes the records of an earlier run; whoever calls it holds the lock. The lock file stays: another supervisor may
    /// be about to lock it. So does the record of an upgrade, since the node stays drained.
    pub fn clear_run(&self) -> Result<(), Failure> {
        let dir = self.run_dir();
        let Ok(entries) = std::fs::read_dir(&dir) else {
            return Ok(());
        };
        let kept = self.run_file(UPGRADING);
        let paths = entries.flatten().map(|e| e.path());
        for path in paths.filter(|path| *path != kept) {
            if path.extension().is_some_and(|e| e == "json" || e == "new") {
                std::fs::remove_file(&path).map_err(|e| Failure::file("remove", &path, &e))?;
            }
        }
        Ok(())
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        let path = self.run_file(name);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Failure::file("read", &path, &e)),
        };
        let what = |e| {
            let message = format!("{}: unreadable: {e}", path.display());
            Failure::new(Exit::Unexpected, message).hint("remove the file")
        };
        // A power cut may leave the file empty, and leaves no process.
        if text.is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&text).map(Some).map_err(what)
    }

    /// Renames the new file into place, so that a reader sees either the old or the new content.
    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Failure> {
        let path = self.run_file(name);
        let temporary = self.run_dir().join(format!("{name}.new"));
        let text = serde_json::to_vec(value)
            .map_err(|e| Failure::new(Exit::Unexpected, format!("write {name}: {e}")))?;
        std::fs::write(&temporary, text)
            .and_then(|()| std::fs::rename(&temporary, &path))
            .map_err(|e| Failure::file("write", &path, &e))
    }
}

#[cfg(test)]
mod tests;
