//! Scaffolding for the authors of services: a new project ([`create`]), its build to WebAssembly
//! ([`build`]), and the toolchains that can do it ([`Toolchain`]).
//!
//! A project holds a copy of the SDK, so that it needs nothing but this program and a compiler.

mod build;
mod error;
mod limits;
mod project;
mod toolchain;

pub use build::build;
pub use error::ScaffoldError;
pub use project::{Language, create};
pub use toolchain::{Toolchain, find};
