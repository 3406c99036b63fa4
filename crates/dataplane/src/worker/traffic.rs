//! The cores and the traffic manager of an emulated node.

use super::{Output, Worker};
use crate::app::ReplicaId;
use crate::cores::{Cores, Occupied};
use crate::timers::Timer;
use crate::traffic::{Class, Destination, TrafficManager, class_of};
use e3_invocation::Completion;
use e3_model::{Address, DropReason, Nanos, ShardKey, Timestamp};
use std::collections::BTreeMap;

/// What a worker that stands for other hardware has in place of it.
#[derive(Debug)]
pub(super) struct Emulated {
    pub(super) cores: Cores,
    traffic: TrafficManager,
    /// Runs that occupy a core although their handlers are done: by when they leave it, and by number.
    held: BTreeMap<(Timestamp, u64), (ShardKey, Completion, Occupied)>,
    held_number: u64,
}

/// Handler runs since the last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Handlers that ran.
    pub handled: u64,
    /// How long each of them occupies a core, summed.
    pub busy: Nanos,
    /// How long cores were occupied in the time that has passed.
    pub occupied: Nanos,
}

impl Emulated {
    pub(super) fn new(cores: u16) -> Emulated {
        Emulated {
            cores: Cores::new(cores),
            traffic: TrafficManager::default(),
            held: BTreeMap::new(),
            held_number: 0,
        }
    }
}

impl Worker {
    /// Takes a datagram that this node only passes on, between its host and others. It leaves as an
    /// [`Output::Relay`], behind what arrived before it.
    pub fn handle_relayed(&mut self, now: Timestamp, from: Address, to: Address, bytes: &[u8]) {
        self.world.now = now;
        self.arrive(Destination::Relayed { from, to }, bytes);
    }

    /// Has a datagram wait at the traffic manager, if there is one.
    pub(super) fn arrive(&mut self, to: Destination, bytes: &[u8]) {
        let formats = self.world.config.formats;
        if let Some(emulated) = &mut self.emulated
            && let Class::Work(requests) = class_of(formats, bytes)
        {
            if !emulated.traffic.push(to, bytes, requests) {
                self.drop_for(DropReason::Port);
            }
            return;
        }
        self.pass(to, bytes);
    }

    fn pass(&mut self, to: Destination, bytes: &[u8]) {
        match to {
            Destination::Here(from) => self.take_datagram(from, bytes),
            Destination::Relayed { from, to } => {
                let bytes = bytes.to_vec();
                self.outputs.push_back(Output::Relay { from, to, bytes });
            }
        }
    }

    /// Passes the datagram at the head of the traffic manager, if a core is free for it. False if none
    /// may pass.
    pub(super) fn pass_traffic(&mut self) -> bool {
        if !self.may_pass() {
            return false;
        }
        let arrival = self.emulated.as_mut().and_then(|e| e.traffic.pop());
        if let Some(arrival) = &arrival {
            self.pass(arrival.to, &arrival.bytes);
        }
        arrival.is_some()
    }

    /// Whether the head of the traffic manager may pass: what passed before has got its core.
    fn may_pass(&self) -> bool {
        let waits = |e: &Emulated| !e.traffic.is_empty();
        self.emulated.as_ref().is_some_and(waits)
            && self.waiting_for_core.is_empty()
            && self.free_cores() > 0
    }

    /// Cores that are free; without end where they are not emulated.
    pub(super) fn free_cores(&self) -> usize {
        let Some(emulated) = &self.emulated else {
            return usize::MAX;
        };
        // A handler that waits for the answer to its call has no core, nor has what is behind it.
        let asking = self.calls.asking_shards();
        let hosted = self.replicas.iter().map(|(_, h)| h);
        let runs = hosted.filter(|h| !asking.contains(&h.replica.shard.key));
        let running = runs.filter_map(|h| {
            let primary = h.replica.as_primary().filter(|p| p.is_startable)?;
            Some(primary.running().saturating_sub(h.held))
        });
        let running = running.sum();
        emulated.cores.free(self.world.now, running)
    }

    /// Primaries that waited for a core may go on.
    pub(super) fn go_on_with_cores(&mut self) {
        if !self.waiting_for_core.is_empty() && self.free_cores() > 0 {
            self.ready.append(&mut self.waiting_for_core);
        }
    }

    /// What a handler run takes of a core.
    pub(super) fn occupy(&mut self, key: ShardKey, done: &Completion) -> Occupied {
        let app = self.world.apps.get(&key.app);
        let factor = app.map_or(1.0, |app| app.slowdown(key, &self.world.config));
        let mut occupied = Occupied::of(done.busy, factor);
        self.work.handled += 1;
        self.work.busy += occupied.time;
        self.work.occupied += occupied.time;
        if let Some(emulated) = &mut self.emulated {
            let until = emulated.cores.occupy(self.world.now, occupied.rest);
            occupied.until = Some(until);
            self.timers.set(until, Timer::Core);
        }
        occupied
    }

    /// Holds back what a handler of a stateless service did until its run leaves its core: then runs on
    /// other cores overtake it. What a handler wrote to collections cannot wait: such a run is logged at
    /// once, and only its outputs wait. Gives back what is not held.
    pub(super) fn hold(
        &mut self,
        key: ShardKey,
        done: Completion,
        occupied: Occupied,
    ) -> Option<Completion> {
        let app = self.world.apps.get(&key.app);
        let is_stateless = app.is_some_and(|app| !app.service(key).stateful);
        let until = occupied.until.filter(|until| *until > self.world.now);
        let id = self.find(key).filter(|_| is_stateless);
        if let Some(id) = id
            && let Some(until) = until
            && let Some(hosted) = self.replicas.get_mut(id.at())
            && let Some(emulated) = &mut self.emulated
        {
            emulated.held_number += 1;
            let place = (until, emulated.held_number);
            emulated.held.insert(place, (key, done, occupied));
            hosted.held += 1;
            return None;
        }
        Some(done)
    }

    /// Completes the runs that leave their cores now.
    pub(super) fn complete_held(&mut self) {
        while let Some(emulated) = &mut self.emulated
            && let Some(first) = emulated.held.first_entry()
            && first.key().0 <= self.world.now
        {
            let (key, done, occupied) = first.remove();
            if let Some(id) = self.find(key)
                && let Some(hosted) = self.replicas.get_mut(id.at())
            {
                hosted.held -= 1;
            }
            self.complete(key, done, occupied);
        }
    }

    pub(super) fn complete(&mut self, key: ShardKey, done: Completion, occupied: Occupied) {
        if let Some(id) = self.find(key) {
            self.primary(id, |p, turn| p.on_completion(turn, done, occupied));
        }
    }

    /// Drops the runs of a primary that ends. Their cores stay occupied.
    pub(super) fn drop_held(&mut self, id: ReplicaId, key: ShardKey) {
        if let Some(emulated) = &mut self.emulated {
            emulated.held.retain(|_, (of, ..)| *of != key);
        }
        if let Some(hosted) = self.replicas.get_mut(id.at()) {
            hosted.held = 0;
        }
    }

    /// Requests that wait at the traffic manager.
    pub(super) fn traffic_requests(&self) -> u32 {
        let traffic = self.emulated.as_ref().map(|e| e.traffic.requests());
        traffic.unwrap_or_default()
    }

    /// What handlers did in `interval`, which has just ended. Where cores are emulated, a run that is
    /// not at its end counts with the part of it that fits into the time so far.
    pub fn take_work(&mut self, interval: Nanos) -> Work {
        let mut work = std::mem::take(&mut self.work);
        if let Some(cores) = self.world.config.emulated.map(|e| e.cores) {
            let most = Nanos(interval.0.saturating_mul(u64::from(cores)));
            self.work.occupied = Nanos(work.occupied.0.saturating_sub(most.0));
            work.occupied = work.occupied.min(most);
        }
        work
    }

    /// Panics if the head of the traffic manager waits although a core is free.
    pub(super) fn validate_traffic(&self) {
        assert!(
            !self.may_pass(),
            "a datagram waits at the traffic manager that could pass"
        );
        let waits = !self.waiting_for_core.is_empty();
        assert!(
            !waits || self.free_cores() == 0,
            "a primary waits for a core, and one is free"
        );
    }
}
