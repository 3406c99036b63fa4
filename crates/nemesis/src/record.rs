//! How many seeds have run on this source, in a file that many runs add to. With another source it
//! begins again.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// The results of all runs on one source.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// Hash of the source, see [`source`].
    pub source: String,
    /// The first seed that has not run.
    pub next_seed: u64,
    /// Seeds that have run.
    pub seeds: u64,
    /// Those that failed.
    pub failed_seeds: Vec<u64>,
}

impl Record {
    /// The record of a source, from its file if that has it. Otherwise it begins with seed `base`.
    pub fn read(file: &Path, source: &str, base: u64) -> Result<Record, String> {
        let text = match std::fs::read(file) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(format!("{}: {e}", file.display())),
        };
        let begun = Record {
            source: source.to_string(),
            next_seed: base,
            ..Record::default()
        };
        if text.is_empty() {
            return Ok(begun);
        }
        let record: Record = serde_json::from_slice(&text)
            .map_err(|e| format!("{} is not a record of seeds: {e}", file.display()))?;
        Ok(if record.source == source {
            record
        } else {
            begun
        })
    }
}

/// The hash of everything that this program is built from: its crates, without their tests, and the
/// versions of all others. An error if it has changes that are not committed, if the program is older than
/// it, or if git or cargo do not answer.
pub fn source() -> Result<String, String> {
    let tree = "tree --package e3-nemesis --edges normal,build --prefix none --format {p} --locked";
    let tree = output("cargo", tree.split(' '))?;
    // a line is "name v1.2.3", with " (/path)" for a crate of the workspace and " (*)" for a repetition
    let path = |line: &str| -> Option<String> {
        let (_, rest) = line.split_once(" (/")?;
        Some(format!("/{}", rest.split_once(')')?.0))
    };
    let mut paths: Vec<String> = tree
        .lines()
        .filter_map(path)
        .flat_map(|path| [format!("{path}/src"), format!("{path}/Cargo.toml")])
        .collect();
    paths.sort();
    paths.dedup();
    let others = tree.lines().filter(|line| path(line).is_none());
    let mut others: Vec<&str> = others.map(|line| line.trim_end_matches(" (*)")).collect();
    others.sort_unstable();
    others.dedup();
    let with = |words: &[&str]| {
        let words = words.iter().map(ToString::to_string);
        words.chain(paths.iter().cloned()).collect::<Vec<_>>()
    };
    let changed = output("git", with(&["status", "--porcelain", "--"]))?;
    if !changed.is_empty() {
        return Err(format!("changes are not committed:\n{changed}"));
    }
    let written = output("git", with(&["ls-files", "--full-name", "--"]))?;
    let root = output("git", ["rev-parse", "--show-toplevel"])?;
    let newest = written
        .lines()
        .filter_map(|file| written_at(&Path::new(&root).join(file)));
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| written_at(&path));
    if program < newest.max() {
        let error = "this program is older than its source: build it again, as with make nemesis";
        return Err(error.into());
    }
    let files = output("git", with(&["ls-files", "--stage", "--"]))?;
    let all = format!("{files}{}", others.join("\n"));
    Ok(format!("{:016x}", e3_model::ids::fnv1a(all.as_bytes())))
}

/// When a file was written.
fn written_at(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file)
        .and_then(|file| file.modified())
        .ok()
}

/// What a program prints.
pub(crate) fn output(
    program: &str,
    arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>,
) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|e| format!("{program}: {e}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program}: {}", error.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}
