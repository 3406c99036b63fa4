//! Runs random scenarios of the simulator on all cores.
//!
//! `e3-nemesis run --seeds 100000` runs many seeds, `e3-nemesis seed 7` one; a failure is shrunk and
//! printed with the command that replays it. `e3-nemesis file F` runs a scenario from a file.

use clap::{Parser, Subcommand};
use e3_nemesis::fleet;
use e3_sim::Scenario;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// A scenario allocates a great deal, mostly small and short-lived.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tells the allocator, which reads this variable when the process starts, to keep freed memory. It is
/// soon needed again, and the system would have to clear it first.
const KEEP_PAGES: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "-1");

/// Runs random scenarios of the simulator.
#[derive(Parser)]
#[command(name = "e3-nemesis")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs many seeds.
    Run {
        /// How many seeds to run.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        base: u64,
        /// Threads; by default one for each core.
        #[arg(long)]
        threads: Option<usize>,
        /// Failures after which it stops.
        #[arg(long, default_value_t = 5)]
        failures: usize,
        /// Most runs for shrinking a failure.
        #[arg(long, default_value_t = 300)]
        shrink: usize,
        /// The file to write the figures to, as JSON.
        #[arg(long)]
        json: Option<PathBuf>,
        /// The file that counts the seeds that have run on this source: continues after the last.
        #[arg(long)]
        record: Option<PathBuf>,
    },
    /// Runs one seed.
    Seed {
        /// The seed.
        seed: u64,
        /// Prints the scenario as JSON instead of running it.
        #[arg(long)]
        print: bool,
        /// Most runs for shrinking a failure.
        #[arg(long, default_value_t = 0)]
        shrink: usize,
    },
    /// Runs a scenario from a file.
    File {
        /// The file, as printed by `seed N --print`.
        file: PathBuf,
    },
}

/// Starts this program again with [`KEEP_PAGES`], unless the variable is set. Without it a run takes longer.
fn keep_pages() {
    let (name, value) = KEEP_PAGES;
    if std::env::var_os(name).is_none()
        && let Ok(program) = std::env::current_exe()
    {
        let arguments = std::env::args_os().skip(1);
        let error = Command::new(program)
            .args(arguments)
            .env(name, value)
            .exec();
        eprintln!("cannot start again with {name}={value}: {error}");
    }
}

fn main() -> ExitCode {
    keep_pages();
    // A panic in the product is a failure of its seed and is printed with it.
    std::panic::set_hook(Box::new(fleet::note_panic));
    match Arguments::parse().task {
        Task::Run {
            seeds,
            base,
            threads,
            failures,
            shrink,
            json,
            record,
        } => {
            let order = fleet::Order {
                seeds,
                base,
                threads: threads.unwrap_or_else(fleet::cores),
                failures_max: failures,
                shrink_runs: shrink,
                json,
                record,
            };
            match fleet::run(&order) {
                Ok(0) => ExitCode::SUCCESS,
                Ok(_) => ExitCode::FAILURE,
                Err(e) => {
                    eprintln!("{e}");
                    ExitCode::FAILURE
                }
            }
        }
        Task::Seed {
            seed,
            print,
            shrink,
        } => {
            let scenario = e3_sim::draw(seed);
            if print {
                println!("{}", fleet::to_json(&scenario));
                return ExitCode::SUCCESS;
            }
            one(&scenario, shrink)
        }
        Task::File { file } => match read(&file) {
            Ok(scenario) => one(&scenario, 0),
            Err(e) => {
                eprintln!("{}: {e}", file.display());
                ExitCode::FAILURE
            }
        },
    }
}

fn read(file: &PathBuf) -> Result<Scenario, String> {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    serde_json::from_str(&text).map_err(|e| e.to_string())
}

fn one(scenario: &Scenario, shrink: usize) -> ExitCode {
    let start = std::time::Instant::now();
    match fleet::attempt(scenario) {
        Ok(summary) => {
            println!("passed in {} ms: {summary:#?}", start.elapsed().as_millis());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            fleet::print_failure(scenario, &failure, shrink);
            ExitCode::FAILURE
        }
    }
}
