//! Repository tasks: checks, fixes, and the build of the services.
//!
//! `check` never writes; `fix` does. Both read the rules that cannot be lints from
//! `ARCHITECTURE.md`, so that the document cannot drift from the code.

mod architecture;
mod arrows;
mod bans;
mod knots;
mod modules;
mod process;
mod services;
mod sources;
mod wasm;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use architecture::Architecture;
use process::{Outcome, cargo};
use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask <command>

  check                         all checks; never writes
  check --quick                 the same without format and clippy
  fix                           format, clippy's fixes, the core crates' clippy.toml
  fix --quick                   only the core crates' clippy.toml
  build-services [options]      services to WebAssembly, in target/services/NAME.wasm
      --out DIR                 put them in DIR instead
      --toolchain rustup|debian use this toolchain instead of the first that is there
";

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
    let sources = sources::Sources::load(&workspace.root)?;

    let mut problems = 0;
    let mut report = |name: &str, found: Vec<String>| {
        println!(
            "check {name}: {}",
            if found.is_empty() { "ok" } else { "FAILED" }
        );
        for line in &found {
            eprintln!("error: {line}");
        }
        problems += found.len();
    };
    report("crate arrows", arrows::problems(&architecture, &workspace));
    report(
        "clocks and sockets",
        bans::problems(&architecture, &workspace, &sources),
    );
    report(
        "unsafe code",
        sources.unsafe_problems(&architecture, &workspace),
    );
    let knots = knots::find(&workspace)?;
    report("knots", knots.problems);
    for line in knots.warnings {
        println!("warning: {line}");
    }
    report("paths in documents", sources.dead_paths());
    for line in sources.long_files() {
        println!("warning: {line}");
    }
    if with_cargo {
        report(
            "format",
            cargo(&["fmt", "--all", "--check"])
                .err()
                .into_iter()
                .collect(),
        );
        let clippy = cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]);
        report("clippy", clippy.err().into_iter().collect());
    }
    match problems {
        0 => Ok(()),
        1 => Err("1 problem".into()),
        n => Err(format!("{n} problems")),
    }
}

fn fix(with_cargo: bool) -> Outcome<()> {
    let workspace = Workspace::load()?;
    let architecture = Architecture::load(&workspace.root)?;
    bans::write(&architecture, &workspace)?;
    if !with_cargo {
        return Ok(());
    }
    cargo(&[
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--workspace",
        "--all-targets",
    ])?;
    cargo(&["fmt", "--all"])
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
