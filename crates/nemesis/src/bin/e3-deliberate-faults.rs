//! Leaves out one protection at a time, and searches for a scenario that shows it. Built with the
//! feature `deliberate-faults` only.

use clap::Parser;
use e3_nemesis::deliberate::{Fault, search};
use e3_nemesis::fleet;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Searches for scenarios that show deliberate faults.
#[derive(Parser)]
#[command(name = "e3-deliberate-faults")]
struct Arguments {
    /// Seeds within which each fault must be found.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    base: u64,
    /// Tries only the faults whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Shrinks the scenarios that show the faults and writes them to this directory.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Most runs for shrinking a scenario.
    #[arg(long, default_value_t = 300)]
    shrink: usize,
    /// The file to write the results to, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The results of a search.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Results {
    found: usize,
    missed: Vec<String>,
    seeds: u64,
    seeds_max: u64,
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(fleet::note_panic));
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all were found.
fn run(arguments: &Arguments) -> Result<bool, String> {
    let mut faults = Fault::all();
    faults.retain(|f| f.name().contains(&arguments.only));
    let shrink_runs = if arguments.keep.is_some() {
        arguments.shrink
    } else {
        0
    };
    let results = search(&faults, arguments.seeds, arguments.base, shrink_runs);
    let found = results
        .iter()
        .filter_map(|(fault, found)| Some((fault, found.as_ref()?)));
    if let Some(dir) = &arguments.keep {
        for (fault, found) in found.clone() {
            let file = dir.join(format!("{}.json", fault.name()));
            fleet::write_json(&file, &found.scenario)?;
        }
    }
    let missed = results.iter().filter(|(_, found)| found.is_none());
    let summary = Results {
        found: found.clone().count(),
        missed: missed.map(|(fault, _)| fault.name()).collect(),
        seeds: arguments.seeds,
        seeds_max: found.map(|(_, found)| found.seeds).max().unwrap_or(0),
    };
    println!(
        "{} of {} deliberate faults found",
        summary.found,
        results.len()
    );
    if let Some(file) = &arguments.json {
        fleet::write_json(file, &summary)?;
    }
    Ok(summary.missed.is_empty())
}
