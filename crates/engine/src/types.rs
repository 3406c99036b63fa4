//! What goes into the engine and what comes out.

use e3_collections::CollectionSpec;
use e3_invocation::HandlerError;
use e3_model::Accelerators;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

use crate::Ticker;
use crate::limits::{INSTANCE_IDS_MAX, MEMORY_LEN_MAX, MODULE_LEN_MAX};

/// An instance on this engine. The caller chooses it, small and dense: it indexes a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InstanceId(pub u32);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "i{}", self.0)
    }
}

/// A line that a service logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine<'a> {
    /// Who.
    pub instance: InstanceId,
    /// Its name.
    pub service: &'a str,
    /// 1 error, 2 warn, 3 info, 4 debug.
    pub level: i32,
    /// What, at most [`crate::limits::LOG_LEN_MAX`] bytes.
    pub text: &'a str,
}

/// Receives log lines.
pub type LogFn = Rc<dyn Fn(LogLine<'_>)>;

/// Fills a buffer with random bytes.
pub type RandomFn = Rc<dyn Fn(&mut [u8])>;

/// Bytes of the operating system, which nobody can predict.
fn random_of_system(out: &mut [u8]) {
    // Without them a service would make keys that others can guess.
    getrandom::fill(out).expect("the operating system gives random bytes");
}

/// Settings of an engine.
#[derive(Clone)]
pub struct EngineConfig {
    /// Preempts long handlers; one per process serves all its engines.
    pub ticker: Ticker,
    /// Bounds every instance's linear memory.
    pub instance_memory_bytes_max: usize,
    /// Instances at once, at most [`crate::limits::INSTANCES_MAX`].
    pub instances_max: u32,
    /// Where compiled code is kept. It is executed: nobody else may write there.
    pub cache_dir: Option<PathBuf>,
    /// Receives log lines; without it they are dropped.
    pub log: Option<LogFn>,
    /// Accelerators that services find here; without one they do the same by themselves.
    pub accelerators: Accelerators,
    /// What `random` gives to services. Invariant: unpredictable, except in tests and benchmarks.
    pub random: RandomFn,
    /// Counts WebAssembly instructions, which makes services slower.
    pub count_instructions: bool,
}

/// Why an engine cannot be made.
#[derive(Debug, Error)]
pub enum EngineError {
    /// A setting is out of bounds.
    #[error("engine: {what} is {value}, must be {bound}")]
    Setting {
        /// Which.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Its bound.
        bound: String,
    },
    /// The machine lacks something, mostly address space.
    #[error("engine: {0}")]
    Machine(String),
}

/// Why a module does not load.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LoadError {
    /// Too long.
    #[error("module of {0} bytes, must be at most {MODULE_LEN_MAX}")]
    TooLong(usize),
    /// Not a valid WebAssembly module.
    #[error("not a WebAssembly module: {0}")]
    Invalid(String),
    /// Lacks an export of the service ABI.
    #[error("export \"{0}\" is missing")]
    MissingExport(&'static str),
    /// An export of the wrong type.
    #[error("export \"{name}\" has the wrong type, must be {expected}")]
    ExportType {
        /// Which.
        name: &'static str,
        /// Its type in the service ABI.
        expected: &'static str,
    },
    /// Imports something that the service ABI does not have.
    #[error("import \"{module}\" \"{name}\" is unknown")]
    UnknownImport {
        /// Module of the import.
        module: String,
        /// Its name.
        name: String,
    },
    /// Imports something with the wrong type.
    #[error("import: {0}")]
    ImportType(String),
    /// Needs too much memory from the start.
    #[error("memory of at least {minimum} bytes, must be at most {maximum}")]
    Memory {
        /// What it asks for.
        minimum: u64,
        /// What it may have.
        maximum: u64,
    },
    /// Has a start function, which is no part of the service ABI.
    #[error("has a start function; export \"e3_init\" instead")]
    StartFunction,
    /// Does not fit the engine's other bounds.
    #[error("module: {0}")]
    Unsuited(String),
}

/// What an instance is given.
#[derive(Clone, Debug, Default)]
pub struct InstanceSpec {
    /// Name of the service, as logs and statistics call it.
    pub name: String,
    /// Its outgoing channels: name, and messages that one request may send on it. The order gives
    /// the indices in [`e3_invocation::Output::channel`].
    pub channels: Vec<(String, u32)>,
    /// Its collections; the order gives their ids. Must be those of the state.
    pub collections: Vec<CollectionSpec>,
    /// Secrets that it may read.
    pub secrets: Vec<(String, Vec<u8>)>,
    /// Settings that it may read.
    pub config: BTreeMap<String, String>,
    /// Assets that it may read.
    pub assets: Vec<(String, Arc<[u8]>)>,
    /// Accelerators that it uses; it finds those of them that its engine has.
    pub accelerators: Accelerators,
    /// Bound of its linear memory.
    pub memory_bytes_max: usize,
    /// Longest run of the handler on one request, not counting the time it waits for the core.
    pub deadline: Duration,
}

/// Why an instance does not start.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StartError {
    /// The id is out of bounds or taken.
    #[error("instance {0}: id is taken, or not below {INSTANCE_IDS_MAX}")]
    Id(InstanceId),
    /// The instance to be replaced is gone.
    #[error("instance {0}: nothing to replace")]
    Gone(InstanceId),
    /// Every place is taken.
    #[error("service \"{service}\": there are {maximum} instances already, which is the bound")]
    Full {
        /// The service.
        service: String,
        /// The bound.
        maximum: u32,
    },
    /// The code was loaded by another engine.
    #[error("instance {0}: its code was loaded by another engine")]
    ForeignCode(InstanceId),
    /// Its memory starts above its bound.
    #[error(
        "service \"{service}\": starts with {minimum} bytes of memory, must be at most {maximum}"
    )]
    Memory {
        /// The service.
        service: String,
        /// What it asks for.
        minimum: usize,
        /// What it may have.
        maximum: usize,
    },
    /// It failed before its first request.
    #[error("service \"{service}\": {error}")]
    Failed {
        /// The service.
        service: String,
        /// Why.
        error: HandlerError,
    },
}

/// Counters of an instance, since its start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// The service.
    pub service: String,
    /// Requests that ended, one way or the other.
    pub requests: u64,
    /// Of these, failed.
    pub failures: u64,
    /// Of the failures, traps and pointers out of range.
    pub traps: u64,
    /// Of the failures, those that exceeded the deadline.
    pub deadlines_exceeded: u64,
    /// Times it was preempted.
    pub preemptions: u64,
    /// How often its memory was made again.
    pub restarts: u64,
    /// Time on the core.
    pub busy: Duration,
    /// Requests that wait.
    pub queue_len: usize,
    /// Bytes of its linear memory.
    pub memory_bytes: usize,
    /// WebAssembly instructions since its memory was made, if they are counted.
    pub instructions: u64,
    /// How far its start is.
    pub startup: Startup,
}

/// How far the start of an instance is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Startup {
    /// It is within its `e3_init`, or what comes before that.
    #[default]
    Starting,
    /// It failed; the next request tries again.
    Failed(HandlerError),
    /// It got to its first request.
    Started,
}

pub(crate) fn check_bound(what: &'static str, value: u64, max: u64) -> Result<(), EngineError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(EngineError::Setting {
        what,
        value,
        bound: format!("1..={max}"),
    })
}

impl EngineConfig {
    /// Settings with this ticker and otherwise defaults: 64 MiB an instance, 256 instances.
    pub fn new(ticker: Ticker) -> EngineConfig {
        EngineConfig {
            ticker,
            instance_memory_bytes_max: 64 << 20,
            instances_max: 256,
            cache_dir: None,
            log: None,
            accelerators: Accelerators::ALL,
            random: Rc::new(random_of_system),
            count_instructions: false,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), EngineError> {
        check_bound(
            "instances_max",
            u64::from(self.instances_max),
            u64::from(crate::limits::INSTANCES_MAX),
        )?;
        check_bound(
            "instance_memory_bytes_max",
            self.instance_memory_bytes_max as u64,
            MEMORY_LEN_MAX as u64,
        )
    }
}
