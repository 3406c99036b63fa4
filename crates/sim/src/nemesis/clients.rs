//! The clients of a run: their loads, those that rush when faults begin, those that vanish, and those
//! that probe what is left.

use super::{PROBE, PROBE_INTERVAL, PROBE_INTERVAL_MAX, Run};
use crate::client::{Client, Load};
use crate::clock::SimClock;
use crate::scenario::{ClientShape, app_id};
use e3_model::Nanos;

/// Clients that rush send at most so long before a fault begins,
const RUSH_BEFORE_MAX: Nanos = Nanos::from_millis(4);
/// or so long after.
const RUSH_AFTER_MAX: Nanos = Nanos::from_millis(150);

/// How often clients repeat a request whose outcome is unknown.
const UNKNOWN_REPEATS: u32 = 3;

impl Run<'_> {
    /// A client of this shape.
    pub(super) fn client(&mut self, at: usize, shape: &ClientShape) -> Client {
        let (id, app) = (100 + at as u64, app_id(shape.app));
        let deadline = Nanos::from_millis(shape.deadline_ms);
        let mut client = if shape.is_keyed {
            Client::keyed(id, app, deadline)
        } else {
            Client::new(id, app)
        };
        // A stateless service handles such a repeat, unless it knows better.
        if shape.is_keyed && !self.scenario.apps[shape.app].services[0].stateful {
            client.unknown_repeats = UNKNOWN_REPEATS;
        }
        client.clock = SimClock::new(self.cluster.now, shape.offset_ms, 0);
        client.nodes = self.nodes();
        client.keys = shape.keys;
        // Clients vanish with their last requests in flight.
        let faults_ms = self.scenario.faults_ms.saturating_sub(1_000).max(1);
        let span = Nanos::from_millis(shape.vanishes_ms.map_or(faults_ms, |ms| ms.min(faults_ms)));
        client.load = Some(Load {
            left: shape.requests,
            burst: shape.burst.max(1),
            every: Some(Nanos(span.0 / shape.requests.max(1))),
            deadline,
            hurried: shape.hurried_ms.map(Nanos::from_millis),
        });
        let first = *self.random.pick(&client.nodes);
        let others = client.nodes.clone().into_iter().filter(|n| *n != first);
        let nodes: Vec<u32> = std::iter::once(first).chain(others).collect();
        client.set_routes(self.cluster.now, nodes.into_iter());
        client
    }

    /// Has a client send its requests when faults begin: half of them just before, so that they are
    /// in flight then, and half soon after.
    pub(super) fn rush(&mut self, client: usize) {
        let acts = self.scenario.script.len() as u64;
        if let Some(load) = &mut self.cluster.clients[client].load {
            load.burst = load.left.div_ceil(acts);
            load.every = None;
        }
        for act in &self.scenario.script {
            let begins = self.begin + Nanos::from_millis(act.at_ms);
            let at = if self.random.one_in(2) {
                begins - Nanos(self.random.below(RUSH_BEFORE_MAX.0))
            } else {
                begins + Nanos(self.random.below(RUSH_AFTER_MAX.0))
            };
            self.cluster.load_at(client as u16, at.max(self.begin));
        }
    }

    /// Has clients vanish whose time has come. Not after the healing: what they had sent just before a probe
    /// would take the places that it needs.
    pub(super) fn vanish(&mut self) {
        if self.cluster.now >= self.healed_at {
            return;
        }
        for (client, shape) in self.cluster.clients.iter_mut().zip(&self.scenario.clients) {
            let at = shape
                .vanishes_ms
                .map(|ms| self.begin + Nanos::from_millis(ms));
            let has_sent = client.load.is_none_or(|l| l.left == 0);
            if at.is_some_and(|at| at <= self.cluster.now) && has_sent {
                client.has_vanished = true;
            }
        }
    }

    /// Sends new requests, which must be handled now.
    pub(super) fn probe(&mut self, requests: u64) {
        let first = self.cluster.clients.len();
        // No faster than one core can handle those of all applications, or some are refused.
        let apps = 0..self.scenario.apps.len();
        let work = apps.clone().map(|app| self.scenario.work_of_request(app));
        let work = work.fold(Nanos::ZERO, |a, b| a + b);
        let every = work.clamp(PROBE_INTERVAL, PROBE_INTERVAL_MAX);
        for app in apps {
            let shape = ClientShape {
                app,
                requests,
                burst: 1,
                keys: 1_000,
                deadline_ms: PROBE.as_millis(),
                hurried_ms: None,
                is_rushing: false,
                is_keyed: false,
                offset_ms: 0,
                vanishes_ms: None,
            };
            let mut client = self.client(first + app, &shape);
            if let Some(load) = &mut client.load {
                load.every = Some(every);
            }
            self.cluster.clients.push(client);
            self.cluster.begin_load((first + app) as u16);
        }
        self.let_settle(self.cluster.now + every * requests + PROBE + Nanos::from_secs(1));
        self.check_probes(first);
        // The last requests may still have effects after their answers.
        self.wait(Nanos::from_secs(1));
    }
}
