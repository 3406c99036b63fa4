//! Timers that the manifest declares. The primary of the shard that owns a timer's key sets those that are not as
//! declared, and cancels those that are not declared any more, in entries of its own.
//!
//! What is set is in the log, so a successor finds nothing to change. A timer with a period fires once, and the
//! entry after it sets the next time.

use super::Primary;
use crate::expiry::own_entry;
use crate::limits::{EXPIRY_DELAY, OUTBOX_MAX};
use crate::shard::{Context, Effect, Shard, Turn};
use crate::timer_table::{Pending, Place};
use e3_model::limits::REQUEST_TIMERS_MAX;
use e3_model::service_timer::{ServiceTimer, is_marked};
use e3_model::timer::{TimerChange, TimerSet};
use e3_model::{Nanos, Slot, Timestamp};
use e3_wire::entry::Entry;
use std::collections::{BTreeMap, BTreeSet};

impl Primary {
    /// Compares the table with the manifest once more: the plan is new.
    pub(crate) fn follow_declared(&mut self, turn: &mut Turn<'_>) {
        let now = turn.shard.log.time(turn.cx.now);
        self.declared.is_settled = next_changes(turn.cx, turn.shard, now).is_none();
        self.plan_declared(turn);
    }

    /// Notes that an entry handles the request of a manifest's timer. It may have to be set again.
    pub(super) fn note_fired(&mut self, entry: &Entry) {
        let fired = entry.fired.as_ref();
        self.declared.is_settled &= !fired.is_some_and(|fired| is_marked(&fired.name));
    }

    /// Sets and cancels timers in an entry of its own, if the manifest declares others than the table has.
    pub(crate) fn settle_declared(&mut self, turn: &mut Turn<'_>) {
        let wakes_at = self.declared.wakes_at;
        if wakes_at.is_some_and(|at| at > turn.cx.now) {
            return;
        }
        self.declared.wakes_at = None;
        if !self.declared.is_settled && self.can_settle(turn.cx, turn.shard) {
            let now = turn.shard.log.time(turn.cx.now);
            match next_changes(turn.cx, turn.shard, now) {
                Some((slot, timers)) => {
                    let entry = own_entry(turn, now, slot);
                    self.append(turn, Entry { timers, ..entry }, None);
                }
                None => self.declared.is_settled = true,
            }
        }
        self.plan_declared(turn);
    }

    /// Whether an entry of its own may be made now.
    fn can_settle(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        !self.frozen
            && !self.streams.are_behind(cx.now)
            && shard.log.outbox.len() < OUTBOX_MAX
            && self.may_serve(cx, shard)
    }

    /// Sees that the table is compared with the manifest.
    pub(super) fn plan_declared(&mut self, turn: &mut Turn<'_>) {
        if self.declared.is_settled {
            return;
        }
        let wait = if self.can_settle(turn.cx, turn.shard) {
            Nanos(1)
        } else {
            EXPIRY_DELAY
        };
        let at = turn.cx.now + wait;
        if self.declared.wakes_at.is_none_or(|planned| planned > at) {
            self.declared.wakes_at = Some(at);
            turn.effects.push(Effect::WakeAt(at));
        }
    }

    /// How a timer of the manifest repeats; none of another timer.
    pub(super) fn declared_schedule(
        &self,
        cx: &Context<'_>,
        shard: &Shard,
        place: &Place,
    ) -> Option<String> {
        let mut declared = declared(cx, shard).into_iter();
        let (_, timer) = declared.find(|(declared, _)| declared == place)?;
        Some(timer.repeats())
    }

    /// Panics if an invariant is broken.
    pub(super) fn validate_declared(&self) {
        assert!(
            self.declared.is_settled || self.declared.wakes_at.is_some(),
            "nothing sets the timers of the manifest"
        );
    }
}

/// The timers that the manifest declares for this shard. While a new version has not started at every primary, the
/// version before it decides.
fn declared<'a>(cx: &'a Context<'_>, shard: &Shard) -> BTreeMap<Place, &'a ServiceTimer> {
    let key = shard.key;
    let proven = cx.app.plan.proven.as_ref();
    let app = proven.map_or(&cx.app.plan.app, |release| &release.app);
    let shards = cx.app.service(key).shards;
    let timers = app.service(key.service).timers.iter();
    let places = timers.map(|timer| {
        let place = Place {
            slot: Slot::of(timer.key()),
            key: timer.key().to_vec(),
            name: timer.marked_name(),
            number: 0,
        };
        (place, timer)
    });
    let is_own = |place: &Place| place.slot.shard(shards) == key.shard;
    places.filter(|(place, _)| is_own(place)).collect()
}

/// What an entry at `now` has to change, in one slot: an entry has one.
fn next_changes(
    cx: &Context<'_>,
    shard: &Shard,
    now: Timestamp,
) -> Option<(Slot, Vec<TimerChange>)> {
    let (table, declared) = (&shard.log.timers, declared(cx, shard));
    let marked = table.marked().map(|place| Place::clone(place));
    let places: BTreeSet<Place> = marked.chain(declared.keys().cloned()).collect();
    let change = |place: &Place| {
        let set = match declared.get(place) {
            Some(timer) => Some(to_set(table.get(place), timer, now)?),
            None => None,
        };
        let (name, key) = (place.name.clone(), place.key.clone());
        Some((place.slot, TimerChange { name, key, set }))
    };
    let mut changes = places.iter().filter_map(change).peekable();
    let slot = changes.peek()?.0;
    let of_slot = changes.take_while(|(of, _)| *of == slot);
    let of_slot = of_slot.map(|(_, change)| change);
    Some((slot, of_slot.take(REQUEST_TIMERS_MAX).collect()))
}

/// What a declared timer is to be set to; none if it is as declared.
fn to_set(pending: Option<&Pending>, timer: &ServiceTimer, now: Timestamp) -> Option<TimerSet> {
    let is_set = |p: &Pending| timer.is_set(p.set_at, &p.when, &p.payload);
    if pending.is_some_and(is_set) {
        return None;
    }
    let when = timer.when(now).filter(|when| when.first(now).is_some())?;
    let payload = timer.payload().to_vec();
    Some(TimerSet { when, payload })
}
