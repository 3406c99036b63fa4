//! `e3-mutants`: which changes of the source does no test notice?
//!
//! cargo-mutants lists the changes; building and testing each by itself would take half a day. This
//! program writes all of them into a copy of the workspace, builds it once, and runs for each mutant
//! the test programs that reach it. Those that survive must be explained in `docs/mutants.md`.

mod build;
mod list;
mod process;
mod run;
mod schema;

use build::Program;
use clap::Parser;
use list::Mutant;
use run::Surveyed;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

/// Runs the tests against every mutant of the data plane and the controller.
#[derive(Parser)]
struct Arguments {
    /// Packages whose source is changed and whose tests run
    #[arg(short, long = "package", default_values = ["e3-control", "e3-dataplane"])]
    packages: Vec<String>,
    /// Only mutants in what has changed since this commit
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
    /// Only mutants whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Run this many simulated scenarios for each mutant that survives the tests
    #[arg(long, default_value_t = 60)]
    seeds: u32,
    /// Run only what survived last time
    #[arg(long)]
    survivors: bool,
    /// Run only test programs with this name
    #[arg(long = "test")]
    tests: Vec<String>,
    /// Leave the tests out
    #[arg(long)]
    no_tests: bool,
    /// The first of these scenarios
    #[arg(long, default_value_t = 1)]
    base: u64,
    /// Mutants that run at the same time
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// A row of the file with all outcomes.
#[derive(Serialize, Deserialize)]
struct Row {
    mutant: String,
    outcome: Outcome,
}

/// What became of a mutant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    /// A test failed.
    CaughtByTest,
    /// A simulated scenario failed.
    CaughtBySeed,
    /// Nothing failed, and `docs/mutants.md` says why.
    Explained,
    /// Nothing failed.
    Survived,
    /// The compiler refuses it.
    Unviable,
    /// It cannot be chosen at run time.
    Unbuilt,
}

fn main() -> ExitCode {
    match mutate(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(n) => {
            eprintln!("error: {n} mutants survive; test them or explain them in {DOCUMENT}");
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

const DOCUMENT: &str = "docs/mutants.md";

fn mutate(arguments: &Arguments) -> Result<usize, String> {
    let root = process::output(Path::new("."), "git", &["rev-parse", "--show-toplevel"])?;
    let root = PathBuf::from(root.trim());
    let copy = root.join("target/mutants");
    let document = std::fs::read_to_string(root.join(DOCUMENT)).unwrap_or_default();
    let listed = list::mutants(&root, &arguments.packages, arguments.since.as_deref())?;
    let mutants: BTreeMap<u32, Mutant> = (1..).zip(listed).collect();
    let wanted = |n: &u32| {
        let name = &mutants[n].name;
        arguments
            .only
            .as_ref()
            .is_none_or(|only| name.contains(only))
    };
    println!("{} mutants", mutants.len());
    if mutants.is_empty() {
        return Ok(0);
    }

    let mut words = vec!["test", "--no-run", "--lib", "--tests"];
    for package in &arguments.packages {
        words.extend(["-p", package]);
    }
    let file = copy.join("outcomes.json");
    let mut outcomes = BTreeMap::new();
    if arguments.survivors {
        outcomes = decided(&file, &mutants)?;
    }
    let built = build::build(&root, &copy, &viable(&mutants, &outcomes), &words)?;
    outcomes.extend(built.unviable.iter().map(|n| (*n, Outcome::Unviable)));
    outcomes.extend(built.unbuilt.iter().map(|n| (*n, Outcome::Unbuilt)));

    let left = |outcomes: &BTreeMap<u32, Outcome>| -> Vec<u32> {
        let all = mutants.keys().copied();
        all.filter(|n| wanted(n) && !outcomes.contains_key(n))
            .collect()
    };
    if !arguments.no_tests {
        let is_wanted =
            |p: &&Program| arguments.tests.is_empty() || arguments.tests.contains(&p.target);
        let mut surveyed = Vec::new();
        for program in built.programs.iter().filter(is_wanted) {
            for words in run::tests(program)? {
                surveyed.push(run::survey(program, words, &copy)?);
            }
        }
        let caught = catch(surveyed, left(&outcomes), arguments.threads)?;
        outcomes.extend(caught.into_iter().map(|n| (n, Outcome::CaughtByTest)));
    }

    if arguments.seeds > 0 {
        let words = ["build", "--release", "-p", "e3-nemesis"];
        let viable = viable(&mutants, &outcomes);
        let programs = build::build(&root, &copy, &viable, &words)?.programs;
        let (base, seeds) = (arguments.base.to_string(), arguments.seeds.to_string());
        let run = [
            "run",
            "--threads",
            "1",
            "--shrink",
            "0",
            "--base",
            &base,
            "--seeds",
            &seeds,
        ];
        let mut all = kept(&root)?;
        all.push(run.map(String::from).to_vec());
        let mut surveyed = Vec::new();
        for (program, words) in programs
            .iter()
            .flat_map(|p| all.iter().map(move |w| (p, w)))
        {
            surveyed.push(run::survey(program, words.clone(), &copy)?);
        }
        let caught = catch(surveyed, left(&outcomes), arguments.threads)?;
        outcomes.extend(caught.into_iter().map(|n| (n, Outcome::CaughtBySeed)));
    }
    for number in left(&outcomes) {
        let explained = is_explained(&document, &mutants[&number]);
        let outcome = if explained {
            Outcome::Explained
        } else {
            Outcome::Survived
        };
        outcomes.insert(number, outcome);
    }
    report(&mutants, &outcomes, &file)
}

/// What runs each scenario that is kept.
fn kept(root: &Path) -> Result<Vec<Vec<String>>, String> {
    let directory = root.join("crates/nemesis/tests/kept");
    let wrong = |e: std::io::Error| format!("{}: {e}", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(wrong)? {
        files.push(entry.map_err(wrong)?.path().display().to_string());
    }
    files.sort();
    Ok(files.into_iter().map(|f| vec!["file".into(), f]).collect())
}

/// The mutants that are not known not to build.
fn viable(
    mutants: &BTreeMap<u32, Mutant>,
    outcomes: &BTreeMap<u32, Outcome>,
) -> BTreeMap<u32, Mutant> {
    let refused = |n: &u32| matches!(outcomes.get(n), Some(Outcome::Unviable | Outcome::Unbuilt));
    let viable = mutants.iter().filter(|(n, _)| !refused(n));
    viable.map(|(n, m)| (*n, m.clone())).collect()
}

/// The mutants that did not survive last time.
fn decided(file: &Path, mutants: &BTreeMap<u32, Mutant>) -> Result<BTreeMap<u32, Outcome>, String> {
    let wrong = |e: String| format!("{}: {e}", file.display());
    let text = std::fs::read(file).map_err(|e| wrong(e.to_string()))?;
    let rows: Vec<Row> = serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))?;
    let decided = |r: &Row| !matches!(r.outcome, Outcome::Survived | Outcome::Explained);
    let rows = rows.into_iter().filter(decided);
    let outcomes: BTreeMap<String, Outcome> = rows.map(|r| (r.mutant, r.outcome)).collect();
    let known = |(n, m): (&u32, &Mutant)| Some((*n, *outcomes.get(&m.name)?));
    Ok(mutants.iter().filter_map(known).collect())
}

/// Whether a row of the document names the place of a mutant and its change.
fn is_explained(document: &str, mutant: &Mutant) -> bool {
    let place = format!("| `{}` |", mutant.place());
    let change = format!("`{}`", mutant.change().replace('|', "\\|"));
    let mut rows = document
        .lines()
        .filter_map(|line| line.strip_prefix(&place));
    rows.any(|row| row.contains(&change))
}

/// The mutants that these tests or programs catch.
fn catch(
    mut surveyed: Vec<Surveyed>,
    mutants: Vec<u32>,
    threads: usize,
) -> Result<BTreeSet<u32>, String> {
    surveyed.sort_by_key(|s| s.run.time);
    let time: f64 = surveyed.iter().map(|s| s.run.time.as_secs_f64()).sum();
    println!("{} tests or programs take {time:.1} s", surveyed.len());
    let total = mutants.len();
    let queue = Mutex::new(mutants.into_iter());
    let caught = Mutex::new(BTreeSet::new());
    let work = || -> Result<(), String> {
        loop {
            let next = queue.lock().expect("no thread panics").next();
            let Some(mutant) = next else { return Ok(()) };
            for run in run::runs(&surveyed, mutant) {
                if run::catches(&run, mutant)? {
                    caught.lock().expect("no thread panics").insert(mutant);
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut ends = workers
            .into_iter()
            .map(|w| w.join().expect("no thread panics"));
        ends.try_for_each(|end| end)
    })?;
    let caught = caught.into_inner().expect("no thread panics");
    println!("{} of {total} caught", caught.len());
    Ok(caught)
}

/// Writes all outcomes, prints those that need a test or a reason, and returns their number.
fn report(
    mutants: &BTreeMap<u32, Mutant>,
    outcomes: &BTreeMap<u32, Outcome>,
    file: &Path,
) -> Result<usize, String> {
    let row = |(n, outcome): (&u32, &Outcome)| Row {
        mutant: mutants[n].name.clone(),
        outcome: *outcome,
    };
    let rows: Vec<Row> = outcomes.iter().map(row).collect();
    let text = serde_json::to_string_pretty(&rows).map_err(|e| e.to_string())?;
    std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut counts: BTreeMap<Outcome, usize> = BTreeMap::new();
    for (number, outcome) in outcomes {
        *counts.entry(*outcome).or_default() += 1;
        if *outcome == Outcome::Survived {
            println!("survived: {}", mutants[number].name);
        }
    }
    println!("{counts:?}, all in {}", file.display());
    Ok(counts.get(&Outcome::Survived).copied().unwrap_or(0))
}
