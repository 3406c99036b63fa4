//! Services compiled natively, measured against themselves in WebAssembly.
//!
//! A service's crate is compiled twice: to WebAssembly, which the engine runs, and into this crate,
//! where its calls go to the engine's native host ([`e3_engine::Native`]): the same queue,
//! collections, buffering of writes and outputs, and accelerators. What differs is WebAssembly alone.
//! `e3 bench services` runs the program of this crate, since `e3` itself contains no service.

pub mod cases;
pub mod compare;
mod host;
mod side;
mod words;

use std::path::PathBuf;
use thiserror::Error;

/// Why a service cannot be measured.
#[derive(Debug, Error)]
pub enum NativeError {
    /// The module cannot be read.
    #[error("{file}: {1}", file = .0.display())]
    Module(PathBuf, #[source] std::io::Error),
    /// The module does not run.
    #[error("in WebAssembly: {0}")]
    Solo(#[from] e3_engine::SoloError),
    /// The native service does not start.
    #[error("natively: {0}")]
    Init(String),
    /// A request failed.
    #[error("a request failed: {0}")]
    Request(#[from] e3_invocation::HandlerError),
    /// Requests were not completed.
    #[error("{0} of {1} requests ended")]
    Lost(usize, usize),
    /// The service refused a request of the benchmark.
    #[error("request {0} was refused with status {1}: {2}")]
    Refused(u64, u32, String),
    /// The effects of the two sides differ.
    #[error("request {0}: the {1} in WebAssembly differ from those of the native service")]
    Differ(u64, &'static str),
}
