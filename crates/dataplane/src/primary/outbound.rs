//! Outbound requests: the primary makes those whose entries are committed, again until they are
//! answered, and takes their answers. An answer is handled as the request of a timer is.

use super::Primary;
use super::timers::waiting;
use crate::deliberate::{self, Fault};
use crate::limits::OUTBOUND_GRACE;
use crate::log::Log;
use crate::outbound::{Ask, Known, Receiver};
use crate::shard::{Context, Effect, Shard, Turn, Waiting};
use crate::timer_table::{Pending, Place};
use e3_model::outbound::{Answer, Destination, Outbound};
use e3_model::timer::{When, outbound_request};
use e3_model::{AppId, RequestId, ShardKey, Timestamp};
use e3_wire::entry::{Entry, Outcome};

impl Primary {
    /// Whether the next outbound request of the table may be made.
    fn can_ask(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        let next = shard.log.timers.next_outbound(self.outbounds.begun());
        let may_ask = |op: u64| op <= self.commit || deliberate::is(Fault::AskedBeforeCommit);
        next.is_some_and(|(_, pending)| may_ask(pending.op()))
            && self.outbounds.has_room()
            && !self.frozen
            && self.may_serve(cx, shard)
    }

    /// Makes the outbound requests whose entries are committed, as many as may be in progress.
    pub(super) fn ask(&mut self, turn: &mut Turn<'_>) {
        let mut has_asked = false;
        while self.can_ask(turn.cx, turn.shard) {
            let (log, key) = (&turn.shard.log, identity(turn.cx, turn.shard));
            let Some((place, pending)) = log.timers.next_outbound(self.outbounds.begun()) else {
                return;
            };
            let (place, now) = (place.clone(), turn.cx.now);
            self.outbounds.begin(place.clone());
            let When::Answered(outbound) = &pending.when else {
                continue;
            };
            let is_inherited = self.outbounds.is_inherited(pending.op());
            let repeats = !matches!(outbound.to, Destination::Http(_));
            // A service that was asked before its deadline still has the answer. Later than this an
            // ingress would reject the request, as if nobody had been asked.
            let asks_until = if is_inherited && repeats {
                outbound.deadline + OUTBOUND_GRACE
            } else {
                outbound.deadline
            };
            if now > asks_until {
                continue;
            }
            let id = ask_id(&place.1, pending, key);
            let ask = ask_of(id, pending, outbound, is_inherited);
            self.outbounds.on_asked(now, id, place.1, repeats);
            turn.effects.push(Effect::Ask(Box::new(ask)));
            has_asked = true;
        }
        if has_asked {
            self.arm(turn);
        }
    }

    /// Makes the requests again that have had no answer for a while.
    pub(crate) fn ask_again(&mut self, turn: &mut Turn<'_>) {
        let now = turn.cx.now;
        while let Some((id, place)) = self.outbounds.pop_retry(now) {
            let (log, key) = (&turn.shard.log, identity(turn.cx, turn.shard));
            let Some(pending) = log.timers.get(&place) else {
                continue;
            };
            let When::Answered(outbound) = &pending.when else {
                continue;
            };
            let is_futile = now > outbound.deadline
                && self.outbounds.is_refused(id)
                && !self.outbounds.is_inherited(pending.op());
            let is_late = now > outbound.deadline + OUTBOUND_GRACE;
            let may_ask = !self.frozen
                && self.may_serve(turn.cx, turn.shard)
                && !deliberate::is(Fault::AskedOnce);
            if may_ask && !is_futile && !is_late && ask_id(&place, pending, key) == id {
                let is_inherited = self.outbounds.is_inherited(pending.op());
                let ask = ask_of(id, pending, outbound, is_inherited);
                self.outbounds.on_asked_again(id);
                turn.effects.push(Effect::Ask(Box::new(ask)));
            }
        }
    }

    /// Takes the answer to an outbound request; `by`: the application that was asked, if it was one.
    pub(crate) fn on_answer(
        &mut self,
        turn: &mut Turn<'_>,
        (by, id): (Option<AppId>, RequestId),
        answer: Answer,
        content: Vec<u8>,
    ) {
        let now = turn.cx.now;
        let copy = by.map(|app| (app, id));
        if let Some(copy) = copy.filter(|copy| self.publications.is_copy(*copy)) {
            return self.on_confirmed(turn, copy, answer.outcome);
        }
        match answer.outcome {
            Outcome::Overloaded => {
                self.outbounds.on_overloaded(now, id);
                self.arm(turn);
            }
            _ => self.outbounds.on_answer(now, id, answer, content),
        }
    }

    /// The next timer's request: of one that is due, or with the answer that came first.
    pub(super) fn next_timer(
        &mut self,
        now: Timestamp,
        key: ShardKey,
        log: &Log,
    ) -> Option<Waiting> {
        let due = log.timers.due(now);
        let answered = self.outbounds.first_answered();
        let is_answered = match (&due, &answered) {
            (Some((_, due)), Some((at, _))) => *at < due.next,
            (_, answered) => answered.is_some(),
        };
        if is_answered {
            let place = answered.map(|(_, place)| place.clone())?;
            let pending = log.timers.get(&place)?;
            return Some(self.waiting_for(&place, pending, key));
        }
        let (place, pending) = due?;
        Some(self.waiting_for(place, pending, key))
    }

    fn waiting_for(&mut self, place: &Place, pending: &Pending, key: ShardKey) -> Waiting {
        let mut waiting = waiting(place, pending, key);
        if let When::Answered(_) = pending.when {
            let id = ask_id(place, pending, key);
            let nobody = |outcome| (Answer { outcome, status: 0 }, Vec::new());
            let (answer, content) = match self.outbounds.take(id, pending.op()) {
                Known::Answer(answer, content) => (answer, content),
                Known::Asked => nobody(Outcome::Unknown),
                Known::NotAsked => nobody(Outcome::Expired),
            };
            waiting.answer = Some(answer);
            waiting.message.payload = content;
        }
        waiting
    }

    /// Forgets the requests that an entry ends: their answers are handled, or they are cancelled or
    /// replaced.
    pub(super) fn end_outbound(&mut self, turn: &mut Turn<'_>, entry: &Entry) {
        let fired = entry.fired.as_ref().map(Place::of);
        let changes = entry.timers.iter();
        let changed = changes.map(|change| Place::changed(entry.slot, change, 0));
        for place in fired.into_iter().chain(changed) {
            if let Some(pending) = turn.shard.log.timers.get(&place)
                && let When::Answered(_) = pending.when
            {
                let id = ask_id(&place, pending, identity(turn.cx, turn.shard));
                if self.outbounds.forget(id) {
                    turn.effects.push(Effect::AskEnds(id));
                }
            }
        }
    }

    /// Panics if an invariant is broken.
    pub(super) fn validate_outbound(&self, cx: &Context<'_>, shard: &Shard) {
        self.outbounds.validate();
        assert!(
            !self.can_ask(cx, shard),
            "an outbound request waits that could be made"
        );
    }
}

/// The shard in whose name the identities of timers and outbound requests are made. What was asked
/// before a backup is asked again under the same identity after a restore.
pub(super) fn identity(cx: &Context<'_>, shard: &Shard) -> ShardKey {
    ShardKey {
        app: cx.app.plan.identity(),
        ..shard.key
    }
}

/// The identity under which others are asked.
pub(super) fn ask_id(place: &Place, pending: &Pending, key: ShardKey) -> RequestId {
    outbound_request(pending.request(place, key))
}

fn ask_of(id: RequestId, pending: &Pending, outbound: &Outbound, may_be_sent: bool) -> Ask {
    Ask {
        id,
        to: Receiver::Destination(outbound.to.clone()),
        payload: pending.payload.clone(),
        sent: pending.set_at,
        deadline: outbound.deadline,
        may_be_sent,
    }
}
