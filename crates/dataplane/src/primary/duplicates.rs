//! Messages that come again: copies and retries of what was handled, and replays of dead letters.

use super::uncommitted::Refused;
use super::{InFlight, Primary};
use crate::asked::Asked;
use crate::dedup::{Lookup, is_replay, may_come_again, revives};
use crate::deliberate::{self, Fault};
use crate::emit::{answer, emit_retry, handler_now};
use crate::limits::{ACK_DELAY, DEADLINE_AHEAD_MAX, QUEUE_MAX, REPEAT_NOTED_AFTER};
use crate::links::Delivery;
use crate::log::Log;
use crate::refusal::{refusal_of_replay, refuse};
use crate::shard::{Effect, Turn, Waiting};
use e3_model::{MessageId, Via};
use e3_wire::entry::{Entry, Outcome, Reply};
use e3_wire::message::Message;
use e3_wire::timer::TimerName;
use std::collections::BTreeSet;

/// Whether two requests have the same idempotency key: what becomes of one decides about the other.
fn share_key(a: &Message, b: &Message) -> bool {
    let of_client = |m: &Message| m.is_keyed() && m.id.via == Via::Ingress;
    of_client(a) && of_client(b) && a.id.request.client == b.id.request.client
}

impl Primary {
    /// A client wants a dead letter to be replayed.
    pub(crate) fn on_replay(&mut self, turn: &Turn<'_>, letter: MessageId, message: Message) {
        let in_flight = self.in_flight.iter().map(|f| &f.waiting);
        let mut known = self.queue.iter().chain(in_flight);
        let is_refused = self.refusals.reply(&message.id).is_some();
        if is_refused || known.any(|w| w.message.id == message.id) {
            return;
        }
        let content = turn.shard.log.dead_letters.get(&letter);
        let timer = content.filter(|_| message.id.via == Via::Timer);
        self.queue.push_back(Waiting {
            delivery: None,
            replays: Some(letter),
            message,
            answer: timer.and_then(|content| content.answer),
            timer: timer.map(|content| TimerName {
                key: content.key.clone(),
                name: content.timer.clone(),
            }),
            failures: 0,
        });
    }

    /// Whether another copy is being handled; what becomes of it decides about this one.
    pub(super) fn is_in_flight(&self, head: &Waiting) -> bool {
        let id = head.message.id;
        self.in_flight.iter().any(|InFlight { waiting: w, .. }| {
            w.message.id == id
                || (w.replays.is_some() && w.replays == head.replays)
                || w.replays == Some(id)
                || share_key(&w.message, &head.message)
        })
    }

    /// A message whose deadline has passed is handled by that of a copy behind it, which takes its place. In a
    /// long queue each copy would expire at the head otherwise, and its client send another one, so that the
    /// queue never became shorter. Only requests with an idempotency key have copies with later deadlines.
    pub(super) fn take_later_copy(&mut self, turn: &Turn<'_>, head: &mut Waiting) {
        let now = turn.shard.log.time(turn.cx.now);
        if head.message.deadline > now || !head.message.is_keyed() {
            return;
        }
        let copies = self.queue.iter_mut().map(|waiting| &mut waiting.message);
        let copies = copies.filter(|copy| copy.id == head.message.id);
        if let Some(latest) = copies.max_by_key(|copy| copy.deadline)
            && latest.deadline > head.message.deadline
        {
            std::mem::swap(latest, &mut head.message);
        }
    }

    /// Gives the message back if it has not been handled; otherwise does what its copy asks for.
    pub(super) fn deduplicate(
        &mut self,
        turn: &mut Turn<'_>,
        mut waiting: Waiting,
    ) -> Option<Waiting> {
        let (log, message) = (&turn.shard.log, &waiting.message);
        let (id, now) = (message.id, log.time(turn.cx.now));
        let stateful = turn.cx.app.service(turn.shard.key).stateful;
        match log.dedup.look_up(message.slot, &id) {
            _ if deliberate::is(Fault::NoDuplicateCheck) => {}
            Lookup::New => {
                if let Some(reply) = self.refusals.reply(&id).cloned() {
                    self.refuse(turn, &waiting.message, waiting.delivery, reply);
                    return None;
                }
                if message.is_keyed()
                    && id.via == Via::Ingress
                    && log.dedup.has_other(message.slot, id.request)
                {
                    let reason = "the idempotency key was used for another request";
                    let refused = refuse(Outcome::Conflict, reason);
                    self.refuse(turn, &waiting.message, waiting.delivery, refused);
                    return None;
                }
                // It is not remembered any more, but its dead letter is kept. No replay may follow.
                if message.is_keyed() && waiting.replays.is_none() && can_replay(log, id) {
                    waiting.replays = Some(id);
                    return Some(waiting);
                }
            }
            Lookup::Stale => {
                turn.complete(waiting.delivery, ACK_DELAY);
                return None;
            }
            Lookup::Handled(entry) if revives(&entry, message, now, stateful) => {
                waiting.replays = Some(id);
                return Some(waiting);
            }
            Lookup::Handled(entry) => {
                self.on_duplicate(turn, waiting, &entry);
                return None;
            }
        }
        if let Some(letter) = waiting.replays
            && let Some(refused) = refusal_of_replay(turn.shard.log.dead_letters.get(&letter))
        {
            self.refuse(turn, &waiting.message, waiting.delivery, refused);
            return None;
        }
        Some(waiting)
    }

    /// A client wants a dead letter to be replayed that cannot be. The client hears nothing from a process that
    /// may not be the primary any more, and asks again.
    pub(crate) fn refuse_replay(&mut self, turn: &mut Turn<'_>, message: &Message, reply: Reply) {
        let is_waiting = self.refusals.reply(&message.id).is_some();
        let has_room = self.refusals.len() < QUEUE_MAX;
        let is_primary = !self.hands_over && self.may_serve(turn.cx, turn.shard);
        if !is_waiting && has_room && is_primary {
            self.refuse(turn, message, None, reply);
        }
    }

    /// Refuses a message because of what the log has, once that is durable: another primary may not have it, and
    /// handle a copy of the message.
    fn refuse(
        &mut self,
        turn: &mut Turn<'_>,
        message: &Message,
        delivery: Option<Delivery>,
        reply: Reply,
    ) {
        let (id, asked) = (message.id, Asked::by_message(message));
        if self.pending.is_empty() {
            answer(turn, asked, id.request, reply);
            turn.complete(delivery, ACK_DELAY);
            return;
        }
        self.refusals.push(Refused {
            op: turn.shard.log.op,
            id,
            asked,
            delivery,
            reply,
        });
    }

    /// Messages that became dead letters by entries that are not committed.
    pub(crate) fn uncommitted_letters(&self) -> BTreeSet<MessageId> {
        let entries = self.pending.iter().map(|pending| &pending.entry);
        let dead = entries.filter(|entry| entry.dead.is_some());
        dead.map(|entry| entry.id).collect()
    }

    /// A message that was handled before. A retry by the client gets again what the first attempt
    /// got, as soon as that is durable.
    fn on_duplicate(&mut self, turn: &mut Turn<'_>, duplicate: Waiting, entry: &Entry) {
        let id = duplicate.message.id;
        // Its outcome became unknown by a replay of its dead letter that is not committed.
        let mut pending = self.pending.iter().map(|pending| &pending.entry);
        if let Some(reply) = entry.reply.as_ref()
            && reply.outcome == Outcome::Unknown
            && pending.any(|p| p.replays == Some(id) && p.id != id)
        {
            return self.refuse(turn, &duplicate.message, duplicate.delivery, reply.clone());
        }
        let asked = Asked::by_message(&duplicate.message);
        let first = self.commit + 1;
        let place = entry.op.checked_sub(first);
        let Some(pending) = place.and_then(|at| self.pending.get_mut(at as usize)) else {
            let stateful = turn.cx.app.service(turn.shard.key).stateful;
            if must_note(&duplicate, entry, stateful) {
                let entry = repeated(turn, &duplicate.message, entry);
                return self.append(turn, entry, duplicate.delivery);
            }
            match turn.shard.log.outgoing(entry.op).filter(|_| !stateful) {
                // As durable as the first copy.
                Some(outgoing) => outgoing.deliveries.extend(duplicate.delivery),
                None => {
                    turn.complete(duplicate.delivery, ACK_DELAY);
                    let id = duplicate.message.id;
                    if is_replay(duplicate.replays, id) {
                        turn.effects.push(Effect::ReplayDurable(id.request));
                    }
                }
            }
            return emit_retry(turn, entry, asked);
        };
        pending.deliveries.extend(duplicate.delivery);
        if !asked.is_at(&Asked::by_entry(entry)) || asked.deadline > entry.deadline {
            pending.retries.push(asked);
        }
    }
}

/// Whether there is a dead letter of a message that may be replayed.
fn can_replay(log: &Log, id: MessageId) -> bool {
    let letter = log.dead_letters.get(&id);
    letter.is_some() && refusal_of_replay(letter).is_none()
}

/// Whether the log must say that a message came again, so that it is remembered for as long as its
/// sender repeats it. Not if it expired: then it is handled when it has time.
fn must_note(duplicate: &Waiting, entry: &Entry, stateful: bool) -> bool {
    let outcome = entry.reply.as_ref().map(|r| r.outcome);
    entry.is_keyed()
        && duplicate.replays.is_none()
        && outcome != Some(Outcome::Expired)
        && !may_come_again(entry, stateful)
        && duplicate.message.deadline > entry.deadline + REPEAT_NOTED_AFTER
}

/// The entry of a message that was handled before: it writes nothing, and its outputs and reply are those
/// of the first one.
fn repeated(turn: &mut Turn<'_>, message: &Message, entry: &Entry) -> Entry {
    let log = &mut turn.shard.log;
    let attempt = log
        .dedup
        .next_attempt(entry.slot, &entry.id, message.attempt);
    let (op, now) = (log.op + 1, log.time(turn.cx.now));
    Entry {
        op,
        attempt: attempt.unwrap_or(entry.attempt),
        now,
        sent: handler_now(turn, now, message),
        deadline: message.deadline.min(now + DEADLINE_AHEAD_MAX),
        reply_to: message.reply_to,
        reply_to_incarnation: message.reply_to_incarnation,
        is_branch: message.is_branch,
        batch: Vec::new(),
        dead: None,
        replays: None,
        fired: None,
        timers: Vec::new(),
        confirmed: Vec::new(),
        ..entry.clone()
    }
}
