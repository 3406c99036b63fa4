//! Partial confirmations: which subscribers have confirmed a publication that others have not.
//!
//! A subscriber remembers a copy for minutes. If another one is away for longer, a successor of the
//! primary must not send the copy again. So the primary writes into the log who has confirmed, when
//! others have not for a while. In the table it is a publication without a topic: it is kept, moved
//! with its slot, and removed, as publications are.

use crate::limits::{PARTIAL_AFTER, PARTIAL_COPIES_MAX, PARTIALS_LEN_MAX, PARTIALS_MAX};
use crate::timer_table::{OutboundPlace, TimerTable};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::topic::Publication;
use e3_model::{RequestId, Slot, Timestamp};
use e3_wire::timer::{PartialConfirmation, PublicationName};
use std::collections::{BTreeMap, BTreeSet};

/// Copies of a publication that are confirmed.
pub(crate) type Confirmed = BTreeSet<RequestId>;

/// What a primary knows of the partial confirmations in its log.
#[derive(Debug, Default)]
pub(crate) struct Partials {
    /// By publication: the number of what the log has of it.
    written: BTreeMap<OutboundPlace, u64>,
    /// Publications with confirmations that the log does not have: when they are written.
    due: BTreeSet<(Timestamp, OutboundPlace)>,
    due_at: BTreeMap<OutboundPlace, Timestamp>,
}

impl Partials {
    /// What the log has, and by publication who has confirmed it.
    pub(crate) fn read(table: &TimerTable) -> (Partials, BTreeMap<OutboundPlace, Confirmed>) {
        let mut partials = Partials::default();
        let mut confirmed: BTreeMap<OutboundPlace, Confirmed> = BTreeMap::new();
        for (place, number, copies) in table.partial_confirmations() {
            confirmed.entry(place.clone()).or_default().extend(copies);
            partials.written.insert(place, number);
        }
        (partials, confirmed)
    }

    /// A subscriber has confirmed a publication, and another one has not.
    pub(crate) fn on_confirmed(&mut self, now: Timestamp, place: &OutboundPlace) {
        if !self.due_at.contains_key(place) {
            self.set_due(now + PARTIAL_AFTER, place);
        }
    }

    /// What is to be written for a publication is written now: its copies are not sent for a while.
    pub(crate) fn hasten(&mut self, now: Timestamp, place: &OutboundPlace) {
        if self.due_at.contains_key(place) {
            self.set_due(now, place);
        }
    }

    fn set_due(&mut self, at: Timestamp, place: &OutboundPlace) {
        self.cancel(place);
        self.due.insert((at, place.clone()));
        self.due_at.insert(place.clone(), at);
    }

    /// Nothing is to be written for a publication any more.
    pub(crate) fn cancel(&mut self, place: &OutboundPlace) {
        if let Some(at) = self.due_at.remove(place) {
            self.due.remove(&(at, place.clone()));
        }
    }

    /// When the next one is written.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The number of what the log has of a publication, which is removed.
    pub(crate) fn remove(&mut self, place: &OutboundPlace) -> Option<u64> {
        self.cancel(place);
        self.written.remove(place)
    }

    /// Whether the log has anything of a publication.
    pub(crate) fn is_written(&self, place: &OutboundPlace) -> bool {
        self.written.contains_key(place)
    }

    /// The slot of the one that is due first.
    pub(crate) fn due_slot(&self, now: Timestamp) -> Option<Slot> {
        let (_, (_, place)) = self.due.first().filter(|(at, _)| *at <= now)?;
        Some(place.slot)
    }

    /// Takes those of a slot that are due, as many as one entry holds: what the entry does to timers,
    /// and what that replaces. `number` gives the number of the entry's `n`th timer.
    pub(crate) fn take_due<'a>(
        &mut self,
        (now, slot): (Timestamp, Slot),
        confirmed: impl Fn(&OutboundPlace) -> Option<&'a Confirmed>,
        number: impl Fn(usize) -> u64,
    ) -> (Vec<TimerChange>, Vec<PublicationName>) {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        let of_slot = due.filter(|(_, (_, place))| place.slot == slot);
        let places: Vec<OutboundPlace> = of_slot
            .map(|(_, place)| place.clone())
            .take(PARTIALS_MAX)
            .collect();
        let (mut changes, mut replaced, mut len) = (Vec::new(), Vec::new(), 0);
        for place in places {
            if len >= PARTIALS_LEN_MAX {
                break;
            }
            self.cancel(&place);
            let Some(copies) = confirmed(&place) else {
                continue;
            };
            let payload = PartialConfirmation {
                publication: place.1.number,
                copies: copies.iter().copied().take(PARTIAL_COPIES_MAX).collect(),
            };
            let payload = payload.encode();
            len += payload.len();
            let key = place.1.key.clone();
            changes.push(change(key.clone(), payload));
            let before = self.written.insert(place, number(changes.len()));
            replaced.extend(before.map(|seq| PublicationName { key, seq }));
        }
        (changes, replaced)
    }

    /// Panics if an invariant is broken.
    pub(crate) fn validate(&self) {
        let is_due =
            |(place, at): (&OutboundPlace, &Timestamp)| self.due.contains(&(*at, place.clone()));
        let agree = self.due.len() == self.due_at.len() && self.due_at.iter().all(is_due);
        assert!(agree, "a partial confirmation has two times");
    }
}

/// What an entry does to write one.
fn change(key: Vec<u8>, payload: Vec<u8>) -> TimerChange {
    let publication = Publication {
        topic: String::new(),
        key: Vec::new(),
    };
    TimerChange {
        name: String::new(),
        key,
        set: Some(TimerSet {
            when: When::Published(Box::new(publication)),
            payload,
        }),
    }
}
