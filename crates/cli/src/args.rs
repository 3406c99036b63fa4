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
    /// File of the token for --controller [default: the value of E3_TOKEN]
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        value_name = "FILE"
    )]
    pub token_file: Option<PathBuf>,
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
    /// Show everything about one node, application, service or instance
    Describe(Describe),
    /// Move an instance to another node
    Migrate(Migrate),
    /// Create a service: project, manifest and SDK
    New(New),
    /// Build a service to WebAssembly
    Build(Build),
    /// Run one service alone: one line of JSON for each request and each answer
    Run(Run),
    /// Measure what a service costs on this machine, and print its profile
    Profile(Profile),
    /// Send single requests to an application and print their answers
    Call(Call),
    /// Retry dead letters
    Replay(Replay),
    /// Send load to an application, and check that no request was lost or repeated
    Load(Load),
    /// Start a cluster, deploy an application, send load and report, in one command
    Demo(Demo),
    /// Measure this machine with E3
    Bench(Bench),
    /// Show the logs of the cluster's processes
    Logs(Logs),
    /// Try a placement without a cluster and explain each decision
    Place(Place),
    /// Check what E3 needs on this machine, and show how to fix what is missing
    Doctor(Doctor),
    /// Print the JSON schema of a kind of document
    Schema(Schema),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Run the supervisor (used by `up --detach`)
    #[command(hide = true)]
    Supervise(Supervise),
    /// Run a controller (used by `up`)
    #[command(hide = true)]
    ControllerRun(ControllerRun),
    /// Run a node (used by `up`)
    #[command(hide = true)]
    NodeRun(NodeRun),
}

/// `-o`.
#[derive(Args, Debug, Clone, Copy, Default)]
pub struct Output {
    /// Output format [default: table]
    #[arg(short, long, env = "E3_OUTPUT", value_enum, value_name = "FORMAT")]
    output: Option<Format>,
    /// Same as -o json
    #[arg(long)]
    json: bool,
}

impl Output {
    /// The format that was asked for.
    pub fn format(self) -> Option<Format> {
        match self.json {
            true => Some(Format::Json),
            false => self.output,
        }
    }
}

/// `e3 up`.
#[derive(Args, Debug, Clone, Default)]
pub struct Up {
    /// Topology: a file, or one of the built-in ones [default: 3x-type1]
    #[arg(long, env = "E3_TOPOLOGY", value_name = "FILE|NAME")]
    pub topology: Option<String>,
    /// Run in the background; return when the cluster is ready
    #[arg(short, long)]
    pub detach: bool,
    /// Port of the controller on 127.0.0.1; 0 chooses a free one [default: 7300]
    #[arg(long, env = "E3_PORT", value_name = "PORT")]
    pub port: Option<u16>,
    /// Do not restart processes that end
    #[arg(long)]
    pub no_restart: bool,
}

/// `e3 doctor`.
#[derive(Args, Debug, Clone, Default)]
pub struct Doctor {
    /// Port that a cluster would use [default: 7300]
    #[arg(long, env = "E3_PORT", value_name = "PORT")]
    pub port: Option<u16>,
    /// Directory of the modules [default: where they are built, else this program]
    #[arg(long, env = "E3_SERVICES", value_name = "DIR")]
    pub services: Option<PathBuf>,
}

/// `e3 down`.
#[derive(Args, Debug, Clone, Default)]
pub struct Down {
    /// Also remove the cluster's state: applications, logs, compiled code
    #[arg(long)]
    pub purge: bool,
    /// Do not ask before the state of applications is lost
    #[arg(short, long)]
    pub yes: bool,
}

/// Where modules and profiles come from.
#[derive(Args, Debug, Clone, Default)]
pub struct Sources {
    /// Directory of modules; searched before the manifest's own
    #[arg(long, env = "E3_SERVICES", value_name = "DIR")]
    pub services: Option<PathBuf>,
    /// Directory of profiles [default: the paper's, built in]
    #[arg(long, env = "E3_PROFILES", value_name = "DIR")]
    pub profiles: Option<PathBuf>,
}

/// `e3 deploy`.
#[derive(Args, Debug, Clone)]
pub struct Deploy {
    /// Manifest: a file, or a built-in one such as hello or iot-ts
    #[arg(value_name = "FILE|NAME")]
    pub file: String,
    /// Wait until every instance runs
    #[arg(long)]
    pub wait: bool,
    /// Maximum wait
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub timeout: Duration,
    /// Only check manifest, modules and placement as deploying does; deploy nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Accept more cores and bandwidth than nodes have free: some requests take longer
    #[arg(long)]
    pub overcommit: bool,
    /// --dry-run on this topology while empty, and not on the running cluster
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
    /// Nodes and their state
    #[value(alias = "node")]
    Nodes,
    /// Applications
    #[value(alias = "app")]
    Apps,
    /// Instances: every replica of every shard
    #[value(alias = "instance")]
    Instances,
    /// Channels and the messages that wait in them
    #[value(alias = "channel")]
    Channels,
    /// Dead letters: requests whose every attempt failed
    #[value(alias = "dead-letter")]
    DeadLetters,
}

/// `e3 get`.
#[derive(Args, Debug, Clone)]
pub struct Get {
    /// What to list
    #[arg(value_enum)]
    pub what: Things,
    /// Only this application
    #[arg(long, value_name = "APP")]
    pub app: Option<String>,
    /// Only this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// Kinds of things that `e3 describe` shows.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thing {
    /// NAME is NODE
    Node,
    /// NAME is APP
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
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// `e3 migrate`.
#[derive(Args, Debug, Clone)]
pub struct Migrate {
    /// APP/SERVICE/SHARD, and /primary (default) or /backup
    pub instance: String,
    /// Node to move it to
    #[arg(long, value_name = "NODE")]
    pub to: String,
    /// Maximum wait
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub timeout: Duration,
}

/// `e3 replay`.
#[derive(Args, Debug, Clone)]
pub struct Replay {
    /// Application
    pub app: String,
    /// Dead letters, as named by `e3 get dead-letters`
    #[arg(
        value_name = "LETTER",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub letters: Vec<String>,
    /// All dead letters of the application
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
    /// Duration of the load [default: 15s, or the whole file]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub duration: Option<Duration>,
    /// Seed; the same seed sends the same requests [default: random]
    #[arg(long, value_name = "NUMBER", conflicts_with = "from")]
    pub seed: Option<u64>,
    /// Number of senders, such as thermostats [default: chosen by the rate]
    #[arg(long, value_name = "COUNT", conflicts_with = "from")]
    pub senders: Option<u32>,
    /// Send the requests in this file: .pcap, .csv, or .jsonl
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Speed relative to the times in the file [default: 1]
    #[arg(
        long,
        value_parser = speed,
        value_name = "FACTOR",
        requires = "from",
        conflicts_with = "rate"
    )]
    pub speed: Option<f64>,
    /// Column or field with the times: seconds, or dates such as 2026-03-01T08:30:00Z
    #[arg(long, value_name = "NAME", requires = "from")]
    pub time_column: Option<String>,
    /// Column or field with the routing keys [default: the line number]
    #[arg(long, value_name = "NAME", requires = "from")]
    pub key_column: Option<String>,
    /// Directory of the application's secrets [default: that of the cluster in --dir]
    #[arg(long, value_name = "DIR")]
    pub secrets: Option<PathBuf>,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// `e3 demo`.
#[derive(Args, Debug, Clone)]
pub struct Demo {
    /// Duration of the load in seconds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Requests per second
    #[arg(long, value_parser = rate, default_value = "1000", value_name = "RATE")]
    pub rate: f64,
    /// Seed of the load
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Keep the cluster running, in --dir
    #[arg(long)]
    pub keep: bool,
    /// Topology: a file, or one of the built-in ones [default: 3x-type1]
    #[arg(long, env = "E3_TOPOLOGY", value_name = "FILE|NAME")]
    pub topology: Option<String>,
    /// Where modules and profiles come from.
    #[command(flatten)]
    pub sources: Sources,
    /// Output format.
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
    /// Process: controller, supervisor or a node name [default: all]
    pub name: Option<String>,
    /// Print new lines as they come
    #[arg(short, long)]
    pub follow: bool,
    /// Number of last lines to print of each log
    #[arg(short = 'n', long, default_value_t = 20, value_name = "COUNT")]
    pub lines: usize,
}

/// `e3 place`.
#[derive(Args, Debug, Clone)]
pub struct Place {
    /// Manifest: a file, or a built-in one such as hello or iot-ts
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
    /// Output format.
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
mod tests;
