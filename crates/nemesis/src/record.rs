//! How many seeds have run on this source, in a file that many runs add to. With another source it
//! begins again.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::process::Command;

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
        let record = serde_json::from_slice(&text).ok();
        let record = record.filter(|r: &Record| r.source == source);
        Ok(record.unwrap_or(Record {
            source: source.to_string(),
            next_seed: base,
            ..Record::default()
        }))
    }
}

/// The hash of everything that this program is built from: its crates, without their tests, and the
/// locked versions of all others. An error if it has changes that are not committed, or if git or
/// cargo do not answer.
pub fn source() -> Result<String, String> {
    let tree = "tree --package e3-nemesis --edges normal,build --prefix none --format {p} --locked";
    let tree = output("cargo", tree.split(' '))?;
    let paths = tree.lines().filter_map(|line| {
        let (_, rest) = line.split_once(" (")?;
        rest.split_once(')').map(|(path, _)| path.to_string())
    });
    let crates = paths.filter(|path| path.starts_with('/'));
    let mut paths: Vec<String> = crates
        .flat_map(|path| [format!("{path}/src"), format!("{path}/Cargo.toml")])
        .collect();
    paths.push(output("git", ["rev-parse", "--show-toplevel"])? + "/Cargo.lock");
    paths.sort();
    paths.dedup();
    let with = |words: &[&str]| {
        let words = words.iter().map(ToString::to_string);
        words.chain(paths.iter().cloned()).collect::<Vec<_>>()
    };
    let changed = output("git", with(&["status", "--porcelain", "--"]))?;
    if !changed.is_empty() {
        return Err(format!("changes are not committed:\n{changed}"));
    }
    let files = output("git", with(&["ls-files", "--stage", "--"]))?;
    Ok(format!("{:016x}", fnv(files.as_bytes())))
}

/// FNV-1a: good enough to notice an accidental change of names that are hashes themselves.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
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
