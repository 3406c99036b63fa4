//! Runs test programs with a mutant.

use crate::build::Program;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A test program as it is without a mutant.
pub struct Surveyed {
    /// The program.
    pub program: Program,
    /// How long it takes.
    pub time: Duration,
    /// The mutants that it reaches.
    pub reached: BTreeSet<u32>,
}

/// Runs a program without a mutant. It must succeed.
pub fn survey(program: Program, arguments: &[&str], scratch: &Path) -> Result<Surveyed, String> {
    let file = scratch.join(format!("{}.reached", program.name.replace(' ', ".")));
    let _ = std::fs::remove_file(&file);
    let begin = Instant::now();
    let mut command = command(&program, arguments);
    let mut child = start(command.env("E3_MUTANTS_REACHED", &file))?;
    if !succeeds(&mut child, Duration::from_secs(1800)) {
        return Err(format!("{} fails without a mutant", program.name));
    }
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    Ok(Surveyed {
        program,
        time: begin.elapsed(),
        reached: text.lines().filter_map(|n| n.parse().ok()).collect(),
    })
}

/// True if the program fails with this mutant, or takes far longer than without.
pub fn catches(surveyed: &Surveyed, arguments: &[&str], mutant: u32) -> Result<bool, String> {
    let mut command = command(&surveyed.program, arguments);
    let mut child = start(command.env("E3_MUTANT", mutant.to_string()))?;
    let limit = Duration::from_secs(10) + 5 * surveyed.time;
    Ok(!succeeds(&mut child, limit))
}

fn command(program: &Program, arguments: &[&str]) -> Command {
    let mut command = Command::new(&program.file);
    command.current_dir(&program.dir).args(arguments);
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
