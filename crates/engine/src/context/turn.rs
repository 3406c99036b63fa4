//! From one request to the next: commit what the handler did, take the next one from the queue.

use super::calls::Calls;
use super::{Ctx, edge, id_bytes};
use crate::limits::{COMPLETIONS_MAX, REQUEST_HEAD_LEN};
use e3_invocation::limits::EFFECTS_LEN_MAX;
use e3_invocation::{Completion, HandlerError, Invocation, Outcome};
use e3_model::timer::TimerChange;
use std::time::{Duration, Instant};

impl Ctx {
    /// Ends the request that was handled with `status`, and takes the next one: its payload. None
    /// if there is no other, or when the caller of `run` wants the core back.
    #[inline]
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        status: i32,
    ) -> Result<Option<&mut Vec<u8>>, HandlerError> {
        if self.invocation.is_some() {
            if status != 0 || self.txn.is_write_lost() {
                return Err(self.failed(status));
            }
            commit(self, now)?;
            self.shared.is_within_request.set(false);
            // checked only now, so that every turn makes progress
            let core = &self.shared.core;
            if self.shared.pauses.take() {
                core.run_until.set(now);
            }
            if now >= core.run_until.get() || core.completions.borrow().len() >= COMPLETIONS_MAX {
                return Ok(None);
            }
        }
        let mut queue = self.shared.queue.borrow_mut();
        self.warm.next(&queue, &self.state.borrow());
        let Some(invocation) = queue.pop_front() else {
            return Ok(None);
        };
        drop(queue);
        self.shared.is_within_request.set(true);
        self.started = now;
        self.busy_before = Duration::ZERO;
        self.growth_refused = None;
        self.drawn = None;
        self.calls = Calls::default();
        *self.unknown.get_mut() = None;
        self.txn.begin(invocation.slot.0);
        self.state.borrow_mut().advance(invocation.now);
        Ok(Some(&mut self.invocation.insert(invocation).payload))
    }

    /// Writes the parts of the request beside its payload: one copy costs less than a call for
    /// each of them.
    #[inline]
    pub(crate) fn write_head(&self, out: &mut [u8; REQUEST_HEAD_LEN]) {
        let Some(invocation) = &self.invocation else {
            return;
        };
        let Invocation {
            id, now, slot, key, ..
        } = invocation;
        out[..16].copy_from_slice(&id_bytes(id.request));
        out[16..24].copy_from_slice(&now.0.to_le_bytes());
        out[24..28].copy_from_slice(&edge(invocation).to_le_bytes());
        out[28..30].copy_from_slice(&slot.0.to_le_bytes());
        out[30..32].copy_from_slice(&(key.len() as u16).to_le_bytes());
        // the service asks for a longer one by `request_key`
        if let Some(room) = out[32..].get_mut(..key.len()) {
            room.copy_from_slice(key);
        }
    }
}

/// How long the instance has run for its request.
pub(crate) fn busy(ctx: &Ctx, now: Instant) -> Duration {
    let since = ctx.started.max(ctx.shared.resumed.get());
    ctx.busy_before + now.saturating_duration_since(since)
}

/// Applies the writes of a handled request and reports its completion.
fn commit(ctx: &mut Ctx, now: Instant) -> Result<(), HandlerError> {
    ctx.check_called()?;
    if ctx.txn.writes() > 0 {
        ctx.effects.writes = ctx.txn.finish_in(ctx.shared.core.buffer_with(&[]));
    }
    let len = ctx.effects.bytes();
    if len > EFFECTS_LEN_MAX {
        return Err(HandlerError::EffectsTooLong { len });
    }
    let Some(Invocation {
        slot,
        state_bytes_max,
        is_call,
        ..
    }) = &ctx.invocation
    else {
        return Ok(());
    };
    let (used, max) = (ctx.state.borrow().memory_bytes() as u64, *state_bytes_max);
    let set = ctx
        .effects
        .timers
        .iter()
        .filter(|timer| timer.set.is_some());
    let growth = set.map(TimerChange::bytes).sum::<usize>() as u64;
    if growth > 0 && used + growth > max {
        return Err(HandlerError::Full { used, growth, max });
    }
    // A call changes nothing: no entry says that keys have expired since the last one.
    if !is_call {
        let writes = &mut ctx.effects.writes;
        let room = EFFECTS_LEN_MAX - len;
        ctx.state
            .borrow_mut()
            .commit(writes, slot.0, *state_bytes_max, room)?;
    }
    let Some(invocation) = ctx.invocation.take() else {
        return Ok(());
    };
    if !ctx.effects.outputs.is_empty() {
        ctx.sent.fill(0);
    }
    let busy = busy(ctx, now);
    let shared = &*ctx.shared;
    shared.counters.on_request(busy);
    let completion = Completion {
        token: invocation.token,
        outcome: Outcome::Completed(std::mem::take(&mut ctx.effects)),
        busy: busy.into(),
    };
    let mut completions = shared.core.completions.borrow_mut();
    completions.push((shared.id, completion));
    shared.core.recycle(invocation.payload);
    shared.core.recycle(invocation.key);
    Ok(())
}
