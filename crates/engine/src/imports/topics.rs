//! Topics: what a handler publishes, and where the publication that it handles comes from.

use crate::context::Ctx;
use crate::memory::{bytes, found, import};
use wasmtime::{Linker, Result};

/// Defines the imports.
pub(super) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker,
        publish(topic: i32, topic_len: i32, key: i32, key_len: i32, ptr: i32, len: i32) -> i32,
        |memory, ctx| {
            ctx.may_set_timers("publish")?;
            let (topic, key) = (bytes(memory, topic, topic_len)?, bytes(memory, key, key_len)?);
            ctx.publish(topic, key, bytes(memory, ptr, len)?)
        }
    );
    import!(linker, topic(out: i32, cap: i32) -> i32, |memory, ctx| {
        found(memory, ctx.topic().as_deref().map(str::as_bytes), out, cap)?
    });
    Ok(())
}
