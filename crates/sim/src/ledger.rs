//! The reference model: what the requests must have done to the state of all services. It follows
//! from the scenario alone and knows nothing of identities, logs or views.

use crate::effects::Effects;
use crate::scenario::{Place, Scenario};
use e3_model::plan::AppPlan;
use e3_model::{AppId, Nanos, ServiceId, ShardId, ShardKey, Slot, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The effects that were observed while a scenario runs.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The first violations.
    pub violations: Vec<String>,
    /// The true time.
    pub now: Timestamp,
    /// When processes of nodes started.
    started: Vec<Timestamp>,
    /// Shards whose last copy the scenario destroyed, each with the number of its service's shards
    /// then, and the time of the last such loss.
    pub forfeited: BTreeMap<(ShardKey, u16), Timestamp>,
    /// Shards whose state was given up, with the view of that.
    given_up: BTreeMap<ShardKey, u32>,
    /// Effects that calls ask for.
    pub(crate) effects: Effects,
    /// Publications that services without state handled, each as its subscribers count it.
    pub(crate) received: BTreeSet<Vec<u8>>,
    /// By service with state and publication: when it was last handled.
    in_order: BTreeMap<((AppId, ServiceId), Vec<u8>), Timestamp>,
    /// The messages (request and path) whose dead letters were replayed, with the services that had them.
    replayed: BTreeSet<((AppId, ServiceId), Vec<u8>)>,
    /// By replicated shard: the latest incarnation that has run a handler, and where.
    acting: BTreeMap<ShardKey, (u32, u32)>,
}

/// How far the clock of a node that serves may be off.
const CLOCK_OFF_MAX: Nanos = Nanos::from_millis(800);
/// The longest delay of a datagram in any scenario, and some time in which a node takes it.
const COPY_DELAY_MAX: Nanos = Nanos::from_millis(250);
/// How many violations are kept.
const VIOLATIONS_MAX: usize = 8;

impl Ledger {
    /// Records a violation.
    pub fn violation(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }

    /// Records that the process of a node starts.
    pub(crate) fn on_started(&mut self, now: Timestamp) {
        self.started.push(now);
    }

    /// Whether a copy of a request that was sent and refused at these times may be admitted by a process that
    /// knows nothing of the refusal. docs/design/002.
    pub(crate) fn may_forget_refusal(&self, sent: Timestamp, refused: Timestamp) -> bool {
        let mut started = self.started.iter();
        started.any(|at| sent <= *at && *at <= refused + COPY_DELAY_MAX)
    }

    /// Records that an effect took place a second time in one copy of the state.
    pub fn on_repeated(&mut self, shard: ShardKey, effect: &[u8]) {
        if !self.may_repeat(effect) {
            self.violation(format!("{shard}: effect {effect:?} took place twice"));
        }
    }

    /// Records that the dead letter of a message, of such a request and path, is replayed.
    pub(crate) fn on_replay(&mut self, service: (AppId, ServiceId), message: Vec<u8>) {
        self.replayed.insert((service, message));
    }

    /// Whether an effect may take place a second time. It follows from a replay, and the service that had the
    /// dead letter has lost state, and with it perhaps the knowledge of the replay. If the client then repeats
    /// the request, it is handled there again, under another identity than that of the replay.
    pub(crate) fn may_repeat(&self, effect: &[u8]) -> bool {
        let mut replayed = self.replayed.iter();
        replayed.any(|(service, message)| {
            effect.len() > message.len() && effect.starts_with(message) && self.has_lost(*service)
        })
    }

    /// Records that a handler makes an effect.
    pub fn on_effect(&mut self, shard: ShardKey, key: &[u8], effect: &[u8]) {
        let service = (shard.app, shard.service);
        self.effects.on_effect(service, key, effect);
    }

    /// Records that a timer that was set for `at` is handled by a clock that says `now`.
    pub fn on_fired(&mut self, shard: ShardKey, at: Timestamp, now: Timestamp) {
        if now < at || self.now + CLOCK_OFF_MAX < at {
            let early = self.now.until(at).as_millis();
            self.violation(format!("{shard}: a timer fires {early} ms early"));
        }
    }

    /// Records that a node runs a handler as the primary of a shard that leases protect.
    pub fn on_acting(&mut self, shard: ShardKey, incarnation: u32, node: u32) {
        let given_up = self.given_up.get(&shard);
        if given_up.is_some_and(|view| incarnation < *view) {
            return;
        }
        let latest = self.acting.entry(shard).or_insert((incarnation, node));
        if incarnation > latest.0 {
            *latest = (incarnation, node);
        } else if *latest != (incarnation, node) {
            let (newer, other) = *latest;
            self.violation(format!(
                "{shard}: node {node} handles as its primary of view {incarnation} after node {other} did in view {newer}"
            ));
        }
    }

    /// Records that shards may be in views again in which other nodes were their primaries, all of which have
    /// ended.
    pub(crate) fn give_views_again(&mut self, shards: &[ShardKey]) {
        for shard in shards {
            self.acting.remove(shard);
        }
    }

    /// Records that the scenario destroys the last copy of a shard, one of so many.
    pub fn on_forfeited(&mut self, shard: ShardKey, of: u16, now: Timestamp) {
        self.forfeited.insert((shard, of), now);
    }

    /// Records that an operator gave up the state of a shard in this view: it begins empty, or goes on from
    /// a copy that has left. Former primaries may continue until they learn of it.
    pub fn on_given_up(&mut self, shard: ShardKey, of: u16, view: u32, now: Timestamp) {
        self.on_forfeited(shard, of, now);
        self.given_up.insert(shard, view);
    }

    /// Whether a service has lost the last copy of any of its shards.
    pub(crate) fn has_lost(&self, service: (AppId, ServiceId)) -> bool {
        let mut lost = self.forfeited.keys();
        lost.any(|(shard, _)| (shard.app, shard.service) == service)
    }

    /// Records that a shard with state handles a publication. Whether its service handled it before, and has lost
    /// state since: then a copy that was sent before the loss may come after later publications.
    pub(crate) fn on_in_order(
        &mut self,
        shard: ShardKey,
        slot: Slot,
        publication: Vec<u8>,
    ) -> bool {
        let service = (shard.app, shard.service);
        let before = self.in_order.insert((service, publication), self.now);
        let has_slot = |lost: &ShardKey, of: u16| slot.shard(of) == lost.shard;
        let mut lost = self.forfeited.iter();
        before.is_some_and(|before| {
            lost.any(|((lost, of), at)| {
                (lost.app, lost.service) == service && has_slot(lost, *of) && before <= *at
            })
        })
    }

    /// Whether the effect at this shard, one of so many, of a request sent at `sent` may have been
    /// lost.
    pub fn is_forfeited(&self, shard: ShardKey, of: u16, sent: Timestamp) -> bool {
        let mut forfeited = self.forfeited.iter();
        forfeited.any(|((lost, lost_of), at)| {
            let is_service = (lost.app, lost.service) == (shard.app, shard.service);
            let (one, other) = (u32::from(shard.shard.0), u32::from(lost.shard.0));
            let (of, lost_of) = (u32::from(of), u32::from(*lost_of));
            let have_slots = one * lost_of < (other + 1) * of && other * of < (one + 1) * lost_of;
            is_service && have_slots && sent <= *at
        })
    }
}

/// The places that requests of an application reach, and what determines their shards.
#[derive(Debug)]
pub struct Reach {
    app: AppId,
    /// The stateful ones.
    pub places: Vec<Place>,
    /// By service.
    shards: Vec<u16>,
    /// Paths of places to which a service on the way draws the key.
    drawn: BTreeSet<Vec<u8>>,
    /// By place: whether a handler on the way to it can fail every attempt.
    pub can_fail: Vec<bool>,
    /// The same of the way from the place before it.
    pub can_fail_after: Vec<bool>,
}

impl Reach {
    /// The places of the application at this index, as it runs, or another that began with its backup.
    pub fn new(scenario: &Scenario, at: usize, running: &AppPlan) -> Reach {
        let shape = &scenario.apps[at];
        let all = shape.places();
        let fails = |place: &Place| {
            let service = &shape.services[usize::from(place.service.0)];
            scenario.fails(at, service)
        };
        let draws = |place: &Place| scenario.draws_keys(shape, usize::from(place.service.0));
        let any_on_way = |place: &Place, is: &dyn Fn(&Place) -> bool| {
            let on_way = |p: &&Place| place.path.starts_with(&p.path);
            all.iter().filter(on_way).any(is)
        };
        let stateful = |p: &&Place| shape.services[usize::from(p.service.0)].stateful;
        let places: Vec<Place> = all.iter().filter(stateful).cloned().collect();
        let drawn = all.iter().filter(|p| any_on_way(p, &draws));
        let can_fail_after = |at: usize| {
            let len = place_before(&places, at).map_or(0, |before| places[before].path.len());
            any_on_way(&places[at], &|p| p.path.len() > len && fails(p))
        };
        Reach {
            app: running.id,
            can_fail: places.iter().map(|p| any_on_way(p, &fails)).collect(),
            can_fail_after: (0..places.len()).map(can_fail_after).collect(),
            drawn: drawn.map(|p| p.path.clone()).collect(),
            places,
            shards: running.app.spec.services.iter().map(|s| s.shards).collect(),
        }
    }

    /// The index of the last place on the way to the place at an index.
    pub fn before(&self, at: usize) -> Option<usize> {
        place_before(&self.places, at)
    }

    /// How many shards the service of a shard has.
    pub fn shards_of(&self, shard: ShardKey) -> u16 {
        self.shards[usize::from(shard.service.0)]
    }

    /// The shards that may have the effect at a place of a request with this key; one, unless a
    /// service on the way draws keys.
    pub fn shards(&self, place: &Place, key: &[u8]) -> Vec<ShardKey> {
        let mut key = key.to_vec();
        for step in place.path.chunks(2) {
            key = crate::layout::key_after(&key, [step[0], step[1]]);
        }
        let count = self.shards[usize::from(place.service.0)];
        let shards = if self.drawn.contains(&place.path) {
            (0..count).map(ShardId).collect()
        } else {
            vec![Slot::of(&key).shard(count)]
        };
        let shard = |shard| ShardKey {
            app: self.app,
            service: place.service,
            shard,
        };
        shards.into_iter().map(shard).collect()
    }
}

fn place_before(places: &[Place], at: usize) -> Option<usize> {
    let mut earlier = (0..at).rev();
    earlier.find(|before| places[at].path.starts_with(&places[*before].path))
}
