//! The command line. Each command has a file or folder, which owns its arguments.

mod audit;
mod backup;
mod bench;
mod build;
mod call;
mod chaos;
mod completions;
mod delete;
mod demo;
mod deploy;
mod describe;
mod doctor;
mod down;
mod eval;
mod events;
mod forget;
mod formats;
mod get;
mod load;
mod logs;
mod migrate;
mod new;
mod node;
mod orchestrator;
mod pending;
mod place;
mod plan;
mod power;
mod profile;
mod replay;
mod restore;
mod rollback;
mod run;
mod scale;
mod schema;
mod secret;
mod sim;
mod token;
mod twin;
mod up;
mod upgrade;

use crate::cluster::programs::{self, ControllerRun, NodeRun};
use crate::cluster::supervisor::{self, Supervise};
use crate::settings::{Global, Settings};
use crate::ui::failure::Failure;
use clap::{CommandFactory, Parser, Subcommand};

/// Run microservice applications as WebAssembly across host CPUs and SmartNICs.
#[derive(Parser, Debug)]
#[command(
    name = "e3",
    version,
    max_term_width = 100,
    after_help = "To see it at work: e3 demo\nExit codes: 0 ok, 1 unexpected, 2 bad input, 3 not found, 4 conflict, 5 check failed,\n            6 cluster not reachable, 7 timeout"
)]
pub struct Cli {
    /// Global options.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start a cluster on this machine: a controller process and a process for each node
    Up(up::Up),
    /// Stop the cluster on this machine
    Down(down::Down),
    /// Deploy an application
    Deploy(deploy::Deploy),
    /// Delete an application
    Delete(delete::Delete),
    /// Write an application with its state to a file, while it serves
    Backup(backup::Backup),
    /// Deploy an application with the state of a backup
    Restore(restore::Restore),
    /// List nodes, applications, instances, channels, timers, dead letters, events or the audit log
    Get(get::Get),
    /// Show the details of a node, application, service or instance
    Describe(describe::Describe),
    /// Move an instance to another node
    Migrate(migrate::Migrate),
    /// Take nodes out of service and back
    Node(node::Node),
    /// Change how many replicas or shards a service has
    Scale(scale::Scale),
    /// Show or change when instances move away from overloaded SmartNICs by themselves
    Orchestrator(orchestrator::Orchestrator),
    /// Show what racks and servers draw, or set their power caps
    Power(power::Power),
    /// Deploy the version before the running one again
    Rollback(rollback::Rollback),
    /// Set the secrets of applications
    Secret(secret::Secret),
    /// Create, list and revoke tokens of the controller's API
    Token(token::Token),
    /// Give up the state of shards whose only copies are on silent nodes
    Forget(forget::Forget),
    /// Replace the program of the cluster's processes one by one, and raise the cluster's format
    Upgrade(upgrade::Upgrade),
    /// Create a project for a new service, with its manifest and the SDK
    New(new::New),
    /// Build a service to WebAssembly
    Build(build::Build),
    /// Run one service without a cluster: requests and replies are lines of JSON
    Run(run::Run),
    /// Measure what a service costs on this machine and print its profile
    Profile(profile::Profile),
    /// Send requests to an application one by one and print the replies
    Call(call::Call),
    /// Retry dead letters
    Replay(replay::Replay),
    /// Generate load for an application and check that no request is lost or repeated
    Load(load::Load),
    /// Kill, pause and move what runs, under load, and check that no request is lost or repeated
    Chaos(chaos::Chaos),
    /// Start a cluster, deploy an application, send load and report, in one command
    Demo(demo::Demo),
    /// Run benchmarks
    Bench(bench::Bench),
    /// Show the logs of the cluster's processes
    Logs(logs::Logs),
    /// Compute a placement without a cluster and explain each decision
    Place(place::Place),
    /// Predict throughput, latency and joules of an application on a cluster by simulation
    Sim(sim::Sim),
    /// Compare the simulator's predictions for an application with a cluster on this machine
    Twin(twin::Twin),
    /// Plan capacity: servers, power, cost of ownership and CO2 of clusters that carry a load
    Plan(plan::Plan),
    /// Run the experiments of the paper by simulation, and write a report
    Eval(eval::Eval),
    /// Check that this machine has what E3 needs, and show how to fix what is missing
    Doctor(doctor::Doctor),
    /// Print the JSON schema of a document kind
    Schema(schema::Schema),
    /// Print a completion script for a shell
    Completions(completions::Completions),
    /// Print release and formats of this program (used by `upgrade`)
    #[command(hide = true)]
    Formats,
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

impl Command {
    /// Runs the command.
    pub fn run(self, settings: &Settings) -> Result<(), Failure> {
        match self {
            Command::Up(args) => up::run(&args, settings),
            Command::Down(args) => down::run(&args, settings),
            Command::Deploy(args) => deploy::run(&args, settings),
            Command::Delete(args) => delete::run(&args, settings),
            Command::Backup(args) => backup::run(&args, settings),
            Command::Restore(args) => restore::run(&args, settings),
            Command::Get(args) => get::run(&args, settings),
            Command::Describe(args) => describe::run(&args, settings),
            Command::Migrate(args) => migrate::run(&args, settings),
            Command::Node(args) => node::run(&args, settings),
            Command::Scale(args) => scale::run(&args, settings),
            Command::Orchestrator(args) => orchestrator::run(&args, settings),
            Command::Power(args) => power::run(&args, settings),
            Command::Rollback(args) => rollback::run(&args, settings),
            Command::Secret(args) => secret::run(&args, settings),
            Command::Token(args) => token::run(&args, settings),
            Command::Forget(args) => forget::run(&args, settings),
            Command::Upgrade(args) => upgrade::run(&args, settings),
            Command::New(args) => new::run(&args),
            Command::Build(args) => build::run(&args),
            Command::Run(args) => run::run(&args, settings),
            Command::Profile(args) => profile::run(&args, settings),
            Command::Call(args) => call::run(&args, settings),
            Command::Replay(args) => replay::run(&args, settings),
            Command::Load(args) => load::run(&args, settings),
            Command::Chaos(args) => chaos::run(&args, settings),
            Command::Demo(args) => demo::run(&args, settings),
            Command::Bench(args) => bench::run(&args, settings),
            Command::Logs(args) => logs::run(&args, settings),
            Command::Place(args) => place::run(&args, settings),
            Command::Sim(args) => sim::run(&args, settings),
            Command::Twin(args) => twin::run(&args, settings),
            Command::Plan(args) => plan::run(&args, settings),
            Command::Eval(args) => eval::run(&args, settings),
            Command::Doctor(args) => doctor::run(&args, settings),
            Command::Schema(args) => schema::run(&args),
            Command::Completions(args) => completions::run(&args, Cli::command()),
            Command::Formats => formats::run(),
            Command::Supervise(args) => supervisor::run_detached(&args),
            Command::ControllerRun(args) => programs::controller(&args),
            Command::NodeRun(args) => programs::node(&args),
        }
    }
}

#[cfg(test)]
mod tests;
