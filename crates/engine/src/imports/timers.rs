//! Timers: requests of the service to itself at a later time.

use crate::context::Ctx;
use crate::memory::{bytes, found, import};
use wasmtime::{Linker, Result};

/// Defines the imports.
pub(super) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker,
        timer_set(name: i32, name_len: i32, key: i32, key_len: i32, at: i64, ptr: i32, len: i32)
            -> i32,
        |memory, ctx| {
            ctx.may_set_timers("timer_set")?;
            let (name, key) = (bytes(memory, name, name_len)?, bytes(memory, key, key_len)?);
            ctx.timer_set(name, key, at, bytes(memory, ptr, len)?)
        }
    );
    import!(linker,
        timer_cron(name: i32, name_len: i32, key: i32, key_len: i32, cron: i32, cron_len: i32,
            ptr: i32, len: i32) -> i32,
        |memory, ctx| {
            ctx.may_set_timers("timer_cron")?;
            let (name, key) = (bytes(memory, name, name_len)?, bytes(memory, key, key_len)?);
            let cron = bytes(memory, cron, cron_len)?;
            ctx.timer_cron(name, key, cron, bytes(memory, ptr, len)?)
        }
    );
    import!(linker, timer_cancel(name: i32, name_len: i32, key: i32, key_len: i32) -> i32,
        |memory, ctx| {
            ctx.may_set_timers("timer_cancel")?;
            ctx.timer_cancel(bytes(memory, name, name_len)?, bytes(memory, key, key_len)?)
        }
    );
    import!(linker, timer_name(out: i32, cap: i32) -> i32, |memory, ctx| {
        found(memory, ctx.timer_name(), out, cap)?
    });
    Ok(())
}
