//! The command line.

use crate::bench::Bench;
use crate::call::Call;
use crate::hidden::{ControllerRun, NodeRun, Supervise};
use crate::kit::{Build, New};
use crate::output::{Format, When};
use crate::profile::Profile;
use crate::run::Run;
use crate::values::{duration, rate, speed};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Runs microservice applications as WebAssembly across host CPUs and SmartNICs.
#[derive(Parser, Debug)]
#[command(
    name = "e3",
    version,
    max_term_width = 100,
    after_help = "A first look: e3 demo\nExit codes: 0 ok, 1 unexpected, 2 bad input, 3 not found, 4 conflict, 5 check failed,\n            6 cluster not reachable, 7 timeout"
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Args, Debug, Default)]
pub struct Global {
    /// Directory of the cluster's state [default: ~/.local/state/e3/default]
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        env = "E3_DIR",
        value_name = "DIR"
    )]
    pub dir: Option<PathBuf>,
    /// Controller to talk to, such as http://127.0.0.1:7300 [default: that of the cluster in --dir]
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        env = "E3_CONTROLLER",
        value_name = "URL"
    )]
    pub controller: Option<String>,
    /// Configuration file [default: ~/.config/e3/config.yaml]
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        env = "E3_CONFIG",
        value_name = "FILE"
    )]
    pub config: Option<PathBuf>,
    /// Colours
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        env = "E3_COLOR",
        value_enum,
        default_value = "auto"
    )]
    pub color: When,
}

/// Commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start a cluster on this machine: a controller and a process for each node
    Up(Up),
    /// Stop the cluster of this machine
    Down(Down),
    /// Deploy an application
    Deploy(Deploy),
    /// Delete an application
    Delete(Delete),
    /// List nodes, applications, instances, channels or dead letters
    Get(Get),
    /// Show all about one node, application, service or instance
    Describe(Describe),
    /// Move an instance to another node
    Migrate(Migrate),
    /// Make a new service: project, manifest, SDK
    New(New),
    /// Build a service to WebAssembly
    Build(Build),
    /// Run one service alone: requests in, answers out, a line of JSON each
    Run(Run),
    /// Measure what a service costs on this machine, and write its profile
    Profile(Profile),
    /// Send single requests to an application and print their answers
    Call(Call),
    /// Handle dead letters once more
    Replay(Replay),
    /// Send requests to an application and prove what became of them
    Load(Load),
    /// Cluster, application, load and report in one command
    Demo(Demo),
    /// Measure this machine with E3
    Bench(Bench),
    /// Show what the processes log
    Logs(Logs),
    /// Try a placement without a cluster and explain each decision
    Place(Place),
    /// Tell what this machine has and lacks
    Doctor,
    /// Print the JSON schema of a kind of document
    Schema(Schema),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Start the processes and keep them running (used by `up --detach`)
    #[command(hide = true)]
    Supervise(Supervise),
    /// Be a controller (used by `up`)
    #[command(hide = true)]
    ControllerRun(ControllerRun),
    /// Be a node (used by `up`)
    #[command(hide = true)]
    NodeRun(NodeRun),
}

/// `-o`.
#[derive(Args, Debug, Clone, Copy, Default)]
pub struct Output {
    /// Form of the output [default: table]
    #[arg(short, long, env = "E3_OUTPUT", value_enum, value_name = "FORM")]
    pub output: Option<Format>,
}

/// `e3 up`.
#[derive(Args, Debug, Clone, Default)]
pub struct Up {
    /// Topology: a file, or one of the built-in ones [default: 3x-type1]
    #[arg(long, env = "E3_TOPOLOGY", value_name = "FILE|NAME")]
    pub topology: Option<String>,
    /// Return when the cluster is ready, and leave it running in the background
    #[arg(short, long)]
    pub detach: bool,
    /// Port of the controller on 127.0.0.1; 0 takes a free one [default: 7300]
    #[arg(long, env = "E3_PORT", value_name = "PORT")]
    pub port: Option<u16>,
    /// Leave a process that died dead
    #[arg(long)]
    pub no_restart: bool,
}

/// `e3 down`.
#[derive(Args, Debug, Clone, Default)]
pub struct Down {
    /// Also remove the cluster's state: applications, logs, compiled code
    #[arg(long)]
    pub purge: bool,
}

/// Where modules and profiles come from.
#[derive(Args, Debug, Clone, Default)]
pub struct Sources {
    /// Directory of the modules that are not found beside the manifest
    #[arg(long, env = "E3_SERVICES", value_name = "DIR")]
    pub services: Option<PathBuf>,
    /// Directory of profiles [default: the paper's, built in]
    #[arg(long, env = "E3_PROFILES", value_name = "DIR")]
    pub profiles: Option<PathBuf>,
}

/// `e3 deploy`.
#[derive(Args, Debug, Clone)]
pub struct Deploy {
    /// Manifest, or the built-in one `iot-ts`
    #[arg(value_name = "FILE|NAME")]
    pub file: String,
    /// Wait until every instance runs
    #[arg(long)]
    pub wait: bool,
    /// Longest wait
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub timeout: Duration,
    /// Only check manifest, modules and placement; deploy nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Topology for --dry-run [default: that of the cluster in --dir, else 3x-type1]
    #[arg(long, env = "E3_TOPOLOGY", value_name = "FILE|NAME")]
    pub topology: Option<String>,
    /// Where modules and profiles come from.
    #[command(flatten)]
    pub sources: Sources,
}

/// `e3 delete`.
#[derive(Args, Debug, Clone)]
pub struct Delete {
    /// Name of the application
    pub app: String,
}

/// Kinds of things that `e3 get` lists.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Things {
    /// Nodes and how they are
    #[value(alias = "node")]
    Nodes,
    /// Applications
    #[value(alias = "app")]
    Apps,
    /// Instances: every replica of every shard
    #[value(alias = "instance")]
    Instances,
    /// Channels and what waits in them
    #[value(alias = "channel")]
    Channels,
    /// Dead letters: requests that were given up
    #[value(alias = "dead-letter")]
    DeadLetters,
}

/// `e3 get`.
#[derive(Args, Debug, Clone)]
pub struct Get {
    /// What to list
    #[arg(value_enum)]
    pub what: Things,
    /// Only of this application
    #[arg(long, value_name = "APP")]
    pub app: Option<String>,
    /// Only on this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// Kinds of things that `e3 describe` shows.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thing {
    /// NAME is a node's
    Node,
    /// NAME is an application's
    App,
    /// NAME is APP/SERVICE
    Service,
    /// NAME is APP/SERVICE/SHARD
    Instance,
}

/// `e3 describe`.
#[derive(Args, Debug, Clone)]
pub struct Describe {
    /// Kind
    #[arg(value_enum)]
    pub kind: Thing,
    /// NODE, APP, APP/SERVICE or APP/SERVICE/SHARD
    pub name: String,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `e3 migrate`.
#[derive(Args, Debug, Clone)]
pub struct Migrate {
    /// APP/SERVICE/SHARD, and /primary (default) or /backup
    pub instance: String,
    /// Node that it goes to
    #[arg(long, value_name = "NODE")]
    pub to: String,
    /// Longest wait
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub timeout: Duration,
}

/// `e3 replay`.
#[derive(Args, Debug, Clone)]
pub struct Replay {
    /// Application
    pub app: String,
    /// Dead letters, as `e3 get dead-letters` names them
    #[arg(
        value_name = "LETTER",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub letters: Vec<String>,
    /// All of the application
    #[arg(long)]
    pub all: bool,
}

/// `e3 load`.
#[derive(Args, Debug, Clone)]
pub struct Load {
    /// Application
    pub app: String,
    /// Requests per second
    #[arg(
        long,
        value_parser = rate,
        value_name = "RATE",
        required_unless_present = "from"
    )]
    pub rate: Option<f64>,
    /// Length of the load [default: 15s, or all of the file]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub duration: Option<Duration>,
    /// Seed; the same seed sends the same [default: another one each time]
    #[arg(long, value_name = "NUMBER", conflicts_with = "from")]
    pub seed: Option<u64>,
    /// Senders, such as thermostats [default: as many as suit the rate]
    #[arg(long, value_name = "COUNT", conflicts_with = "from")]
    pub senders: Option<u32>,
    /// Send what a file holds: .pcap, .csv, or .jsonl
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Times as fast as the file's own times say [default: 1]
    #[arg(
        long,
        value_parser = speed,
        value_name = "FACTOR",
        requires = "from",
        conflicts_with = "rate"
    )]
    pub speed: Option<f64>,
    /// Column or field of the file that has the times: seconds, or dates as 2026-03-01T08:30:00Z
    #[arg(long, value_name = "NAME", requires = "from")]
    pub time_column: Option<String>,
    /// Column or field of the file that has the routing keys [default: the line's number]
    #[arg(long, value_name = "NAME", requires = "from")]
    pub key_column: Option<String>,
    /// Directory of the application's secrets [default: that of the cluster in --dir]
    #[arg(long, value_name = "DIR")]
    pub secrets: Option<PathBuf>,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// `e3 demo`.
#[derive(Args, Debug, Clone)]
pub struct Demo {
    /// Length of the load
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Requests per second
    #[arg(long, value_parser = rate, default_value = "1000", value_name = "RATE")]
    pub rate: f64,
    /// Seed of the load
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Leave the cluster running, in --dir
    #[arg(long)]
    pub keep: bool,
    /// Topology: a file, or one of the built-in ones [default: 3x-type1]
    #[arg(long, env = "E3_TOPOLOGY", value_name = "FILE|NAME")]
    pub topology: Option<String>,
    /// Where modules and profiles come from.
    #[command(flatten)]
    pub sources: Sources,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

impl Demo {
    /// Length of the load.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// `e3 logs`.
#[derive(Args, Debug, Clone)]
pub struct Logs {
    /// Process: controller, supervisor or a node [default: all]
    pub name: Option<String>,
    /// Go on as lines come
    #[arg(short, long)]
    pub follow: bool,
    /// Last lines of each to begin with
    #[arg(short = 'n', long, default_value_t = 20, value_name = "COUNT")]
    pub lines: usize,
}

/// `e3 place`.
#[derive(Args, Debug, Clone)]
pub struct Place {
    /// Manifest, or the built-in one `iot-ts`
    #[arg(value_name = "FILE|NAME")]
    pub file: String,
    /// Topology: a file, or one of the built-in ones [default: 3x-type1]
    #[arg(long, env = "E3_TOPOLOGY", value_name = "FILE|NAME")]
    pub topology: Option<String>,
    /// Directory of profiles [default: the paper's, built in]
    #[arg(long, env = "E3_PROFILES", value_name = "DIR")]
    pub profiles: Option<PathBuf>,
    /// Placer
    #[arg(long, default_value = "hcm", value_parser = e3_placement::PLACERS)]
    pub placer: String,
    /// Form.
    #[command(flatten)]
    pub output: Output,
}

/// Kinds of documents.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DocumentKind {
    /// Application
    Application,
    /// Topology
    Topology,
    /// Profile
    Profile,
}

/// `e3 schema`.
#[derive(Args, Debug, Clone)]
pub struct Schema {
    /// Kind of document
    #[arg(value_enum, ignore_case = true)]
    pub kind: DocumentKind,
}

/// `e3 completions`.
#[derive(Args, Debug, Clone)]
pub struct Completions {
    /// Shell
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(words.split(' '))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_is_documented() {
        let page = include_str!("../../../docs/cli.md");
        for command in Cli::command()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
        {
            let name = command.get_name();
            let found = page.contains(&format!("### `e3 {name} "))
                || page.contains(&format!("### `e3 {name}`"));
            assert!(found, "docs/cli.md says nothing of e3 {name}");
        }
    }

    #[test]
    fn commands_parse() {
        let cli = parse("e3 up --topology t.yaml --detach --port 0 --no-restart --dir d").unwrap();
        let Command::Up(up) = cli.command else {
            panic!("not up")
        };
        assert!(up.detach && up.no_restart);
        assert_eq!((up.port, up.topology.as_deref()), (Some(0), Some("t.yaml")));
        assert_eq!(cli.global.dir, Some(PathBuf::from("d")));
        for good in [
            "e3 down",
            "e3 get nodes -o json",
            "e3 get instances --app a --node n",
            "e3 describe instance a/b/0/primary -o yaml",
            "e3 migrate a/b/0 --to s2-host",
            "e3 get dead-letters --app a",
            "e3 replay a --all",
            "e3 replay a 0000000000000001-2",
            "e3 logs controller -f",
            "e3 place iot-ts --topology 3x-beefy --placer hosts-only",
            "e3 schema application",
            "e3 completions bash",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in [
            "e3",
            "e3 get pods",
            "e3 up --port 70000",
            "e3 migrate a/b/0",
            "e3 place a.yaml --placer best",
            "e3 get nodes -o xml",
            "e3 replay a",
            "e3 replay a 0000000000000001-2 --all",
        ] {
            assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad}");
        }
    }
}
