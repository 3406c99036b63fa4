//! The parts of `e3 bench chaos` that the simulator's programs measure.

use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use e3_bench::chaos::{Deliberate, Seeds};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seeds for each minute that the part may take.
const SEEDS_PER_MIN: f64 = 1_000.0;
/// The file of the seeds that have run on the present source, in the repository: they run in parts.
const RECORD: &str = "crates/nemesis/record.json";
/// How to build the programs.
const BUILD_NEMESIS: &str = "build it with: cargo build --release -p e3-nemesis";
const BUILD_DELIBERATE: &str = "build it with: cargo build --release -p e3-nemesis --features deliberate-faults --bin e3-deliberate-faults";

/// What `e3-nemesis run --json` writes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    seeds_per_min: u64,
    record: Option<Record>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    source: String,
    seeds: u64,
    failed_seeds: Vec<u64>,
}

/// What `e3-deliberate-faults --json` writes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Search {
    found: u64,
    missed: Vec<String>,
    seeds_max: u64,
}

/// Runs seeds for about so many minutes, after those that have run on the same source. The current directory
/// must be the repository.
pub(super) fn seeds(minutes: f64) -> Result<Seeds, Failure> {
    let program = nemesis()?;
    let seeds = (minutes * SEEDS_PER_MIN).max(1.0) as u64;
    let arguments = [
        "run".into(),
        format!("--seeds={seeds}"),
        format!("--record={RECORD}"),
    ];
    let run: Run = measure(&program, &arguments)?;
    let Some(record) = run.record else {
        let message = format!("{} wrote no record", program.display());
        return Err(Failure::new(Exit::Unexpected, message));
    };
    Ok(Seeds {
        per_min: run.seeds_per_min,
        seeds: record.seeds,
        failed: record.failed_seeds,
        source: record.source,
    })
}

/// Searches for every deliberate fault.
pub(super) fn deliberate() -> Result<Deliberate, Failure> {
    let program = deliberate_faults()?;
    let search: Search = measure(&program, &[])?;
    Ok(Deliberate {
        found: search.found,
        missed: search.missed,
        seeds_max: search.seeds_max,
    })
}

/// The program that runs scenarios.
pub(super) fn nemesis() -> Result<PathBuf, Failure> {
    beside("e3-nemesis", BUILD_NEMESIS)
}

/// The program that searches for deliberate faults.
pub(super) fn deliberate_faults() -> Result<PathBuf, Failure> {
    beside("e3-deliberate-faults", BUILD_DELIBERATE)
}

/// A program beside this one.
fn beside(name: &str, build: &str) -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.with_file_name(name);
    if program.is_file() {
        return Ok(program);
    }
    let message = format!("{} is missing", program.display());
    Err(Failure::new(Exit::NotFound, message).hint(build))
}

/// Runs a program, which shows its progress, and reads its results. A program that finds failures
/// writes them and exits with an error; one that writes nothing has failed.
fn measure<T: DeserializeOwned>(program: &Path, arguments: &[String]) -> Result<T, Failure> {
    let failed = |what: String| {
        let message = format!("{}: {what}", program.display());
        Failure::new(Exit::Unexpected, message)
    };
    output::say(&format!("running {}", program.display()));
    let results = tempfile::NamedTempFile::new().map_err(|e| failed(e.to_string()))?;
    let status = Command::new(program)
        .args(arguments)
        .arg(format!("--json={}", results.path().display()))
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .map_err(|e| failed(e.to_string()))?;
    let text = std::fs::read_to_string(results.path()).unwrap_or_default();
    serde_json::from_str(&text).map_err(|e| failed(format!("{status}, and no results: {e}")))
}
