//! Starts a cluster. Everything is checked first, and a failed start removes what it created.

use crate::cluster::durable;
use crate::cluster::managed::open_log;
use crate::cluster::process::Process;
use crate::cluster::state_dir::{
    Choices, PARTS, RunningCluster, SUPERVISOR, StateDir, durability_name,
};
use crate::cluster::stop::{kill_left, stop_supervisor};
use crate::cluster::supervisor::Supervisor;
use crate::documents::builtin::{self, TOPOLOGY_DEFAULT};
use crate::limits::{
    DOWN_GRACE, FREE_PORT_TRIES, NODES_HERE_MAX, POLL_INTERVAL, PORTS_CHOSEN, UP_TIMEOUT,
};
use crate::ui::failure::{Exit, Failure};
use crate::ui::{interrupt, output};
use e3_model::Topology;
use e3_random::Random;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// A start in progress. If it is dropped before the cluster is ready, it removes what it created, and restores
/// what was chosen before.
pub struct Start {
    state: StateDir,
    port: u16,
    /// Files and directories that did not exist before, innermost first.
    created: Vec<PathBuf>,
    /// What was chosen at earlier starts: files and their contents.
    chosen_before: Vec<(PathBuf, Vec<u8>)>,
    choices: Choices,
    /// Set by Ctrl-C.
    stop: Option<Arc<AtomicBool>>,
    /// The supervisor that it has started in the background.
    supervisor: Option<Process>,
    is_done: bool,
}

/// How long a cluster in the background lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifetime {
    /// Until it is stopped.
    UntilStopped,
    /// As long as this process.
    ThisProcess,
}

impl Start {
    /// Checks topology, lock and port, then creates the state directory and stores the topology in it.
    /// Port 0 stands for a free one. A cluster keeps the topology that it was first started with, since
    /// the decisions of its controller refer to those nodes.
    pub fn prepare(state: &StateDir, wanted: Option<&str>, port: u16) -> Result<Start, Failure> {
        let text = topology_text(state, wanted)?;
        if state.root().is_dir() {
            state.check_unlocked()?;
            // Those of a supervisor that was killed end with it, and only then is its port free.
            let deadline = Instant::now() + DOWN_GRACE;
            for (_, process) in state.processes_alive() {
                process.wait(deadline.saturating_duration_since(Instant::now()));
            }
        }
        let port = free_port(port)?;
        let choices = state.choices().into_iter();
        let choices = choices.filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?)));
        let parts = PARTS.iter().map(|part| state.root().join(part));
        let parents = state.root().ancestors().map(PathBuf::from);
        let start = Start {
            state: state.clone(),
            port,
            created: parts.chain(parents).filter(|path| !path.exists()).collect(),
            chosen_before: choices.collect(),
            choices: Choices::default(),
            stop: None,
            supervisor: None,
            is_done: false,
        };
        state.create()?;
        if let Some(text) = text {
            state.write_topology(&text)?;
        }
        Ok(start)
    }

    /// Chooses for the cluster, if this is the start that gets the lock.
    pub fn choose(mut self, choices: Choices) -> Start {
        self.choices = choices;
        self
    }

    /// Ends when this flag is set.
    pub fn until(mut self, stop: Arc<AtomicBool>) -> Start {
        self.stop = Some(stop);
        self
    }

    /// Starts the cluster as children of this process.
    pub fn in_foreground(mut self, no_restart: bool) -> Result<Supervisor, Failure> {
        let supervisor = Supervisor::start(&self.state, self.port, no_restart, &self.choices);
        self.is_done = supervisor.is_ok();
        supervisor.map_err(|failure| self.explain(failure))
    }

    /// Starts the cluster in the background and waits until it is ready.
    pub fn in_background(
        mut self,
        no_restart: bool,
        lifetime: Lifetime,
    ) -> Result<RunningCluster, Failure> {
        let cluster = self.start_in_background(no_restart, lifetime);
        self.is_done = cluster.is_ok();
        cluster.map_err(|failure| self.explain(failure))
    }

    fn start_in_background(
        &mut self,
        no_restart: bool,
        lifetime: Lifetime,
    ) -> Result<RunningCluster, Failure> {
        let state = &self.state;
        // Other records may be those of another start; the supervisor removes them under the lock.
        state.remove_start_failure(SUPERVISOR);
        let program = std::env::current_exe().map_err(|e| unexpected("find this program", e))?;
        let (log, _) = open_log(&state.log_file(SUPERVISOR))?;
        let errors = log
            .try_clone()
            .map_err(|e| unexpected("open the supervisor's log", e))?;
        let mut command = Command::new(program);
        command.arg("supervise").arg("--state").arg(state.root());
        command.args(["--port", &self.port.to_string()]);
        if no_restart {
            command.arg("--no-restart");
        }
        if let Some(durability) = self.choices.durability {
            command.args(["--durability", durability_name(durability)]);
        }
        if let Some(file) = &self.choices.secret_key_file {
            command.arg("--secret-key-file").arg(file);
        }
        if lifetime == Lifetime::ThisProcess {
            command
                .args(["--parent", &std::process::id().to_string()])
                .process_group(0);
        }
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command
            .spawn()
            .map_err(|e| unexpected("start the supervisor", e))?;
        self.supervisor = Process::of(child.id());
        let spinner = output::spinner("starting");
        let cluster = wait_until_ready(state, child, self.stop.as_deref());
        spinner.finish_and_clear();
        cluster
    }

    /// Removes the hint to a log that is about to be removed.
    fn explain(&self, mut failure: Failure) -> Failure {
        if self.created.contains(&self.state.logs_dir()) {
            failure.hint.take_if(|hint| hint.starts_with("see"));
        }
        failure
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        if let Some(supervisor) = &self.supervisor {
            stop_supervisor(supervisor);
        }
        // If another process holds the lock, the cluster and the directory are its own.
        let Ok(_lock) = self.state.lock() else { return };
        kill_left(&self.state);
        let _ = self.state.clear_run();
        for (path, content) in &self.chosen_before {
            let _ = durable::write(path, 0o600, content);
        }
        for path in &self.created {
            let inside = path.starts_with(self.state.root()) && path != self.state.root();
            let _ = if !inside {
                // Fails if anything else is in it.
                std::fs::remove_dir(path)
            } else if path.is_dir() {
                std::fs::remove_dir_all(path)
            } else {
                std::fs::remove_file(path)
            };
        }
    }
}

/// The topology to store; None if it is stored already.
fn topology_text(state: &StateDir, wanted: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(stored) = state.topology()? else {
        let (text, topology) = builtin::topology(wanted.unwrap_or(TOPOLOGY_DEFAULT))?;
        check_processes(&topology)?;
        return Ok(Some(text.text));
    };
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    let (_, topology) = builtin::topology(wanted)?;
    if topology == stored {
        return Ok(None);
    }
    let message = format!(
        "{} already holds a cluster with topology {:?}, not {:?}",
        state.root().display(),
        stored.name,
        topology.name
    );
    let hint = "a cluster keeps its topology, and the nodes that were added since: change it with e3 node \
                add and e3 node remove, leave --topology out, use another --dir, or remove the \
                cluster with: e3 down --purge";
    Err(Failure::new(Exit::Conflict, message).hint(hint))
}

/// Each node is a process of this machine.
fn check_processes(topology: &Topology) -> Result<(), Failure> {
    let nodes = topology.nodes_count();
    if nodes <= NODES_HERE_MAX {
        return Ok(());
    }
    let message = format!(
        "topology {:?} has {nodes} nodes, a cluster on this machine must have at most {NODES_HERE_MAX}: each is a process",
        topology.name
    );
    let hint = "e3 place, e3 sim and e3 plan take larger ones";
    Err(Failure::new(Exit::Input, message).hint(hint))
}

/// Checks that a port of 127.0.0.1 is free for TCP and UDP; 0 chooses one.
pub fn free_port(wanted: u16) -> Result<u16, Failure> {
    if wanted == 0 {
        return choose_port();
    }
    let Err(e) = take_port(wanted) else {
        return Ok(wanted);
    };
    let (exit, message, hint) = match e.kind() {
        ErrorKind::AddrInUse => (
            Exit::Conflict,
            format!("port {wanted} of 127.0.0.1 is in use"),
            "choose another with --port PORT (0 chooses a free one)",
        ),
        _ => (
            Exit::Input,
            format!("port {wanted} of 127.0.0.1: {e}"),
            "choose another with --port PORT",
        ),
    };
    Err(Failure::new(exit, message).hint(hint))
}

/// Chooses a port that the system gives to nobody by itself. Otherwise somebody might have it when the
/// controller is started again.
fn choose_port() -> Result<u16, Failure> {
    let seed = getrandom::u64()
        .map_err(|e| Failure::new(Exit::Unexpected, format!("random numbers: {e}")))?;
    let mut random = Random::new(seed);
    let ports = u64::from(PORTS_CHOSEN.end - PORTS_CHOSEN.start);
    let mut tried = (0..FREE_PORT_TRIES).map(|_| PORTS_CHOSEN.start + random.below(ports) as u16);
    tried.find(|port| take_port(*port).is_ok()).ok_or_else(|| {
        let message = format!(
            "{FREE_PORT_TRIES} ports of 127.0.0.1 between {} and {} are in use for TCP or UDP",
            PORTS_CHOSEN.start,
            PORTS_CHOSEN.end - 1
        );
        Failure::new(Exit::Conflict, message).hint("choose one with --port PORT")
    })
}

/// Takes a port for TCP and UDP, and gives it back.
fn take_port(port: u16) -> io::Result<()> {
    let _tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).map(drop)
}

/// Waits until the cluster is ready or its supervisor has exited.
fn wait_until_ready(
    state: &StateDir,
    mut supervisor: Child,
    stop: Option<&AtomicBool>,
) -> Result<RunningCluster, Failure> {
    let begin = Instant::now();
    loop {
        if let Some(stop) = stop {
            interrupt::check(stop, "interrupted while starting")?;
        }
        // The record may be that of a supervisor that another process started at the same time.
        if let Some(cluster) = state.running()?
            && cluster.ready
            && cluster.supervisor.pid == supervisor.id()
        {
            return Ok(cluster);
        }
        let exited = supervisor
            .try_wait()
            .map_err(|e| unexpected("wait for the supervisor", e))?;
        if exited.is_some() || begin.elapsed() > UP_TIMEOUT * 2 {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let see = format!("see {}", state.log_file(SUPERVISOR).display());
    Err(match state.start_failure(SUPERVISOR) {
        Some(failure) => {
            let hint = failure.hint.clone().unwrap_or(see);
            failure.hint(hint)
        }
        None => {
            let message = "the supervisor exited before the cluster was ready";
            Failure::new(Exit::Unexpected, message).hint(see)
        }
    })
}

fn unexpected(what: &str, error: std::io::Error) -> Failure {
    Failure::new(Exit::Unexpected, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::application::Durability;

    #[test]
    fn a_port_in_use_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let failure = free_port(port).unwrap_err();
        assert_eq!(failure.exit, Exit::Conflict);
        assert_eq!(
            failure.message,
            format!("port {port} of 127.0.0.1 is in use")
        );
        assert!(failure.hint.unwrap().contains("--port"));
        assert!(PORTS_CHOSEN.contains(&free_port(0).unwrap()));
    }

    #[test]
    fn a_cluster_keeps_its_topology() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let prepare = |wanted| {
            let mut start = Start::prepare(&state, wanted, 0)?;
            start.is_done = true;
            Ok::<(), Failure>(())
        };
        prepare(Some("1x-type1")).unwrap();
        prepare(None).unwrap();
        prepare(Some("1x-type1")).unwrap();
        let failure = prepare(Some("3x-type1")).unwrap_err();
        assert_eq!(failure.exit, Exit::Conflict);
        assert!(
            failure.message.contains("\"1x-type1\""),
            "{}",
            failure.message
        );
    }

    #[test]
    fn a_start_that_fails_leaves_nothing_new() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(&dir.path().join("a/b"));
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(Start::prepare(&state, None, port).is_err());
        assert!(!dir.path().join("a").exists());
        let start = Start::prepare(&state, None, 0).unwrap();
        // Its controller was killed while it made the key.
        std::fs::write(state.root().join("secret-key.new"), "").unwrap();
        drop(start);
        assert!(!dir.path().join("a").exists());
        // What was there stays, and so does what others use.
        std::fs::create_dir_all(state.root().join("mine")).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(state.root(), private).unwrap();
        drop(Start::prepare(&state, None, 0).unwrap());
        let left: Vec<_> = std::fs::read_dir(state.root()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        let start = Start::prepare(&state, None, 0).unwrap();
        let lock = state.lock().unwrap();
        drop(start);
        assert!(state.topology_file().exists());
        assert!(Start::prepare(&state, None, 0).is_err());
        drop(lock);
    }

    #[test]
    fn a_start_that_fails_restores_what_was_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let choose = |durability, key: &str| {
            state.set_durability(durability).unwrap();
            state.set_secret_key_file(&dir.path().join(key)).unwrap();
        };
        let mut first = Start::prepare(&state, None, 0).unwrap();
        choose(Durability::Memory, "first");
        first.is_done = true;
        drop(first);

        let fails = Start::prepare(&state, None, 0).unwrap();
        choose(Durability::Disk, "second");
        drop(fails);
        assert_eq!(state.durability(), Durability::Memory);
        assert!(state.secret_key_file().unwrap().ends_with("first"));
    }

    #[test]
    fn a_start_that_loses_leaves_the_cluster_of_another_alone() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let start = Start::prepare(&state, None, 0).unwrap();
        // The other one was faster.
        let lock = state.lock().unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let other = Process::of(child.id()).unwrap();
        let cluster = RunningCluster {
            supervisor: other,
            port: 1,
            topology: "1x-type1".into(),
            nodes: Vec::new(),
            ready: true,
            not_started: Vec::new(),
            no_restart: false,
        };
        state.write_cluster(&cluster).unwrap();
        drop(start);
        assert!(other.alive());
        assert_eq!(state.running().unwrap(), Some(cluster));
        drop(lock);
        // What it has started itself ends with it.
        let mut start = Start::prepare(&state, None, 0).unwrap();
        start.supervisor = Some(other);
        drop(start);
        assert!(!other.alive());
        assert_eq!(state.recorded().unwrap(), None);
        child.wait().unwrap();
    }
}
