//! Every service in WebAssembly against the same crate compiled natively.
//!
//! The program `e3-native` measures, since a program with all services compiled in is no program for
//! users. It prints a [`Figure`] a line; this module runs it and adds the mean.

use crate::{Better, Figure};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use thiserror::Error;

/// What the group runs.
pub const ABOUT: &str = "\
Each service on one core, in WebAssembly on the engine and compiled natively (the same crate, the
workspace's release profile) on the engine's own queue, collections, buffers and accelerators, in rounds
that alternate on one thread, timed by its processor time. Both handle the same requests of about 512
bytes, and before and after the rounds writes, messages and replies are compared byte for byte.";

/// The ratio that the services reach together: their geometric mean.
const AIM_MEAN: f64 = 0.75;
/// How the names of the ratios end.
const RATIO: &str = ".wasm_over_native";

/// Why the services were not measured.
#[derive(Debug, Error)]
pub enum ServicesError {
    /// The program does not start, or its output cannot be read.
    #[error("{0}")]
    Run(#[from] io::Error),
    /// A line of its output is not a figure.
    #[error("not a figure: {0}")]
    Figure(#[from] serde_json::Error),
    /// It failed, or measured nothing.
    #[error("did not measure: {0}")]
    Failed(ExitStatus),
}

/// Runs the program on the modules in this directory. `on_ratio` is called after each service.
pub fn run(
    program: &Path,
    modules: &Path,
    mut on_ratio: impl FnMut(),
) -> Result<Vec<Figure>, ServicesError> {
    let mut child = Command::new(program)
        .arg(modules)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().expect("it is piped");
    let mut figures: Vec<Figure> = Vec::new();
    for line in BufReader::new(output).lines() {
        let figure: Figure = serde_json::from_str(&line?)?;
        if figure.name.ends_with(RATIO) {
            on_ratio();
        }
        figures.push(figure);
    }
    let status = child.wait()?;
    if !status.success() || figures.is_empty() {
        return Err(ServicesError::Failed(status));
    }
    figures.push(mean(&figures));
    Ok(figures)
}

/// The geometric mean of the ratios.
fn mean(figures: &[Figure]) -> Figure {
    let ratios = figures.iter().filter(|f| f.name.ends_with(RATIO));
    let ratios: Vec<f64> = ratios.filter_map(|f| f.value).collect();
    let logarithms: f64 = ratios.iter().map(|r| r.ln()).sum();
    let mean = (logarithms / ratios.len() as f64).exp();
    Figure::new("services.geomean", mean, "of native", Better::Higher)
        .aim(AIM_MEAN)
        .note(format!("geometric mean of the {} ratios", ratios.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_that_of_the_ratios() {
        let figure = |name: &str, value| Figure::new(name, value, "", Better::Higher);
        let figures = [
            figure("services.a.rps", 100.0),
            figure("services.a.wasm_over_native", 0.9),
            figure("services.b.wasm_over_native", 0.4),
        ];
        let mean = mean(&figures);
        assert!(mean.value.is_some_and(|v| (v - 0.6).abs() < 1e-9));
        assert_eq!(mean.pass, Some(false));
        assert!(mean.note.contains("the 2 ratios"));
    }
}
