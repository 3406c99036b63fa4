//! The execution engine: runs services as WebAssembly, to completion, preempted but not killed.
//!
//! One [`Engine`] belongs to one worker core and never leaves its thread. The way of a request:
//! [`Engine::submit`] queues it at its instance; [`Engine::run`] lets the instance's fiber fetch it,
//! call the guest's handler, and fetch the next, so that a batch costs one entry into WebAssembly;
//! when the handler returns, its writes are applied and a [`Completion`] comes out. A fiber that
//! runs for more than a tick is set aside and resumed after the others have had their turn.
//!
//! The only crate that names wasmtime. Source of the execution model: E3 (USENIX ATC 2019),
//! section 3; of preemption by epochs: wasmtime's documentation of `Config::epoch_interruption`.

#![allow(
    unsafe_code,
    reason = "compiled code from the cache, and data that stays on its thread"
)]

pub mod bench;
mod code;
mod engine;
mod host;
mod imports;
mod instance;
pub mod limits;
mod ticker;
mod types;

pub use code::Code;
pub use engine::Engine;
pub use ticker::Ticker;
pub use types::*;
