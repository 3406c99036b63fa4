//! The timers of a shard's service: requests of the service to itself at a later time. Not to be
//! confused with [`crate::timers`], the worker's own.
//!
//! They are a function of the log like all else of a shard. An entry sets and cancels timers, and the
//! entry that handles a timer's request removes it or sets its next time. So a timer is handled
//! exactly once, whoever is the primary. Timers are ordered by slot, key and name, which writes do
//! not change: a snapshot walks them in that order, and a slot's timers lie together.

use crate::deliberate::{self, Fault};
use crate::limits::{OUTBOUND_GRACE, TIMER_OVERHEAD_BYTES};
use e3_model::limits::REQUEST_TIMERS_MAX;
use e3_model::service_timer::is_marked;
use e3_model::timer::{TimerChange, When, request};
use e3_model::{Nanos, RequestId, ShardKey, Slot, Timestamp};
use e3_wire::entry::Entry;
use e3_wire::timer::{PartialConfirmation, Timer, TimerName};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

/// Where a timer is among those of its service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) slot: Slot,
    pub(crate) key: Vec<u8>,
    pub(crate) name: String,
    /// Of a publication, which has no name: the number of its timer. 0 for others.
    pub(crate) number: u64,
}

/// A timer that is set, at its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pending {
    pub(crate) next: Timestamp,
    pub(crate) set_at: Timestamp,
    seq: u64,
    pub(crate) when: When,
    pub(crate) payload: Vec<u8>,
}

/// Place of an outbound request, or of a publication: the number of its timer in the log, and its place. Of two logs that
/// became one, two timers may have the same number.
pub(crate) type OutboundPlace = (u64, Rc<Place>);

/// Timers of a shard.
#[derive(Debug, Default)]
pub(crate) struct TimerTable {
    timers: BTreeMap<Rc<Place>, Pending>,
    by_time: BTreeSet<(Timestamp, Rc<Place>)>,
    /// Outbound requests, in the order in which they were set.
    outbound: BTreeSet<OutboundPlace>,
    /// By key: its oldest publication.
    publications: BTreeSet<OutboundPlace>,
    /// Timers that the manifest declares, or declared.
    marked: BTreeSet<Rc<Place>>,
    bytes: usize,
}

impl Place {
    pub(crate) fn of(name: &TimerName) -> Place {
        Place {
            slot: Slot::of(&name.key),
            key: name.key.clone(),
            name: name.name.clone(),
            number: 0,
        }
    }

    /// Of a publication.
    pub(crate) fn of_publication(key: Vec<u8>, number: u64) -> Place {
        Place {
            slot: Slot::of(&key),
            key,
            name: String::new(),
            number,
        }
    }

    /// What an entry does to a timer, at this place; `seq`: the number that the timer gets.
    pub(crate) fn changed(slot: Slot, change: &TimerChange, seq: u64) -> Place {
        let when = change.set.as_ref().map(|set| &set.when);
        let is_publication = matches!(when, Some(When::Published(_)));
        Place {
            slot,
            key: change.key.clone(),
            name: change.name.clone(),
            number: if is_publication { seq } else { 0 },
        }
    }

    /// Whether it is that of a publication of the same key.
    fn follows(&self, other: &Place) -> bool {
        self.number > 0 && (self.slot, &self.key) == (other.slot, &other.key)
    }
}

impl Pending {
    /// The identity of its request at this shard.
    pub(crate) fn request(&self, place: &Place, shard: ShardKey) -> RequestId {
        let of = (shard.app, shard.service, place.slot);
        request(of, self.set_at, self.seq)
    }

    /// The entry that set it, or in which it was last handled.
    pub(crate) fn op(&self) -> u64 {
        self.seq / SEQS_PER_ENTRY
    }

    fn is_outbound(&self) -> bool {
        matches!(self.when, When::Answered(_))
    }

    fn is_publication(&self) -> bool {
        matches!(self.when, When::Published(_))
    }
}

/// About what a timer takes.
fn bytes(place: &Place, pending: &Pending) -> usize {
    let content = pending.when.bytes() + pending.payload.len();
    TIMER_OVERHEAD_BYTES + place.key.len() + place.name.len() + content
}

/// Numbers of timers that one entry may give.
const SEQS_PER_ENTRY: u64 = REQUEST_TIMERS_MAX as u64 + 1;

/// Number of the `n`th timer that an entry sets, in its log.
pub(crate) fn seq(op: u64, n: usize) -> u64 {
    op * SEQS_PER_ENTRY + n as u64
}

/// When a timer fires that is set at `now`. A service asks for the answer for a while after the
/// deadline, as clients do.
fn first(when: &When, now: Timestamp) -> Option<Timestamp> {
    let first = when.first(now)?;
    match when {
        When::Answered(_) => Some(first + OUTBOUND_GRACE),
        When::At(_) | When::Cron(_) | When::Published(_) => Some(first),
    }
}

impl TimerTable {
    /// Takes what an entry does to timers out of it. A backup that is sent a snapshot may not have a
    /// timer yet that the entry changes; it gets it as the entry leaves it.
    pub(crate) fn apply(&mut self, entry: &mut Entry) {
        let now = entry.now;
        if let Some(fired) = &entry.fired {
            self.on_fired(Place::of(fired), entry);
        }
        for publication in std::mem::take(&mut entry.confirmed) {
            self.remove(&Place::of_publication(publication.key, publication.seq));
        }
        for (n, change) in (1..).zip(std::mem::take(&mut entry.timers)) {
            let seq = seq(entry.op, n);
            let place = Place::changed(entry.slot, &change, seq);
            self.remove(&place);
            let Some(set) = change.set else { continue };
            if let Some(next) = first(&set.when, now) {
                let pending = Pending {
                    next,
                    set_at: now,
                    seq,
                    when: set.when,
                    payload: set.payload,
                };
                self.insert(place, pending);
            }
        }
    }

    fn on_fired(&mut self, place: Place, entry: &Entry) {
        let Some(mut pending) = self.remove(&place) else {
            return;
        };
        let is_kept = deliberate::is(Fault::AnswerHandledTwice) && pending.is_outbound();
        if is_kept || deliberate::is(Fault::TimerFiresTwice) {
            pending.next = entry.now + Nanos::from_millis(100);
            return self.insert(place, pending);
        }
        if let Some(next) = pending.when.after(entry.now) {
            (pending.next, pending.set_at) = (next, entry.now);
            pending.seq = seq(entry.op, 0);
            self.insert(place, pending);
        }
    }

    /// Moves the deadlines of outbound requests.
    pub(crate) fn postpone_outbound(&mut self, by: Nanos) {
        let all = self.timers.iter();
        let outbound = all.filter(|(_, p)| matches!(p.when, When::Answered(_)));
        let places: Vec<Rc<Place>> = outbound.map(|(place, _)| place.clone()).collect();
        for place in places {
            let Some(mut pending) = self.remove(&place) else {
                continue;
            };
            if let When::Answered(outbound) = &mut pending.when {
                outbound.deadline += by;
                pending.next += by;
            }
            self.insert(Place::clone(&place), pending);
        }
    }

    fn insert(&mut self, place: Place, pending: Pending) {
        let place = Rc::new(place);
        self.bytes += bytes(&place, &pending);
        if pending.next < Timestamp::MAX {
            self.by_time.insert((pending.next, place.clone()));
        }
        if pending.is_publication() {
            let first = self.first_publication(&place);
            if first.as_ref().is_none_or(|(seq, _)| pending.seq < *seq) {
                first.map(|first| self.publications.remove(&first));
                self.publications.insert((pending.seq, place.clone()));
            }
        }
        if pending.is_outbound() {
            self.outbound.insert((pending.seq, place.clone()));
        }
        if is_marked(&place.name) {
            self.marked.insert(place.clone());
        }
        self.timers.insert(place, pending);
    }

    fn remove(&mut self, place: &Place) -> Option<Pending> {
        let (place, pending) = self.timers.remove_entry(place)?;
        self.bytes -= bytes(&place, &pending);
        if pending.is_outbound() {
            self.outbound.remove(&(pending.seq, place.clone()));
        }
        if self.publications.remove(&(pending.seq, place.clone())) {
            let next = self.first_publication(&place);
            self.publications.extend(next);
        }
        self.marked.remove(&place);
        self.by_time.remove(&(pending.next, place));
        Some(pending)
    }

    /// The oldest publication of the key of this place.
    fn first_publication(&self, place: &Place) -> Option<OutboundPlace> {
        let from = Place {
            name: String::new(),
            number: 0,
            ..place.clone()
        };
        let (first, pending) = self.timers.range::<Place, _>(from..).next()?;
        first.follows(place).then(|| (pending.seq, first.clone()))
    }

    /// Takes a timer of a snapshot.
    pub(crate) fn restore(&mut self, timer: Timer) {
        let mut place = Place::of(&timer.name);
        if let When::Published(_) = timer.when {
            place.number = timer.seq;
        }
        self.remove(&place);
        let Timer {
            next,
            set_at,
            seq,
            when,
            payload,
            ..
        } = timer;
        let pending = Pending {
            next,
            set_at,
            seq,
            when,
            payload,
        };
        self.insert(place, pending);
    }

    /// Divides the timers of some shards among `count` others; `to` says which of them has a slot.
    pub(crate) fn reshard(
        from: Vec<TimerTable>,
        count: usize,
        to: impl Fn(Slot) -> usize,
    ) -> Vec<TimerTable> {
        let mut tables: Vec<TimerTable> = (0..count).map(|_| TimerTable::default()).collect();
        for table in from {
            for (place, pending) in table.timers {
                tables[to(place.slot)].insert(Place::clone(&place), pending);
            }
        }
        tables
    }

    /// Timers behind this place, in their order.
    pub(crate) fn after(
        &self,
        place: Option<Rc<Place>>,
    ) -> impl Iterator<Item = (&Rc<Place>, Timer)> {
        let from = place.map_or(Unbounded, Excluded);
        let timers = self.timers.range((from, Unbounded));
        timers.map(|(place, pending)| (place, timer(place, pending)))
    }

    /// When the next timer fires.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Whether a timer is due.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.next().is_some_and(|at| at <= now)
    }

    /// The timer that is due first.
    pub(crate) fn due(&self, now: Timestamp) -> Option<(&Place, &Pending)> {
        let (at, place) = self.by_time.first()?;
        let pending = self.timers.get(place).filter(|_| *at <= now)?;
        Some((place, pending))
    }

    /// Timers that have a time, in the order of their times.
    pub(crate) fn by_time(&self) -> impl Iterator<Item = (&Rc<Place>, &Pending)> {
        let places = self.by_time.iter().map(|(_, place)| place);
        places.filter_map(|place| Some((place, self.timers.get(place)?)))
    }

    /// The timer at a place.
    pub(crate) fn get(&self, place: &Place) -> Option<&Pending> {
        self.timers.get(place)
    }

    /// Whether a timer is set that repeats.
    pub(crate) fn repeats(&self, name: &TimerName) -> bool {
        let pending = self.get(&Place::of(name));
        pending.is_some_and(|p| matches!(p.when, When::Cron(_)))
    }

    /// The next outbound request behind this one, in the order in which they were set.
    pub(crate) fn next_outbound(
        &self,
        after: Option<&OutboundPlace>,
    ) -> Option<(&OutboundPlace, &Pending)> {
        let from = after.map_or(Unbounded, Excluded);
        let next = self
            .outbound
            .range::<OutboundPlace, _>((from, Unbounded))
            .next()?;
        Some((next, self.timers.get(&next.1)?))
    }

    /// The oldest publication of each key, in the order in which they were published, beginning behind this
    /// one.
    pub(crate) fn publications(
        &self,
        after: Option<&OutboundPlace>,
    ) -> impl Iterator<Item = (&OutboundPlace, &Pending)> {
        let from = after.map_or(Unbounded, Excluded);
        let places = self
            .publications
            .range::<OutboundPlace, _>((from, Unbounded));
        places.filter_map(|place| Some((place, self.timers.get(&place.1)?)))
    }

    /// Partial confirmations: the publication, the number of what is kept of it, and the copies. Those of
    /// publications that are not there are left out.
    pub(crate) fn partial_confirmations(
        &self,
    ) -> impl Iterator<Item = (OutboundPlace, u64, Vec<RequestId>)> {
        self.timers.iter().filter_map(|(place, pending)| {
            let When::Published(publication) = &pending.when else {
                return None;
            };
            if !publication.topic.is_empty() {
                return None;
            }
            let partial = PartialConfirmation::decode(&pending.payload).ok()?;
            let of = Place::of_publication(place.key.clone(), partial.publication);
            let (of, confirmed) = self.timers.get_key_value(&of)?;
            Some(((confirmed.seq, of.clone()), pending.seq, partial.copies))
        })
    }

    /// Keys with publications.
    pub(crate) fn publishing(&self) -> usize {
        self.publications.len()
    }

    /// Timers of the manifest that are set, in their order.
    pub(crate) fn marked(&self) -> impl Iterator<Item = &Rc<Place>> {
        self.marked.iter()
    }

    /// Timers that are set.
    pub(crate) fn len(&self) -> usize {
        self.timers.len()
    }

    /// About what they take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Panics if an invariant is broken.
    pub(crate) fn validate(&self) {
        let (mut timed, mut outbound, mut published) = (0, 0, 0);
        let mut marked = self.marked.iter();
        // Timers are ordered by slot and key, so those of one key follow each other.
        let mut key = None;
        for (place, pending) in &self.timers {
            timed += usize::from(pending.next < Timestamp::MAX);
            outbound += usize::from(pending.is_outbound());
            if pending.is_publication() && key != Some((place.slot, &place.key)) {
                key = Some((place.slot, &place.key));
                published += 1;
            }
            if is_marked(&place.name) {
                assert_eq!(marked.next(), Some(place), "timers of the manifest");
            }
        }
        assert_eq!(timed, self.by_time.len(), "a timer has two times");
        assert_eq!(self.publications.len(), published, "publications");
        assert!(self.timers.is_empty() == (self.bytes == 0), "timers' bytes");
        assert_eq!(marked.next(), None, "timers of the manifest");
        assert_eq!(self.outbound.len(), outbound, "outbound requests");
    }
}

fn timer(place: &Place, pending: &Pending) -> Timer {
    Timer {
        name: TimerName {
            key: place.key.clone(),
            name: place.name.clone(),
        },
        next: pending.next,
        set_at: pending.set_at,
        seq: pending.seq,
        when: pending.when.clone(),
        payload: pending.payload.clone(),
    }
}
