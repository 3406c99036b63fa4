//! Runs services: WebAssembly instances on one worker core, with their queues and preemption.
//!
//! An [`Engine`] belongs to one thread. Invocations go in by [`Engine::submit`], [`Engine::run`] runs
//! their handlers, and completions come out of [`Engine::completions`]; the writes are then applied
//! to the instance's collections. A handler that runs long is preempted and continues later, until
//! it exceeds the deadline of its service. This is the only crate that names wasmtime; it knows neither network nor
//! controller. Source: the execution engine of "E3" (USENIX ATC 2019), section 3, and docs/abi.md.

#![allow(
    unsafe_code,
    reason = "compiled code from the cache, data that stays on its thread, priority of threads"
)]

mod accelerator_rates;
mod accelerators;
mod bare;
mod cache;
mod code;
mod codes;
mod config;
mod context;
mod engine;
mod fiber;
mod imports;
mod instance;
pub mod limits;
mod log_rate;
mod memory;
mod native;
mod pattern_records;
mod pattern_set;
mod shared;
mod solo;
mod spec;
mod stats;
mod ticker;
mod warm;

pub use accelerator_rates::accelerator_rates;
pub use bare::BareCall;
pub use cache::sha256;
pub use code::{Code, LoadError, Loader, check, unopened};
pub use config::{EngineConfig, EngineError, LogFn, LogLine, RandomFn};
pub use engine::{Engine, Successor};
pub use native::Native;
pub use solo::{Solo, SoloError};
pub use spec::{ChannelSpec, InstanceId, InstanceSpec, RandomKey, StartError};
pub use stats::{Startup, Stats};
pub use ticker::{Ticker, raise_thread_priority};
