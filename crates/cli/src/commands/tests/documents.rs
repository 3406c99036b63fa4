//! The documents against the command line: what they name exists, and their examples parse.

use super::super::Cli;
use clap::{Command, CommandFactory, Parser};
use std::collections::BTreeSet;
use std::path::Path;

/// Options of other programs that documents name by themselves.
const FOREIGN: [&str; 3] = ["--checks", "--aarch64", "--toolchain"];

/// Every document of the repository with its path.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut dirs = vec![root.clone()];
    dirs.extend(["docs", "services", "profiles", "data"].map(|dir| root.join(dir)));
    let mut found = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.display().to_string(), text));
            } else if path.is_dir() && dir.starts_with(root.join("docs")) {
                dirs.push(path);
            }
        }
    }
    found
}

/// The `e3` commands in the shell blocks of a page.
fn examples(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|part| part.split("```").next());
    let joined = blocks.collect::<String>().replace("\\\n", " ");
    let parts = joined.split(['\n', '|', ';', '&']);
    let commands = parts.map(|part| part.split(" #").next().unwrap_or_default());
    let commands = commands.map(|c| c.trim().trim_start_matches('('));
    commands
        .filter(|c| c.starts_with("e3 "))
        .map(str::to_string)
        .collect()
}

/// Splits as a shell does, as far as these commands need it.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in command.chars().take_while(|c| *c != '>') {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}

/// The long and short options of a command.
fn options(command: &Command) -> BTreeSet<String> {
    let long = command.get_arguments().filter_map(|a| a.get_long());
    let short = command.get_arguments().filter_map(|a| a.get_short());
    let names = long.map(|name| format!("--{name}"));
    names.chain(short.map(|name| format!("-{name}"))).collect()
}

/// What a code span names that the program does not have.
fn unknown(span: &str, program: &Command) -> Vec<String> {
    let parts = span.split(['\n', ' ', '[', ']', '|', '=', ',', '(']);
    let is_option = |word: &&str| {
        word.starts_with('-') && word.len() > 1 && !word.ends_with('-') && *word != "->"
    };
    let mut known = options(program);
    known.extend(["--help", "-h", "--version"].map(str::to_string));
    if let Some(line) = span.strip_prefix("e3 ") {
        let name = line.split(' ').next().unwrap_or_default();
        if name.starts_with(|c: char| !c.is_ascii_lowercase()) {
            return Vec::new();
        }
        let Some(mut command) = program.find_subcommand(name) else {
            return vec![format!("e3 {name}")];
        };
        known.extend(options(command));
        for word in line.split(' ').skip(1) {
            let Some(next) = command.find_subcommand(word) else {
                break;
            };
            command = next;
            known.extend(options(command));
        }
    } else if span.starts_with('-') {
        known.extend(program.get_subcommands().flat_map(options));
        known.extend(FOREIGN.map(str::to_string));
    } else {
        return Vec::new();
    }
    let named = parts
        .filter(is_option)
        .filter(|word| !known.contains(*word));
    named.map(|word| format!("{word} in `{span}`")).collect()
}

#[test]
fn every_command_is_documented() {
    let page = include_str!("../../../../../docs/cli.md");
    for command in Cli::command()
        .get_subcommands()
        .filter(|c| !c.is_hide_set())
    {
        let name = command.get_name();
        let found = page.contains(&format!("### `e3 {name} "))
            || page.contains(&format!("### `e3 {name}`"));
        assert!(found, "docs/cli.md says nothing of e3 {name}");
    }
}

#[test]
fn examples_parse() {
    let mut count = 0;
    for (path, page) in documents() {
        for command in examples(&page) {
            let parsed = Cli::try_parse_from(words(&command));
            assert!(parsed.is_ok(), "{path}: {command}: {}", parsed.unwrap_err());
            count += 1;
        }
    }
    assert!(count >= 25, "only {count} commands found");
}

#[test]
fn commands_and_options_in_documents_exist() {
    let program = Cli::command();
    assert_eq!(
        unknown("e3 up --lost -Z --port 0", &program),
        [
            "--lost in `e3 up --lost -Z --port 0`",
            "-Z in `e3 up --lost -Z --port 0`"
        ]
    );
    assert_eq!(unknown("e3 lost", &program), ["e3 lost"]);
    assert_eq!(unknown("--wait", &program), [""; 0]);
    let mut count = 0;
    let mut found = Vec::new();
    for (path, page) in documents() {
        // fenced blocks hold whole commands, which the test above parses
        let prose = page.split("```").step_by(2);
        for span in prose.flat_map(|part| part.split('`').skip(1).step_by(2)) {
            count += usize::from(span.starts_with("e3 "));
            found.extend(
                unknown(span, &program)
                    .iter()
                    .map(|what| format!("{path}: {what}")),
            );
        }
    }
    assert_eq!(found, [""; 0]);
    assert!(count >= 50, "only {count} commands found");
}

/// The first block of a language on a page.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split("```").next().unwrap()
}

#[test]
fn the_service_of_the_readme_is_what_e3_new_makes() {
    let page = include_str!("../../../../../README.md");
    let service = include_str!("../../../../scaffold/src/templates/lib.rs.in");
    let manifest = include_str!("../../../../scaffold/src/templates/manifest.yaml.in");
    assert!(service.contains(block(page, "rust")));
    let manifest = manifest.replace("{{name}}", "visits");
    let lines = manifest
        .lines()
        .filter(|line| !line.trim().starts_with('#'));
    let expected: Vec<_> = lines.collect();
    assert_eq!(block(page, "yaml").lines().collect::<Vec<_>>(), expected);
}
