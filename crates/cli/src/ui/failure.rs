//! A failed command: a message of one line, perhaps a hint, and an exit code.

use std::fmt::Display;
use std::path::Path;

/// Exit codes, documented in `docs/cli.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Something unexpected.
    Unexpected = 1,
    /// A bad argument, manifest, topology, profile or configuration.
    Input = 2,
    /// The named thing does not exist.
    NotFound = 3,
    /// Already up, port in use, name taken.
    Conflict = 4,
    /// A check failed: requests lost or repeated, a target missed, something missing.
    Check = 5,
    /// No cluster is up, or its controller does not answer.
    Unreachable = 6,
    /// Timed out.
    Timeout = 7,
}

impl Exit {
    /// The exit code of a process as an `Exit`.
    pub fn of(code: u8) -> Exit {
        let all = [
            Exit::Input,
            Exit::NotFound,
            Exit::Conflict,
            Exit::Check,
            Exit::Unreachable,
            Exit::Timeout,
        ];
        let found = all.into_iter().find(|e| *e as u8 == code);
        found.unwrap_or(Exit::Unexpected)
    }
}

/// A failed command.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Exit code.
    pub exit: Exit,
    /// What is wrong, in one line.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint. Line breaks in the message become spaces.
    pub fn new(exit: Exit, message: impl Display) -> Failure {
        let message = message.to_string();
        let lines: Vec<&str> = message.lines().map(str::trim).collect();
        Failure {
            exit,
            message: lines.join(" "),
            hint: None,
        }
    }

    /// A file that cannot be read, written or removed.
    pub fn file(doing: &str, path: &Path, error: &std::io::Error) -> Failure {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::Unexpected,
        };
        Failure::new(exit, format!("{doing} {}: {error}", path.display()))
    }

    /// Whether the controller may answer later, as when it restarts.
    pub fn may_pass(&self) -> bool {
        matches!(self.exit, Exit::Unreachable | Exit::Timeout)
    }

    /// The failure with a hint.
    pub fn hint(mut self, hint: impl Display) -> Failure {
        self.hint = Some(hint.to_string());
        self
    }
}

impl From<e3_model::ManifestError> for Failure {
    fn from(error: e3_model::ManifestError) -> Failure {
        Failure::new(Exit::Input, error)
    }
}
