//! Timers that are due: the primary makes a request to its own service.
//!
//! A timer's request is handled alone with what came before: what another handler sets or cancels
//! counts for it, and that is known when the handler is done. What comes later may follow it to the
//! executor. So many due timers do not keep messages waiting for long, nor the reverse.

use super::outbound::identity;
use super::{InFlight, Primary};
use crate::limits::TIMER_WAKE_AHEAD;
use crate::log::Log;
use crate::shard::{Context, Effect, Shard, Turn, Waiting};
use crate::timer_table::{Pending, Place};
use e3_model::{MessageId, NodeId, ShardKey, Timestamp, TraceContext, Via};
use e3_wire::message::Message;
use e3_wire::timer::TimerName;

impl Primary {
    /// Whether the request of a timer waits, or is being handled.
    pub(super) fn is_timer_due(&self, now: Timestamp, log: &Log) -> bool {
        self.timer.is_some() || self.outbounds.has_answers() || log.timers.is_due(now)
    }

    /// Whether messages wait for a timer that is due, and not being handled.
    pub(super) fn waits_for_timer(&self, now: Timestamp, log: &Log) -> bool {
        let fires = |f: &InFlight| f.waiting.message.id.via == Via::Timer;
        self.is_timer_due(now, log) && !self.in_flight.iter().any(fires)
    }

    /// Whether the request of a timer may be handled now. The node's clock says so, and not that of
    /// the log, which may have been that of a primary whose clock was ahead.
    pub(super) fn can_fire(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        self.in_flight.is_empty()
            && self.is_timer_due(cx.now, &shard.log)
            && self.may_handle(cx, shard)
    }

    /// Handles the request of the timer that is due first, or the answer that came first, or once more
    /// what failed.
    pub(super) fn fire(&mut self, turn: &mut Turn<'_>) {
        let (now, log) = (turn.cx.now, &turn.shard.log);
        let key = identity(turn.cx, turn.shard);
        let failed = self.timer.take().filter(|w| is_set(w, key, log));
        let next = failed.or_else(|| self.next_timer(now, key, log));
        let Some(mut waiting) = next else {
            return;
        };
        let message = &mut waiting.message;
        (message.sent, message.deadline) =
            (now, log.time(now) + turn.cx.app.plan.app.spec.deadline);
        self.run(turn, waiting);
    }

    /// Sees that it is woken for the next timer, and the next outbound request that is made again.
    pub(crate) fn arm(&mut self, turn: &mut Turn<'_>) {
        let now = turn.cx.now;
        if self.armed <= now {
            self.armed = Timestamp::MAX;
        }
        let next = self.next_wake(now, &turn.shard.log);
        let Some(at) = next.map(|next| next.min(now + TIMER_WAKE_AHEAD)) else {
            return;
        };
        if at < self.armed {
            self.armed = at;
            turn.effects.push(Effect::WakeAt(at));
        }
    }

    fn next_wake(&self, now: Timestamp, log: &Log) -> Option<Timestamp> {
        let retries = [self.outbounds.next_retry(), self.publications.next_retry()];
        let times = retries.into_iter().chain([log.timers.next()]);
        times.flatten().filter(|at| *at > now).min()
    }

    /// Panics if an invariant is broken.
    pub(super) fn validate_timers(&self, cx: &Context<'_>, shard: &Shard, is_ready: bool) {
        assert!(
            is_ready || !self.can_fire(cx, shard),
            "a timer is due that could be handled"
        );
        let next = self.next_wake(cx.now, &shard.log);
        let latest = next.map(|next| next.min(cx.now + TIMER_WAKE_AHEAD));
        assert!(
            latest.is_none_or(|latest| self.armed <= latest),
            "nothing wakes the primary for its next timer"
        );
    }
}

/// Whether the timer of this request is still set, as it was.
fn is_set(waiting: &Waiting, key: ShardKey, log: &Log) -> bool {
    let place = waiting.timer.as_ref().map(Place::of);
    place.is_some_and(|place| {
        let pending = log.timers.get(&place);
        pending.is_some_and(|p| p.request(&place, key) == waiting.message.id.request)
    })
}

/// The request of a timer; its time and deadline are those of the attempt.
pub(super) fn waiting(place: &Place, pending: &Pending, key: ShardKey) -> Waiting {
    let request = pending.request(place, key);
    let id = MessageId {
        request,
        via: Via::Timer,
        index: 0,
    };
    let message = Message {
        id,
        attempt: 0,
        slot: place.slot,
        reply_to: NodeId::NOBODY,
        reply_to_incarnation: 0,
        deadline: Timestamp::ZERO,
        sent: Timestamp::ZERO,
        oldest_seq: request.seq,
        trace: TraceContext::default(),
        code_version: 0,
        is_branch: false,
        topic: None,
        key: place.key.clone(),
        payload: pending.payload.clone(),
    };
    Waiting {
        delivery: None,
        replays: None,
        message,
        timer: Some(TimerName {
            key: place.key.clone(),
            name: place.name.clone(),
        }),
        answer: None,
        failures: 0,
    }
}
