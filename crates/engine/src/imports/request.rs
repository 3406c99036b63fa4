//! What a handler asks of its request, and what it does: reply and messages.

use crate::context::Ctx;
use crate::memory::{bytes, give, import};
use wasmtime::{Caller, Linker, Result};

/// Defines the imports.
pub(super) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    linker.func_wrap("e3", "now", |c: Caller<'_, Ctx>| c.data().now())?;
    linker.func_wrap("e3", "request_slot", |c: Caller<'_, Ctx>| {
        c.data().request_slot()
    })?;
    linker.func_wrap("e3", "request_edge", |c: Caller<'_, Ctx>| {
        c.data().request_edge()
    })?;
    import!(linker, request_id(out: i32) -> (), |memory, ctx| {
        give(memory, &ctx.request_id(), out, 16)?;
    });
    import!(linker, request_key(out: i32, cap: i32) -> i32, |memory, ctx| {
        give(memory, ctx.request_key(), out, cap)?
    });
    import!(linker, reply(status: i32, ptr: i32, len: i32) -> i32, |memory, ctx| {
        ctx.in_request("reply")?;
        ctx.reply(status as u32, bytes(memory, ptr, len)?)
    });
    import!(linker, channel(name: i32, len: i32) -> i32, |memory, ctx| {
        ctx.channel(bytes(memory, name, len)?)
    });
    import!(linker, send(channel: i32, key: i32, key_len: i32, ptr: i32, len: i32) -> i32,
        |memory, ctx| {
            ctx.in_request("send")?;
            ctx.send(channel, bytes(memory, key, key_len)?, bytes(memory, ptr, len)?)
        }
    );
    Ok(())
}
