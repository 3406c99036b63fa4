//! What a meter is: its name, what it measures, how finely, and its readings.

use e3_model::Watts;
use e3_model::meter::MeterScope;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a meter shows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reading {
    /// A counter of energy.
    Counter {
        /// Microjoules since some point in time.
        uj: u64,
        /// Value at which it goes back to 0, if known.
        range_uj: Option<u64>,
    },
    /// Power now, or on average over a short time.
    Power(Watts),
}

/// The smallest difference that the meter's interface can express. The sensor behind it may be coarser.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// Of a counter.
    Joules(f64),
    /// Of a power reading.
    Watts(f64),
    /// The interface does not tell.
    Unknown,
}

/// What is known of a meter without reading it.
#[derive(Clone, PartialEq, Debug)]
pub struct About {
    /// Name, such as `rapl:package-0`.
    pub name: String,
    /// What its figure contains.
    pub scope: MeterScope,
    /// Resolution.
    pub step: Step,
    /// Seconds over which a power reading is an average, if the meter says so.
    pub average_s: Option<f64>,
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Step::Joules(joules) => write!(f, "steps of {:.3} mJ", joules * 1e3)?,
            Step::Watts(watts) if watts >= 1.0 => write!(f, "steps of {watts} W")?,
            Step::Watts(watts) => write!(f, "steps of {} mW", watts * 1e3)?,
            Step::Unknown => write!(f, "steps unknown")?,
        }
        match self.average_s {
            Some(seconds) => write!(f, ", average over {seconds} s"),
            None => Ok(()),
        }
    }
}

/// A meter.
pub trait Meter: Send {
    /// What is known of it.
    fn about(&self) -> &About;
    /// Reads it. Takes no longer than a few seconds.
    fn read(&mut self) -> Result<Reading, MeterError>;
}

/// Why a meter shows nothing.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// Not there.
    #[error("{} {why}", .path.display())]
    Absent {
        /// Where it was looked for.
        path: PathBuf,
        /// What is the matter with it.
        why: &'static str,
    },
    /// There, but the process may not read it.
    #[error("{} may not be read by this user", .path.display())]
    Forbidden {
        /// File.
        path: PathBuf,
    },
    /// There, but cannot be read.
    #[error("{} cannot be read: {error}", .path.display())]
    Unreadable {
        /// File.
        path: PathBuf,
        /// Reason.
        error: io::Error,
    },
    /// There, but not a number.
    #[error("{} holds {value:?}, must be a whole number", .path.display())]
    Malformed {
        /// File.
        path: PathBuf,
        /// Content.
        value: String,
    },
    /// More than any machine draws, or less than nothing.
    #[error("{name} shows {watts} W, must be 0..={max}", max = crate::limits::POWER_MAX_W)]
    Implausible {
        /// The meter.
        name: String,
        /// What it shows.
        watts: f64,
    },
    /// The program that reads the meter is not installed.
    #[error("{program} is not installed")]
    NoProgram {
        /// Program.
        program: String,
    },
    /// The program that reads the meter failed.
    #[error("{program} failed: {text}")]
    Program {
        /// Program.
        program: String,
        /// What it printed, or how it ended.
        text: String,
    },
    /// No answer in time.
    #[error("{name} did not answer within {} s", .limit.as_secs_f64())]
    TooSlow {
        /// The meter.
        name: String,
        /// Bound.
        limit: Duration,
    },
    /// The management controller answered something else than a reading.
    #[error("{name}: {text}")]
    Answer {
        /// The meter.
        name: String,
        /// What is wrong with the answer.
        text: String,
    },
    /// The management controller refuses user name and password.
    #[error("{name} refuses user name or password (status {status})")]
    Refused {
        /// The meter.
        name: String,
        /// HTTP status.
        status: u16,
    },
    /// Which of several to read is not clear.
    #[error("several sensors may contain each other: {}", .names.join(", "))]
    Ambiguous {
        /// Their names.
        names: Vec<String>,
    },
}

impl MeterError {
    pub(crate) fn of_file(path: &Path, error: io::Error) -> MeterError {
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::PermissionDenied => MeterError::Forbidden { path },
            io::ErrorKind::NotFound => MeterError::Absent {
                path,
                why: "does not exist",
            },
            _ => MeterError::Unreadable { path, error },
        }
    }

    /// What to do about it, if something can be done.
    pub fn fix(&self) -> Option<String> {
        match self {
            MeterError::Forbidden { path } => Some(format!(
                "run the node as root, or let its user read it: chmod o+r {}",
                path.display()
            )),
            MeterError::NoProgram { program } => Some(format!("install it: apt install {program}")),
            MeterError::Refused { .. } => Some("correct --meter-user or its password file".into()),
            MeterError::Ambiguous { names } => {
                let name = names.first()?;
                Some(format!("choose those to add up, such as: --meter {name}"))
            }
            _ => None,
        }
    }
}

/// A power reading, if a machine can draw it.
pub(crate) fn plausible(name: &str, watts: f64) -> Result<Reading, MeterError> {
    if (0.0..=crate::limits::POWER_MAX_W).contains(&watts) {
        return Ok(Reading::Power(Watts(watts)));
    }
    Err(MeterError::Implausible {
        name: name.to_string(),
        watts,
    })
}
