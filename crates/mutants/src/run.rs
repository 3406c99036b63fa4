//! Runs test programs with a mutant.

use crate::build::Program;
use crate::process;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A run of some tests, or of all that a program does.
#[derive(Clone)]
pub struct Run {
    /// The program.
    pub program: Program,
    /// Its arguments.
    pub words: Vec<String>,
    /// How long it takes without a mutant.
    pub time: Duration,
}

/// A run without a mutant.
pub struct Surveyed {
    /// The run.
    pub run: Run,
    /// The mutants that it reaches.
    pub reached: BTreeSet<u32>,
}

/// The arguments of a test program before the names of tests.
const TEST: [&str; 2] = ["--test-threads=1", "--exact"];

/// Tests that take less than this run together.
const QUICK: Duration = Duration::from_millis(200);

/// Each test of a program.
pub fn tests(program: &Program) -> Result<Vec<Vec<String>>, String> {
    let file = program.file.to_string_lossy();
    let list = process::output(&program.dir, &file, &["--list"])?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let words = |name| {
        TEST.iter()
            .chain([&name])
            .map(ToString::to_string)
            .collect()
    };
    Ok(names.map(words).collect())
}

/// Runs a program without a mutant. It must succeed.
pub fn survey(program: &Program, words: Vec<String>, scratch: &Path) -> Result<Surveyed, String> {
    let file = scratch.join("reached");
    let _ = std::fs::remove_file(&file);
    let begin = Instant::now();
    let mut command = command(program, &words);
    let mut child = start(command.env("E3_MUTANTS_REACHED", &file))?;
    if !succeeds(&mut child, Duration::from_secs(1800)) {
        let name = &program.name;
        return Err(format!("{name} {} fails without a mutant", words.join(" ")));
    }
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let run = Run {
        program: program.clone(),
        words,
        time: begin.elapsed(),
    };
    Ok(Surveyed {
        run,
        reached: text.lines().filter_map(|n| n.parse().ok()).collect(),
    })
}

/// What to run with a mutant: first the quick tests of each program together, then the others, the
/// fastest first.
pub fn runs(surveyed: &[Surveyed], mutant: u32) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let reaching = surveyed.iter().filter(|s| s.reached.contains(&mutant));
    for s in reaching.map(|s| &s.run) {
        let is_quick = s.time < QUICK && s.words.len() > TEST.len();
        let same = |r: &&mut Run| r.program.file == s.program.file && r.words[..2] == s.words[..2];
        match runs.iter_mut().find(same).filter(|_| is_quick) {
            Some(run) => {
                run.words.extend_from_slice(&s.words[TEST.len()..]);
                run.time += s.time;
            }
            None => runs.push(s.clone()),
        }
    }
    runs
}

/// True if the program fails with this mutant, or takes far longer than without.
pub fn catches(run: &Run, mutant: u32) -> Result<bool, String> {
    let mut command = command(&run.program, &run.words);
    let mut child = start(command.env("E3_MUTANT", mutant.to_string()))?;
    let limit = Duration::from_secs(10) + 5 * run.time;
    Ok(!succeeds(&mut child, limit))
}

fn command(program: &Program, words: &[String]) -> Command {
    let mut command = Command::new(&program.file);
    command.current_dir(&program.dir).args(words);
    command.env("CARGO_MANIFEST_DIR", &program.dir);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn start(command: &mut Command) -> Result<Child, String> {
    command.spawn().map_err(|e| format!("{command:?}: {e}"))
}

/// Waits for the end, or for the first test or seed that fails, or for the time to pass.
fn succeeds(child: &mut Child, limit: Duration) -> bool {
    let (lines, read) = mpsc::channel();
    let stdout = child.stdout.take().map(BufReader::new);
    std::thread::spawn(move || {
        let all = stdout
            .into_iter()
            .flat_map(|s| s.split(b'\n'))
            .map_while(Result::ok);
        for line in all {
            let fails = line.ends_with(b"FAILED") || line.windows(9).any(|w| w == b" failed: ");
            if lines.send(fails).is_err() {
                break;
            }
        }
    });
    let end = Instant::now() + limit;
    let passed = loop {
        match read.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(false) => {}
            Ok(true) | Err(RecvTimeoutError::Timeout) => break false,
            Err(RecvTimeoutError::Disconnected) => break true,
        }
    };
    if !passed {
        let _ = child.kill();
    }
    let status = child.wait();
    passed && status.is_ok_and(|s| s.success())
}
