//! What surrounds a service: assets, secrets, settings, random bytes, the log.

use crate::codes::NO_HANDLE;
use crate::context::Ctx;
use crate::memory::{bytes, found, import, range};
use wasmtime::{Caller, Linker, Result};

/// Defines the imports.
pub(super) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    define_assets(linker)?;
    import!(linker, secret(name: i32, len: i32, out: i32, cap: i32) -> i32, |memory, ctx| {
        let secret = ctx.secret(bytes(memory, name, len)?);
        found(memory, secret, out, cap)?
    });
    import!(linker, config(name: i32, len: i32, out: i32, cap: i32) -> i32, |memory, ctx| {
        let value = ctx.config(bytes(memory, name, len)?);
        found(memory, value, out, cap)?
    });
    import!(linker, random(out: i32, len: i32) -> i32, |memory, ctx| {
        let to = range(memory.len(), out, len)?;
        ctx.random(&mut memory[to])
    });
    import!(linker, log(level: i32, ptr: i32, len: i32) -> (), |memory, ctx| {
        ctx.log(level, bytes(memory, ptr, len)?);
    });
    Ok(())
}

fn define_assets(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker, asset(name: i32, len: i32) -> i32, |memory, ctx| {
        ctx.asset(bytes(memory, name, len)?)
    });
    linker.func_wrap("e3", "asset_len", |c: Caller<'_, Ctx>, asset: i32| -> i64 {
        let content = c.data().asset_from(asset, 0);
        content.map_or(-1, |content| content.len() as i64)
    })?;
    import!(linker, asset_read(asset: i32, offset: i64, out: i32, cap: i32) -> i32,
        |memory, ctx| {
            let to = range(memory.len(), out, cap)?;
            match ctx.asset_from(asset, offset) {
                Some(rest) => {
                    let len = rest.len().min(to.len()).min(i32::MAX as usize);
                    memory[to.start..to.start + len].copy_from_slice(&rest[..len]);
                    len as i32
                }
                None => NO_HANDLE,
            }
        }
    );
    Ok(())
}
