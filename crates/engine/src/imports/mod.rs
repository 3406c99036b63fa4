//! The imports of the service ABI (docs/abi.md): functions in module `e3`.

mod accelerators;
mod calls;
mod collections;
mod outbound;
mod request;
mod surroundings;
mod timers;
mod topics;

use crate::context::Ctx;
use wasmtime::{Linker, Result};

/// Defines all imports.
pub(crate) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    request::define(linker)?;
    collections::define(linker)?;
    timers::define(linker)?;
    outbound::define(linker)?;
    topics::define(linker)?;
    calls::define(linker)?;
    accelerators::define(linker)?;
    surroundings::define(linker)
}
