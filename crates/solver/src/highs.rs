//! The solver as a process.

use crate::limits::{POLL_MAX, POLL_MIN};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Output of the solver that an error cites.
const OUTPUT_MAX: usize = 400;

/// The program `highs`.
#[derive(Clone, Debug)]
pub struct Highs {
    /// Its path, or its name among the programs of the system.
    pub program: PathBuf,
    /// When it has to stop.
    pub limit: Duration,
    /// How much longer its process may go on before it is ended.
    pub grace: Duration,
}

/// Values of a solution.
#[derive(Clone, PartialEq, Debug)]
pub struct Solution {
    /// By name of the variable.
    pub values: BTreeMap<String, f64>,
    /// Of this solution.
    pub objective: f64,
    /// No solution has a lower objective.
    pub bound: f64,
    /// It stopped before it had proved that.
    pub timed_out: bool,
}

/// Why there is no solution.
#[derive(Debug, thiserror::Error)]
pub enum SolverError {
    /// The program cannot be started.
    #[error(
        "{program} cannot be started ({error}); install HiGHS (pip install highsbox contains it) and name its program \
         with --highs or E3_HIGHS", program = .program.display()
    )]
    Start {
        /// Path.
        program: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file could not be written or read.
    #[error("{}: {error}", .file.display())]
    File {
        /// Path.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is none.
    #[error("no placement keeps all conditions")]
    Infeasible,
    /// It found none in time.
    #[error("it found none within {:.1} s; allow more with --time-limit", .0.as_secs_f64())]
    Time(Duration),
    /// It did not stop when its time was up.
    #[error("it did not stop within {:.1} s and was ended; allow more with --time-limit", .0.as_secs_f64())]
    Hung(Duration),
    /// It printed what this version does not understand.
    #[error("its output is not understood: {0}")]
    Output(String),
}

impl Solution {
    /// How far the objective is above the bound, as a part of it.
    pub fn gap(&self) -> f64 {
        if self.objective.abs() < 1e-12 {
            return 0.0;
        }
        ((self.objective - self.bound) / self.objective.abs()).max(0.0)
    }
}

/// A directory for one run, removed afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, SolverError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e3-solver-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).map_err(|error| SolverError::File {
            file: dir.clone(),
            error,
        })?;
        Ok(Scratch(dir))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Highs {
    /// Minimises a program in the LP format.
    pub fn solve(&self, program: &str) -> Result<Solution, SolverError> {
        let scratch = Scratch::new()?;
        let (model, solution) = (scratch.file("model.lp"), scratch.file("solution.txt"));
        let file = |file: &Path, error| SolverError::File {
            file: file.to_path_buf(),
            error,
        };
        fs::write(&model, program).map_err(|e| file(&model, e))?;
        // A bare name is looked up; a path counts from here, not from the directory of the run, in which
        // the solver leaves a log.
        let program = match self.program.components().count() {
            0 | 1 => self.program.clone(),
            _ => std::path::absolute(&self.program).map_err(|e| file(&self.program, e))?,
        };
        let (output, errors) = (scratch.file("output.txt"), scratch.file("errors.txt"));
        let create = |path: &Path| fs::File::create(path).map_err(|e| file(path, e));
        let run = Command::new(&program)
            .current_dir(&scratch.0)
            .arg("--time_limit")
            .arg(self.limit.as_secs_f64().to_string())
            .arg("--random_seed=1")
            .arg("--solution_file")
            .arg(&solution)
            .arg(&model)
            .stdin(Stdio::null())
            .stdout(create(&output)?)
            .stderr(create(&errors)?)
            .spawn();
        let start = |error| SolverError::Start {
            program: self.program.clone(),
            error,
        };
        self.wait(run.map_err(start)?)?;
        let text = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let output = text(&output);
        let values = fs::read_to_string(&solution).map_err(|_| {
            let from = output.len().saturating_sub(OUTPUT_MAX);
            SolverError::Output(format!(
                "{}{}",
                output.get(from..).unwrap_or_default(),
                text(&errors)
            ))
        })?;
        self.read(&output, &values)
    }

    /// Waits until it has ended; ends it if it goes on long after its time is up.
    fn wait(&self, mut run: Child) -> Result<(), SolverError> {
        let (begin, most) = (Instant::now(), self.limit + self.grace);
        let mut pause = POLL_MIN;
        let ended = |error| SolverError::Start {
            program: self.program.clone(),
            error,
        };
        while run.try_wait().map_err(ended)?.is_none() {
            if begin.elapsed() > most {
                // It may end by itself meanwhile.
                let _ = run.kill();
                let _ = run.wait();
                return Err(SolverError::Hung(most));
            }
            sleep(pause);
            pause = (pause * 2).min(POLL_MAX);
        }
        Ok(())
    }

    /// Reads its report and its solution file.
    fn read(&self, output: &str, values: &str) -> Result<Solution, SolverError> {
        let mut lines = values.lines();
        let status = lines
            .by_ref()
            .skip_while(|l| !l.starts_with("Model status"))
            .nth(1);
        let status = status.unwrap_or_default().trim();
        let timed_out = status == "Time limit reached";
        match status {
            "Optimal" | "Time limit reached" => {}
            "Infeasible" => return Err(SolverError::Infeasible),
            other => return Err(SolverError::Output(format!("status {other:?}"))),
        }
        let mut objective = None;
        let mut all = BTreeMap::new();
        let mut in_columns = false;
        for line in lines {
            if let Some(value) = line.strip_prefix("Objective ") {
                objective = objective.or(value.trim().parse::<f64>().ok());
            } else if line.starts_with("# ") {
                in_columns = line.starts_with("# Columns");
                if !in_columns && !all.is_empty() {
                    break;
                }
            } else if in_columns && let Some((name, value)) = line.split_once(' ') {
                let value = value.trim().parse();
                let value = value.map_err(|_| SolverError::Output(line.to_string()))?;
                all.insert(name.to_string(), value);
            }
        }
        let Some(objective) = objective.filter(|_| !all.is_empty()) else {
            return Err(if timed_out {
                SolverError::Time(self.limit)
            } else {
                SolverError::Output("the solution has no values".into())
            });
        };
        Ok(Solution {
            values: all,
            objective,
            bound: bound(output)
                .filter(|bound| bound.is_finite())
                .unwrap_or(if timed_out { 0.0 } else { objective }),
            timed_out,
        })
    }
}

/// The bound that it reports at the end.
fn bound(output: &str) -> Option<f64> {
    let line = output
        .lines()
        .rev()
        .find(|l| l.trim_start().starts_with("Dual bound"))?;
    line.split_whitespace().nth(2)?.parse().ok()
}
