//! `e3 formats`: says what this program reads and can write, for `e3 upgrade` of another release.

use crate::cluster::programs::formats;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use e3_model::Formats;
use e3_model::format::RELEASE;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a program says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Release {
    /// Its release.
    pub release: String,
    /// Formats that it reads and can write.
    pub formats: Formats,
}

/// `e3 formats`.
pub fn run() -> Result<(), Failure> {
    let own = Release {
        release: RELEASE.into(),
        formats: formats()?,
    };
    let text = serde_json::to_string(&own)
        .map_err(|e| Failure::new(Exit::Unexpected, format!("print formats: {e}")))?;
    output::print(&format!("{text}\n"))
}

/// Asks another program.
pub fn of(program: &Path) -> Result<Release, Failure> {
    let name = program.display();
    let wrong = |what: String| {
        Failure::new(Exit::Input, format!("{name} is no e3 program: {what}"))
            .hint("give the path of an executable of E3 that has the command upgrade")
    };
    let output = Command::new(program)
        .arg("formats")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| wrong(e.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().next().unwrap_or("it says nothing").to_string();
        return Err(wrong(format!("{name} formats fails: {last}")));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| wrong(format!("its answer about formats cannot be read: {e}")))
}
