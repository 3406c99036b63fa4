//! Entries that a primary makes by itself, to free what has expired.
//!
//! The entries of requests remove keys that have expired too ([`e3_collections::State::commit`]). An
//! entry of its own is needed when no requests come, when they leave more than they remove, and when a
//! request is refused for memory that expired keys still hold.

use crate::limits::{EXPIRY_DELAY, EXPIRY_LAG_MAX, OUTBOX_MAX};
use crate::primary::Primary;
use crate::shard::{Context, Effect, Shard, Turn};
use e3_collections::WriteBatch;
use e3_collections::limits::EXPIRED_LEN_MAX;
use e3_model::limits::SLOTS;
use e3_model::{MessageId, Nanos, RequestId, Slot, Timestamp, TraceContext};
use e3_wire::entry::Entry;

/// What a primary knows of its next removal.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    /// When it is called for that.
    wakes_at: Option<Timestamp>,
    /// Nothing is handled before what has expired is removed.
    pub(crate) is_first: bool,
}

impl Primary {
    /// Removes keys that have expired if it is time, in an entry of its own.
    pub(crate) fn expire(&mut self, turn: &mut Turn<'_>) {
        if self.expiry.wakes_at.is_some_and(|at| at > turn.cx.now) {
            return;
        }
        self.expiry.wakes_at = None;
        if self.can_expire(turn.cx, turn.shard) {
            let now = turn.shard.log.time(turn.cx.now);
            let slot = any_slot(turn);
            let mut batch = WriteBatch::default();
            let state = turn.shard.log.state.clone();
            state.borrow_mut().advance(now);
            state
                .borrow_mut()
                .expire(&mut batch, slot.0, EXPIRED_LEN_MAX);
            if !batch.is_empty() {
                let entry = removal(turn, now, slot, batch);
                self.append(turn, entry, None);
            }
        }
        self.plan_expiry(turn);
    }

    /// Whether an entry of its own may be made now. A handler that runs must not see keys vanish that
    /// live by its clock.
    fn can_expire(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        !self.frozen
            && !self.is_handling()
            && !self.streams.are_behind(cx.now)
            && shard.log.outbox.len() < OUTBOX_MAX
            && self.may_serve(cx, shard)
    }

    /// Sees that what expires next is removed.
    pub(crate) fn plan_expiry(&mut self, turn: &mut Turn<'_>) {
        let next = turn.shard.log.state.borrow().next_expiry();
        let (now, time) = (turn.cx.now, turn.shard.log.time(turn.cx.now));
        let Some(next) = next else {
            self.expiry.is_first = false;
            return;
        };
        self.expiry.is_first &= next <= time;
        self.expiry.is_first |= next + EXPIRY_LAG_MAX <= time;
        let is_first = self.expiry.is_first;
        let wakes_at = if is_first && self.can_expire(turn.cx, turn.shard) {
            now + Nanos(1)
        } else if is_first && self.is_handling() {
            // Completions come.
            return;
        } else {
            next.max(now) + EXPIRY_DELAY
        };
        if self.expiry.wakes_at.is_none_or(|at| at > wakes_at) {
            self.expiry.wakes_at = Some(wakes_at);
            turn.effects.push(Effect::WakeAt(wakes_at));
        }
    }

    /// Whether a request that found no room may find some when what has expired is removed.
    pub(crate) fn expires_for_room(&mut self, shard: &Shard) -> bool {
        let has_expired = shard.log.state.borrow().has_expired();
        self.expiry.is_first |= has_expired;
        has_expired
    }
}

/// A slot of the shard.
pub(crate) fn any_slot(turn: &Turn<'_>) -> Slot {
    let shards = turn.cx.app.service(turn.shard.key).shards;
    let mut slots = (0..SLOTS).map(Slot);
    let mine = slots.find(|slot| slot.shard(shards) == turn.shard.key.shard);
    mine.expect("every shard has a slot")
}

/// The entry that removes keys.
fn removal(turn: &Turn<'_>, now: Timestamp, slot: Slot, batch: WriteBatch) -> Entry {
    Entry {
        batch: batch.into_bytes(),
        ..own_entry(turn, now, slot)
    }
}

/// An entry that the primary makes by itself: it answers no message.
pub(crate) fn own_entry(turn: &Turn<'_>, now: Timestamp, slot: Slot) -> Entry {
    Entry {
        op: turn.shard.log.op + 1,
        id: MessageId::ingress(RequestId::default()),
        attempt: 0,
        slot,
        code_version: turn.cx.app.plan.code_version,
        now,
        sent: now,
        deadline: now,
        oldest_seq: 0,
        reply_to: turn.cx.config.node,
        reply_to_incarnation: turn.cx.config.incarnation,
        is_branch: false,
        is_expiry: true,
        trace: TraceContext::default(),
        batch: Vec::new(),
        outputs: Vec::new(),
        reply: None,
        dead: None,
        replays: None,
        fired: None,
        timers: Vec::new(),
        confirmed: Vec::new(),
    }
}
