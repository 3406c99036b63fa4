//! Calls of other services: the handler waits for the answer, and the core runs others meanwhile.

use crate::context::Ctx;
use crate::memory::{bytes, found, import, parts};
use std::future::poll_fn;
use std::task::Poll;
use wasmtime::{AsContextMut, Caller, Linker, Result};

/// Defines the imports.
pub(super) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    linker.func_wrap_async(
        "e3",
        "call",
        |mut caller: Caller<'_, Ctx>, arguments: (i32, i32, i32, i32, i32, i32)| {
            Box::new(async move { call(&mut caller, arguments).await })
        },
    )?;
    linker.func_wrap("e3", "call_status", |c: Caller<'_, Ctx>| {
        c.data().call_status()
    })?;
    import!(linker, call_answer(out: i32, cap: i32) -> i32, |memory, ctx| {
        found(memory, ctx.call_answer(), out, cap)?
    });
    Ok(())
}

/// Suspends the fiber until the answer is here.
async fn call(
    caller: &mut Caller<'_, Ctx>,
    (service, service_len, key, key_len, ptr, len): (i32, i32, i32, i32, i32, i32),
) -> Result<i32> {
    let (memory, ctx) = parts(caller)?;
    ctx.in_request("call")?;
    let (service, key) = (
        bytes(memory, service, service_len)?,
        bytes(memory, key, key_len)?,
    );
    if let Some(code) = ctx.begin_call(service, key, bytes(memory, ptr, len)?) {
        return Ok(code);
    }
    let answer = poll_fn(|_| match caller.data_mut().shared.answer.take() {
        Some(answer) => Poll::Ready(answer),
        None => Poll::Pending,
    })
    .await;
    // other instances' ticks have passed meanwhile
    caller.as_context_mut().set_epoch_deadline(1);
    Ok(caller.data_mut().end_call(answer))
}
