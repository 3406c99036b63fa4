//! What a cluster on this machine keeps in files.
//!
//! ```text
//! DIR/token                the owner's token (mode 0600)
//! DIR/node-token           the nodes' token (mode 0600)
//! DIR/topology.yaml        the topology that it was started with
//! DIR/controller/          the controller's log and snapshots
//! DIR/nodes/               what nodes keep: compiled code
//! DIR/logs/NAME.log        what each process logs
//! DIR/run/lock             held by the supervisor while it runs; holds its process id
//! DIR/run/cluster.json     supervisor, port, whether it is ready
//! DIR/run/NAME.json        process of each name
//! DIR/run/failure-NAME.json  why the start of a process failed
//! ```

use crate::cluster::credentials;
use crate::cluster::process::Process;
use crate::documents::files::read_text;
use crate::ui::failure::{Exit, Failure};
use e3_model::Topology;
use e3_model::document::parse_topology;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The state directory.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
}

/// The running cluster, as its supervisor writes it down.
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
    /// Every node took part once.
    pub ready: bool,
}

impl RunningCluster {
    /// URL of the controller.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// What a cluster keeps in its state directory.
pub const PARTS: [&str; 7] = [
    "run",
    "controller",
    "nodes",
    "logs",
    "topology.yaml",
    "token",
    "node-token",
];

/// The supervisor's name among the processes.
pub const SUPERVISOR: &str = "supervisor";

/// Why a start failed, for the process that waits for it.
#[derive(Serialize, Deserialize)]
struct StartFailure {
    exit: u8,
    message: String,
    hint: Option<String>,
}

/// The lock of a running supervisor; free again when it is dropped or its process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    root: PathBuf,
}

impl Lock {
    /// Fails if the state directory was removed or replaced: then others do not see this lock.
    pub fn check(&self) -> Result<(), Failure> {
        let identity = |m: std::fs::Metadata| (m.dev(), m.ino());
        let held = self.file.metadata().map(identity);
        let there = std::fs::metadata(&self.path).map(identity);
        let gone = match (held, there) {
            (Ok(held), Ok(there)) if held == there => return Ok(()),
            (_, Err(e)) if e.kind() == std::io::ErrorKind::NotFound => "is gone",
            (_, Ok(_)) => "was replaced",
            // Not readable for a moment, such as for want of file descriptors.
            _ => return Ok(()),
        };
        let message = format!("the state directory {} {gone}", self.root.display());
        Err(Failure::new(Exit::Unexpected, message))
    }
}

impl StateDir {
    /// The directory; nothing is made yet.
    pub fn new(root: &Path) -> StateDir {
        StateDir {
            root: root.to_path_buf(),
        }
    }

    /// Its path.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// The topology of the cluster.
    pub fn topology_file(&self) -> PathBuf {
        self.root.join("topology.yaml")
    }
    /// The topology that the cluster was started with; None if there was none yet.
    pub fn topology(&self) -> Result<Option<Topology>, Failure> {
        match self.topology_file().exists() {
            true => self.stored_topology().map(Some),
            false => Ok(None),
        }
    }
    /// The topology that the cluster was started with.
    pub fn stored_topology(&self) -> Result<Topology, Failure> {
        let path = self.topology_file();
        Ok(parse_topology(
            &path.display().to_string(),
            &read_text(&path)?,
        )?)
    }
    /// The owner's token.
    pub fn token_file(&self) -> PathBuf {
        self.root.join("token")
    }
    /// The nodes' token.
    pub fn node_token_file(&self) -> PathBuf {
        self.root.join("node-token")
    }
    /// The controller's files.
    pub fn controller_dir(&self) -> PathBuf {
        self.root.join("controller")
    }
    /// Values of an application's secrets.
    pub fn secrets_dir(&self, app: &str) -> PathBuf {
        self.controller_dir().join("secrets").join(app)
    }
    /// The nodes' files.
    pub fn nodes_dir(&self) -> PathBuf {
        self.root.join("nodes")
    }
    /// Logs.
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

    /// Makes the directories, for their owner alone.
    pub fn create(&self) -> Result<(), Failure> {
        credentials::make_private_dir(&self.root)?;
        for dir in [
            self.controller_dir(),
            self.nodes_dir(),
            self.logs_dir(),
            self.run_dir(),
        ] {
            std::fs::create_dir_all(&dir).map_err(|e| {
                Failure::file("make", &dir, &e).hint("give another directory with --dir DIR")
            })?;
        }
        Ok(())
    }

    /// Fails if a supervisor holds the lock. Makes nothing.
    pub fn check_unlocked(&self) -> Result<(), Failure> {
        match self.lock_path().exists() {
            true => self.lock().map(drop),
            false => Ok(()),
        }
    }

    fn lock_path(&self) -> PathBuf {
        self.run_dir().join("lock")
    }

    /// Takes the lock, or says who has it.
    pub fn lock(&self) -> Result<Lock, Failure> {
        let path = self.lock_path();
        let failed = |e: &std::io::Error| Failure::file("lock", &path, e);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(|e| failed(&e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(e)) => return Err(failed(&e)),
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let message = format!(
                    "a cluster is already up in {} (process {})",
                    self.root.display(),
                    pid.trim()
                );
                let hint = "stop it with: e3 down, or start another with --dir DIR --port PORT";
                return Err(Failure::new(Exit::Conflict, message).hint(hint));
            }
        }
        let pid = format!("{}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.write_all(pid.as_bytes()))
            .map_err(|e| failed(&e))?;
        Ok(Lock {
            file,
            path,
            root: self.root.clone(),
        })
    }

    /// The cluster that runs here now; None if there is none. What a supervisor that was killed
    /// left behind counts as none.
    pub fn running(&self) -> Result<Option<RunningCluster>, Failure> {
        let cluster: Option<RunningCluster> = self.read("cluster")?;
        Ok(cluster.filter(|c| c.supervisor.alive()))
    }

    /// The cluster that was written down last, running or not.
    pub fn recorded(&self) -> Result<Option<RunningCluster>, Failure> {
        self.read("cluster")
    }

    /// Writes down the cluster.
    pub fn write_cluster(&self, cluster: &RunningCluster) -> Result<(), Failure> {
        self.write("cluster", cluster)
    }

    /// Writes down the process of a name.
    pub fn write_process(&self, name: &str, process: &Process) -> Result<(), Failure> {
        self.write(&format!("process-{name}"), process)
    }

    /// The recorded process of a name.
    pub fn process(&self, name: &str) -> Option<Process> {
        self.read(&format!("process-{name}")).ok().flatten()
    }

    /// Names and processes that were written down and still run.
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

    /// Writes down why the start of a process failed.
    pub fn write_start_failure(&self, name: &str, failure: &Failure) -> Result<(), Failure> {
        let view = StartFailure {
            exit: failure.exit as u8,
            message: failure.message.clone(),
            hint: failure.hint.clone(),
        };
        self.write(&format!("failure-{name}"), &view)
    }

    /// Why the start of a process failed, if it wrote that down.
    pub fn start_failure(&self, name: &str) -> Option<Failure> {
        let found: Option<StartFailure> = self.read(&format!("failure-{name}")).ok().flatten();
        let found = found?;
        Some(Failure {
            exit: Exit::of(found.exit),
            message: found.message,
            hint: found.hint,
        })
    }

    /// Forgets processes and failures of a former run. The lock's file stays, for it is what two
    /// supervisors meet at.
    pub fn clear_run(&self) -> Result<(), Failure> {
        let dir = self.run_dir();
        let Ok(entries) = std::fs::read_dir(&dir) else {
            return Ok(());
        };
        for path in entries.flatten().map(|e| e.path()) {
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
            let message = format!("{}: cannot be read: {e}", path.display());
            Failure::new(Exit::Unexpected, message).hint("remove the file")
        };
        serde_json::from_str(&text).map(Some).map_err(what)
    }

    /// Renamed into place: a reader sees the old content or the new one, never half of it.
    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Failure> {
        let path = self.run_file(name);
        let half = self.run_dir().join(format!("{name}.new"));
        let text = serde_json::to_vec(value)
            .map_err(|e| Failure::new(Exit::Unexpected, format!("write {name}: {e}")))?;
        std::fs::write(&half, text)
            .and_then(|()| std::fs::rename(&half, &path))
            .map_err(|e| Failure::file("write", &path, &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_supervisors_meet_at_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        state.create().unwrap();
        let lock = state.lock().unwrap();
        let refused = state.lock().unwrap_err();
        assert_eq!(refused.exit, Exit::Conflict);
        let pid = format!("(process {})", std::process::id());
        assert!(refused.message.ends_with(&pid), "{}", refused.message);
        drop(lock);
        state.lock().unwrap();
    }

    #[test]
    fn a_lock_notices_that_its_directory_is_gone_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(&dir.path().join("state"));
        state.create().unwrap();
        let lock = state.lock().unwrap();
        lock.check().unwrap();
        std::fs::rename(state.root(), dir.path().join("elsewhere")).unwrap();
        let gone = lock.check().unwrap_err().message;
        assert!(gone.ends_with("/state is gone"), "{gone}");
        state.create().unwrap();
        let _other = state.lock().unwrap();
        let replaced = lock.check().unwrap_err().message;
        assert!(replaced.ends_with("/state was replaced"), "{replaced}");
    }

    #[test]
    fn a_stale_record_is_no_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        state.create().unwrap();
        assert_eq!(state.running().unwrap(), None);
        let mut cluster = RunningCluster {
            supervisor: Process::this().unwrap(),
            port: 1,
            topology: "t".into(),
            nodes: vec!["n".into()],
            ready: true,
        };
        state.write_cluster(&cluster).unwrap();
        assert_eq!(state.running().unwrap(), Some(cluster.clone()));
        cluster.supervisor.start_ticks += 1;
        state.write_cluster(&cluster).unwrap();
        assert_eq!(state.running().unwrap(), None);
        state.clear_run().unwrap();
        assert_eq!(state.recorded().unwrap(), None);
    }
}
