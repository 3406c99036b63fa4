//! `e3 up`, and the background start that other commands share.

use crate::args::Up;
use crate::builtin::{self, TOPOLOGY_DEFAULT};
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::limits::{POLL_INTERVAL, UP_TIMEOUT};
use crate::output;
use crate::settings::{Settings, read_text};
use crate::state_dir::{RunningCluster, StateDir};
use crate::supervisor::{Supervisor, open_log, stored_topology};
use crate::text::{plural, rate};
use e3_model::document::parse_topology;
use std::io::{IsTerminal, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

/// `e3 up`.
pub fn run(args: &Up, settings: &Settings) -> Result<(), Failure> {
    let state = StateDir::new(&settings.dir);
    let topology = args
        .topology
        .clone()
        .or_else(|| settings.file.topology.clone());
    prepare(&state, topology.as_deref())?;
    // Refused before anything is touched; the supervisor takes the lock again for good.
    drop(state.lock()?);
    let port = free_port(settings.port(args.port))?;
    let begin = Instant::now();
    if args.detach {
        let cluster = start_in_background(&state, port, args.no_restart, Tie::None)?;
        return output::print(&format!("{}\n", greeting(&cluster, begin)));
    }
    let supervisor = Supervisor::start(&state, port, !args.no_restart)?;
    eprintln!("{}; Ctrl-C stops it", greeting(supervisor.cluster(), begin));
    let status = std::cell::RefCell::new(StatusLine::new());
    supervisor.run(
        |line| status.borrow_mut().say(line),
        |client| status.borrow_mut().update(client),
    )
}

fn greeting(cluster: &RunningCluster, begin: Instant) -> String {
    let nodes = plural(cluster.nodes.len(), "node");
    let seconds = begin.elapsed().as_secs_f64();
    let (name, url) = (&cluster.topology, cluster.url());
    format!("{name} is up: {nodes}, controller {url}, ready after {seconds:.1} s")
}

/// Makes the state directory and keeps the topology in it. A cluster keeps the topology that it was
/// first started with, since its controller's decisions are about those nodes.
pub fn prepare(state: &StateDir, wanted: Option<&str>) -> Result<(), Failure> {
    let path = state.topology_file();
    if path.exists() {
        let stored = stored_topology(state)?;
        let Some(wanted) = wanted else { return Ok(()) };
        let (_, topology) = builtin::topology(wanted)?;
        if topology == stored {
            return Ok(());
        }
        let message = format!(
            "{} already holds a cluster of topology {:?}, not {:?}",
            state.root().display(),
            stored.name,
            topology.name
        );
        let hint = "use another --dir, or remove it with: e3 down --purge";
        return Err(Failure::new(Exit::Conflict, message).hint(hint));
    }
    let (text, _) = builtin::topology(wanted.unwrap_or(TOPOLOGY_DEFAULT))?;
    state.create()?;
    let half = path.with_extension("new");
    std::fs::write(&half, text.text)
        .and_then(|()| std::fs::rename(&half, &path))
        .map_err(|e| Failure::file("write", &path, &e))
}

/// The text of the topology of the cluster in a state directory, if it has one.
pub fn topology_of(state: &StateDir) -> Result<Option<e3_model::Topology>, Failure> {
    let path = state.topology_file();
    if !path.exists() {
        return Ok(None);
    }
    let name = path.display().to_string();
    Ok(Some(parse_topology(&name, &read_text(&path)?)?))
}

/// Checks that a port of 127.0.0.1 is free for TCP and UDP; 0 finds one.
pub fn free_port(wanted: u16) -> Result<u16, Failure> {
    // A port that is free for one may be taken for the other.
    for _ in 0..16 {
        let both = TcpListener::bind(("127.0.0.1", wanted)).and_then(|tcp| {
            let port = tcp.local_addr()?.port();
            UdpSocket::bind(("127.0.0.1", port))?;
            Ok(port)
        });
        match both {
            Ok(port) => return Ok(port),
            Err(_) if wanted == 0 => {}
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
                let message = format!("port {wanted} of 127.0.0.1 is in use");
                let hint = "choose another with --port PORT (0 takes a free one)";
                return Err(Failure::new(Exit::Conflict, message).hint(hint));
            }
            Err(e) => {
                let message = format!("port {wanted} of 127.0.0.1: {e}");
                return Err(Failure::new(Exit::Input, message).hint("choose with --port PORT"));
            }
        }
    }
    Err(Failure::new(
        Exit::Conflict,
        "no port of 127.0.0.1 is free for both TCP and UDP",
    ))
}

/// Whether a background cluster ends with this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tie {
    /// It goes on.
    None,
    /// It ends too.
    ToThisProcess,
}

/// Starts a cluster in the background and waits until it is ready.
pub fn start_in_background(
    state: &StateDir,
    port: u16,
    no_restart: bool,
    tie: Tie,
) -> Result<RunningCluster, Failure> {
    let unexpected =
        |what: &str, e: std::io::Error| Failure::new(Exit::Unexpected, format!("{what}: {e}"));
    state.clear_run()?;
    let program = std::env::current_exe().map_err(|e| unexpected("find this program", e))?;
    let (log, _) = open_log(&state.log_file("supervisor"))?;
    let errors = log
        .try_clone()
        .map_err(|e| unexpected("open the supervisor's log", e))?;
    let mut command = Command::new(program);
    command.arg("supervise").arg("--state").arg(state.root());
    command.args(["--port", &port.to_string()]);
    if no_restart {
        command.arg("--no-restart");
    }
    if tie == Tie::ToThisProcess {
        command
            .args(["--parent", &std::process::id().to_string()])
            .process_group(0);
    }
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    let mut child = command
        .spawn()
        .map_err(|e| unexpected("start the supervisor", e))?;
    let wheel = output::spinner("starting");
    let begin = Instant::now();
    loop {
        if let Some(cluster) = state.running()?
            && cluster.ready
        {
            wheel.finish_and_clear();
            return Ok(cluster);
        }
        let ended = child
            .try_wait()
            .map_err(|e| unexpected("wait for the supervisor", e))?;
        if ended.is_some() || begin.elapsed() > UP_TIMEOUT * 2 {
            wheel.finish_and_clear();
            let log = state.log_file("supervisor");
            let see = format!("see {}", log.display());
            return Err(match state.start_failure() {
                Some(f) => {
                    let failure = Failure::new(exit_of(f.exit), f.message);
                    failure.hint(f.hint.unwrap_or(see))
                }
                None => {
                    let message = "the supervisor ended before the cluster was ready";
                    Failure::new(Exit::Unexpected, message).hint(see)
                }
            });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn exit_of(code: u8) -> Exit {
    let all = [
        Exit::Input,
        Exit::NotFound,
        Exit::Conflict,
        Exit::Check,
        Exit::Unreachable,
        Exit::Timeout,
    ];
    let found = all.into_iter().find(|e| *e as u8 == code);
    found.unwrap_or(Exit::Unexpected)
}

/// One line that is written over on a terminal; elsewhere a new line for every change.
struct StatusLine {
    terminal: bool,
    last: String,
    requests: Option<(Instant, u64)>,
}

impl StatusLine {
    fn new() -> StatusLine {
        StatusLine {
            terminal: std::io::stderr().is_terminal(),
            last: String::new(),
            requests: None,
        }
    }

    fn say(&mut self, line: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{line}");
        self.last.clear();
    }

    fn update(&mut self, client: &Client) {
        let line = match (client.nodes(), client.cluster()) {
            (Ok(nodes), Ok(cluster)) => {
                let up = nodes.iter().filter(|n| n.up).count();
                let apps = match cluster.apps.is_empty() {
                    true => "no application".to_string(),
                    false => cluster.apps.join(", "),
                };
                let total = nodes.iter().map(|n| n.admitted).sum();
                let speed = self.speed(total);
                let speed = if self.terminal { speed } else { String::new() };
                format!("nodes {up}/{} up, {apps}{speed}", nodes.len())
            }
            (Err(e), _) | (_, Err(e)) => format!("controller does not answer: {}", e.message),
        };
        if self.terminal {
            eprint!("\r\x1b[K{line}");
            let _ = std::io::stderr().flush();
        } else if line != self.last {
            eprintln!("{line}");
        }
        self.last = line;
    }

    fn speed(&mut self, total: u64) -> String {
        let now = Instant::now();
        let before = self.requests.replace((now, total));
        match before {
            Some((at, then)) if now > at => {
                let speed = total.saturating_sub(then) as f64 / (now - at).as_secs_f64();
                format!(", {} requests/s", rate(speed))
            }
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_ne!(free_port(0).unwrap(), port);
    }

    #[test]
    fn a_cluster_keeps_its_topology() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        prepare(&state, Some("1x-type1")).unwrap();
        prepare(&state, None).unwrap();
        prepare(&state, Some("1x-type1")).unwrap();
        let failure = prepare(&state, Some("3x-type1")).unwrap_err();
        assert_eq!(failure.exit, Exit::Conflict);
        assert!(
            failure.message.contains("\"1x-type1\""),
            "{}",
            failure.message
        );
    }
}
