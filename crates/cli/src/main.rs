//! The `e3` program: joins controller, nodes, load generator and models into one command.
//!
//! One module for each group of commands; what they share is in [`output`] (tables, JSON, YAML,
//! colours, progress), [`failure`] (errors and exit codes), [`settings`] (configuration),
//! [`state_dir`] (what a cluster on this machine keeps in files) and [`client`] (the controller's
//! API).

mod args;
mod assets;
mod bench;
mod bench_page;
mod bench_services;
mod builtin;
mod call;
mod client;
mod completions;
mod credentials;
mod demo;
mod deploy;
mod describe;
mod doctor;
mod down;
mod exchange;
mod failure;
mod figures;
mod get;
mod hidden;
mod kit;
mod letters;
mod limits;
mod load;
mod logs;
mod machine;
mod migrate;
mod model;
mod modules;
mod output;
mod place;
mod process;
mod profile;
mod programs;
mod report;
mod run;
mod schema;
mod settings;
mod start;
mod state_dir;
mod supervisor;
mod text;
mod up;
mod values;
mod why;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use output::Paint;
use settings::Settings;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let paint = Paint::stderr(cli.global.color);
    let process = logging_process(&cli.command);
    if let Some(name) = &process {
        e3_log::init(name);
    }
    let ended = Settings::load(&cli.global).and_then(|settings| run(cli.command, &settings));
    let Err(failure) = ended else {
        return ExitCode::SUCCESS;
    };
    let message = e3_log::escape(&failure.message);
    let hint = failure.hint.as_deref().map(e3_log::escape);
    match (process.is_some_and(|name| name != FOREGROUND), hint) {
        (true, None) => tracing::error!("{message}"),
        (true, Some(hint)) => tracing::error!("{message}; hint: {hint}"),
        (false, hint) => {
            output::say(&format!("{} {message}", paint.red("error:")));
            if let Some(hint) = hint {
                output::say(&format!("{} {hint}", paint.bold("hint:")));
            }
        }
    }
    ExitCode::from(failure.exit as u8)
}

/// The name in the log of a supervisor that runs in the foreground, in front of a user.
const FOREGROUND: &str = "e3 up";

/// The process's name in its log, if the command is a process that logs.
fn logging_process(command: &Command) -> Option<String> {
    match command {
        Command::Up(args) if !args.detach => Some(FOREGROUND.into()),
        Command::Supervise(_) => Some(state_dir::SUPERVISOR.into()),
        Command::ControllerRun(_) => Some("controller".into()),
        Command::NodeRun(args) => Some(args.name.clone()),
        _ => None,
    }
}

fn run(command: Command, settings: &Settings) -> Result<(), Failure> {
    match command {
        Command::Up(args) => up::run(&args, settings),
        Command::Down(args) => down::run(&args, settings),
        Command::Deploy(args) => deploy::run(&args, settings),
        Command::Delete(args) => deploy::delete(&args, settings),
        Command::Get(args) => get::run(&args, settings),
        Command::Describe(args) => describe::run(&args, settings),
        Command::Migrate(args) => migrate::run(&args, settings),
        Command::New(args) => kit::new(&args),
        Command::Build(args) => kit::build(&args),
        Command::Run(args) => run::run(&args, settings),
        Command::Profile(args) => profile::run(&args, settings),
        Command::Call(args) => call::run(&args, settings),
        Command::Replay(args) => letters::run(&args, settings),
        Command::Load(args) => load::run(&args, settings),
        Command::Demo(args) => demo::run(&args, settings),
        Command::Bench(args) => bench::run(&args, settings),
        Command::Logs(args) => logs::run(&args, settings),
        Command::Place(args) => place::run(&args, settings),
        Command::Doctor(args) => doctor::run(&args, settings),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Supervise(args) => supervisor::run_detached(&args),
        Command::ControllerRun(args) => programs::controller(&args),
        Command::NodeRun(args) => programs::node(&args),
    }
}
