//! Checks that read the repository's text: unsafe code, long files, dead paths in documents.

use std::path::{Path, PathBuf};

use crate::architecture::{Architecture, code_spans};
use crate::process::Outcome;
use crate::workspace::Workspace;

/// Lines of a source file from which on it is worth a split.
const LINES_MAX: usize = 500;
/// Directories that hold nothing of ours.
const SKIPPED_DIRS: [&str; 3] = ["target", "node_modules", "vendor"];
/// Endings that make a word with a slash a path.
const PATH_ENDINGS: [&str; 12] = [
    "rs", "md", "toml", "yaml", "yml", "sh", "c", "h", "csv", "json", "wit", "wasm",
];
/// Words that stand for something in a path of a document.
const PLACEHOLDERS: [&str; 8] = ["NAME", "FILE", "DIR", "APP", "KIND", "NNN", "X", "N"];

/// The texts of the repository.
pub struct Sources {
    root: PathBuf,
    /// Path from the root and contents, in order of path.
    files: Vec<(String, String)>,
}

impl Sources {
    /// Reads every Rust file and document under `root`, hidden directories left out.
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
                } else if name.ends_with(".rs") || name.ends_with(".md") {
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

    /// Crates that lift the workspace's ban on unsafe code without being named for it.
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
                // this file holds the words that it looks for
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

    /// Paths and links in documents that lead nowhere.
    pub fn dead_paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (document, text) in self.files.iter().filter(|(path, _)| path.ends_with(".md")) {
            let here = self
                .root
                .join(Path::new(document).parent().unwrap_or(Path::new("")));
            for (line, path, is_link) in paths_in(text) {
                let path = path.split('#').next().unwrap_or_default();
                let inside = path.trim_start_matches('/');
                // a glob is held to the directory that it looks in
                let fixed = inside.find('*').map_or(inside, |star| {
                    inside[..star].rsplit_once('/').map_or("", |(dir, _)| dir)
                });
                let alive = here.join(fixed).exists() || self.root.join(fixed).exists();
                if !alive && (is_link || self.looks_like_ours(path)) {
                    found.push(format!("{document}:{line}: {path} does not exist"));
                }
            }
        }
        found
    }

    /// Whether a word in backticks means a file of this repository.
    fn looks_like_ours(&self, word: &str) -> bool {
        let odd = |c: char| !(c.is_ascii_alphanumeric() || "/._-*+".contains(c));
        if word.starts_with(['/', '.', '-']) || word.contains(odd) {
            return false;
        }
        let stands_for = |part: &str| {
            part.split(['.', '-', '_'])
                .any(|w| PLACEHOLDERS.contains(&w))
        };
        if word.split('/').any(stands_for) {
            return false;
        }
        let ending = word
            .rsplit_once('.')
            .is_some_and(|(_, e)| PATH_ENDINGS.contains(&e));
        match word.split_once('/') {
            Some((first, _)) if SKIPPED_DIRS.contains(&first) => false,
            Some((first, rest)) => ending || (!rest.is_empty() && self.root.join(first).is_dir()),
            None => word.ends_with(".md"),
        }
    }

    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        let rust = |(path, _): &&(String, String)| path.ends_with(".rs");
        self.files
            .iter()
            .filter(rust)
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

/// Whether a manifest takes the workspace's lints.
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

/// Words in backticks and targets of links, with their line; fenced blocks are left out.
fn paths_in(document: &str) -> Vec<(usize, String, bool)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (n, line) in document.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        found.extend(
            code_spans(line)
                .into_iter()
                .map(|word| (n + 1, word, false)),
        );
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            let elsewhere = target.contains(':') || target.starts_with('#') || target.is_empty();
            if !elsewhere {
                found.push((n + 1, target.to_owned(), true));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Sources {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Sources {
            root,
            files: files.iter().map(own).collect(),
        }
    }

    #[test]
    fn dead_paths_are_found_and_living_ones_pass() {
        let text = "\
See `src/main.rs`, `src/gone.rs`, [this](src/wasm.rs#top), [that](src/lost.rs).
Not ours: `GET /v1/apps`, `std::fs`, `~/x.toml`, `target/services/ema.wasm`, `a/b`, `/etc/x.md`.
Stands for: `src/NAME.rs`, `docs/NNN-name.md`, `src/*.rs`, `attic/*.rs`, [web](https://e3.dev/x).
```
`src/fenced.rs`
```
`OLD.md`
";
        assert_eq!(
            sources(&[("a.md", text)]).dead_paths(),
            [
                "a.md:1: src/gone.rs does not exist",
                "a.md:1: src/lost.rs does not exist",
                "a.md:3: attic/*.rs does not exist",
                "a.md:7: OLD.md does not exist",
            ]
        );
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
