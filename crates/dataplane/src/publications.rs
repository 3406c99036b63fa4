//! Publications of a shard's service that its primary has in progress, and who is subscribed.
//!
//! A publication is in the table of timers until all subscribers have confirmed it. Of each key the
//! primary has the oldest in progress, so that each subscriber gets those of a key in their order.
//! A successor asks again, under the same identities. Of what is here it knows who has confirmed a
//! publication that others have not confirmed for a while ([`crate::partial`]).

use crate::limits::{OUTBOUND_RETRY_AFTER, OUTBOUND_RETRY_AFTER_MAX, PUBLICATIONS_OPEN_MAX};
use crate::partial::{Confirmed, Partials};
use crate::timer_table::{OutboundPlace, TimerTable};
use e3_model::plan::AppPlan;
use e3_model::timer::{TimerChange, publication_request};
use e3_model::topic::{Publication, Topic};
use e3_model::{AppId, Nanos, RequestId, ServiceId, Slot, Timestamp};
use e3_wire::timer::PublicationName;
use std::collections::{BTreeMap, BTreeSet};

/// A service that is subscribed to a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscriber {
    pub(crate) app: AppId,
    pub(crate) service: ServiceId,
    /// In whose name it is known: that of the application whose state it began with.
    pub(crate) identity: AppId,
    /// When it began with that state, if it did.
    pub(crate) restored_at: Timestamp,
    /// Whether others are subscribed under the same identity.
    pub(crate) has_twins: bool,
    /// How long it may take.
    pub(crate) deadline: Nanos,
}

/// The subscribers of all topics.
#[derive(Debug, Default)]
pub(crate) struct Subscribers(BTreeMap<String, BTreeMap<String, Vec<Subscriber>>>);

impl Subscribers {
    pub(crate) fn new(apps: &[AppPlan]) -> Subscribers {
        let mut all = Subscribers::default();
        for plan in apps {
            for subscription in &plan.app.spec.subscriptions {
                let Topic { application, name } = plan.app.topic_of(subscription);
                let Some((service, _)) = plan.app.service_named(&subscription.service) else {
                    continue;
                };
                let subscriber = Subscriber {
                    app: plan.id,
                    service,
                    identity: plan.identity(),
                    restored_at: plan.restored.as_ref().map_or(Timestamp::ZERO, |r| r.at),
                    has_twins: false,
                    deadline: plan.app.spec.deadline,
                };
                let topics = all.0.entry(application).or_default();
                topics.entry(name).or_default().push(subscriber);
            }
        }
        for subscribers in all.0.values_mut().flat_map(BTreeMap::values_mut) {
            let named = |s: &Subscriber| (s.identity, s.service);
            let names: Vec<(AppId, ServiceId)> = subscribers.iter().map(named).collect();
            for subscriber in subscribers {
                let own = named(subscriber);
                subscriber.has_twins = names.iter().filter(|name| **name == own).count() > 1;
            }
        }
        all
    }

    /// Who gets a publication of an application.
    pub(crate) fn of(&self, application: &str, publication: &Publication) -> &[Subscriber] {
        let topics = self.0.get(application);
        let subscribers = topics.and_then(|topics| topics.get(&publication.topic));
        subscribers.map_or(&[], Vec::as_slice)
    }
}

/// The copy of a publication for one subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubscriberCopy {
    /// The application that gets it, and its identity there.
    pub(crate) to: CopyTo,
    /// The name under which its confirmation is noted.
    pub(crate) name: RequestId,
    /// The names of which each says that it is confirmed.
    confirmed_by: [RequestId; 2],
}

/// An application, and the identity of a request to it. Two applications of which one began with the
/// state of the other get copies of the same identity.
pub(crate) type CopyTo = (AppId, RequestId);

impl SubscriberCopy {
    /// The copy of the publication `own`, published at `set_at`.
    pub(crate) fn new(
        own: RequestId,
        set_at: Timestamp,
        subscriber: &Subscriber,
    ) -> SubscriberCopy {
        let service = subscriber.service;
        let id = publication_request(own, (subscriber.identity, service));
        let own_name = publication_request(id, (subscriber.app, service));
        // A confirmation under the identity itself counts for applications that are restored later, too: what
        // it confirms is in their state, or came after the cut. Those that are subscribed now may be
        // handling their copies, so that it must not count for them.
        let is_first = subscriber.identity == subscriber.app;
        let counts = is_first || set_at < subscriber.restored_at;
        SubscriberCopy {
            to: (subscriber.app, id),
            name: if is_first && !subscriber.has_twins {
                id
            } else {
                own_name
            },
            confirmed_by: [own_name, if counts { id } else { own_name }],
        }
    }

    fn is_in(&self, confirmed: &Confirmed) -> bool {
        self.confirmed_by
            .iter()
            .any(|name| confirmed.contains(name))
    }
}

/// Publications that a primary has in progress.
#[derive(Debug, Default)]
pub(crate) struct Publications {
    open: BTreeMap<OutboundPlace, Open>,
    /// The publication of each copy that has no answer, and under which name its confirmation is noted.
    copies: BTreeMap<CopyTo, (OutboundPlace, RequestId)>,
    /// When copies are sent again.
    retries: BTreeSet<(Timestamp, OutboundPlace)>,
    /// Confirmed by all subscribers, not removed yet.
    confirmed: BTreeSet<OutboundPlace>,
    /// Who has confirmed a publication that is not in progress.
    aside: BTreeMap<OutboundPlace, Confirmed>,
    /// Who has confirmed what, by the log.
    pub(crate) partials: Partials,
    /// The one that was begun last.
    begun: Option<OutboundPlace>,
    /// Entries up to this one are of predecessors; any may have removed some.
    inherited: u64,
    /// The entry that removed some last, and their keys.
    removal: Option<(u64, BTreeSet<Vec<u8>>)>,
    /// When the primary is called to remove more.
    pub(crate) wakes_at: Option<Timestamp>,
}

/// A publication in progress.
#[derive(Debug)]
struct Open {
    retry_at: Timestamp,
    /// Between this attempt and the next.
    wait: Nanos,
    /// Copies that were sent.
    asked: BTreeSet<CopyTo>,
    /// The deadlines of copies that may still be handled.
    deadlines: BTreeMap<CopyTo, Timestamp>,
    /// Copies that are confirmed.
    confirmed: Confirmed,
    /// How often copies were sent.
    attempts: u32,
}

impl Publications {
    /// Those of a primary that goes on with what the log has: entries up to `op`.
    pub(crate) fn new(table: &TimerTable, op: u64) -> Publications {
        let (partials, aside) = Partials::read(table);
        Publications {
            aside,
            partials,
            inherited: op,
            ..Publications::default()
        }
    }

    /// Whether one more may be begun.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < PUBLICATIONS_OPEN_MAX
    }

    /// How many of the table it has.
    pub(crate) fn len(&self) -> usize {
        self.open.len() + self.confirmed.len()
    }

    /// Whether it has one of the table.
    pub(crate) fn has(&self, place: &OutboundPlace) -> bool {
        self.open.contains_key(place) || self.confirmed.contains(place)
    }

    /// The one that was begun last: others have their turn first.
    pub(crate) fn begun(&self) -> Option<&OutboundPlace> {
        self.begun.as_ref()
    }

    /// Begins a publication.
    pub(crate) fn begin(&mut self, now: Timestamp, place: &OutboundPlace) {
        let wait = OUTBOUND_RETRY_AFTER;
        let open = Open {
            retry_at: now + wait,
            wait,
            asked: BTreeSet::new(),
            deadlines: BTreeMap::new(),
            confirmed: self.aside.remove(place).unwrap_or_default(),
            attempts: 1,
        };
        self.retries.insert((open.retry_at, place.clone()));
        self.open.insert(place.clone(), open);
        self.begun = Some(place.clone());
    }

    /// The deadline with which a copy is sent now; none if it is confirmed. It stays the same until it has
    /// passed, or is further ahead than the subscriber takes by now.
    pub(crate) fn deadline(
        &mut self,
        now: Timestamp,
        place: &OutboundPlace,
        (copy, within): (&SubscriberCopy, Nanos),
    ) -> Option<Timestamp> {
        let open = self.open.get_mut(place)?;
        if copy.is_in(&open.confirmed) {
            return None;
        }
        self.copies.insert(copy.to, (place.clone(), copy.name));
        open.asked.insert(copy.to);
        let deadline = open.deadlines.entry(copy.to).or_default();
        if *deadline < now || *deadline > now + within {
            *deadline = now + within;
        }
        Some(*deadline)
    }

    /// Whether this is a copy of a publication in progress that has no answer.
    pub(crate) fn is_copy(&self, to: CopyTo) -> bool {
        self.copies.contains_key(&to)
    }

    /// A subscriber did not handle its copy in time: it gets a later deadline.
    pub(crate) fn on_expired(&mut self, to: CopyTo) {
        if let Some((place, _)) = self.copies.get(&to)
            && let Some(open) = self.open.get_mut(place)
        {
            open.deadlines.remove(&to);
        }
    }

    /// A subscriber has confirmed its copy; gives the publication.
    pub(crate) fn on_confirmed(&mut self, to: CopyTo) -> Option<OutboundPlace> {
        let (place, name) = self.copies.remove(&to)?;
        let open = self.open.get_mut(&place)?;
        open.deadlines.remove(&to);
        open.confirmed.insert(name);
        Some(place)
    }

    /// Whether a copy is confirmed.
    pub(crate) fn is_confirmed(&self, place: &OutboundPlace, copy: &SubscriberCopy) -> bool {
        let open = self.open.get(place);
        open.is_some_and(|open| copy.is_in(&open.confirmed))
    }

    /// All subscribers have confirmed a publication.
    pub(crate) fn complete(&mut self, place: &OutboundPlace) {
        if self.close(place).is_some() {
            self.partials.cancel(place);
            self.confirmed.insert(place.clone());
        }
    }

    /// Has a publication whose copies wait for long give way to others. It has its turn after them.
    pub(crate) fn set_aside(&mut self, now: Timestamp, place: &OutboundPlace) {
        self.partials.hasten(now, place);
        let confirmed = self.close(place).map(|open| open.confirmed);
        if let Some(confirmed) = confirmed.filter(|all| !all.is_empty()) {
            self.aside.insert(place.clone(), confirmed);
        }
    }

    fn close(&mut self, place: &OutboundPlace) -> Option<Open> {
        let open = self.open.remove(place)?;
        self.retries.remove(&(open.retry_at, place.clone()));
        for copy in &open.asked {
            self.copies.remove(copy);
        }
        Some(open)
    }

    /// A publication whose copies are to be sent again now, and whether it has waited for long.
    pub(crate) fn pop_retry(&mut self, now: Timestamp) -> Option<(OutboundPlace, bool)> {
        self.retries.first().filter(|(at, _)| *at <= now)?;
        let (_, place) = self.retries.pop_first()?;
        let open = self.open.get_mut(&place)?;
        let is_long = open.wait == OUTBOUND_RETRY_AFTER_MAX;
        open.wait = Nanos(open.wait.0 * 3 / 2).min(OUTBOUND_RETRY_AFTER_MAX);
        open.retry_at = now + open.wait;
        open.attempts = open.attempts.saturating_add(1);
        self.retries.insert((open.retry_at, place.clone()));
        Some((place, is_long))
    }

    /// How often copies of a publication were sent.
    pub(crate) fn attempts(&self, place: &OutboundPlace) -> u32 {
        self.open.get(place).map_or(0, |open| open.attempts)
    }

    /// When copies are sent again next.
    pub(crate) fn next_retry(&self) -> Option<Timestamp> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// Whether some are confirmed and not removed.
    pub(crate) fn has_confirmed(&self) -> bool {
        !self.confirmed.is_empty()
    }

    /// Takes out those that are confirmed, and what the log has of their confirmations: so many names at
    /// most.
    pub(crate) fn take_confirmed(&mut self, count_max: usize) -> Vec<PublicationName> {
        let mut names = Vec::new();
        while let Some(place) = self.confirmed.first().cloned() {
            let count = 1 + usize::from(self.partials.is_written(&place));
            if names.len() + count > count_max {
                break;
            }
            self.confirmed.remove(&place);
            let partial = self.partials.remove(&place);
            let numbers = [Some(place.1.number), partial].into_iter().flatten();
            names.extend(numbers.map(|seq| PublicationName {
                key: place.1.key.clone(),
                seq,
            }));
        }
        names
    }

    /// An entry removes these.
    pub(crate) fn on_removal(&mut self, op: u64, names: &[PublicationName]) {
        let keys = names.iter().map(|name| name.key.clone());
        self.removal = Some((op, keys.collect()));
    }

    /// Whether the last entry that removed some is committed.
    pub(crate) fn is_removal_committed(&self, commit: u64) -> bool {
        self.removal.as_ref().is_none_or(|(op, _)| *op <= commit)
    }

    /// Whether the one before in the order of its key is gone for good: no successor sends it again, after
    /// this one.
    pub(crate) fn is_next(&self, place: &OutboundPlace, commit: u64) -> bool {
        let mut removal = self.removal.iter().filter(|(op, _)| *op > commit);
        self.inherited <= commit && !removal.any(|(_, keys)| keys.contains(&place.1.key))
    }

    /// Takes partial confirmations of a slot that are to be written, see [`Partials::take_due`].
    pub(crate) fn take_due(
        &mut self,
        at: (Timestamp, Slot),
        number: impl Fn(usize) -> u64,
    ) -> (Vec<TimerChange>, Vec<PublicationName>) {
        let confirmed = |place: &OutboundPlace| {
            let open = self.open.get(place).map(|open| &open.confirmed);
            open.or_else(|| self.aside.get(place))
        };
        self.partials.take_due(at, confirmed, number)
    }

    /// Panics if an invariant is broken.
    pub(crate) fn validate(&self) {
        assert!(
            self.len() <= PUBLICATIONS_OPEN_MAX,
            "publications in progress"
        );
        assert_eq!(
            self.retries.len(),
            self.open.len(),
            "publications that are repeated"
        );
        let is_open = |at: &OutboundPlace| self.open.contains_key(at);
        let mut of = self.copies.values().map(|(place, _)| place);
        assert!(of.all(is_open), "a copy of nothing");
        self.partials.validate();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timer_table::Place;
    use std::rc::Rc;

    #[test]
    fn nothing_follows_before_removals_of_predecessors_are_committed() {
        let publications = Publications::new(&TimerTable::default(), 5);
        let place = Place {
            slot: Slot(0),
            key: b"k".to_vec(),
            name: String::new(),
            number: 1,
        };
        let place = (1, Rc::new(place));
        assert!(!publications.is_next(&place, 4));
        assert!(publications.is_next(&place, 5));
    }

    #[test]
    fn a_confirmation_before_the_restore_counts_for_who_began_with_that_state() {
        let restored_at = Timestamp(1_000);
        let subscriber = |app, restored_at, has_twins| Subscriber {
            app: AppId(app),
            service: ServiceId(1),
            identity: AppId(1),
            restored_at,
            has_twins,
            deadline: Nanos::from_secs(1),
        };
        let own = RequestId { client: 7, seq: 9 };
        let copies = |set_at| {
            let copy = |of| SubscriberCopy::new(own, Timestamp(set_at), &of);
            (
                copy(subscriber(1, Timestamp::ZERO, false)),
                copy(subscriber(1, Timestamp::ZERO, true)),
                copy(subscriber(2, restored_at, true)),
            )
        };
        for (set_at, counts) in [(999, true), (1_000, false), (1_001, false)] {
            let (alone, beside, restored) = copies(set_at);
            assert_eq!(alone.to.1, restored.to.1, "the same identity");
            let is_in = |copy: &SubscriberCopy, name| copy.is_in(&Confirmed::from([name]));
            assert_eq!(is_in(&restored, alone.name), counts);
            assert!(!is_in(&restored, beside.name), "it may have its copy");
            assert!(is_in(&restored, restored.name));
            for original in [alone, beside] {
                assert!(!is_in(&original, restored.name));
                assert!(is_in(&original, alone.name));
                assert!(is_in(&original, beside.name));
            }
        }
    }
}
