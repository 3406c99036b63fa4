//! What host functions see of their instance: the request in progress, its effects up to now, and
//! what the instance may use.

mod calls;
mod collections;
mod drawn;
mod outbound;
mod timers;
mod topics;
mod turn;

pub(crate) use collections::{Scan, code, handle, number, there, time_to_live};
pub(crate) use drawn::hmac;
pub(crate) use outbound::{Asked, HttpParts};
pub(crate) use turn::busy;

use crate::accelerators::Accel;
use crate::codes::{BOUND, NO_HANDLE};
use crate::config::LogLine;
use crate::context::calls::Calls;
use crate::context::drawn::Drawn;
use crate::limits::{KEY_LEN_MAX, LOG_LEN_MAX, PAYLOAD_LEN_MAX, RANDOM_LEN_MAX, TABLE_LEN_MAX};
use crate::shared::Shared;
use crate::warm::Warm;
use e3_collections::{State, Txn};
use e3_invocation::{Effects, HandlerError, Invocation, Output, Reply};
use e3_model::{RequestId, Via};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wasmtime::{Memory, ResourceLimiter};

/// What host functions see of their instance.
pub(crate) struct Ctx {
    pub(crate) shared: Rc<Shared>,
    pub(crate) state: Rc<RefCell<State>>,
    pub(crate) txn: Txn,
    /// The last name of a collection that is not in the manifest.
    unknown: RefCell<Option<String>>,
    warm: Warm,
    pub(crate) memory: Option<Memory>,
    pub(crate) place: RequestPlace,
    /// The request in progress.
    pub(crate) invocation: Option<Invocation>,
    /// The random bytes of the request, if the message decides about them.
    drawn: Option<Drawn>,
    /// What the handler did up to now, except for the writes, which are in `txn`.
    effects: Effects,
    /// Messages of the request, by channel.
    sent: Vec<u32>,
    /// Calls that it makes.
    calls: Calls,
    /// When the request, or the start of the instance, began.
    started: Instant,
    /// How long it ran before it was last preempted.
    pub(crate) busy_before: Duration,
    /// The last growth of memory that was refused.
    pub(crate) growth_refused: Option<usize>,
    /// The last line that it logged before its first request.
    pub(crate) said: Option<String>,
    /// Copies of arguments, where the result goes into the memory that they are in.
    pub(crate) scratch: Vec<u8>,
    /// Keys and pattern sets that the instance holds.
    pub(crate) accel: Accel,
}

/// Where a request goes in the instance's memory. Invariant: within the memory.
#[derive(Clone, Copy, Default)]
pub(crate) struct RequestPlace {
    /// Address of the buffer for the payload.
    pub(crate) buffer: usize,
    /// Bytes of that buffer.
    pub(crate) capacity: usize,
    /// Address of the head, if the module has one.
    pub(crate) head: Option<usize>,
}

// SAFETY: wasmtime asks for `Send` so that the store of a suspended fiber may go to another thread.
// It never does: the store lives in a future that `Engine` owns and polls, and `Engine` is not
// `Send` (it holds `Rc`s).
unsafe impl Send for Ctx {}

impl Ctx {
    pub(crate) fn new(shared: Rc<Shared>, state: Rc<RefCell<State>>, started: Instant) -> Ctx {
        let sent = vec![0; shared.spec.channels.len()];
        Ctx {
            shared,
            state,
            txn: Txn::new(),
            unknown: RefCell::default(),
            warm: Warm::default(),
            memory: None,
            place: RequestPlace::default(),
            invocation: None,
            drawn: None,
            effects: Effects::default(),
            sent,
            calls: Calls::default(),
            started,
            busy_before: Duration::ZERO,
            growth_refused: None,
            said: None,
            scratch: Vec::new(),
            accel: Accel::default(),
        }
    }

    /// The handler's clock; 0 outside of a request.
    #[inline(always)]
    pub(crate) fn now(&self) -> i64 {
        self.invocation.as_ref().map_or(0, |i| i.now.0 as i64)
    }

    pub(crate) fn request_id(&self) -> [u8; 16] {
        let invocation = self.invocation.as_ref();
        invocation.map_or([0; 16], |i| id_bytes(i.id.request))
    }

    pub(crate) fn request_key(&self) -> &[u8] {
        self.invocation.as_ref().map_or(&[], |i| &i.key)
    }

    /// Slot of the request's key; -1 outside of a request.
    pub(crate) fn request_slot(&self) -> i32 {
        let invocation = self.invocation.as_ref();
        invocation.map_or(-1, |i| i32::from(i.slot.0))
    }

    /// Channel that the request came by; -1 from a client and outside of a request, -2 from a timer, -3
    /// from a call, -4 with an answer, -5 with a publication.
    pub(crate) fn request_edge(&self) -> i32 {
        self.invocation.as_ref().map_or(-1, edge)
    }

    /// Notes that the collections are read.
    pub(crate) fn note_read(&self) {
        if !self.shared.has_started.get() {
            self.shared.has_read.set(true);
        }
    }

    pub(crate) fn in_request(&self, import: &'static str) -> Result<(), HandlerError> {
        match self.invocation {
            Some(_) => Ok(()),
            None => Err(HandlerError::OutsideRequest(import)),
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
        let at = channel as u32 as usize;
        let Some(spec) = self.shared.spec.channels.get(at) else {
            return NO_HANDLE;
        };
        let fits = (1..=KEY_LEN_MAX).contains(&key.len()) && payload.len() <= PAYLOAD_LEN_MAX;
        if !fits || self.sent[at] >= spec.outputs_max {
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
        position(self.shared.spec.channels.iter().map(|c| &*c.name), name)
    }

    pub(crate) fn asset(&self, name: &[u8]) -> i32 {
        position(self.shared.spec.assets.iter().map(|(n, _)| &**n), name)
    }

    /// The content of an asset from an offset on; empty beyond its end.
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

    pub(crate) fn random(&mut self, out: &mut [u8]) -> i32 {
        if out.len() > RANDOM_LEN_MAX {
            return BOUND;
        }
        match (&self.shared.spec.random_key, &self.invocation) {
            (Some(key), Some(invocation)) => {
                let drawn = self
                    .drawn
                    .get_or_insert_with(|| Drawn::new(key, &self.shared.spec.name, invocation));
                drawn.fill(out);
            }
            _ => (self.shared.core.random)(out),
        }
        0
    }

    pub(crate) fn log(&mut self, level: i32, text: &[u8]) {
        let text = String::from_utf8_lossy(&text[..text.len().min(LOG_LEN_MAX)]);
        if !self.shared.has_started.get() {
            self.said = Some(text.to_string());
        }
        if let Some(log) = &self.shared.core.log
            && let Some(dropped) = self.shared.log_rate.take(Instant::now())
        {
            let text = match dropped {
                0 => text,
                n => format!("({n} lines dropped) {text}").into(),
            };
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
    ) -> wasmtime::Result<bool> {
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
    ) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_LEN_MAX)
    }
}

/// A request's identity as the service ABI has it.
fn id_bytes(id: RequestId) -> [u8; 16] {
    let bytes = (u128::from(id.seq) << 64) | u128::from(id.client);
    bytes.to_le_bytes()
}

/// A request's origin as the service ABI has it.
fn edge(invocation: &Invocation) -> i32 {
    match invocation.id.via {
        _ if invocation.is_call => -3,
        _ if invocation.answer.is_some() => -4,
        _ if invocation.topic.is_some() => -5,
        Via::Ingress => -1,
        Via::Edge(edge) => i32::from(edge.0),
        Via::Timer => -2,
    }
}

/// Handle of a name: its position.
fn position<'a>(mut names: impl Iterator<Item = &'a str>, name: &[u8]) -> i32 {
    match names.position(|n| n.as_bytes() == name) {
        Some(at) => at as i32,
        None => NO_HANDLE,
    }
}
