//! The host side of the service ABI (docs/abi.md): the imports in module `e3`.

use crate::host_accelerators::{self, Accel};
use crate::host_collections;
use crate::instance::Shared;
use crate::limits::{KEY_LEN_MAX, LOG_LEN_MAX, PAYLOAD_LEN_MAX, RANDOM_LEN_MAX};
use crate::types::LogLine;
use crate::warm::Warm;
use e3_collections::{State, Txn};
use e3_invocation::{Effects, HandlerError, Invocation, Output, Reply};
use e3_model::{RequestId, Via};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wasmtime::{Caller, Linker, Memory, ResourceLimiter, Result};

/// Code for a handle that does not exist.
const NO_HANDLE: i32 = -1;
/// Code for a bound that is reached.
const BOUND: i32 = -2;

/// What host functions see of their instance.
pub(crate) struct Ctx {
    pub(crate) shared: Rc<Shared>,
    pub(crate) state: Rc<RefCell<State>>,
    pub(crate) txn: Txn,
    pub(crate) warm: Warm,
    pub(crate) memory: Option<Memory>,
    pub(crate) buffer_at: usize,
    pub(crate) buffer_len: usize,
    pub(crate) head_at: Option<usize>,
    /// What is being handled.
    pub(crate) invocation: Option<Invocation>,
    /// What the handler did up to now, but for the writes, which are in `txn`.
    pub(crate) effects: Effects,
    /// Messages of the request, by channel.
    pub(crate) sent: Vec<u32>,
    /// When the request, or the start of the instance, began.
    pub(crate) started: Instant,
    /// How long it ran before it was last preempted.
    pub(crate) busy_before: Duration,
    /// The last growth of memory that was refused.
    pub(crate) growth_refused: Option<usize>,
    /// What it logged last before its first request.
    pub(crate) said: Option<String>,
    /// What is copied out of the memory that a result goes to.
    pub(crate) scratch: Vec<u8>,
    /// Keys and pattern sets that it holds.
    pub(crate) accel: Accel,
}

// SAFETY: wasmtime asks for `Send` so that the store of a suspended fiber may go to another thread.
// It never does: the store lives in a future that `Engine` owns and polls, and `Engine` is not
// `Send` (it holds `Rc`s).
unsafe impl Send for Ctx {}

/// Carries a failure out of a host function through WebAssembly frames.
#[derive(Debug)]
pub(crate) struct HostError(pub(crate) HandlerError);

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for HostError {}

impl From<HandlerError> for HostError {
    fn from(failure: HandlerError) -> HostError {
        HostError(failure)
    }
}

type Host<T> = std::result::Result<T, HostError>;

impl Ctx {
    pub(crate) fn new(shared: Rc<Shared>, state: Rc<RefCell<State>>, started: Instant) -> Ctx {
        let sent = vec![0; shared.spec.channels.len()];
        Ctx {
            shared,
            state,
            txn: Txn::new(),
            warm: Warm::default(),
            memory: None,
            buffer_at: 0,
            buffer_len: 0,
            head_at: None,
            invocation: None,
            effects: Effects::default(),
            sent,
            started,
            busy_before: Duration::ZERO,
            growth_refused: None,
            said: None,
            scratch: Vec::new(),
            accel: Accel::default(),
        }
    }

    /// Before the collections are read.
    pub(crate) fn note_read(&self) {
        if !self.shared.has_started.get() {
            self.shared.has_read.set(true);
        }
    }

    pub(crate) fn in_request(&self, import: &'static str) -> Host<()> {
        match self.invocation {
            Some(_) => Ok(()),
            None => Err(HostError(HandlerError::OutsideRequest(import))),
        }
    }

    pub(crate) fn reply(&mut self, status: u32, payload: &[u8]) -> i32 {
        if payload.len() > PAYLOAD_LEN_MAX || self.effects.reply.is_some() {
            return BOUND;
        }
        let payload = self.shared.core.buffer_with(payload);
        self.effects.reply = Some(Reply { status, payload });
        0
    }

    pub(crate) fn send(&mut self, channel: i32, key: &[u8], payload: &[u8]) -> i32 {
        let spec = &self.shared.spec;
        let at = channel as u32 as usize;
        let Some((_, outputs_max)) = spec.channels.get(at) else {
            return NO_HANDLE;
        };
        let fits = (1..=KEY_LEN_MAX).contains(&key.len()) && payload.len() <= PAYLOAD_LEN_MAX;
        if !fits || self.sent[at] >= *outputs_max {
            return BOUND;
        }
        self.sent[at] += 1;
        self.effects.outputs.push(Output {
            channel: at as u16,
            key: self.shared.core.buffer_with(key),
            payload: self.shared.core.buffer_with(payload),
        });
        0
    }

    pub(crate) fn channel(&self, name: &[u8]) -> i32 {
        position(self.shared.spec.channels.iter().map(|(n, _)| &**n), name)
    }

    pub(crate) fn asset(&self, name: &[u8]) -> i32 {
        position(self.shared.spec.assets.iter().map(|(n, _)| &**n), name)
    }

    /// An asset from an offset on; nothing beyond its end.
    pub(crate) fn asset_from(&self, asset: i32, offset: i64) -> Option<&[u8]> {
        let (_, content) = self.shared.spec.assets.get(asset as u32 as usize)?;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        Some(content.get(offset..).unwrap_or_default())
    }

    pub(crate) fn secret(&self, name: &[u8]) -> Option<&[u8]> {
        let mut secrets = self.shared.spec.secrets.iter();
        let secret = secrets.find(|(n, _)| n.as_bytes() == name);
        secret.map(|(_, value)| &**value)
    }

    pub(crate) fn config(&self, name: &[u8]) -> Option<&[u8]> {
        let name = std::str::from_utf8(name).unwrap_or_default();
        self.shared.spec.config.get(name).map(|v| v.as_bytes())
    }

    pub(crate) fn random(&self, out: &mut [u8]) -> i32 {
        if out.len() > RANDOM_LEN_MAX {
            return BOUND;
        }
        (self.shared.core.random)(out);
        0
    }

    pub(crate) fn log(&mut self, level: i32, text: &[u8]) {
        let text = String::from_utf8_lossy(&text[..text.len().min(LOG_LEN_MAX)]);
        if !self.shared.has_started.get() {
            self.said = Some(text.to_string());
        }
        if let Some(log) = &self.shared.core.log {
            log(LogLine {
                instance: self.shared.id,
                service: &self.shared.spec.name,
                level: level.clamp(1, 4),
                text: &text,
            });
        }
    }
}

impl ResourceLimiter for Ctx {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool> {
        let allowed = desired <= self.shared.spec.memory_bytes_max;
        if allowed {
            self.shared.memory_bytes.set(desired);
        } else {
            self.growth_refused = Some(desired);
        }
        Ok(allowed)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool> {
        Ok(desired <= crate::limits::TABLE_LEN_MAX)
    }
}

/// A request's identity as the service ABI has it.
pub(crate) fn id_bytes(id: RequestId) -> [u8; 16] {
    let bytes = u128::from(id.seq) << 64 | u128::from(id.client);
    bytes.to_le_bytes()
}

/// A message's origin as the service ABI has it: -1 from a client, or the number of the edge.
pub(crate) fn edge(via: Via) -> i32 {
    match via {
        Via::Ingress => -1,
        Via::Edge(edge) => i32::from(edge.0),
    }
}

/// The caller's memory and context.
#[inline(always)]
pub(crate) fn parts<'a>(caller: &'a mut Caller<'_, Ctx>) -> Host<(&'a mut [u8], &'a mut Ctx)> {
    let Some(memory) = caller.data().memory else {
        return Err(HostError(HandlerError::OutsideRequest("e3")));
    };
    Ok(memory.data_and_store_mut(caller))
}

#[inline(always)]
pub(crate) fn range(memory: usize, ptr: i32, len: i32) -> Host<std::ops::Range<usize>> {
    let (start, count) = (ptr as u32 as usize, len as u32 as usize);
    if start + count > memory {
        return Err(HostError(HandlerError::Pointer {
            ptr: ptr as u32,
            len: len as u32,
            memory,
        }));
    }
    Ok(start..start + count)
}

#[inline(always)]
pub(crate) fn bytes(memory: &[u8], ptr: i32, len: i32) -> Host<&[u8]> {
    Ok(&memory[range(memory.len(), ptr, len)?])
}

/// Copies a value out if it fits in `cap`; its length.
#[inline(always)]
fn give(memory: &mut [u8], value: &[u8], out: i32, cap: i32) -> Host<i32> {
    let to = range(memory.len(), out, cap)?;
    if let Some(to) = memory[to].get_mut(..value.len()) {
        to.copy_from_slice(value);
    }
    Ok(value.len() as i32)
}

pub(crate) fn found(memory: &mut [u8], value: Option<&[u8]>, out: i32, cap: i32) -> Host<i32> {
    match value {
        Some(value) => give(memory, value, out, cap),
        None => Ok(-1),
    }
}

pub(crate) fn position<'a>(mut names: impl Iterator<Item = &'a str>, name: &[u8]) -> i32 {
    match names.position(|n| n.as_bytes() == name) {
        Some(at) => at as i32,
        None => NO_HANDLE,
    }
}

pub(crate) type C<'a> = Caller<'a, Ctx>;

/// Defines all imports.
pub(crate) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    define_request(linker)?;
    host_collections::define(linker)?;
    host_accelerators::define(linker)?;
    define_surroundings(linker)
}

fn define_request(linker: &mut Linker<Ctx>) -> Result<()> {
    linker.func_wrap("e3", "now", |c: C<'_>| match &c.data().invocation {
        Some(invocation) => invocation.now.0 as i64,
        None => 0,
    })?;
    linker.func_wrap("e3", "request_id", |mut c: C<'_>, out: i32| -> Result<()> {
        let (memory, ctx) = parts(&mut c)?;
        let id = ctx
            .invocation
            .as_ref()
            .map_or([0; 16], |i| id_bytes(i.request));
        give(memory, &id, out, 16)?;
        Ok(())
    })?;
    linker.func_wrap(
        "e3",
        "request_key",
        |mut c: C<'_>, out: i32, cap: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            let key = ctx.invocation.as_ref().map_or(&[][..], |i| &i.key);
            Ok(give(memory, key, out, cap)?)
        },
    )?;
    linker.func_wrap("e3", "request_slot", |c: C<'_>| {
        match &c.data().invocation {
            Some(invocation) => i32::from(invocation.slot.0),
            None => -1,
        }
    })?;
    linker.func_wrap("e3", "request_edge", |c: C<'_>| {
        match &c.data().invocation {
            Some(invocation) => edge(invocation.via),
            None => -1,
        }
    })?;
    linker.func_wrap(
        "e3",
        "reply",
        |mut c: C<'_>, status: i32, ptr: i32, len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.in_request("reply")?;
            Ok(ctx.reply(status as u32, bytes(memory, ptr, len)?))
        },
    )?;
    linker.func_wrap(
        "e3",
        "channel",
        |mut c: C<'_>, ptr: i32, len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            Ok(ctx.channel(bytes(memory, ptr, len)?))
        },
    )?;
    linker.func_wrap(
        "e3",
        "send",
        |mut c: C<'_>, channel: i32, key: i32, key_len: i32, ptr: i32, len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.in_request("send")?;
            let (key, payload) = (bytes(memory, key, key_len)?, bytes(memory, ptr, len)?);
            Ok(ctx.send(channel, key, payload))
        },
    )?;
    Ok(())
}

fn define_surroundings(linker: &mut Linker<Ctx>) -> Result<()> {
    linker.func_wrap(
        "e3",
        "asset",
        |mut c: C<'_>, ptr: i32, len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            Ok(ctx.asset(bytes(memory, ptr, len)?))
        },
    )?;
    linker.func_wrap("e3", "asset_len", |c: C<'_>, asset: i32| -> i64 {
        c.data()
            .asset_from(asset, 0)
            .map_or(-1, |content| content.len() as i64)
    })?;
    linker.func_wrap(
        "e3",
        "asset_read",
        |mut c: C<'_>, asset: i32, offset: i64, out: i32, cap: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            let to = range(memory.len(), out, cap)?;
            let Some(rest) = ctx.asset_from(asset, offset) else {
                return Ok(NO_HANDLE);
            };
            let len = rest.len().min(to.len()).min(i32::MAX as usize);
            memory[to.start..to.start + len].copy_from_slice(&rest[..len]);
            Ok(len as i32)
        },
    )?;
    linker.func_wrap(
        "e3",
        "secret",
        |mut c: C<'_>, ptr: i32, len: i32, out: i32, cap: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            let secret = ctx.secret(bytes(memory, ptr, len)?);
            Ok(found(memory, secret, out, cap)?)
        },
    )?;
    linker.func_wrap(
        "e3",
        "config",
        |mut c: C<'_>, ptr: i32, len: i32, out: i32, cap: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            let value = ctx.config(bytes(memory, ptr, len)?);
            Ok(found(memory, value, out, cap)?)
        },
    )?;
    linker.func_wrap(
        "e3",
        "random",
        |mut c: C<'_>, out: i32, len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            let to = range(memory.len(), out, len)?;
            Ok(ctx.random(&mut memory[to]))
        },
    )?;
    linker.func_wrap(
        "e3",
        "log",
        |mut c: C<'_>, level: i32, ptr: i32, len: i32| -> Result<()> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.log(level, bytes(memory, ptr, len)?);
            Ok(())
        },
    )?;
    Ok(())
}
