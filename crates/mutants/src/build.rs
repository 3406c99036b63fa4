//! A copy of the workspace with all mutants in it, and its test programs.

use crate::list::{Genre, Mutant};
use crate::process;
use crate::schema::{self, Source};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program with tests.
#[derive(Clone, Debug)]
pub struct Program {
    /// Package and target.
    pub name: String,
    /// The target: the name of a test, or of a crate for its unit tests.
    pub target: String,
    /// The file to run.
    pub file: PathBuf,
    /// Where cargo would run it.
    pub dir: PathBuf,
}

/// What was built.
pub struct Built {
    /// The test programs.
    pub programs: Vec<Program>,
    /// Mutants that the compiler refuses.
    pub unviable: BTreeSet<u32>,
    /// Mutants that cannot be chosen at run time: constant functions, iterators of a type without name.
    pub unbuilt: BTreeSet<u32>,
}

/// What a crate with mutants asks. `E3_MUTANT` chooses one; with `E3_MUTANTS_REACHED` every mutant
/// that is reached adds its number to that file.
const SWITCH: &str = r#"
pub(crate) mod mutant {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
    const UNREAD: u32 = u32::MAX;
    const SURVEY: u32 = u32::MAX - 1;
    static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);
    static REACHED: [AtomicBool; 16384] = [const { AtomicBool::new(false) }; 16384];
    #[inline]
    pub(crate) fn on(number: u32) -> bool {
        let chosen = CHOSEN.load(Relaxed);
        if chosen < SURVEY { chosen == number } else { ask(number) }
    }
    #[cold]
    fn ask(number: u32) -> bool {
        if CHOSEN.load(Relaxed) == SURVEY && REACHED[number as usize].load(Relaxed) {
            return false;
        }
        if let Ok(file) = std::env::var("E3_MUTANTS_REACHED") {
            CHOSEN.store(SURVEY, Relaxed);
            if !REACHED[number as usize].swap(true, Relaxed) {
                use std::io::Write;
                let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
                file.and_then(|mut f| f.write_all(format!("{number}\n").as_bytes())).expect("written");
            }
            return false;
        }
        let chosen = std::env::var("E3_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
        CHOSEN.store(chosen, Relaxed);
        chosen == number
    }
}
"#;

/// Builds `cargo_words` in a copy of the workspace at `copy`, without the mutants that do not build.
pub fn build(
    root: &Path,
    copy: &Path,
    mutants: &BTreeMap<u32, Mutant>,
    cargo_words: &[&str],
) -> Result<Built, String> {
    let mut files: BTreeMap<&str, BTreeMap<u32, &Mutant>> = BTreeMap::new();
    for (number, mutant) in mutants {
        files
            .entry(&mutant.file)
            .or_default()
            .insert(*number, mutant);
    }
    copy_workspace(root, copy, &files)?;
    let (mut unviable, mut unbuilt) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let mut texts = BTreeMap::new();
        for (file, mutants) in &mut files {
            let text = read(&root.join(file))?;
            let source = Source {
                text: &text,
                mutants: mutants.clone(),
            };
            let (text, lost) = source.instrumented().map_err(|e| format!("{file}: {e}"))?;
            mutants.retain(|n, _| !lost.contains(n));
            unbuilt.extend(lost);
            let root_module = file.ends_with("/src/lib.rs");
            texts.insert(*file, if root_module { text + SWITCH } else { text });
        }
        for (file, text) in &texts {
            write(&copy.join(file), text)?;
        }
        let (programs, errors) = cargo(copy, cargo_words)?;
        if errors.is_empty() {
            let programs = programs.ok_or("cargo failed without an error in a file")?;
            return Ok(Built {
                programs,
                unviable,
                unbuilt,
            });
        }
        let before: usize = files.values().map(BTreeMap::len).sum();
        for (file, line, code) in &errors {
            let (Some(text), Some(left)) = (texts.get(file.as_str()), files.get_mut(file.as_str()))
            else {
                return Err(format!("{file}:{line}: an error in a file without mutants"));
            };
            let blamed = if code == NOT_EXHAUSTIVE {
                let arms = left.iter().filter(|(_, m)| m.genre == Genre::MatchArm);
                arms.map(|(n, _)| *n).collect()
            } else {
                schema::blamed(text, *line)
            };
            for number in blamed {
                left.remove(&number);
                let refused = if code == NOT_CONST {
                    &mut unbuilt
                } else {
                    &mut unviable
                };
                refused.insert(number);
            }
        }
        let after: usize = files.values().map(BTreeMap::len).sum();
        eprintln!("{} mutants do not build", before - after);
        if before == after {
            return Err(format!("errors that belong to no mutant: {errors:?}"));
        }
    }
}

/// The files that git knows; those with mutants, and the roots of their crates, are written later.
fn copy_workspace(
    root: &Path,
    copy: &Path,
    files: &BTreeMap<&str, BTreeMap<u32, &Mutant>>,
) -> Result<(), String> {
    let words = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let listed = process::output(root, "git", &words)?;
    let crates: BTreeSet<&str> = files
        .keys()
        .filter_map(|f| Some(f.split_once("/src/")?.0))
        .collect();
    for file in listed.split('\0').filter(|f| root.join(f).is_file()) {
        if files.contains_key(file) {
            continue;
        }
        let bytes = std::fs::read(root.join(file)).map_err(|e| format!("{file}: {e}"))?;
        let root_module = file
            .strip_suffix("/src/lib.rs")
            .is_some_and(|c| crates.contains(c));
        let bytes = if root_module {
            [&bytes, SWITCH.as_bytes()].concat()
        } else {
            bytes
        };
        write_bytes(&copy.join(file), &bytes)?;
    }
    Ok(())
}

/// Error code of a call that a constant function may not make.
const NOT_CONST: &str = "E0015";

/// Error code of a match that lacks an arm. It is reported at the head of the match.
const NOT_EXHAUSTIVE: &str = "E0004";

/// Test programs if it succeeds; file, line and code of every error.
type Answer = (Option<Vec<Program>>, Vec<(String, usize, String)>);

fn cargo(copy: &Path, words: &[&str]) -> Result<Answer, String> {
    let mut command = Command::new("cargo");
    command.current_dir(copy).args(words);
    command.args(["--message-format", "json"]);
    command.env("RUSTFLAGS", "--cap-lints allow");
    // Random tests take most of the time.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    command.env("CARGO_TARGET_DIR", copy.join("target"));
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| format!("cargo: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut programs, mut errors) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        if let Some(program) = program(&message) {
            programs.push(program);
        }
        errors.extend(places(&message["message"]));
    }
    Ok((output.status.success().then_some(programs), errors))
}

fn program(message: &Value) -> Option<Program> {
    let file = message["executable"].as_str()?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let dir = manifest.parent()?;
    let package = dir.file_name()?.to_string_lossy();
    let target = message["target"]["name"].as_str()?;
    Some(Program {
        name: format!("{package} {target}"),
        target: target.to_string(),
        file: file.into(),
        dir: dir.into(),
    })
}

fn places(message: &Value) -> Vec<(String, usize, String)> {
    if message["level"].as_str() != Some("error") {
        return Vec::new();
    }
    let code = message["code"]["code"].as_str().unwrap_or_default();
    let spans = message["spans"].as_array().into_iter().flatten();
    let main = spans.filter(|s| s["is_primary"].as_bool() == Some(true));
    main.filter_map(|s| {
        let line = s["line_start"].as_u64()?;
        Some((
            s["file_name"].as_str()?.to_string(),
            line as usize,
            code.to_string(),
        ))
    })
    .collect()
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    write_bytes(file, text.as_bytes())
}

/// Leaves a file alone that is as it should be, so that cargo does not build it again.
fn write_bytes(file: &Path, bytes: &[u8]) -> Result<(), String> {
    if std::fs::read(file).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let parent = file.parent().unwrap_or(file);
    let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(file, bytes));
    written.map_err(|e| format!("{}: {e}", file.display()))
}
