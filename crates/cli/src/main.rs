//! The `e3` program: joins controller, nodes, load generator and models into one command.
//!
//! [`commands`] has a file or folder for each command. [`cluster`] runs a cluster on this machine and
//! talks to its controller. [`documents`] finds manifests, profiles, modules and assets. [`ui`] prints
//! results and reports failures.

mod archive;
mod cluster;
mod commands;
mod documents;
mod limits;
mod settings;
mod ui;

use clap::Parser;
use cluster::state_dir;
use commands::{Cli, Command};
use settings::Settings;
use std::process::ExitCode;
use ui::output::{self, Paint};

/// A request allocates and frees messages and entries at every node that it passes, mostly in small
/// pieces. glibc's allocator took 15 % of a loaded node's processor time; mimalloc takes less in the
/// median, but raised the 99th percentile of writes by 70 %.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let paint = Paint::stderr(cli.global.color);
    let process = logging_process(&cli.command);
    if let Some(name) = &process {
        e3_log::init(name);
    }
    let ended = Settings::load(&cli.global).and_then(|settings| cli.command.run(&settings));
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

/// The name in the log of a supervisor in the foreground.
const FOREGROUND: &str = "e3 up";

/// The name in the log, if the command is a process that logs.
fn logging_process(command: &Command) -> Option<String> {
    match command {
        Command::Up(args) if !args.detach => Some(FOREGROUND.into()),
        Command::Supervise(_) => Some(state_dir::SUPERVISOR.into()),
        Command::ControllerRun(_) => Some("controller".into()),
        Command::NodeRun(args) => Some(args.name.clone()),
        _ => None,
    }
}
