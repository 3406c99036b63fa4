//! Publications: the primary sends those whose entries are committed to all subscribers, again until
//! they have confirmed them, and then removes them in entries of its own. Others say who has confirmed
//! a publication that a subscriber has not confirmed for a while.

use super::Primary;
use super::outbound::identity;
use crate::deliberate::{self, Fault};
use crate::expiry::{any_slot, own_entry};
use crate::limits::{EXPIRY_DELAY, OUTBOX_MAX};
use crate::outbound::{Ask, Receiver};
use crate::publications::{CopyTo, Subscriber, SubscriberCopy};
use crate::shard::{Context, Effect, Shard, Turn};
use crate::timer_table::{OutboundPlace, Pending, seq};
use e3_model::timer::When;
use e3_model::topic::{Publication, Topic};
use e3_model::{Nanos, Timestamp};
use e3_wire::entry::{Entry, Outcome};
use e3_wire::limits::ENTRY_CONFIRMED_MAX;

impl Primary {
    /// The publication whose turn it is, if one may be begun.
    fn next_publication(&self, cx: &Context<'_>, shard: &Shard) -> Option<OutboundPlace> {
        let (table, mine) = (&shard.log.timers, &self.publications);
        let may = mine.has_room() && !self.frozen && self.may_serve(cx, shard);
        if !may || table.publishing() == mine.len() {
            return None;
        }
        // Those of entries that are not committed come last.
        let is_early = deliberate::is(Fault::PublishedBeforeCommit);
        let committed = |(_, pending): &(_, &Pending)| pending.op() <= self.commit || is_early;
        let behind = table.publications(mine.begun()).take_while(committed);
        let all = table.publications(None).take_while(committed);
        let mut places = behind.chain(all).map(|(place, _)| place);
        let may_begin = |place: &&_| !mine.has(place) && mine.is_next(place, self.commit);
        places.find(may_begin).cloned()
    }

    /// Begins the publications whose entries are committed, as many as may be in progress.
    pub(super) fn publish(&mut self, turn: &mut Turn<'_>) {
        let mut has_begun = false;
        while let Some(place) = self.next_publication(turn.cx, turn.shard) {
            self.publications.begin(turn.cx.now, &place);
            self.send_copies(turn, &place);
            has_begun = true;
        }
        if has_begun {
            self.arm(turn);
        }
        self.plan_removal(turn);
    }

    /// Sends copies again that have had no answer for a while. One that has waited for long gives way
    /// if others wait.
    pub(crate) fn publish_again(&mut self, turn: &mut Turn<'_>) {
        while let Some((place, is_long)) = self.publications.pop_retry(turn.cx.now) {
            let others = turn.shard.log.timers.publishing() > self.publications.len();
            if is_long && others && !self.publications.has_room() {
                self.publications.set_aside(turn.cx.now, &place);
            } else if !self.frozen && self.may_serve(turn.cx, turn.shard) {
                self.send_copies(turn, &place);
            }
        }
        self.publish(turn);
    }

    /// Sends a publication to the subscribers that have not confirmed it. If there are none, it is over.
    fn send_copies(&mut self, turn: &mut Turn<'_>, place: &OutboundPlace) {
        let now = turn.cx.now;
        let Some((pending, publication)) = publication(turn.shard, place) else {
            return self.publications.complete(place);
        };
        for subscriber in turn.cx.subscribers(publication) {
            let copy = copy_for(turn.cx, turn.shard, (place, pending), subscriber);
            let within = (&copy, subscriber.deadline);
            let Some(deadline) = self.publications.deadline(now, place, within) else {
                continue;
            };
            let ask = Ask {
                id: copy.to.1,
                to: Receiver::Subscriber {
                    subscriber: *subscriber,
                    topic: Box::new(Topic {
                        application: turn.cx.app.plan.app.name.clone(),
                        name: publication.topic.clone(),
                    }),
                    key: publication.key.clone(),
                },
                payload: pending.payload.clone(),
                sent: pending.set_at,
                deadline,
                may_be_sent: false,
            };
            turn.effects.push(Effect::Ask(Box::new(ask)));
        }
        self.complete_if_confirmed(turn, place);
    }

    /// A subscriber has answered its copy. What it did not handle in time it gets again; everything else
    /// is final, and a failure is a dead letter there.
    pub(super) fn on_confirmed(&mut self, turn: &mut Turn<'_>, copy: CopyTo, outcome: Outcome) {
        match outcome {
            Outcome::Overloaded => {}
            Outcome::Expired => self.publications.on_expired(copy),
            _ => {
                if let Some(place) = self.publications.on_confirmed(copy) {
                    let partials = &mut self.publications.partials;
                    partials.on_confirmed(turn.cx.now, &place);
                    self.complete_if_confirmed(turn, &place);
                    self.plan_removal(turn);
                }
            }
        }
    }

    fn complete_if_confirmed(&mut self, turn: &Turn<'_>, place: &OutboundPlace) {
        let Some((pending, publication)) = publication(turn.shard, place) else {
            return;
        };
        let mut subscribers = turn.cx.subscribers(publication).iter();
        let has_confirmed = |subscriber: &Subscriber| {
            let copy = copy_for(turn.cx, turn.shard, (place, pending), subscriber);
            self.publications.is_confirmed(place, &copy)
        };
        let are_all = if deliberate::is(Fault::ConfirmedByOne) {
            subscribers.len() == 0 || subscribers.any(has_confirmed)
        } else {
            subscribers.all(has_confirmed)
        };
        if are_all {
            self.publications.complete(place);
        }
    }

    /// Whether an entry of its own may be made now: not before the one before is committed, so that one
    /// entry removes many publications.
    fn can_remove(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        !self.frozen
            && self.publications.is_removal_committed(self.commit)
            && !self.streams.are_behind(cx.now)
            && shard.log.outbox.len() < OUTBOX_MAX
            && self.may_serve(cx, shard)
    }

    /// Removes publications that all subscribers have confirmed.
    pub(crate) fn remove_confirmed(&mut self, turn: &mut Turn<'_>) {
        if self
            .publications
            .wakes_at
            .is_some_and(|at| at > turn.cx.now)
        {
            return;
        }
        self.publications.wakes_at = None;
        if self.can_remove(turn.cx, turn.shard)
            && let Some(entry) = self.confirming_entry(turn)
        {
            self.publications.on_removal(entry.op, &entry.confirmed);
            self.append(turn, entry, None);
        }
        self.plan_removal(turn);
    }

    /// An entry with what is to be written of confirmations. Partial ones come first, as they are few.
    fn confirming_entry(&mut self, turn: &Turn<'_>) -> Option<Entry> {
        let now = turn.shard.log.time(turn.cx.now);
        if let Some(slot) = self.publications.partials.due_slot(turn.cx.now) {
            let entry = own_entry(turn, now, slot);
            let number = |n| seq(entry.op, n);
            let (timers, confirmed) = self.publications.take_due((turn.cx.now, slot), number);
            return Some(Entry {
                timers,
                confirmed,
                ..entry
            });
        }
        let confirmed = self.publications.take_confirmed(ENTRY_CONFIRMED_MAX);
        (!confirmed.is_empty()).then(|| Entry {
            confirmed,
            ..own_entry(turn, now, any_slot(turn))
        })
    }

    /// When something is to be written of confirmations, if anything is.
    fn confirming_at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.publications.has_confirmed() {
            Some(now)
        } else {
            self.publications.partials.next_due()
        }
    }

    /// Sees that what is confirmed is removed, or written.
    fn plan_removal(&mut self, turn: &mut Turn<'_>) {
        let Some(due) = self.confirming_at(turn.cx.now) else {
            return;
        };
        let wait = if self.can_remove(turn.cx, turn.shard) {
            Nanos(1)
        } else {
            EXPIRY_DELAY
        };
        let at = due.max(turn.cx.now + wait);
        if self
            .publications
            .wakes_at
            .is_none_or(|planned| planned > at)
        {
            self.publications.wakes_at = Some(at);
            turn.effects.push(Effect::WakeAt(at));
        }
    }

    /// Panics if an invariant is broken.
    pub(super) fn validate_publications(&self, cx: &Context<'_>, shard: &Shard) {
        self.publications.validate();
        assert!(
            self.next_publication(cx, shard).is_none(),
            "a publication waits that could be made"
        );
        assert!(
            self.confirming_at(cx.now).is_none() || self.publications.wakes_at.is_some(),
            "nothing removes or writes what is confirmed"
        );
    }
}

/// The publication at a place of the table.
fn publication<'a>(
    shard: &'a Shard,
    (_, place): &OutboundPlace,
) -> Option<(&'a Pending, &'a Publication)> {
    let pending = shard.log.timers.get(place)?;
    match &pending.when {
        When::Published(publication) => Some((pending, publication)),
        _ => None,
    }
}

/// The copy of a publication for a subscriber.
fn copy_for(
    cx: &Context<'_>,
    shard: &Shard,
    ((_, place), pending): (&OutboundPlace, &Pending),
    subscriber: &Subscriber,
) -> SubscriberCopy {
    let own = pending.request(place, identity(cx, shard));
    SubscriberCopy::new(own, pending.set_at, subscriber)
}
