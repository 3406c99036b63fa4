//! One process of the cluster: its start, its log, and why it did not start.

use crate::cluster::process::Process;
use crate::cluster::state_dir::StateDir;
use crate::limits::LOG_LEN_MAX;
use crate::ui::failure::{Exit, Failure};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A process that is kept running.
pub(super) struct Managed {
    pub(super) name: String,
    arguments: Vec<OsString>,
    pub(super) child: Option<Child>,
    /// The same, if it could not be recorded yet.
    unrecorded: Option<Process>,
    pub(super) started: Instant,
    /// Length of its log at its start.
    log_from: u64,
    /// When to restart it, if it has exited.
    pub(super) restart_at: Option<Instant>,
    pub(super) backoff: Duration,
}

impl Managed {
    pub(super) fn new(name: &str, arguments: Vec<OsString>) -> Managed {
        Managed {
            name: name.to_string(),
            arguments,
            child: None,
            unrecorded: None,
            started: Instant::now(),
            log_from: 0,
            restart_at: None,
            backoff: Duration::ZERO,
        }
    }

    /// Starts the process; `program` is run unless `e3 upgrade` has chosen another.
    pub(super) fn launch(&mut self, program: &Path, state: &StateDir) -> Result<(), Failure> {
        // Better a process without a log than none.
        let (out, errors, log_from) = match log_pair(&state.log_file(&self.name)) {
            Ok(opened) => opened,
            Err(failure) => {
                tracing::error!("{} runs without a log: {}", self.name, failure.message);
                (Stdio::null(), Stdio::null(), 0)
            }
        };
        let mut command = Command::new(chosen_program(state, program));
        let child = command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(errors)
            // Ctrl-C must reach only the supervisor, which stops the processes in order.
            .process_group(0)
            .spawn()
            .map_err(|e| Failure::new(Exit::Unexpected, format!("start {}: {e}", self.name)))?;
        self.unrecorded = Process::of(child.id());
        self.child = Some(child);
        self.started = Instant::now();
        self.log_from = log_from;
        // It runs and is managed, even if the disk is full.
        if let Err(failure) = self.record(state) {
            tracing::error!("{}: {}", self.name, failure.message);
        }
        Ok(())
    }

    /// Records the process, by which other commands find it, unless it is.
    pub(super) fn record(&mut self, state: &StateDir) -> Result<(), Failure> {
        if let Some(process) = &self.unrecorded {
            state.write_process(&self.name, process)?;
            self.unrecorded = None;
        }
        Ok(())
    }

    /// Moves a long log away. The process goes on appending to the same file, which is empty then.
    pub(super) fn shorten_log(&mut self, state: &StateDir) {
        let path = state.log_file(&self.name);
        if std::fs::metadata(&path).map_or(0, |m| m.len()) <= LOG_LEN_MAX {
            return;
        }
        let moved = std::fs::copy(&path, path.with_extension("log.1"))
            .and_then(|_| OpenOptions::new().write(true).open(&path))
            .and_then(|log| log.set_len(0));
        // If the disk is full, it is tried again later.
        if moved.is_ok() {
            self.log_from = 0;
        }
    }

    /// Why a process exited while the cluster was starting: the failure it recorded, else the error that it
    /// printed, else the last line of its log.
    pub(super) fn start_failure(&self, state: &StateDir, status: ExitStatus) -> Failure {
        let name = &self.name;
        if let Some(failure) = state.start_failure(name) {
            let message = format!("{name} did not start: {}", failure.message);
            return Failure { message, ..failure };
        }
        let mut text = Vec::new();
        let log = state.log_file(name);
        if let Ok(mut file) = File::open(&log) {
            let _ = file.seek(SeekFrom::Start(self.log_from));
            let _ = file.take(LOG_LEN_MAX).read_to_end(&mut text);
        }
        let text = String::from_utf8_lossy(&text);
        // What the parser of arguments prints after its error is a hint.
        let error = text.lines().find_map(|line| line.strip_prefix("error: "));
        let why = error.or(text.lines().last());
        let why = why.unwrap_or("its log is empty");
        let message = format!("{name} did not start ({}): {why}", ending(status));
        Failure::new(Exit::Unexpected, message).hint(format!("see {}", log.display()))
    }
}

/// The program that `e3 upgrade` has chosen, as long as it is there; otherwise the supervisor's own.
fn chosen_program(state: &StateDir, own: &Path) -> PathBuf {
    let chosen = state.program().and_then(|chosen| match &chosen {
        Some(path) => match std::fs::metadata(path) {
            Ok(_) => Ok(chosen),
            Err(e) => Err(Failure::file("start", path, &e)),
        },
        None => Ok(None),
    });
    let chosen = chosen.unwrap_or_else(|failure| {
        let (own, why) = (own.display(), failure.message);
        tracing::error!("the program that was chosen with e3 upgrade is gone, using {own}: {why}");
        None
    });
    chosen.unwrap_or_else(|| own.to_path_buf())
}

/// A log as standard output and standard error, and its length.
fn log_pair(path: &Path) -> Result<(Stdio, Stdio, u64), Failure> {
    let (log, length) = open_log(path)?;
    let errors = log
        .try_clone()
        .map_err(|e| Failure::file("open", path, &e))?;
    Ok((log.into(), errors.into(), length))
}

/// Opens a log to append to; also returns its length. A long one is renamed first.
pub fn open_log(path: &Path) -> Result<(File, u64), Failure> {
    let failed = |e: std::io::Error| Failure::file("open", path, &e);
    if std::fs::metadata(path).is_ok_and(|m| m.len() > LOG_LEN_MAX) {
        std::fs::rename(path, path.with_extension("log.1")).map_err(failed)?;
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    Ok((file, length))
}

/// How a process ended, in words.
pub(super) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        _ => "unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_long_log_is_moved_away_while_its_process_appends_to_it() {
        let tmp = tempfile::tempdir().unwrap();
        let state = StateDir::new(tmp.path());
        state.create().unwrap();
        let path = state.log_file("a");
        let mut process = Managed::new("a", Vec::new());
        process.shorten_log(&state);
        let (mut log, _) = open_log(&path).unwrap();
        let text = vec![b'x'; LOG_LEN_MAX as usize];
        log.write_all(&text).unwrap();
        process.shorten_log(&state);
        assert_eq!(log.metadata().unwrap().len(), LOG_LEN_MAX);
        log.write_all(b"y\n").unwrap();
        process.shorten_log(&state);
        log.write_all(b"z\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"z\n");
        let moved = std::fs::read(path.with_extension("log.1")).unwrap();
        assert!(moved.len() == text.len() + 2 && moved.ends_with(b"y\n"));
    }
}
