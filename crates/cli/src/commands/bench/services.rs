//! `e3 bench services`: every service in WebAssembly against the same crate compiled natively. The
//! measuring is done by the program `e3-native`, since this one contains no service.

use crate::commands::bench::Line;
use crate::documents::modules;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use serde::Deserialize;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the services reach together (geometric mean), each alone, and those on accelerators.
const AIMS: (f64, f64, f64) = (0.75, 0.5, 0.9);
/// How the native services are built.
const BUILD: &str = "build it with: cargo build --release -p e3-native";

/// What `services` runs.
pub const ABOUT: &str = "\
Each service on one core, in WebAssembly on the engine and compiled natively (the same crate, the
workspace's release profile) on the engine's own queue, collections, buffers and accelerators, in rounds
that alternate on one thread, timed by its processor time. Both handle the same requests of about 512
bytes, and before and after the rounds writes, messages and replies are compared byte for byte.";

/// A service's measurement, as `e3-native` prints it.
#[derive(Deserialize)]
struct Figure {
    name: String,
    requests: String,
    bytes: f64,
    accelerated: bool,
    rps: f64,
    native_rps: f64,
    rounds: usize,
    round_requests: usize,
    compared: usize,
}

/// The program that measures, beside this one.
fn program() -> Result<PathBuf, Failure> {
    let here = std::env::current_exe().unwrap_or_default();
    let program = here.with_file_name("e3-native");
    match program.is_file() {
        true => Ok(program),
        false => {
            let message = format!("{} is missing: the services natively", program.display());
            Err(Failure::new(Exit::NotFound, message).hint(BUILD))
        }
    }
}

fn modules(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let dirs = modules::dirs(given);
    match dirs.iter().find(|dir| dir.join("ipsec.wasm").is_file()) {
        Some(dir) => Ok(dir.clone()),
        None => {
            let hint = "build them with: cargo xtask build-services, or give --services DIR";
            let message = "the services' modules are not found";
            Err(Failure::new(Exit::NotFound, message).hint(hint))
        }
    }
}

/// Runs the benchmark; `services` is where the modules are, if it was said.
pub fn run(services: Option<&Path>, settings: &Settings) -> Result<Vec<Line>, Failure> {
    let program = program()?;
    let services = services.or(settings.file.services.as_deref());
    let failed = |e: &dyn std::fmt::Display| {
        Failure::new(Exit::Unexpected, format!("{}: {e}", program.display()))
    };
    let mut child = Command::new(&program)
        .arg(modules(services)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed(&e))?;
    let out = child.stdout.take().expect("is piped");
    let bar = output::progress(16, "services");
    let mut figures: Vec<Figure> = Vec::new();
    for line in BufReader::new(out).lines() {
        let line = line.map_err(|e| failed(&e))?;
        figures.push(serde_json::from_str(&line).map_err(|e| failed(&e))?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let status = child.wait().map_err(|e| failed(&e))?;
    match status.success() && !figures.is_empty() {
        true => Ok(lines(&figures)),
        false => {
            let message = format!("{} did not measure: {status}", program.display());
            Err(Failure::new(Exit::Check, message))
        }
    }
}

fn lines(figures: &[Figure]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut logarithms = 0.0;
    for f in figures {
        let figure = |what: &str, value: f64, unit, note: String| Line {
            name: format!("services.{}.{what}", f.name),
            value: Some(value),
            unit,
            better: "higher",
            aim: None,
            pass: None,
            note,
        };
        let how = format!(
            "{} (on average {:.0} bytes); {} alternating rounds of {}, effects of {} requests compared",
            f.requests, f.bytes, f.rounds, f.round_requests, f.compared
        );
        lines.push(figure("rps", f.rps, "requests/s", how));
        let natively = "compiled natively".to_string();
        lines.push(figure("native_rps", f.native_rps, "requests/s", natively));
        let ratio = f.rps / f.native_rps;
        logarithms += ratio.ln();
        let (aim, what) = match f.accelerated {
            true => (AIMS.2, "; lives on accelerators"),
            false => (AIMS.1, ""),
        };
        let note = format!(
            "{:.0} ns a request, natively {:.0} ns{what}",
            1e9 / f.rps,
            1e9 / f.native_rps
        );
        lines.push(Line {
            aim: Some(aim),
            pass: Some(ratio >= aim),
            ..figure("wasm_over_native", ratio, "of native", note)
        });
    }
    let mean = (logarithms / figures.len() as f64).exp();
    lines.push(Line {
        name: "services.geomean".into(),
        value: Some(mean),
        unit: "of native",
        better: "higher",
        aim: Some(AIMS.0),
        pass: Some(mean >= AIMS.0),
        note: format!("geometric mean of the {} ratios", figures.len()),
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_become_lines_with_their_aims() {
        let figure = |name: &str, accelerated, rps| Figure {
            name: name.into(),
            requests: "packets".into(),
            bytes: 512.0,
            accelerated,
            rps,
            native_rps: 100.0,
            rounds: 3,
            round_requests: 64,
            compared: 8,
        };
        let lines = lines(&[figure("a", true, 80.0), figure("b", false, 80.0)]);
        let of = |name: &str| lines.iter().find(|l| l.name == name).expect("there");
        assert_eq!(of("services.a.rps").value, Some(80.0));
        assert_eq!(of("services.a.native_rps").pass, None);
        assert_eq!(of("services.a.wasm_over_native").pass, Some(false));
        assert_eq!(of("services.b.wasm_over_native").pass, Some(true));
        let mean = of("services.geomean");
        assert!(mean.pass == Some(true) && mean.value.is_some_and(|v| (v - 0.8).abs() < 1e-9));
    }
}
