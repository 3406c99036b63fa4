//! Starts the controller and the nodes, each as a process of its own, and keeps them running.
//!
//! A process that ended is restarted. When the supervisor ends, so do they: each asks the system
//! to be killed with its parent (Linux, PR_SET_PDEATHSIG), so that not even `kill -9` of the
//! supervisor leaves any behind. When the state directory is removed or replaced, nobody could
//! control the cluster any more, so the supervisor stops it.

use crate::cluster::client::Client;
use crate::cluster::credentials;
use crate::cluster::process::Process;
use crate::cluster::state_dir::{Lock, RunningCluster, SUPERVISOR, StateDir};
use crate::limits::{
    DOWN_GRACE, LOCK_CHECK_INTERVAL, LOG_LEN_MAX, POLL_INTERVAL, RESTART_PAUSE_MAX, RESTART_QUICK,
    STATUS_INTERVAL, UP_TIMEOUT,
};
use crate::ui::failure::{Exit, Failure};
use crate::ui::text::plural;
use clap::Args;
use e3_model::api::NodeView;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// `e3 supervise`.
#[derive(Args, Debug, Clone)]
pub struct Supervise {
    /// Port of the controller.
    #[arg(long)]
    pub port: u16,
    /// Do not restart processes that end.
    #[arg(long)]
    pub no_restart: bool,
    /// State directory.
    #[arg(long)]
    pub state: PathBuf,
    /// Process to end with.
    #[arg(long)]
    pub parent: Option<u32>,
}

/// A process that is kept running.
struct Kept {
    name: String,
    words: Vec<String>,
    child: Option<Child>,
    started: Instant,
    /// Length of its log when it started.
    log_from: u64,
    /// When it is started again, if it is dead.
    again: Option<Instant>,
    pause: Duration,
}

/// Runs a cluster on this machine.
pub struct Supervisor {
    state: StateDir,
    lock: Lock,
    cluster: RunningCluster,
    kept: Vec<Kept>,
    program: PathBuf,
    restart: bool,
    signals: Receiver<i32>,
    client: Client,
}

impl Supervisor {
    /// Takes the state directory and starts everything; returns when every node takes part.
    pub fn start(state: &StateDir, port: u16, restart: bool) -> Result<Supervisor, Failure> {
        let system =
            |what: &str, e: std::io::Error| Failure::new(Exit::Unexpected, format!("{what}: {e}"));
        state.create()?;
        let lock = state.lock()?;
        end_left_overs(state);
        state.clear_run()?;
        credentials::provide(state)?;
        let topology = state.stored_topology()?;
        let (sender, signals) = channel();
        let mut caught = Signals::new([SIGCHLD, SIGTERM, SIGINT, SIGHUP])
            .map_err(|e| system("signal handler", e))?;
        std::thread::spawn(move || {
            for signal in caught.forever() {
                if sender.send(signal).is_err() {
                    break;
                }
            }
        });
        let nodes: Vec<String> = topology.nodes().map(|n| n.node.name.clone()).collect();
        let cluster = RunningCluster {
            supervisor: Process::this()
                .ok_or_else(|| Failure::new(Exit::Unexpected, "/proc is not mounted"))?,
            port,
            topology: topology.name.clone(),
            nodes: nodes.clone(),
            ready: false,
        };
        let mut supervisor = Supervisor {
            state: state.clone(),
            lock,
            client: Client::of(state, &cluster)?.patience(STATUS_INTERVAL),
            cluster,
            kept: Vec::new(),
            program: std::env::current_exe().map_err(|e| system("find this program", e))?,
            restart,
            signals,
        };
        supervisor.state.write_cluster(&supervisor.cluster)?;
        let started = supervisor.start_all(nodes);
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

    /// Keeps the processes running until a signal asks to stop, then stops them. `tick` is called
    /// about once a second.
    pub fn run(mut self, mut tick: impl FnMut(&Client)) -> Result<(), Failure> {
        let mut next = Instant::now();
        let stopped = loop {
            if let Err(gone) = self.lock.check() {
                break Err(gone);
            }
            if Instant::now() >= next {
                tick(&self.client);
                next = Instant::now() + STATUS_INTERVAL;
            }
            let again = self.kept.iter().filter_map(|k| k.again);
            let until = again.fold(next, Instant::min);
            let wait = until.saturating_duration_since(Instant::now());
            match self.signals.recv_timeout(wait.min(LOCK_CHECK_INTERVAL)) {
                Ok(SIGTERM | SIGINT | SIGHUP) => break Ok(()),
                _ => self.look_after(),
            }
        };
        match &stopped {
            Ok(()) => tracing::info!("stopping"),
            Err(gone) => tracing::error!("{gone}; stopping the cluster"),
        }
        self.stop();
        stopped
    }

    fn start_all(&mut self, nodes: Vec<String>) -> Result<(), Failure> {
        let deadline = Instant::now() + UP_TIMEOUT;
        let state = self.state.root().display().to_string();
        let parent = std::process::id().to_string();
        let words = |command: &str, more: &[&str]| {
            let mut words = vec![command, "--state", &state, "--parent", &parent];
            words.extend(more);
            words.into_iter().map(str::to_string).collect::<Vec<_>>()
        };
        let port = self.cluster.port.to_string();
        let token = self.state.token_file().display().to_string();
        let node_token = self.state.node_token_file().display().to_string();
        let more = [
            ["--port", &port],
            ["--token-file", &token],
            ["--node-token-file", &node_token],
        ];
        self.spawn("controller", words("controller-run", &more.concat()))?;
        while TcpStream::connect(("127.0.0.1", self.cluster.port)).is_err() {
            self.pause_at_start(deadline, Duration::from_millis(10))?;
        }
        // What the controller remembers of a former run: those processes are gone.
        let before = loop {
            match self.client.nodes() {
                Ok(all) => break all,
                Err(_) => self.pause_at_start(deadline, POLL_INTERVAL)?,
            }
        };
        let url = self.cluster.url();
        for name in nodes {
            let more = [
                ["--name", &name],
                ["--url", &url],
                ["--node-token-file", &node_token],
                ["--api-token-file", &token],
            ];
            self.spawn(&name, words("node-run", &more.concat()))?;
        }
        let new = |n: &NodeView| {
            let old = before.iter().find(|b| b.name == n.name);
            n.up && old.is_none_or(|b| n.incarnation > b.incarnation)
        };
        while !self.client.nodes().is_ok_and(|all| all.iter().all(new)) {
            self.pause_at_start(deadline, POLL_INTERVAL / 2)?;
        }
        self.cluster.ready = true;
        self.state.write_cluster(&self.cluster)
    }

    /// Waits a little; fails if a process has ended, a signal came or the time is up.
    fn pause_at_start(&mut self, deadline: Instant, pause: Duration) -> Result<(), Failure> {
        if let Ok(SIGTERM | SIGINT | SIGHUP) = self.signals.recv_timeout(pause) {
            return Err(Failure::new(Exit::Unexpected, "interrupted while starting"));
        }
        self.lock.check()?;
        for kept in &mut self.kept {
            let Some(child) = &mut kept.child else {
                continue;
            };
            if let Ok(Some(status)) = child.try_wait() {
                return Err(start_failure(&self.state, kept, status));
            }
        }
        if Instant::now() < deadline {
            return Ok(());
        }
        let down = match self.client.nodes() {
            Ok(all) => {
                let down: Vec<String> = all.into_iter().filter(|n| !n.up).map(|n| n.name).collect();
                down.join(", ")
            }
            Err(e) => e.message,
        };
        let seconds = UP_TIMEOUT.as_secs();
        let message = format!("the cluster is not ready after {seconds} s; missing: {down}");
        Err(Failure::new(Exit::Timeout, message).hint("see: e3 logs"))
    }

    fn spawn(&mut self, name: &str, words: Vec<String>) -> Result<(), Failure> {
        let mut kept = Kept {
            name: name.to_string(),
            words,
            child: None,
            started: Instant::now(),
            log_from: 0,
            again: None,
            pause: Duration::ZERO,
        };
        launch(&mut kept, &self.program, &self.state)?;
        self.kept.push(kept);
        Ok(())
    }

    /// Finds processes that ended, and restarts them when it is time.
    fn look_after(&mut self) {
        for kept in &mut self.kept {
            if let Some(child) = &mut kept.child
                && let Ok(Some(status)) = child.try_wait()
            {
                kept.child = None;
                let quick = kept.started.elapsed() < RESTART_QUICK;
                kept.pause = match quick {
                    true => (kept.pause * 2).clamp(RESTART_QUICK / 4, RESTART_PAUSE_MAX),
                    false => Duration::ZERO,
                };
                let what = if self.restart {
                    kept.again = Some(Instant::now() + kept.pause);
                    "restarting it"
                } else {
                    "not restarted (--no-restart)"
                };
                tracing::warn!("{} ended ({}): {what}", kept.name, ending(status));
            }
            if kept.again.is_some_and(|at| at <= Instant::now()) {
                kept.again = None;
                if let Err(failure) = launch(kept, &self.program, &self.state) {
                    tracing::error!("{}: {}", kept.name, failure.message);
                    kept.again = Some(Instant::now() + RESTART_PAUSE_MAX);
                }
            }
        }
    }

    /// Ends all processes: SIGTERM first, SIGKILL after a while.
    fn stop(&mut self) {
        let running = |k: &Kept| k.child.as_ref().and_then(|c| Process::of(c.id()));
        let all: Vec<Process> = self.kept.iter().filter_map(running).collect();
        for process in &all {
            process.terminate();
        }
        let deadline = Instant::now() + DOWN_GRACE;
        for process in &all {
            if !process.wait(deadline.saturating_duration_since(Instant::now())) {
                process.kill();
            }
        }
        for kept in &mut self.kept {
            if let Some(mut child) = kept.child.take() {
                let _ = child.wait();
            }
        }
        // A directory that was replaced belongs to another cluster.
        if self.lock.check().is_ok() {
            let _ = self.state.clear_run();
        }
    }
}

/// Ends processes of a former run whose supervisor is gone.
fn end_left_overs(state: &StateDir) {
    for (name, process) in state.processes_alive() {
        let pid = process.pid;
        tracing::warn!("ending {name} (process {pid}), which an earlier run left behind");
        process.kill();
        process.wait(DOWN_GRACE);
    }
}

fn launch(kept: &mut Kept, program: &Path, state: &StateDir) -> Result<(), Failure> {
    // A process that cannot log is better than none.
    let (out, errors, log_from) = match log_pair(&state.log_file(&kept.name)) {
        Ok(opened) => opened,
        Err(failure) => {
            tracing::error!("{} runs without a log: {}", kept.name, failure.message);
            (Stdio::null(), Stdio::null(), 0)
        }
    };
    let child = Command::new(program)
        .args(&kept.words)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors)
        // Ctrl-C is for the supervisor, which stops them in order.
        .process_group(0)
        .spawn()
        .map_err(|e| Failure::new(Exit::Unexpected, format!("start {}: {e}", kept.name)))?;
    let process = Process::of(child.id());
    kept.child = Some(child);
    kept.started = Instant::now();
    kept.log_from = log_from;
    // It runs, so it is kept, also if the disk is full.
    let written = process.map_or(Ok(()), |p| state.write_process(&kept.name, &p));
    if let Err(failure) = written {
        tracing::error!("{}: {}", kept.name, failure.message);
    }
    Ok(())
}

/// A log for standard output and standard error, and how long it is.
fn log_pair(path: &Path) -> Result<(Stdio, Stdio, u64), Failure> {
    let (log, length) = open_log(path)?;
    let errors = log
        .try_clone()
        .map_err(|e| Failure::file("open", path, &e))?;
    Ok((log.into(), errors.into(), length))
}

/// Opens a log to append to, and says how long it is. A long one is renamed first.
pub fn open_log(path: &Path) -> Result<(File, u64), Failure> {
    let failed = |e: std::io::Error| Failure::file("open", path, &e);
    if std::fs::metadata(path).is_ok_and(|m| m.len() > LOG_LEN_MAX) {
        std::fs::rename(path, path.with_extension("log.1")).map_err(failed)?;
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    Ok((file, length))
}

/// Why a process ended while the cluster was starting: what it wrote down, else its last line.
fn start_failure(state: &StateDir, kept: &Kept, status: ExitStatus) -> Failure {
    let name = &kept.name;
    if let Some(failure) = state.start_failure(name) {
        let message = format!("{name} did not start: {}", failure.message);
        return Failure { message, ..failure };
    }
    let mut words = Vec::new();
    let log = state.log_file(name);
    if let Ok(mut file) = File::open(&log) {
        let _ = file.seek(SeekFrom::Start(kept.log_from));
        let _ = file.take(LOG_LEN_MAX).read_to_end(&mut words);
    }
    let words = String::from_utf8_lossy(&words);
    let last = words.lines().last().unwrap_or("its log is empty");
    let message = format!("{name} did not start ({}): {last}", ending(status));
    Failure::new(Exit::Unexpected, message).hint(format!("see {}", log.display()))
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        _ => "unknown".into(),
    }
}

/// `e3 supervise`: the background half of `e3 up --detach`.
pub fn run_detached(args: &Supervise) -> Result<(), Failure> {
    let state = StateDir::new(&args.state);
    match args.parent {
        Some(parent) => tie_to_parent(parent)?,
        // A session of its own: closing the terminal does not end it.
        None => drop(rustix::process::setsid()),
    }
    let supervisor = Supervisor::start(&state, args.port, !args.no_restart).inspect_err(|f| {
        // Without it whoever waits only learns that this process ended.
        let _ = state.write_start_failure(SUPERVISOR, f);
    })?;
    let nodes = plural(supervisor.cluster().nodes.len(), "node");
    tracing::info!("{} with {nodes}", supervisor.cluster().url());
    supervisor.run(|_| {})
}

/// Ends this process when its parent ends.
pub fn tie_to_parent(parent: u32) -> Result<(), Failure> {
    let failed = |e| Failure::new(Exit::Unexpected, format!("tie to the parent process: {e}"));
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
