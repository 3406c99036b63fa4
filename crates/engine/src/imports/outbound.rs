//! Outbound requests: to services, to applications, over HTTP; and the answers to them.

use crate::context::{Asked, Ctx, HttpParts};
use crate::memory::{bytes, import};
use e3_invocation::HandlerError;
use wasmtime::{Caller, Linker, Result};

/// Address and length of bytes in the guest's memory.
type Place = (i32, i32);

/// Defines the imports.
pub(super) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker,
        outbound_service(name: i32, name_len: i32, key: i32, key_len: i32, service: i32,
            service_len: i32, to: i32, to_len: i32, ptr: i32, len: i32, timeout: i64) -> i32,
        |memory, ctx| {
            ctx.may_set_timers("outbound_service")?;
            let asked = asked(memory, [(name, name_len), (key, key_len), (ptr, len)], timeout)?;
            let service = bytes(memory, service, service_len)?;
            ctx.outbound_service(&asked, service, bytes(memory, to, to_len)?)
        }
    );
    import!(linker,
        outbound_application(name: i32, name_len: i32, key: i32, key_len: i32, application: i32,
            application_len: i32, to: i32, to_len: i32, ptr: i32, len: i32, timeout: i64) -> i32,
        |memory, ctx| {
            ctx.may_set_timers("outbound_application")?;
            let asked = asked(memory, [(name, name_len), (key, key_len), (ptr, len)], timeout)?;
            let application = bytes(memory, application, application_len)?;
            ctx.outbound_application(&asked, application, bytes(memory, to, to_len)?)
        }
    );
    import!(linker,
        outbound_http(name: i32, name_len: i32, key: i32, key_len: i32, method: i32,
            method_len: i32, url: i32, url_len: i32, headers: i32, headers_len: i32,
            ptr: i32, len: i32, timeout: i64) -> i32,
        |memory, ctx| {
            ctx.may_set_timers("outbound_http")?;
            let asked = asked(memory, [(name, name_len), (key, key_len), (ptr, len)], timeout)?;
            let http = HttpParts {
                method: bytes(memory, method, method_len)?,
                url: bytes(memory, url, url_len)?,
                headers: bytes(memory, headers, headers_len)?,
            };
            ctx.outbound_http(&asked, &http)
        }
    );
    linker.func_wrap("e3", "answer", |c: Caller<'_, Ctx>| c.data().answer())?;
    Ok(())
}

/// Name, key and payload of an outbound request.
fn asked(
    memory: &[u8],
    [name, key, payload]: [Place; 3],
    timeout: i64,
) -> Result<Asked<'_>, HandlerError> {
    let bytes = |(at, len)| bytes(memory, at, len);
    Ok(Asked {
        name: bytes(name)?,
        key: bytes(key)?,
        payload: bytes(payload)?,
        timeout,
    })
}
