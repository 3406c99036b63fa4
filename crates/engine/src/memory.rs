//! The guest's memory, as imports see it: every range that a service passes is checked here.

use crate::context::Ctx;
use e3_invocation::HandlerError;
use std::ops::Range;
use wasmtime::Caller;

/// Defines an import whose body sees the guest's memory and the context. A `?` within the body
/// makes the guest trap.
macro_rules! import {
    ($linker:ident, $name:ident($($arg:ident: $type:ty),*) -> $answer:ty,
     |$memory:ident, $ctx:ident| $body:expr) => {
        $linker.func_wrap(
            "e3",
            stringify!($name),
            |mut caller: wasmtime::Caller<'_, $crate::context::Ctx>, $($arg: $type),*| {
                let ($memory, $ctx) = $crate::memory::parts(&mut caller)?;
                let answer: $answer = $body;
                wasmtime::Result::<$answer>::Ok(answer)
            },
        )?;
    };
}
pub(crate) use import;

/// The caller's memory and context.
#[inline(always)]
pub(crate) fn parts<'a>(
    caller: &'a mut Caller<'_, Ctx>,
) -> Result<(&'a mut [u8], &'a mut Ctx), HandlerError> {
    let Some(memory) = caller.data().memory else {
        return Err(HandlerError::OutsideRequest("e3"));
    };
    Ok(memory.data_and_store_mut(caller))
}

/// A range of the guest's memory of `memory` bytes.
#[inline(always)]
pub(crate) fn range(memory: usize, ptr: i32, len: i32) -> Result<Range<usize>, HandlerError> {
    let (start, count) = (ptr as u32 as usize, len as u32 as usize);
    if start + count > memory {
        return Err(HandlerError::Pointer {
            ptr: ptr as u32,
            len: len as u32,
            memory,
        });
    }
    Ok(start..start + count)
}

/// The bytes of a range.
#[inline(always)]
pub(crate) fn bytes(memory: &[u8], ptr: i32, len: i32) -> Result<&[u8], HandlerError> {
    Ok(&memory[range(memory.len(), ptr, len)?])
}

/// A copy of so many bytes.
pub(crate) fn array<const N: usize>(memory: &[u8], ptr: i32) -> Result<[u8; N], HandlerError> {
    let bytes = bytes(memory, ptr, N as i32)?;
    Ok(bytes.try_into().expect("of this length"))
}

/// Copies a value to `out` if it fits in `cap`; its length.
#[inline(always)]
pub(crate) fn give(
    memory: &mut [u8],
    value: &[u8],
    out: i32,
    cap: i32,
) -> Result<i32, HandlerError> {
    let to = range(memory.len(), out, cap)?;
    if let Some(to) = memory[to].get_mut(..value.len()) {
        to.copy_from_slice(value);
    }
    Ok(value.len() as i32)
}

/// Like [`give`]; -1 if there is no value.
pub(crate) fn found(
    memory: &mut [u8],
    value: Option<&[u8]>,
    out: i32,
    cap: i32,
) -> Result<i32, HandlerError> {
    match value {
        Some(value) => give(memory, value, out, cap),
        None => Ok(-1),
    }
}

/// As much of these bytes as shows that they are more than there may be, if they are.
pub(crate) fn cut(bytes: &[u8], len_max: usize) -> &[u8] {
    &bytes[..bytes.len().min(len_max + 1)]
}
