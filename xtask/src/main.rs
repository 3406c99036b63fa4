//! Repository tasks: checks, fixes, and the build of the services.
//!
//! `check` never writes; `fix` does. Rules that cannot be lints are read from `ARCHITECTURE.md`, so the
//! document and the code agree.

mod architecture;
mod bans;
mod dependencies;
mod documents;
mod knots;
mod modules;
mod process;
mod services;
mod sources;
mod tests_listed;
mod usage;
mod wasm;
mod words;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use architecture::Architecture;
use process::{Outcome, cargo};
use sources::Sources;
use usage::USAGE;
use workspace::Workspace;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["check"] => check(true),
        ["check", "--quick"] => check(false),
        ["fix"] => fix(true),
        ["fix", "--quick"] => fix(false),
        ["build-services", options @ ..] => build_services(options),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn check(with_cargo: bool) -> Outcome<()> {
    let workspace = Workspace::load()?;
    let architecture = Architecture::load(&workspace.root)?;
    let sources = Sources::load(&workspace.root)?;
    let knots = knots::find(&workspace)?;

    let dependencies = dependencies::problems(&architecture, &workspace);
    let bans = bans::problems(&architecture, &workspace, &sources);
    let unsafe_code = sources.unsafe_problems(&architecture, &workspace);
    let documents = documents::problems(&sources, &workspace);
    let mut problems = report("dependencies", &dependencies)
        + report("clocks and sockets", &bans)
        + report("unsafe code", &unsafe_code)
        + report("knots", &knots.problems)
        + report("tests", &tests_listed::problems(&sources))
        + report("documents", &documents)
        + report("words", &words::problems(&sources));
    for line in knots.warnings.iter().chain(&sources.long_files()) {
        println!("warning: {line}");
    }
    if with_cargo {
        let clippy = "clippy --workspace --all-targets -- -D warnings";
        problems += report_cargo("format", "fmt --all --check") + report_cargo("clippy", clippy);
    }
    match problems {
        0 => Ok(()),
        1 => Err("1 problem".into()),
        n => Err(format!("{n} problems")),
    }
}

/// Prints the result of one check; returns the number of problems.
fn report(name: &str, problems: &[String]) -> usize {
    let result = if problems.is_empty() { "ok" } else { "FAILED" };
    println!("check {name}: {result}");
    for problem in problems {
        eprintln!("error: {problem}");
    }
    problems.len()
}

fn report_cargo(name: &str, args: &str) -> usize {
    let error = cargo(args).err();
    report(name, error.as_slice())
}

fn fix(with_cargo: bool) -> Outcome<()> {
    let workspace = Workspace::load()?;
    let architecture = Architecture::load(&workspace.root)?;
    bans::write(&architecture, &workspace)?;
    if !with_cargo {
        return Ok(());
    }
    cargo("clippy --fix --allow-dirty --allow-staged --workspace --all-targets")?;
    cargo("fmt --all")
}

fn build_services(options: &[&str]) -> Outcome<()> {
    let workspace = Workspace::load()?;
    let mut out = workspace.root.join("target/services");
    let mut wanted = None;
    let mut rest = options;
    loop {
        rest = match rest {
            [] => break,
            ["--out", dir, rest @ ..] => {
                out = PathBuf::from(dir);
                rest
            }
            ["--toolchain", name, rest @ ..] => {
                wanted = Some(*name);
                rest
            }
            [other, ..] => {
                return Err(format!("build-services: unknown option {other:?}\n{USAGE}"));
            }
        };
    }
    let toolchain = e3_scaffold::find(wanted)
        .map_err(|e| format!("{e}\nhint: scripts/setup installs what is missing"))?;
    println!("services: built with {}", toolchain.describe());
    services::build(&workspace, &toolchain, &out)
}
