//! The operator replays dead letters during faults, some of them more than once.

use super::asks::States;
use super::replayed::{Sent, request_of};
use super::{RECOVERY, Run};
use crate::client::Client;
use crate::ledger::Reach;
use crate::scenario::{Fault, app_id};
use crate::topics;
use e3_client_core::limits::ANSWER_GRACE;
use e3_model::{Nanos, ShardKey};
use e3_wire::entry::Outcome;

/// How often the operator looks for dead letters.
const INTERVAL: Nanos = Nanos::from_millis(200);
/// Dead letters of a shard that are replayed at a time.
const LETTERS_MAX: usize = 50;
/// Time to the deadlines of replays.
const DEADLINES: [Nanos; 2] = [Nanos::from_secs(2), Nanos::from_secs(15)];
/// The same where no shard disappears, of whose dead letters nobody knows then.
const LONG_DEADLINE: Nanos = Nanos::from_secs(3_000);

/// Replays at a shard that has disappeared are over when everything must have recovered.
const _: () = assert!(DEADLINES[1].0 + ANSWER_GRACE.0 < RECOVERY.0);

impl Run<'_> {
    /// Whether the operator has replayed anything.
    pub(super) fn has_replayed(&self) -> bool {
        !self.replays.sent.is_empty()
    }

    /// Whether a dead letter of a request was replayed: what follows from it has the time that the replay has.
    pub(super) fn is_replayed(&self, tag: &[u8]) -> bool {
        let mut requests = self.replays.sent.iter().filter_map(|s| s.request.as_ref());
        requests.any(|(replayed, _)| replayed == tag)
    }

    /// One turn of an operator who replays dead letters.
    pub(super) fn replay_dead_letters(&mut self) {
        if self.cluster.now < self.replays.next {
            return;
        }
        self.replays.next = self.cluster.now + INTERVAL;
        self.look_up_primaries();
        let acts = self.active.iter();
        let apps = acts.filter_map(|act| match act.fault {
            Fault::Replay(app) => Some(app),
            _ => None,
        });
        for app in apps.collect::<Vec<usize>>() {
            self.replay_of(app);
        }
    }

    /// The controller says which nodes are the primaries of shards with dead letters.
    fn look_up_primaries(&mut self) {
        for at in self.replays.clients.values() {
            if !self.cluster.clients[*at].replays() {
                continue;
            }
            let apps = self.controller.control.apps.values();
            let shards = apps.flat_map(|a| a.plan.shards.iter().map(|s| (a.plan.key(s), s)));
            let primaries = shards.map(|(key, s)| (key, s.primary.0)).collect();
            let nodes = self.nodes().into_iter();
            let client = &mut self.cluster.clients[*at];
            client.primaries = primaries;
            client.set_routes(self.cluster.now, nodes);
        }
    }

    /// Replays the dead letters that the operator has read of an application, and reads again.
    fn replay_of(&mut self, app: usize) {
        let Some(state) = self.controller.control.apps.get(&app_id(app)) else {
            return;
        };
        let plan = &state.plan;
        let shards = plan.shards.iter();
        let shards: Vec<(ShardKey, u32)> = shards.map(|s| (plan.key(s), s.primary.0)).collect();
        let client = self.replaying_client(app);
        let acts = &self.scenario.script;
        let reshards = acts
            .iter()
            .any(|act| matches!(act.fault, Fault::Reshard(_)));
        let admitted_max = self.scenario.apps[app].admitted_max as usize;
        for (shard, primary) in shards {
            // Those that are not admitted are sent again only seconds later.
            let room = admitted_max.saturating_sub(self.cluster.clients[client].open());
            let read = &mut self.cluster.clients[client].dead_letters;
            let letters = read.remove(&shard).map(|read| read.letters);
            let letters = letters.iter().flatten();
            // Those of publications would come out of order.
            let letters = letters.filter(|(_, letter)| letter.topic.is_none());
            let letters = letters.filter(|(_, letter)| !topics::is_publication(&letter.payload));
            for letter in letters.take(LETTERS_MAX.min(room)) {
                let mut deadline = *self.random.pick(&DEADLINES);
                if !reshards && self.random.one_in(2) {
                    deadline = LONG_DEADLINE;
                }
                self.cluster
                    .replay(client as u16, primary, shard, letter, deadline);
                let request = request_of(&letter.0, &letter.1);
                if let Some((tag, path)) = &request {
                    let message = [tag.as_slice(), path].concat();
                    let service = (shard.app, shard.service);
                    self.cluster.ledger.on_replay(service, message);
                }
                self.replays.sent.push(Sent {
                    app,
                    number: self.cluster.clients[client].sent(),
                    shard,
                    request,
                    deadline: self.cluster.now + deadline,
                });
            }
            self.cluster
                .read_dead_letters(client as u16, primary, shard);
        }
    }

    fn replaying_client(&mut self, app: usize) -> usize {
        let next = self.cluster.clients.len();
        let at = *self.replays.clients.entry(app).or_insert(next);
        if at == next {
            let mut client = Client::new(100 + next as u64, app_id(app));
            client.nodes = self.nodes();
            self.cluster.clients.push(client);
        }
        at
    }

    /// Checks that what was replayed took effect.
    pub(super) fn check_replays(&mut self, reaches: &[Reach], states: &States) {
        let (mut wrong, mut done) = (Vec::new(), 0);
        for sent in &self.replays.sent {
            let client = &self.cluster.clients[self.replays.clients[&sent.app]];
            let reply = client.outcomes.get(&sent.number);
            if reply.is_some_and(|reply| reply.outcome == Outcome::Done) {
                done += 1;
                wrong.extend(self.lost_replay(sent, &reaches[sent.app], states));
            }
        }
        self.replays.done = done;
        for what in wrong {
            self.violation(what);
        }
    }

    /// What is lost of a replay that was answered.
    fn lost_replay(&self, sent: &Sent, reach: &Reach, states: &States) -> Option<String> {
        let (tag, path) = sent.request.as_ref()?;
        let mut clients = self.cluster.clients.iter();
        let id = u64::from_le_bytes(*tag) >> 32;
        let number = u64::from_le_bytes(*tag) as u32;
        let client = clients.find(|client| client.id == id)?;
        let request = client.history.get(number as usize - 1)?;
        let shape = &self.scenario.apps[sent.app];
        let is_last = sent.deadline > self.healed_at + self.recovery();
        let stateful = shape.services[usize::from(sent.shard.service.0)].stateful;
        let must = reach.places.iter().filter(|place| {
            let service = &shape.services[usize::from(place.service.0)];
            let steps = place.path.strip_prefix(path.as_slice());
            match steps.map(<[u8]>::len) {
                Some(0) => true,
                // What a service without state has sent is durable.
                Some(2) => !stateful && is_last && !self.scenario.fails(sent.app, service),
                _ => false,
            }
        });
        for place in must {
            let effect = [tag.as_slice(), &place.path].concat();
            let shards = reach.shards(place, &request.key).into_iter();
            let count: i64 = shards
                .filter_map(|shard| Some(states.get(&shard)?.borrow().counter_get(0, &effect)))
                .sum();
            if count != 1 && !self.may_be_lost(reach, place, request) {
                return Some(format!(
                    "{}: the replay of request {number} of client {id} was done, and has {count} effects at {:?}",
                    sent.shard, place.path
                ));
            }
        }
        None
    }
}
