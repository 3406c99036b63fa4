//! Files of `e3 eval --out`: a JSON file and the plots of each experiment, and the report.

use super::result::EvalView;
use super::{plot, report};
use crate::ui::failure::{Exit, Failure};
use std::path::Path;

/// Makes the directory, and refuses one that cannot be written before an experiment runs.
pub fn check(dir: &Path) -> Result<(), Failure> {
    let refused = |e: &std::io::Error| {
        let message = format!("write to {}: {e}", dir.display());
        Failure::new(Exit::Input, message).hint("name another directory with --out")
    };
    std::fs::create_dir_all(dir).map_err(|e| refused(&e))?;
    tempfile::tempfile_in(dir).map_err(|e| refused(&e))?;
    Ok(())
}

/// Writes all.
pub fn write(dir: &Path, view: &EvalView) -> Result<(), Failure> {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| Failure::file("write", &path, &e))
    };
    for outcome in &view.outcomes {
        let text = serde_json::to_string_pretty(outcome)
            .map_err(|e| Failure::new(Exit::Unexpected, format!("write output: {e}")))?;
        file(&format!("{}.json", outcome.experiment), &(text + "\n"))?;
        for (at, drawn) in outcome.plots.iter().enumerate() {
            let name = format!("{}-{}.svg", outcome.experiment, at + 1);
            file(&name, &plot::svg(drawn)?)?;
        }
    }
    file(report::FILE, &report::html(view)?)
}
