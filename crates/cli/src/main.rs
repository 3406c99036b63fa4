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
mod output;
mod place;
mod process;
mod profile;
mod programs;
mod report;
mod run;
mod schema;
mod settings;
mod state_dir;
mod supervisor;
mod text;
mod up;
mod values;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use output::Paint;
use settings::Settings;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let paint = Paint::stderr(cli.global.color);
    match Settings::load(&cli.global).and_then(|settings| run(cli.command, &settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{} {}", paint.red("error:"), failure.message);
            if let Some(hint) = &failure.hint {
                eprintln!("{} {hint}", paint.bold("hint:"));
            }
            ExitCode::from(failure.exit as u8)
        }
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
        Command::Doctor => doctor::run(settings),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Supervise(args) => supervisor::run_detached(&args),
        Command::ControllerRun(args) => programs::controller(&args),
        Command::NodeRun(args) => programs::node(&args),
    }
}
