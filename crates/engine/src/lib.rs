//! Runs services: WebAssembly instances on one worker core, with their queues and preemption.
//!
//! An [`Engine`] belongs to one thread. Requests go in by [`Engine::submit`], [`Engine::run`] runs
//! them, and they come out of [`Engine::completions`] with their writes applied to the
//! instance's collections. A handler that runs long is preempted, not stopped, until its service's
//! own deadline. This is the only crate that names wasmtime; it knows neither network nor
//! controller. Source: the execution engine of "E3" (USENIX ATC 2019), section 3, and docs/abi.md.

#![allow(
    unsafe_code,
    reason = "compiled code from the cache, and data that stays on its thread"
)]

mod accelerator_rates;
mod bare;
mod code;
mod engine;
mod host;
mod host_accelerators;
mod host_collections;
mod instance;
pub mod limits;
mod native;
mod pattern_set;
mod solo;
mod ticker;
mod types;
mod warm;

pub use accelerator_rates::accelerator_rates;
pub use bare::BareCall;
pub use code::{Code, check, unopened};
pub use engine::{Engine, Successor};
pub use native::Native;
pub use solo::{Solo, SoloError};
pub use ticker::Ticker;
pub use types::*;
