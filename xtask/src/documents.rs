//! Compares the documents with the repository: paths, links and their anchors, commands, variables.
//!
//! The commands and flags of `e3` itself are compared by a test beside the program,
//! `crates/cli/tests/documents.rs`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::architecture::code_spans;
use crate::sources::{SKIPPED_DIRS, Sources};
use crate::usage::USAGE;
use crate::workspace::Workspace;

/// Endings that make a word with a slash a path.
const PATH_ENDINGS: [&str; 13] = [
    "rs", "md", "toml", "yaml", "yml", "sh", "c", "h", "csv", "json", "wit", "wasm", "svg",
];
/// Words that stand for something in a path of a document.
const PLACEHOLDERS: [&str; 8] = ["NAME", "FILE", "DIR", "APP", "KIND", "NNN", "X", "N"];

/// What the documents name and the repository does not have.
pub fn problems(sources: &Sources, workspace: &Workspace) -> Vec<String> {
    let code = |(path, _): &&(String, String)| !path.ends_with(".md");
    let code: Vec<&str> = sources
        .files
        .iter()
        .filter(code)
        .map(|f| f.1.as_str())
        .collect();
    let makefile = sources.files.iter().find(|(path, _)| path == "Makefile");
    let makefile = makefile.map_or("", |(_, text)| text);
    let mut found = Vec::new();
    for (document, text) in sources.documents() {
        for (line, span) in spans(text) {
            let dead = match &span {
                Span::Link(target) => dead_link(sources, document, text, target),
                Span::Code(word) => dead_path(sources, document, word),
                Span::Block(_) => None,
            };
            let commands = match &span {
                Span::Link(_) => "",
                Span::Code(text) | Span::Block(text) => text,
            };
            let unknown = dead_command(commands, makefile, workspace)
                .into_iter()
                .chain(dead_variables(commands, &code));
            let lines = dead.into_iter().chain(unknown);
            found.extend(lines.map(|what| format!("{document}:{line}: {what} does not exist")));
        }
    }
    found
}

/// A part of a document that names something.
#[derive(Debug, PartialEq)]
enum Span {
    /// Between backticks.
    Code(String),
    /// A line of a fenced block.
    Block(String),
    /// The target of a link or of a picture, within the repository.
    Link(String),
}

/// The parts with their lines.
fn spans(document: &str) -> Vec<(usize, Span)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (n, line) in document.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            found.push((n + 1, Span::Block(line.to_owned())));
        } else {
            found.extend(
                code_spans(line)
                    .into_iter()
                    .map(|word| (n + 1, Span::Code(word))),
            );
            let targets = line.split("](").skip(1).chain(line.split("src=\"").skip(1));
            for rest in targets {
                let target = rest.split([')', ' ', '"']).next().unwrap_or_default();
                if !target.contains(':') && !target.is_empty() {
                    found.push((n + 1, Span::Link(target.to_owned())));
                }
            }
        }
    }
    found
}

/// The target of a link if it leads nowhere: neither file nor heading.
fn dead_link(sources: &Sources, document: &str, text: &str, target: &str) -> Option<String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let here = Path::new(document).parent().unwrap_or(Path::new(""));
    let full = sources.root.join(here).join(path);
    if !path.is_empty() && !full.exists() {
        return Some(target.to_owned());
    }
    if anchor.is_empty() {
        return None;
    }
    let there = if path.is_empty() {
        text.to_owned()
    } else {
        std::fs::read_to_string(full).ok()?
    };
    (!anchors(&there).contains(anchor)).then(|| format!("the heading of {target}"))
}

/// The anchors that GitHub gives to a document's headings.
fn anchors(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter(|line| line.starts_with('#'));
    let text = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    text.map(|heading| {
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
    .collect()
}

/// A word in backticks that means a file of this repository which is not there.
fn dead_path(sources: &Sources, document: &str, word: &str) -> Option<String> {
    let here = Path::new(document).parent().unwrap_or(Path::new(""));
    // of a glob only the directory is checked
    let fixed = word.find('*').map_or(word, |star| {
        word[..star].rsplit_once('/').map_or("", |(dir, _)| dir)
    });
    let roots = [sources.root.join(here), sources.root.clone()];
    let is_there = roots.iter().any(|root| root.join(fixed).exists());
    (!is_there && looks_like_ours(&sources.root, word)).then(|| word.to_owned())
}

/// Whether a word in backticks means a file of this repository.
fn looks_like_ours(root: &Path, word: &str) -> bool {
    let odd = |c: char| !(c.is_ascii_alphanumeric() || "/._-*+".contains(c));
    if word.starts_with(['/', '.', '-']) || word.contains(odd) {
        return false;
    }
    let mut parts = word.split(['/', '.', '-', '_']);
    if parts.any(|part| PLACEHOLDERS.contains(&part)) {
        return false;
    }
    let ending = word
        .rsplit_once('.')
        .is_some_and(|(_, e)| PATH_ENDINGS.contains(&e));
    match word.split_once('/') {
        Some((first, _)) if SKIPPED_DIRS.contains(&first) => false,
        Some((first, rest)) => ending || (!rest.is_empty() && root.join(first).is_dir()),
        None => word.ends_with(".md"),
    }
}

/// What a command of make or cargo names and is not there.
fn dead_command(text: &str, makefile: &str, workspace: &Workspace) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |flag: &str| {
        let at = words.iter().position(|word| *word == flag)?;
        words.get(at + 1).copied()
    };
    match words.as_slice() {
        ["make", target, ..] => {
            let rule = format!("{target}:");
            let is_there = makefile.lines().any(|line| line.starts_with(&rule));
            (!is_there).then(|| format!("make {target}"))
        }
        ["cargo", "xtask", task, ..] => {
            (!USAGE.contains(&format!("  {task} "))).then(|| format!("cargo xtask {task}"))
        }
        ["cargo", ..] => {
            let name = after("-p").filter(|name| !name.contains("NAME"))?;
            let Some(package) = workspace.packages.iter().find(|p| p.name == name) else {
                return Some(format!("package {name}"));
            };
            let kinds = [
                ("--test", "tests"),
                ("--example", "examples"),
                ("--bench", "benches"),
            ];
            let named = kinds
                .into_iter()
                .filter_map(|(flag, dir)| Some((dir, after(flag)?)));
            let filters = words.iter().skip_while(|word| **word != "--").skip(1);
            let filters = filters.filter(|word| words[1] == "test" && !word.starts_with('-'));
            let filters = filters.map(|word| ("tests", word.split("::").next().unwrap_or(word)));
            named.chain(filters).find_map(|(dir, name)| {
                let target = package.dir.join(dir).join(name);
                let is_there = target.is_dir() || target.with_extension("rs").exists();
                (!is_there).then(|| format!("{}", target.display()))
            })
        }
        _ => None,
    }
}

/// Variables of the environment that no code reads.
fn dead_variables(text: &str, code: &[&str]) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit();
    let names = text.split(|c: char| !is_part(c));
    let ours = names.filter(|name| name.len() > 3 && name.starts_with("E3_"));
    let unread = ours.filter(|name| !code.iter().any(|text| text.contains(name)));
    unread.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::sources;
    use crate::workspace::tests::small;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        problems(&sources(files), &small())
    }

    #[test]
    fn dead_paths_are_found_and_living_ones_pass() {
        let text = "\
See `src/main.rs`, `src/gone.rs`, [this](src/wasm.rs), [that](src/lost.rs).
Not ours: `GET /v1/apps`, `std::fs`, `~/x.toml`, `target/services/ema.wasm`, `a/b`, `/etc/x.md`.
Stands for: `src/NAME.rs`, `docs/NNN-name.md`, `src/*.rs`, `attic/*.rs`, [web](https://e3.dev/x).
```
`src/fenced.rs`
```
`OLD.md`, <img src=\"gone.svg\">
";
        assert_eq!(
            found(&[("a.md", text)]),
            [
                "a.md:1: src/gone.rs does not exist",
                "a.md:1: src/lost.rs does not exist",
                "a.md:3: attic/*.rs does not exist",
                "a.md:7: OLD.md does not exist",
                "a.md:7: gone.svg does not exist",
            ]
        );
    }

    #[test]
    fn anchors_are_headings() {
        let text = "# One\n## The `e3 get` page, 2\n[a](#one) [b](#the-e3-get-page-2) [c](#two)\n";
        assert_eq!(
            found(&[("a.md", text)]),
            ["a.md:3: the heading of #two does not exist"]
        );
    }

    #[test]
    fn commands_and_variables_are_held_against_the_repository() {
        let text = "\
`make test`, `make tea`, `cargo xtask check --quick`, `cargo xtask brew`, `E3_SEED=1`, `E3_TEA`
`cargo test -p e3-wire`, `cargo test -p e3-gone`, `cargo test -p e3-wire --test lost`
`cargo test -p e3-wire -- vanished::once`
```sh
make tea
```
";
        let files = [
            ("a.md", text),
            ("Makefile", "test: all\n"),
            ("a.rs", "std::env::var(\"E3_SEED\")"),
        ];
        assert_eq!(
            found(&files),
            [
                "a.md:1: make tea does not exist",
                "a.md:1: cargo xtask brew does not exist",
                "a.md:1: E3_TEA does not exist",
                "a.md:2: package e3-gone does not exist",
                "a.md:2: /r/crates/wire/tests/lost does not exist",
                "a.md:3: /r/crates/wire/tests/vanished does not exist",
                "a.md:5: make tea does not exist",
            ]
        );
    }
}
