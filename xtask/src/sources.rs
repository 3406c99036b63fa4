//! The texts of the repository, and the checks of Rust files: unsafe code, length.

use std::path::{Path, PathBuf};

use crate::architecture::Architecture;
use crate::process::Outcome;
use crate::workspace::Workspace;

/// Lines of a source file above which it should be split.
const LINES_MAX: usize = 500;
/// Directories whose files are not ours.
pub const SKIPPED_DIRS: [&str; 3] = ["target", "node_modules", "vendor"];
/// Endings of the names of files to read.
const ENDINGS: [&str; 5] = [".rs", ".md", ".py", "Makefile", "setup"];
/// The texts of the repository.
pub struct Sources {
    /// Directory of the repository.
    pub root: PathBuf,
    /// Path from the root and contents, in order of path.
    pub files: Vec<(String, String)>,
}

impl Sources {
    /// Reads code and documents under `root`, hidden directories left out.
    pub fn load(root: &Path) -> Outcome<Self> {
        let mut files = Vec::new();
        let mut dirs = vec![root.to_owned()];
        while let Some(dir) = dirs.pop() {
            let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
            for entry in std::fs::read_dir(&dir).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let (path, name) = (entry.path(), entry.file_name());
                let name = name.to_string_lossy();
                if name.starts_with('.') || SKIPPED_DIRS.contains(&name.as_ref()) {
                    continue;
                }
                if entry.file_type().map_err(failed)?.is_dir() {
                    dirs.push(path);
                } else if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                    let text = std::fs::read_to_string(&path)
                        .map_err(|e| format!("{}: {e}", path.display()))?;
                    let inside = path.strip_prefix(root).unwrap_or(&path);
                    files.push((inside.to_string_lossy().into_owned(), text));
                }
            }
        }
        files.sort();
        Ok(Self {
            root: root.to_owned(),
            files,
        })
    }

    /// Lines of Rust files below `prefix` that contain one of `words`.
    pub fn lines_with(&self, prefix: &str, words: &[&str]) -> Vec<(&str, usize)> {
        let mut found = Vec::new();
        for (path, text) in self.rust().filter(|(path, _)| path.starts_with(prefix)) {
            for (n, line) in text.lines().enumerate() {
                if words.iter().any(|word| line.contains(word)) {
                    found.push((path, n + 1));
                }
            }
        }
        found
    }

    /// Crates that allow unsafe code without a row that permits it.
    pub fn unsafe_problems(
        &self,
        architecture: &Architecture,
        workspace: &Workspace,
    ) -> Vec<String> {
        let mut found = Vec::new();
        for package in &workspace.packages {
            let dir = package.dir.strip_prefix(&self.root).unwrap_or(&package.dir);
            let dir = format!("{}/", dir.display());
            let manifest = std::fs::read_to_string(package.dir.join("Cargo.toml"));
            if !manifest.is_ok_and(|text| inherits_lints(&text)) {
                found.push(format!(
                    "{dir}Cargo.toml: must say [lints] workspace = true"
                ));
            }
            if architecture
                .row(&package.short)
                .is_some_and(|row| row.unsafe_code)
            {
                continue;
            }
            let lifting = [
                "allow(unsafe_code",
                "expect(unsafe_code",
                "warn(unsafe_code",
            ];
            for (path, line) in self.lines_with(&dir, &lifting) {
                // this file contains the words that it searches
                if path != "xtask/src/sources.rs" {
                    found.push(format!(
                        "{path}:{line}: ARCHITECTURE.md allows no unsafe code in {}",
                        package.short
                    ));
                }
            }
        }
        found
    }

    /// Rust files that are too long.
    pub fn long_files(&self) -> Vec<String> {
        self.rust()
            .map(|(path, text)| (path, text.lines().count()))
            .filter(|(_, lines)| *lines > LINES_MAX)
            .map(|(path, lines)| format!("{path}: {lines} lines, aim for at most {LINES_MAX}"))
            .collect()
    }

    /// Documents with their path from the root.
    pub fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter().filter(|(path, _)| path.ends_with(".md"));
        files.map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Rust files with their path from the root.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        let rust = |(path, _): &&(String, String)| path.ends_with(".rs");
        self.files
            .iter()
            .filter(rust)
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

/// Whether a manifest inherits the workspace's lints.
fn inherits_lints(manifest: &str) -> bool {
    let mut section = "";
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            section = line;
        }
        line == "lints.workspace = true"
            || (section == "[lints]" && line.replace(' ', "") == "workspace=true")
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn sources(files: &[(&str, &str)]) -> Sources {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Sources {
            root,
            files: files.iter().map(own).collect(),
        }
    }

    #[test]
    fn long_files_are_listed() {
        let (long, short) = ("\n".repeat(LINES_MAX + 1), "\n".repeat(LINES_MAX));
        let found =
            sources(&[("long.rs", &long), ("long.md", &long), ("short.rs", &short)]).long_files();
        assert_eq!(found, ["long.rs: 501 lines, aim for at most 500"]);
    }

    #[test]
    fn lints_are_inherited_in_either_spelling() {
        assert!(inherits_lints("[package]\nlints.workspace = true\n"));
        assert!(inherits_lints("[lints]\nworkspace = true\n"));
        assert!(!inherits_lints(
            "[lints.rust]\nunsafe_code = \"allow\"\n[x]\nworkspace = true\n"
        ));
    }

    #[test]
    fn lines_are_found_below_a_prefix() {
        let all = sources(&[("a/x.rs", "one\ntwo"), ("b/x.rs", "two")]);
        assert_eq!(all.lines_with("a/", &["two"]), [("a/x.rs", 2)]);
    }
}
