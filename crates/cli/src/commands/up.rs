//! `e3 up`.

use crate::cluster::client::Client;
use crate::cluster::start::{Lifetime, Start};
use crate::cluster::state_dir::{Choices, RunningCluster, StateDir, parse_durability};
use crate::limits::STATUS_INTERVAL;
use crate::settings::Settings;
use crate::ui::failure::Failure;
use crate::ui::text::{plural, rate};
use crate::ui::{interrupt, output};
use clap::Args;
use e3_model::api::AppView;
use e3_model::application::Durability;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

/// `e3 up`.
#[derive(Args, Debug, Clone, Default)]
pub struct Up {
    /// Topology: a file or a built-in one [default: 3x-type1]
    #[arg(long, env = "E3_TOPOLOGY", value_name = "FILE|NAME")]
    pub topology: Option<String>,
    /// Run in the background and return when the cluster is ready
    #[arg(short, long)]
    pub detach: bool,
    /// Port of the controller on 127.0.0.1; 0 chooses a free one [default: 7300]
    #[arg(long, env = "E3_PORT", value_name = "PORT")]
    pub port: Option<u16>,
    /// Where stateful services keep their state if their manifests do not say: "disk" survives the
    /// end of all processes [default: disk, or as before]
    #[arg(long, value_name = "disk|memory", value_parser = parse_durability)]
    pub durability: Option<Durability>,
    /// File of the key that secrets are encrypted under [default: secret-key in the state directory, or
    /// as before]
    #[arg(long, env = "E3_SECRET_KEY_FILE", value_name = "FILE")]
    pub secret_key_file: Option<PathBuf>,
    /// Do not restart processes that exit
    #[arg(long)]
    pub no_restart: bool,
}

/// `e3 up`.
pub fn run(args: &Up, settings: &Settings) -> Result<(), Failure> {
    let state = StateDir::new(&settings.dir);
    let topology = args
        .topology
        .clone()
        .or_else(|| settings.file.topology.clone());
    let start = Start::prepare(&state, topology.as_deref(), settings.port(args.port)?)?;
    let start = start.choose(Choices {
        durability: args.durability,
        secret_key_file: args.secret_key_file.clone(),
    });
    let begin = Instant::now();
    if args.detach {
        let start = start.until(interrupt::flag()?);
        let cluster = start.in_background(args.no_restart, Lifetime::UntilStopped)?;
        output::print(&format!("{}\n", greeting(&cluster, begin)))?;
        report_not_started(&cluster);
        report_lost_state(Client::of(&state, &cluster));
        return Ok(());
    }
    let supervisor = start.in_foreground(args.no_restart)?;
    let cluster = supervisor.cluster();
    output::say(&format!("{}; Ctrl-C stops it", greeting(cluster, begin)));
    report_not_started(cluster);
    report_lost_state(Client::of(&state, cluster));
    let mut status = StatusLine::new();
    supervisor.run(|client| status.update(client))
}

/// Says which nodes are not up, and why.
fn report_not_started(cluster: &RunningCluster) {
    for why in &cluster.not_started {
        output::say(why);
    }
}

/// Names the applications that lost their state when the cluster was stopped.
fn report_lost_state(client: Result<Client, Failure>) {
    let apps = client.and_then(|c| c.with_timeout(STATUS_INTERVAL * 2).apps());
    let names = in_memory(&apps.unwrap_or_default());
    if !names.is_empty() {
        let names = names.join(", ");
        output::say(&format!(
            "state was lost when the cluster was stopped; these applications start empty: {names}"
        ));
    }
}

/// Names of the applications that keep state in memory only.
pub fn in_memory(apps: &[AppView]) -> Vec<String> {
    let keeps = |a: &&AppView| a.services.iter().any(|s| s.stateful && !s.on_disk);
    apps.iter().filter(keeps).map(|a| a.name.clone()).collect()
}

fn greeting(cluster: &RunningCluster, begin: Instant) -> String {
    let nodes = plural(cluster.nodes.len(), "node");
    let seconds = begin.elapsed().as_secs_f64();
    let (name, url) = (&cluster.topology, cluster.url());
    format!("{name} is up: {nodes}, controller {url}, ready after {seconds:.1} s")
}

/// A status line: overwritten on a terminal, elsewhere a new line for each change.
struct StatusLine {
    is_terminal: bool,
    last: String,
    requests: Option<(Instant, u64)>,
}

impl StatusLine {
    fn new() -> StatusLine {
        StatusLine {
            is_terminal: std::io::stderr().is_terminal(),
            last: String::new(),
            requests: None,
        }
    }

    fn update(&mut self, client: &Client) {
        let line = match (client.nodes(), client.cluster()) {
            (Ok(nodes), Ok(cluster)) => {
                let up = nodes.iter().filter(|n| n.up).count();
                let apps = if cluster.apps.is_empty() {
                    "no applications".to_string()
                } else {
                    cluster.apps.join(", ")
                };
                let total = nodes.iter().map(|n| n.admitted).sum();
                let rate = self.rate(total);
                let rate = if self.is_terminal {
                    rate
                } else {
                    String::new()
                };
                format!("{up} of {} nodes up, {apps}{rate}", nodes.len())
            }
            (Err(e), _) | (_, Err(e)) => format!("controller does not respond: {}", e.message),
        };
        if self.is_terminal {
            // If the terminal is gone, the cluster still goes on.
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        } else if line != self.last {
            output::say(&line);
        }
        self.last = line;
    }

    /// The rate of requests since the last call.
    fn rate(&mut self, total: u64) -> String {
        let now = Instant::now();
        let before = self.requests.replace((now, total));
        match before {
            Some((at, then)) if now > at => {
                let per_second = total.saturating_sub(then) as f64 / (now - at).as_secs_f64();
                format!(", {} requests/s", rate(per_second))
            }
            _ => String::new(),
        }
    }
}
