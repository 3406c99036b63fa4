//! Settings of an engine.

use crate::limits::{INSTANCES_MAX, MEMORY_LEN_MAX};
use crate::spec::InstanceId;
use crate::ticker::Ticker;
use e3_model::Accelerators;
use std::path::PathBuf;
use std::rc::Rc;
use thiserror::Error;

/// A line that a service logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine<'a> {
    /// The instance.
    pub instance: InstanceId,
    /// Name of the service.
    pub service: &'a str,
    /// 1 error, 2 warn, 3 info, 4 debug.
    pub level: i32,
    /// At most [`crate::limits::LOG_LEN_MAX`] bytes.
    pub text: &'a str,
}

/// Receives log lines.
pub type LogFn = Rc<dyn Fn(LogLine<'_>)>;

/// Fills a buffer with random bytes.
pub type RandomFn = Rc<dyn Fn(&mut [u8])>;

/// Unpredictable bytes of the operating system: services make keys of them.
fn system_random(out: &mut [u8]) {
    getrandom::fill(out).expect("the operating system gives random bytes");
}

/// Settings of an engine.
#[derive(Clone)]
pub struct EngineConfig {
    /// Preempts long handlers. One ticker serves all engines of a process.
    pub ticker: Ticker,
    /// Bound of the linear memory of every instance, in bytes.
    pub instance_memory_bytes_max: usize,
    /// Instances at the same time, at most [`crate::limits::INSTANCES_MAX`].
    pub instances_max: u32,
    /// Directory of compiled code. Invariant: nobody else can write there, since the engine
    /// executes what it finds.
    pub cache_dir: Option<PathBuf>,
    /// Receives log lines; if none is set, they are dropped.
    pub log: Option<LogFn>,
    /// Accelerators that services can use. Without one they compute the same in WebAssembly.
    pub accelerators: Accelerators,
    /// Source of `random`. Invariant: unpredictable, except in tests and benchmarks.
    pub random: RandomFn,
    /// Count WebAssembly instructions. Services run slower then.
    pub count_instructions: bool,
}

/// Why an engine cannot be made.
#[derive(Debug, Error)]
pub enum EngineError {
    /// A setting is out of bounds.
    #[error("engine: {what} is {value}, must be 1..={maximum}")]
    Setting {
        /// Name of the setting.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Its largest value.
        maximum: u64,
    },
    /// The machine lacks something, usually address space.
    #[error("engine: {0}")]
    Machine(String),
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
            random: Rc::new(system_random),
            count_instructions: false,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), EngineError> {
        let memory = self.instance_memory_bytes_max as u64;
        for (what, value, maximum) in [
            (
                "instances_max",
                self.instances_max.into(),
                INSTANCES_MAX.into(),
            ),
            ("instance_memory_bytes_max", memory, MEMORY_LEN_MAX as u64),
        ] {
            if !(1..=maximum).contains(&value) {
                return Err(EngineError::Setting {
                    what,
                    value,
                    maximum,
                });
            }
        }
        Ok(())
    }
}
