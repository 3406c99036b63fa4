//! Starts the controller and the nodes, each as a process of its own, and keeps them running.
//!
//! A process that exits is restarted. The controller says which nodes there are: the supervisor starts the
//! processes of nodes that are added and stops those of nodes that are removed. When the supervisor exits,
//! so do its processes: each asks the system to be killed with its parent (Linux, PR_SET_PDEATHSIG), so that
//! not even `kill -9` of the supervisor leaves one behind. When the state directory is removed or replaced,
//! the cluster can no longer be controlled, so the supervisor stops it.

mod starting;

use crate::cluster::client::Client;
use crate::cluster::credentials;
use crate::cluster::managed::{Managed, ending};
use crate::cluster::process::{Process, raise_open_files};
use crate::cluster::state_dir::{
    Choices, Lock, RunningCluster, SUPERVISOR, StateDir, parse_durability,
};
use crate::cluster::watch::{Event, report_exit, watch_nodes};
use crate::limits::{
    DOWN_GRACE, LOCK_CHECK_INTERVAL, RESTART_BACKOFF_MAX, RESTART_QUICK, RESTART_SETTLED,
    STATUS_INTERVAL,
};
use crate::ui::failure::{Exit, Failure};
use crate::ui::interrupt;
use crate::ui::text::plural;
use clap::Args;
use e3_model::application::Durability;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// `e3 supervise`.
#[derive(Args, Debug, Clone)]
pub struct Supervise {
    /// Port of the controller.
    #[arg(long)]
    pub port: u16,
    /// Do not restart processes that exit.
    #[arg(long)]
    pub no_restart: bool,
    /// State directory.
    #[arg(long)]
    pub state: PathBuf,
    /// Where stateful services keep their state if their manifests do not say.
    #[arg(long, value_parser = parse_durability)]
    pub durability: Option<Durability>,
    /// File of the key that secrets are encrypted under.
    #[arg(long)]
    pub secret_key_file: Option<PathBuf>,
    /// Process whose end is to end this one.
    #[arg(long)]
    pub parent: Option<u32>,
}

/// The controller's process.
const CONTROLLER: &str = "controller";

/// Runs a cluster on this machine.
pub struct Supervisor {
    state: StateDir,
    lock: Lock,
    cluster: RunningCluster,
    processes: Vec<Managed>,
    /// Processes of nodes that were removed, each with the time at which it is killed.
    removed: Vec<(Child, Instant)>,
    program: PathBuf,
    events: Receiver<Event>,
    events_in: Sender<Event>,
    client: Client,
}

impl Supervisor {
    /// Locks the state directory and starts all processes; returns when every node is up. In a cluster that
    /// has run before, a node that does not start keeps nobody from using the others.
    pub fn start(
        state: &StateDir,
        port: u16,
        no_restart: bool,
        choices: &Choices,
    ) -> Result<Supervisor, Failure> {
        let system =
            |what: &str, e: std::io::Error| Failure::new(Exit::Unexpected, format!("{what}: {e}"));
        raise_open_files();
        state.create()?;
        let lock = state.lock()?;
        kill_leftovers(state);
        state.clear_run()?;
        state.choose(choices)?;
        credentials::provide(state)?;
        let topology = state.stored_topology()?;
        let (events_in, events) = channel();
        let sender = events_in.clone();
        let mut caught = Signals::new(interrupt::signals().chain([SIGCHLD]))
            .map_err(|e| system("signal handler", e))?;
        let listen = move || {
            for signal in caught.forever() {
                if sender.send(Event::Signal(signal)).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("e3-signals".into());
        thread
            .spawn(listen)
            .map_err(|e| system("start the thread e3-signals", e))?;
        let nodes: Vec<String> = topology.nodes().map(|n| n.node.name.clone()).collect();
        let cluster = RunningCluster {
            supervisor: Process::this()
                .ok_or_else(|| Failure::new(Exit::Unexpected, "/proc is not mounted"))?,
            port,
            topology: topology.name.clone(),
            nodes,
            ready: false,
            not_started: Vec::new(),
            no_restart,
        };
        let mut supervisor = Supervisor {
            state: state.clone(),
            lock,
            client: Client::of(state, &cluster)?.with_timeout(STATUS_INTERVAL),
            cluster,
            processes: Vec::new(),
            removed: Vec::new(),
            program: std::env::current_exe().map_err(|e| system("find this program", e))?,
            events,
            events_in,
        };
        supervisor.state.write_cluster(&supervisor.cluster)?;
        let started = supervisor.start_all();
        if let Err(failure) = started {
            supervisor.stop();
            return Err(failure);
        }
        Ok(supervisor)
    }

    /// The cluster.
    pub fn cluster(&self) -> &RunningCluster {
        &self.cluster
    }

    /// Keeps the processes running until a signal requests a stop, then stops them. Calls `tick` about
    /// once a second.
    pub fn run(mut self, mut tick: impl FnMut(&Client)) -> Result<(), Failure> {
        let known = self.cluster.nodes.clone();
        if let Err(failure) = watch_nodes(self.client.clone(), known, self.events_in.clone()) {
            self.stop();
            return Err(failure);
        }
        let mut next = Instant::now();
        let stopped = loop {
            if let Err(gone) = self.lock.check() {
                break Err(gone);
            }
            if Instant::now() >= next {
                tick(&self.client);
                for process in &mut self.processes {
                    process.shorten_log(&self.state);
                }
                next = Instant::now() + STATUS_INTERVAL;
            }
            let restarts = self.processes.iter().filter_map(|p| p.restart_at);
            let until = restarts.fold(next, Instant::min);
            let wait = until.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(wait.min(LOCK_CHECK_INTERVAL)) {
                Ok(Event::Signal(SIGTERM | SIGINT | SIGHUP)) => break Ok(()),
                Ok(Event::Nodes(names)) => self.follow(names),
                _ => {}
            }
            self.restart_exited();
            self.end_removed();
            for process in &mut self.processes {
                // If the disk is still full, the log says so already.
                let _ = process.record(&self.state);
            }
        };
        match &stopped {
            Ok(()) => tracing::info!("stopping"),
            Err(gone) => tracing::error!("{gone}; stopping the cluster"),
        }
        self.stop();
        stopped
    }

    /// The arguments of a process. Paths need not be UTF-8.
    fn arguments(&self, command: &str, more: &[(&str, &OsStr)]) -> Vec<OsString> {
        let mut all = vec![OsString::from(command)];
        let parent = std::process::id().to_string();
        let common = [
            ("--state", self.state.root().as_os_str()),
            ("--parent", parent.as_ref()),
        ];
        for (name, value) in common.iter().chain(more) {
            all.extend([OsString::from(name), OsString::from(value)]);
        }
        all
    }

    fn start_node(&mut self, name: &str) -> Result<(), Failure> {
        let url = self.cluster.url();
        let (token, node_token) = (self.state.token_file(), self.state.node_token_file());
        let more = [
            ("--name", name.as_ref()),
            ("--url", url.as_ref()),
            ("--node-token-file", node_token.as_ref()),
            ("--api-token-file", token.as_ref()),
        ];
        self.spawn(name, self.arguments("node-run", &more))
    }

    fn spawn(&mut self, name: &str, arguments: Vec<OsString>) -> Result<(), Failure> {
        let mut process = Managed::new(name, arguments);
        let launched = process.launch(&self.program, &self.state);
        if launched.is_err() {
            // It is tried again, like a restart that fails.
            process.restart_at = Some(Instant::now() + RESTART_BACKOFF_MAX);
        }
        self.processes.push(process);
        launched
    }

    /// Starts the processes of nodes that are new, and stops those of nodes that are gone.
    fn follow(&mut self, names: Vec<String>) {
        let (kept, gone): (Vec<Managed>, Vec<Managed>) = std::mem::take(&mut self.processes)
            .into_iter()
            .partition(|p| p.name == CONTROLLER || names.contains(&p.name));
        self.processes = kept;
        for process in gone {
            tracing::info!("{} was removed from the cluster: stopping it", process.name);
            if let Some(child) = process.child {
                if let Some(running) = Process::of(child.id()) {
                    running.terminate();
                }
                self.removed.push((child, Instant::now() + DOWN_GRACE));
            }
        }
        for name in &names {
            if self.processes.iter().all(|p| p.name != *name) {
                tracing::info!("{name} was added to the cluster: starting it");
                if let Err(failure) = self.start_node(name) {
                    tracing::error!("{name}: {}", failure.message);
                }
            }
        }
        self.cluster.nodes = names;
        if let Err(failure) = self.state.write_cluster(&self.cluster) {
            tracing::error!("{}", failure.message);
        }
    }

    /// Kills the processes of removed nodes that do not end by themselves.
    fn end_removed(&mut self) {
        self.removed.retain_mut(|(child, deadline)| {
            if *deadline <= Instant::now() {
                let _ = child.kill();
            }
            matches!(child.try_wait(), Ok(None))
        });
    }

    /// Restarts processes that have exited, when their backoff is over.
    fn restart_exited(&mut self) {
        for exited in self.reap() {
            self.restart_later(&exited);
        }
        self.restart_due();
    }

    /// The processes that have exited since the last call.
    fn reap(&mut self) -> Vec<Exited> {
        let mut all = Vec::new();
        for process in &mut self.processes {
            if let Some(child) = &mut process.child
                && let Ok(Some(status)) = child.try_wait()
            {
                let (name, pid) = (process.name.clone(), child.id());
                process.child = None;
                all.push(Exited { name, pid, status });
            }
        }
        all
    }

    fn restart_later(&mut self, exited: &Exited) {
        let mut all = self.processes.iter_mut();
        let Some(process) = all.find(|p| p.name == exited.name) else {
            return;
        };
        if process.name != CONTROLLER {
            report_exit(self.client.clone(), process.name.clone(), exited.pid);
        }
        let lived = process.started.elapsed();
        process.backoff = backoff(process.backoff, lived, was_ended(exited.status));
        let what = if !self.cluster.no_restart {
            process.restart_at = Some(Instant::now() + process.backoff);
            "restarting it"
        } else {
            "not restarted (--no-restart)"
        };
        let how = ending(exited.status);
        tracing::warn!("{} exited ({how}): {what}", process.name);
    }

    fn restart_due(&mut self) {
        for process in &mut self.processes {
            if process.restart_at.is_some_and(|at| at <= Instant::now()) {
                process.restart_at = None;
                if let Err(failure) = process.launch(&self.program, &self.state) {
                    tracing::error!("{}: {}", process.name, failure.message);
                    process.restart_at = Some(Instant::now() + RESTART_BACKOFF_MAX);
                }
            }
        }
    }

    /// Stops all processes: SIGTERM first, SIGKILL after a while.
    fn stop(&mut self) {
        let children = self.processes.iter().filter_map(|p| p.child.as_ref());
        let children = children.chain(self.removed.iter().map(|(child, _)| child));
        let all: Vec<Process> = children.filter_map(|c| Process::of(c.id())).collect();
        for process in &all {
            process.terminate();
        }
        let deadline = Instant::now() + DOWN_GRACE;
        for process in &all {
            if !process.wait(deadline.saturating_duration_since(Instant::now())) {
                process.kill();
            }
        }
        let children = self.processes.iter_mut().filter_map(|p| p.child.take());
        for mut child in children.chain(self.removed.drain(..).map(|(child, _)| child)) {
            let _ = child.wait();
        }
        // If the directory was replaced, the new one belongs to another cluster.
        if self.lock.check().is_ok() {
            let _ = self.state.clear_run();
        }
    }
}

/// Whether others ended a process: it exits with 0 when it is asked to, and with an error if it cannot start.
fn was_ended(status: ExitStatus) -> bool {
    status.success() || matches!(status.signal(), Some(SIGKILL | SIGTERM | SIGINT))
}

/// How long to wait before a restart, after this wait before the last one. A process that fails again and again
/// runs half of the time at most.
fn backoff(before: Duration, lived: Duration, was_ended: bool) -> Duration {
    let settled = if was_ended {
        RESTART_QUICK
    } else {
        RESTART_SETTLED
    };
    if lived >= settled {
        return Duration::ZERO;
    }
    (before * 2).clamp(RESTART_QUICK / 4, lived.max(RESTART_BACKOFF_MAX))
}

/// A process that has exited.
struct Exited {
    name: String,
    pid: u32,
    status: ExitStatus,
}

/// Kills processes of an earlier run whose supervisor is gone.
fn kill_leftovers(state: &StateDir) {
    for (name, process) in state.processes_alive() {
        let pid = process.pid;
        tracing::warn!("killing {name} (process {pid}), left over from an earlier run");
        process.kill();
        process.wait(DOWN_GRACE);
    }
}

/// `e3 supervise`: the background half of `e3 up --detach`.
pub fn run_detached(args: &Supervise) -> Result<(), Failure> {
    let state = StateDir::new(&args.state);
    match args.parent {
        Some(parent) => end_with_parent(parent)?,
        // A new session, so that closing the terminal does not end it.
        None => drop(rustix::process::setsid()),
    }
    let choices = Choices {
        durability: args.durability,
        secret_key_file: args.secret_key_file.clone(),
    };
    let supervisor = Supervisor::start(&state, args.port, args.no_restart, &choices);
    let supervisor = supervisor.inspect_err(|f| {
        // For the process that waits for the start.
        let _ = state.write_start_failure(SUPERVISOR, f);
    })?;
    let nodes = plural(supervisor.cluster().nodes.len(), "node");
    tracing::info!("{} with {nodes}", supervisor.cluster().url());
    supervisor.run(|_| {})
}

/// Ends this process when its parent ends.
pub fn end_with_parent(parent: u32) -> Result<(), Failure> {
    let failed = |e| {
        Failure::new(
            Exit::Unexpected,
            format!("request a signal at the end of the parent process: {e}"),
        )
    };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(failed)?;
    // The parent may have ended before the request took effect.
    let now = rustix::process::getppid().map(|p| p.as_raw_nonzero().get().cast_unsigned());
    match now {
        Some(now) if now == parent => Ok(()),
        _ => Err(Failure::new(
            Exit::Unexpected,
            format!("the parent process {parent} is gone"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_fails_again_and_again_runs_half_of_the_time_at_most() {
        let s = Duration::from_secs;
        let mut waits = Vec::new();
        let mut fails = |lived: Duration, was_ended: bool| {
            let before = waits.last().copied().unwrap_or_default();
            waits.push(backoff(before, lived, was_ended));
        };
        (0..8).for_each(|_| fails(s(40), false));
        (0..3).for_each(|_| fails(s(1), true));
        fails(s(3), true);
        fails(s(1), false);
        fails(s(61), false);
        let seconds: Vec<f64> = waits.iter().map(Duration::as_secs_f64).collect();
        let wanted = [
            0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 40.0, 5.0, 5.0, 5.0, 0.0, 0.5, 0.0,
        ];
        assert_eq!(seconds, wanted);
    }

    #[test]
    fn the_first_start_of_an_added_node_is_tried_again() {
        let tmp = tempfile::tempdir().unwrap();
        let state = StateDir::new(tmp.path());
        state.create().unwrap();
        credentials::provide(&state).unwrap();
        let cluster = RunningCluster {
            supervisor: Process::this().unwrap(),
            port: 1,
            topology: "1x-type1".into(),
            nodes: Vec::new(),
            ready: true,
            not_started: Vec::new(),
            no_restart: false,
        };
        let (events_in, events) = channel();
        let mut supervisor = Supervisor {
            lock: state.lock().unwrap(),
            client: Client::of(&state, &cluster).unwrap(),
            cluster,
            processes: Vec::new(),
            removed: Vec::new(),
            program: tmp.path().join("missing"),
            events,
            events_in,
            state,
        };
        let names = vec!["s1-host".to_string()];
        supervisor.follow(names.clone());
        let [node] = &mut supervisor.processes[..] else {
            panic!("{} processes", supervisor.processes.len());
        };
        assert!(node.child.is_none() && node.restart_at.is_some());
        // The time has come, and now it can be started.
        node.restart_at = Some(Instant::now());
        supervisor.program = "/bin/true".into();
        supervisor.follow(names);
        supervisor.restart_exited();
        assert!(supervisor.processes[0].child.is_some());
        supervisor.stop();
    }
}
