//! The functions that guests import, as docs/abi.md describes them.

use crate::host::{Host, HostResult, give, parts, slice};
use crate::limits::{KEY_LEN_MAX, LOG_LEN_MAX, PAYLOAD_LEN_MAX};
use crate::types::{Failure, LogLine, Output, Reply};
use e3_collections::TxnError;
use wasmtime::{Caller, Linker};

/// Names of all imports.
pub(crate) const IMPORTS: [&str; 25] = [
    "now",
    "request_id",
    "request_key",
    "request_edge",
    "reply",
    "channel",
    "send",
    "collection",
    "get",
    "put",
    "delete",
    "scan",
    "array_len",
    "array_get",
    "array_push",
    "array_put",
    "array_pop_front",
    "counter_add",
    "counter_get",
    "asset",
    "asset_len",
    "asset_read",
    "secret",
    "config",
    "log",
];

/// Code for a bound that was reached.
const BOUND: i32 = -2;
/// Code for a handle or name that is none.
const NONE: i32 = -1;

/// `collection` as the collections count them; out of range gives "no such collection".
fn coll(handle: i32) -> u16 {
    u16::try_from(handle).unwrap_or(u16::MAX)
}

fn code<T>(result: Result<T, TxnError>, ok: impl FnOnce(T) -> i32) -> i32 {
    match result {
        Ok(value) => ok(value),
        Err(e) => e.code(),
    }
}

fn in_request(host: &Host, name: &'static str) -> HostResult<()> {
    if host.in_request {
        return Ok(());
    }
    Err(wasmtime::Error::new(Failure::OutsideRequest(name)))
}

fn find(names: impl Iterator<Item = impl AsRef<str>>, name: &[u8]) -> i32 {
    let mut names = names;
    names
        .position(|n| n.as_ref().as_bytes() == name)
        .map_or(NONE, |i| i as i32)
}

pub(crate) fn define(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    request(linker)?;
    sending(linker)?;
    maps(linker)?;
    arrays_and_counters(linker)?;
    surroundings(linker)
}

fn request(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap("e3", "now", |caller: Caller<'_, Host>| {
        caller.data().now_ns as i64
    })?;
    linker.func_wrap(
        "e3",
        "request_id",
        |mut caller: Caller<'_, Host>, out: i32| {
            let (memory, host) = parts(&mut caller);
            in_request(host, "request_id")?;
            let shared = host.shared.borrow();
            let id = shared
                .current
                .as_ref()
                .map(|r| r.request_id)
                .unwrap_or_default();
            give(memory, &id, out, 16).map(|_| ())
        },
    )?;
    linker.func_wrap(
        "e3",
        "request_key",
        |mut caller: Caller<'_, Host>, out: i32, cap: i32| {
            let (memory, host) = parts(&mut caller);
            in_request(host, "request_key")?;
            let shared = host.shared.borrow();
            let key = shared.current.as_ref().map_or(&[][..], |r| &r.key);
            give(memory, key, out, cap)
        },
    )?;
    linker.func_wrap("e3", "request_edge", |caller: Caller<'_, Host>| {
        let shared = caller.data().shared.borrow();
        shared.current.as_ref().map_or(-1, |r| r.edge)
    })?;
    Ok(())
}

fn sending(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "e3",
        "reply",
        |mut caller: Caller<'_, Host>, status: i32, ptr: i32, len: i32| -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "reply")?;
            let payload = slice(memory, ptr, len)?;
            if payload.len() > PAYLOAD_LEN_MAX || host.reply.is_some() {
                return Ok(BOUND);
            }
            host.reply = Some(Reply {
                status: status as u32,
                payload: payload.to_vec(),
            });
            Ok(0)
        },
    )?;
    linker.func_wrap(
        "e3",
        "channel",
        |mut caller: Caller<'_, Host>, name: i32, len: i32| -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            Ok(find(
                host.spec.channels.iter().map(|(n, _)| n),
                slice(memory, name, len)?,
            ))
        },
    )?;
    linker.func_wrap(
        "e3",
        "send",
        |mut caller: Caller<'_, Host>,
         channel: i32,
         key: i32,
         key_len: i32,
         ptr: i32,
         len: i32|
         -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "send")?;
            let key = slice(memory, key, key_len)?;
            let payload = slice(memory, ptr, len)?;
            let at = channel as u32 as usize;
            let Some((_, max)) = host.spec.channels.get(at) else {
                return Ok(NONE);
            };
            let fits = (1..=KEY_LEN_MAX).contains(&key.len()) && payload.len() <= PAYLOAD_LEN_MAX;
            if !fits || host.sent[at] >= *max {
                return Ok(BOUND);
            }
            host.sent[at] += 1;
            host.outputs.push(Output {
                channel: at as u16,
                key: key.to_vec(),
                payload: payload.to_vec(),
            });
            Ok(0)
        },
    )?;
    Ok(())
}

fn maps(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "e3",
        "collection",
        |mut caller: Caller<'_, Host>, name: i32, len: i32| -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            Ok(find(
                host.spec.collections.iter().map(|c| &c.name),
                slice(memory, name, len)?,
            ))
        },
    )?;
    linker.func_wrap(
        "e3",
        "get",
        |mut caller: Caller<'_, Host>,
         c: i32,
         key: i32,
         key_len: i32,
         out: i32,
         cap: i32|
         -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "get")?;
            let state = host.state.borrow();
            match host.txn.get(&state, coll(c), slice(memory, key, key_len)?) {
                Ok(Some(value)) => give(memory, value, out, cap),
                Ok(None) => Ok(NONE),
                Err(e) => Ok(e.code()),
            }
        },
    )?;
    linker.func_wrap(
        "e3",
        "put",
        |mut caller: Caller<'_, Host>,
         c: i32,
         key: i32,
         key_len: i32,
         ptr: i32,
         len: i32|
         -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "put")?;
            let state = host.state.borrow();
            let (key, value) = (slice(memory, key, key_len)?, slice(memory, ptr, len)?);
            Ok(code(host.txn.put(&state, coll(c), key, value), |()| 0))
        },
    )?;
    linker.func_wrap(
        "e3",
        "delete",
        |mut caller: Caller<'_, Host>, c: i32, key: i32, key_len: i32| -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "delete")?;
            let state = host.state.borrow();
            let key = slice(memory, key, key_len)?;
            Ok(code(host.txn.delete(&state, coll(c), key), i32::from))
        },
    )?;
    linker.func_wrap("e3", "scan", scan)?;
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the service ABI's")]
fn scan(
    mut caller: Caller<'_, Host>,
    c: i32,
    from: i32,
    from_len: i32,
    to: i32,
    to_len: i32,
    limit: i32,
    reverse: i32,
    out: i32,
    cap: i32,
) -> HostResult<i32> {
    let (memory, host) = parts(&mut caller);
    in_request(host, "scan")?;
    let state = host.state.borrow();
    let (from, to) = (slice(memory, from, from_len)?, slice(memory, to, to_len)?);
    let limit = if limit == 0 {
        usize::MAX
    } else {
        limit as u32 as usize
    };
    let cap = cap as u32 as usize;
    let (mut packed, mut count, mut needed) = (Vec::new(), 0, 0);
    let scanned = host
        .txn
        .scan(&state, coll(c), from, to, reverse != 0, |key, value| {
            let len = 8 + key.len() + value.len();
            if count == limit {
                return false;
            }
            if packed.len() + len > cap {
                needed = if count == 0 { len } else { 0 };
                return false;
            }
            count += 1;
            packed.extend_from_slice(&(key.len() as u32).to_le_bytes());
            packed.extend_from_slice(&(value.len() as u32).to_le_bytes());
            packed.extend_from_slice(key);
            packed.extend_from_slice(value);
            true
        });
    match scanned {
        Err(e) => Ok(e.code()),
        Ok(()) if needed > 0 => Ok(-(needed as i32)),
        Ok(()) => give(memory, &packed, out, cap as i32),
    }
}

fn arrays_and_counters(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "e3",
        "array_len",
        |mut caller: Caller<'_, Host>, c: i32, key: i32, key_len: i32| -> HostResult<i64> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "array_len")?;
            let state = host.state.borrow();
            let len = host
                .txn
                .array_len(&state, coll(c), slice(memory, key, key_len)?);
            Ok(len.map_or_else(|e| i64::from(e.code()), |n| n as i64))
        },
    )?;
    linker.func_wrap(
        "e3",
        "array_get",
        |mut caller: Caller<'_, Host>,
         c: i32,
         key: i32,
         key_len: i32,
         at: i64,
         out: i32,
         cap: i32|
         -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "array_get")?;
            let state = host.state.borrow();
            let key = slice(memory, key, key_len)?;
            match host.txn.array_get(&state, coll(c), key, at as u64) {
                Ok(Some(value)) => give(memory, value, out, cap),
                Ok(None) => Ok(NONE),
                Err(e) => Ok(e.code()),
            }
        },
    )?;
    linker.func_wrap(
        "e3",
        "array_push",
        |mut caller: Caller<'_, Host>,
         c: i32,
         key: i32,
         key_len: i32,
         ptr: i32,
         len: i32|
         -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "array_push")?;
            let state = host.state.borrow();
            let (key, value) = (slice(memory, key, key_len)?, slice(memory, ptr, len)?);
            Ok(code(
                host.txn.array_push(&state, coll(c), key, value),
                |()| 0,
            ))
        },
    )?;
    linker.func_wrap(
        "e3",
        "array_put",
        |mut caller: Caller<'_, Host>,
         c: i32,
         key: i32,
         key_len: i32,
         at: i64,
         ptr: i32,
         len: i32|
         -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "array_put")?;
            let state = host.state.borrow();
            let (key, value) = (slice(memory, key, key_len)?, slice(memory, ptr, len)?);
            Ok(code(
                host.txn.array_put(&state, coll(c), key, at as u64, value),
                |()| 0,
            ))
        },
    )?;
    linker.func_wrap(
        "e3",
        "array_pop_front",
        |mut caller: Caller<'_, Host>, c: i32, key: i32, key_len: i32| -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "array_pop_front")?;
            let state = host.state.borrow();
            let key = slice(memory, key, key_len)?;
            Ok(code(
                host.txn.array_pop_front(&state, coll(c), key),
                i32::from,
            ))
        },
    )?;
    linker.func_wrap(
        "e3",
        "counter_add",
        |mut caller: Caller<'_, Host>,
         c: i32,
         key: i32,
         key_len: i32,
         delta: i64|
         -> HostResult<i64> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "counter_add")?;
            let state = host.state.borrow();
            let key = slice(memory, key, key_len)?;
            let before = host.txn.counter_add(&state, coll(c), key, delta);
            Ok(before.unwrap_or_else(|e| i64::from(e.code())))
        },
    )?;
    linker.func_wrap(
        "e3",
        "counter_get",
        |mut caller: Caller<'_, Host>, c: i32, key: i32, key_len: i32| -> HostResult<i64> {
            let (memory, host) = parts(&mut caller);
            in_request(host, "counter_get")?;
            let state = host.state.borrow();
            let value = host
                .txn
                .counter_get(&state, coll(c), slice(memory, key, key_len)?);
            Ok(value.unwrap_or_else(|e| i64::from(e.code())))
        },
    )?;
    Ok(())
}

fn surroundings(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "e3",
        "asset",
        |mut caller: Caller<'_, Host>, name: i32, len: i32| -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            Ok(find(
                host.spec.assets.iter().map(|(n, _)| n),
                slice(memory, name, len)?,
            ))
        },
    )?;
    linker.func_wrap("e3", "asset_len", |caller: Caller<'_, Host>, asset: i32| {
        let found = caller.data().spec.assets.get(asset as u32 as usize);
        found.map_or(i64::from(NONE), |(_, bytes)| bytes.len() as i64)
    })?;
    linker.func_wrap(
        "e3",
        "asset_read",
        |mut caller: Caller<'_, Host>,
         asset: i32,
         offset: i64,
         out: i32,
         cap: i32|
         -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            let Some((_, bytes)) = host.spec.assets.get(asset as u32 as usize) else {
                return Ok(NONE);
            };
            let rest = usize::try_from(offset)
                .ok()
                .and_then(|at| bytes.get(at..))
                .unwrap_or(&[]);
            let part = &rest[..rest.len().min(cap as u32 as usize)];
            give(memory, part, out, cap)
        },
    )?;
    linker.func_wrap(
        "e3",
        "secret",
        |mut caller: Caller<'_, Host>,
         name: i32,
         len: i32,
         out: i32,
         cap: i32|
         -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            let name = slice(memory, name, len)?;
            match host.spec.secrets.iter().find(|(n, _)| n.as_bytes() == name) {
                Some((_, value)) => give(memory, value, out, cap),
                None => Ok(NONE),
            }
        },
    )?;
    linker.func_wrap(
        "e3",
        "config",
        |mut caller: Caller<'_, Host>,
         name: i32,
         len: i32,
         out: i32,
         cap: i32|
         -> HostResult<i32> {
            let (memory, host) = parts(&mut caller);
            let name = slice(memory, name, len)?;
            match host.spec.config.iter().find(|(n, _)| n.as_bytes() == name) {
                Some((_, value)) => give(memory, value.as_bytes(), out, cap),
                None => Ok(NONE),
            }
        },
    )?;
    linker.func_wrap(
        "e3",
        "log",
        |mut caller: Caller<'_, Host>, level: i32, ptr: i32, len: i32| -> HostResult<()> {
            let (memory, host) = parts(&mut caller);
            let bytes = slice(memory, ptr, len)?;
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOG_LEN_MAX)]);
            if let Some(log) = &host.log {
                log(LogLine {
                    instance: host.id,
                    service: &host.spec.name,
                    level,
                    text: &text,
                });
            }
            Ok(())
        },
    )?;
    Ok(())
}
