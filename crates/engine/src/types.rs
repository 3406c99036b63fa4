//! What goes into the engine and what comes out.

use e3_collections::{CollectionSpec, WriteBatch};
use e3_model::Accelerators;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

use crate::Ticker;
use crate::limits::{
    EFFECTS_LEN_MAX, INSTANCE_IDS_MAX, MEMORY_LEN_MAX, MODULE_LEN_MAX, QUEUE_LEN_MAX,
};

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
    /// the indices in [`Output::channel`].
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
    #[error("service \"{service}\": {failure}")]
    Failed {
        /// The service.
        service: String,
        /// How.
        failure: Failure,
    },
}

/// A request for an instance.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Comes back with the completion.
    pub token: u64,
    /// Slot of its key.
    pub slot: u16,
    /// What `now` tells the handler. The caller sees to it that it never goes back in a shard.
    pub now_ns: u64,
    /// Client and sequence number.
    pub request_id: [u8; 16],
    /// Index of the channel it came by, -1 from a client.
    pub edge: i32,
    /// Key that it was routed by.
    pub key: Vec<u8>,
    /// Payload.
    pub payload: Vec<u8>,
}

/// Why a request was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SubmitError {
    /// No such instance.
    #[error("instance {0} is not here")]
    NoInstance(InstanceId),
    /// Its queue is full.
    #[error("instance {0}: its queue is full with {QUEUE_LEN_MAX} requests")]
    Full(InstanceId),
}

/// A message that a handler sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// Index into [`InstanceSpec::channels`].
    pub channel: u16,
    /// Key to route by.
    pub key: Vec<u8>,
    /// Payload.
    pub payload: Vec<u8>,
}

/// What a handler answered the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// 0 = ok, 1.. = the application's own errors.
    pub status: u32,
    /// Payload.
    pub payload: Vec<u8>,
}

/// A finished request.
#[derive(Debug)]
pub struct Completion {
    /// Who handled it.
    pub id: InstanceId,
    /// The request's token.
    pub token: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Time on the core.
    pub busy: Duration,
}

/// How a request ended.
#[derive(Debug)]
pub enum Outcome {
    /// The handler returned 0.
    Done {
        /// Its writes, applied to the state already.
        batch: WriteBatch,
        /// Messages in the order they were sent.
        outputs: Vec<Output>,
        /// Answer to the client, if it gave one.
        reply: Option<Reply>,
    },
    /// The attempt failed and left no trace. Boxed: failures are rare.
    Failed(Box<Failed>),
}

/// A failed attempt.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub failure: Failure,
    /// The request, so that it can be tried again.
    pub request: Request,
}

/// Microseconds in the unit that manifests would use.
fn seconds(us: u64) -> String {
    match us {
        us if us.is_multiple_of(1_000_000) => format!("{} s", us / 1_000_000),
        us if us.is_multiple_of(1_000) => format!("{} ms", us / 1_000),
        us => format!("{us} us"),
    }
}

/// Why an attempt failed. Whatever it is, the instance gets a new memory.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// The handler returned this instead of 0.
    #[error("handler returned {0}, must be 0")]
    Code(i32),
    /// The code trapped.
    #[error("{0}")]
    Trap(String),
    /// A pointer outside of the instance's memory.
    #[error("{len} bytes at {ptr} are outside of the instance's memory of {memory} bytes")]
    Pointer {
        /// Address.
        ptr: u32,
        /// Length.
        len: u32,
        /// Size of the memory.
        memory: usize,
    },
    /// The handler ran longer than it may.
    #[error("handler exceeded its deadline of {}", seconds(*deadline_us))]
    DeadlineExceeded {
        /// How long it ran.
        busy_us: u64,
        /// How long it may run.
        deadline_us: u64,
    },
    /// It asked for more memory than it may have, and trapped.
    #[error("handler needs {asked} bytes of memory, must be at most {maximum}")]
    MemoryLimit {
        /// What it asked for.
        asked: usize,
        /// What it may have.
        maximum: usize,
    },
    /// The request is longer than the instance's buffer.
    #[error("request of {len} bytes, must be at most {capacity}")]
    RequestTooLong {
        /// Bytes of the request.
        len: usize,
        /// Size of the buffer.
        capacity: usize,
    },
    /// Writes, messages and reply do not fit one log entry.
    #[error(
        "writes, messages and reply of {len} bytes together, must be at most {EFFECTS_LEN_MAX}"
    )]
    EffectsTooLong {
        /// Bytes of them.
        len: usize,
    },
    /// `e3_init` returned this instead of 0.
    #[error("e3_init returned {code}, must be 0{}", said.as_ref().map(|s| format!(" ({s})")).unwrap_or_default())]
    Init {
        /// The code.
        code: i32,
        /// What it logged last.
        said: Option<String>,
    },
    /// `e3_abi_version` returned this instead of 1.
    #[error("built for version {0} of the service ABI, must be 1")]
    AbiVersion(i32),
    /// The request buffer lies outside of the memory.
    #[error(
        "request buffer of {capacity} bytes at {address}: outside of the memory of {memory} bytes"
    )]
    RequestBuffer {
        /// Address.
        address: u32,
        /// Size.
        capacity: u32,
        /// Size of the memory.
        memory: usize,
    },
    /// The room for a request's head lies outside of the memory.
    #[error("request head at {address}: outside of the memory of {memory} bytes")]
    RequestHead {
        /// Address.
        address: u32,
        /// Size of the memory.
        memory: usize,
    },
    /// `e3_init` called an import that only a handler may call.
    #[error("import \"{0}\" was called outside of a request")]
    OutsideRequest(&'static str),
    /// The state did not take the batch: it was changed behind the instance's back.
    #[error("{0}")]
    State(#[from] e3_collections::ApplyError),
    /// No memory, stack or address space for the instance.
    #[error("the system has no memory for an instance: {0}")]
    NoRoom(String),
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
    /// Of the failures, stopped at the deadline.
    pub deadline_stops: u64,
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
    UnderWay,
    /// It failed; the next request tries again.
    Failed(Failure),
    /// It got to its first request.
    Done,
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
