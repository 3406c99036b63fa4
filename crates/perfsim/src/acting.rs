//! A controller's actions take place: shards stop, are copied, and serve at other nodes.
//!
//! The state of a shard is copied in parts over ports and PCIe like other messages, at most as fast as
//! the product does (`copy_mb_per_s`, a guess), while the shard serves. A primary that has the state serves
//! `cut_over_ms` after it was chosen, another one when its instance has started, after
//! `instance_start_ms`. In the full fidelity the data plane does all this itself, and only where replicas are
//! is noted here.

use crate::arena::{Message, NONE, What};
use crate::control::{Action, Controller, Heartbeat, InstanceCount, Outcome};
use crate::event::Kind;
use crate::limits::{COPY_PART_BYTES, RESEND_AFTER};
use crate::moves::{Beat, Copy, Parked};
use crate::simulator::Simulator;
use e3_model::{Nanos, NodeId, ServiceId, ShardId};

impl Simulator {
    /// Lets a controller react to what has ended.
    pub(crate) fn report_outcomes(&mut self, controller: &mut dyn Controller) {
        while !self.outcomes.is_empty() {
            for outcome in std::mem::take(&mut self.outcomes) {
                let actions = controller.on_outcome(Nanos(self.now), outcome);
                self.act(actions);
            }
        }
    }

    /// Carries out actions. What names nothing that there is changes nothing.
    pub(crate) fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Copy {
                    number,
                    service,
                    shard,
                    to,
                } => {
                    if let Some(shard) = self.model.shard_at(service, shard) {
                        self.begin_copy(number, shard, to.0);
                    }
                }
                Action::Cancel { number } => {
                    self.moves.copies.remove(&number);
                }
                Action::Stop { service, shard } => {
                    if let Some(at) = self.model.shard_at(service, shard) {
                        self.stop(at);
                    }
                }
                Action::Serve {
                    service,
                    shard,
                    primary,
                    is_prepared,
                    backups,
                } => {
                    if let Some(at) = self.model.shard_at(service, shard) {
                        self.serve(at, primary.0, is_prepared, &backups);
                    }
                }
            }
        }
    }

    fn begin_copy(&mut self, number: u32, shard: u32, to: u32) {
        self.totals.copies += 1;
        if self.plane.is_some() {
            return;
        }
        let service = self.model.service_of(shard);
        let start = self.now + ms(self.model.options.guesses.instance_start_ms);
        let copy = Copy {
            shard,
            from: self.model.shards[shard as usize].primary.node,
            to,
            left_bytes: self.model.services[usize::from(service)].state_bytes.max(1),
            next_at: start,
        };
        self.moves.copies.insert(number, copy);
        self.schedule(start, Kind::Chunk, number);
    }

    /// The next part of a copy is due.
    pub(crate) fn on_chunk(&mut self, number: u32) {
        let mb_per_s = self.model.options.guesses.copy_mb_per_s;
        let Some(copy) = self.moves.copies.get_mut(&number) else {
            return;
        };
        let bytes = copy.left_bytes.min(COPY_PART_BYTES);
        copy.next_at = self.now + (bytes as f64 * 1e3 / mb_per_s) as u64;
        let copy = *copy;
        if self.outages.is_down(copy.from) || self.outages.is_down(copy.to) {
            return self.schedule(self.now + RESEND_AFTER.0, Kind::Chunk, number);
        }
        let id = self.messages.add(Message {
            of: number,
            next: NONE,
            shard: copy.shard,
            service: self.model.service_of(copy.shard),
            from: copy.from,
            to: copy.to,
            what: What::Chunk,
            ..Message::default()
        });
        self.send(id);
    }

    /// A part of a copy has arrived.
    pub(crate) fn on_copied(&mut self, id: u32) {
        let number = self.messages[id].of;
        self.messages.remove(id);
        let Some(copy) = self.moves.copies.get_mut(&number) else {
            return;
        };
        let bytes = copy.left_bytes.min(COPY_PART_BYTES);
        copy.left_bytes -= bytes;
        self.totals.copied_bytes += bytes;
        if copy.left_bytes > 0 {
            let at = copy.next_at.max(self.now);
            return self.schedule(at, Kind::Chunk, number);
        }
        self.moves.copies.remove(&number);
        self.outcomes.push(Outcome::Copied { number });
    }

    /// The primary of a shard handles nothing more.
    fn stop(&mut self, shard: u32) {
        if self.plane.is_some() {
            return;
        }
        let primary = self.model.shards[shard as usize].primary;
        self.moves.is_active = true;
        self.moves.parked.entry(shard).or_default().resumes_at = None;
        for id in self.take_queued(shard, primary.node) {
            self.enqueue(id);
        }
        let runs = |id: u32| {
            let message = &self.messages[id];
            message.what == What::Work && message.shard == shard
        };
        if self.running_on(primary.node).any(runs) {
            self.moves.stopping.insert(shard);
        } else {
            self.note_stopped(shard);
        }
    }

    /// A shard's primary has run a message; it stops if it is to.
    pub(crate) fn stop_if_due(&mut self, shard: u32) {
        if self.moves.stopping.remove(&shard) {
            self.note_stopped(shard);
        }
    }

    fn note_stopped(&mut self, at: u32) {
        let service = self.model.service_of(at);
        let first = self.model.services[usize::from(service)].first_shard;
        self.outcomes.push(Outcome::Stopped {
            service: ServiceId(service),
            shard: ShardId((at - first) as u16),
        });
    }

    fn serve(&mut self, shard: u32, primary: u32, is_prepared: bool, backups: &[NodeId]) {
        let before = self.model.shards[shard as usize].primary.node;
        self.moves.is_active = self.plane.is_none();
        self.moves.stopping.remove(&shard);
        self.model.set_replicas(shard, primary, backups, self.now);
        for node in backups.iter().map(|n| n.0).chain([primary]) {
            if !self.outages.is_down(node) {
                self.threads.switch_on(&self.model, node as usize, self.now);
            }
        }
        if before == primary {
            let is_held = |p: &Parked| p.resumes_at.is_none();
            if self.moves.parked.get(&shard).is_some_and(is_held) {
                self.unpark(shard);
            }
            return;
        }
        self.totals.moves += 1;
        self.threads.note_moved(&self.model);
        if let Some(count) = self.moves.counts.get_mut(shard as usize) {
            *count = (0, 0);
        }
        if self.plane.is_some() {
            return;
        }
        let guesses = &self.model.options.guesses;
        let resumes_at = self.now
            + ms(if is_prepared {
                guesses.cut_over_ms
            } else {
                guesses.instance_start_ms
            });
        let mut queued = self.take_queued(shard, before);
        queued.extend(self.take_parked(shard));
        self.moves.parked.entry(shard).or_default().resumes_at = Some(resumes_at);
        self.schedule(resumes_at, Kind::Resume, shard);
        for id in queued {
            self.divert(id, primary);
        }
    }

    /// The primary of a shard may serve now.
    pub(crate) fn on_resume(&mut self, shard: u32) {
        let parked = self.moves.parked.get(&shard);
        if parked.is_some_and(|p| p.resumes_at == Some(self.now)) {
            self.unpark(shard);
        }
    }

    fn unpark(&mut self, shard: u32) {
        let waiting = self.take_parked(shard);
        self.moves.parked.remove(&shard);
        for id in waiting {
            self.enqueue(id);
        }
    }

    /// Takes the messages that wait for a shard that does not serve.
    fn take_parked(&mut self, shard: u32) -> Vec<u32> {
        let Some(parked) = self.moves.parked.get_mut(&shard) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        while let Some(id) = parked.queue.pop(&self.messages) {
            parked.station.leave(self.now, self.messages[id].entered);
            all.push(id);
        }
        all
    }

    /// The same for all shards whose primary is on a node.
    pub(crate) fn take_parked_on(&mut self, node: u32) -> Vec<u32> {
        let is_there = |s: &u32| self.model.shards[*s as usize].primary.node == node;
        let shards: Vec<u32> = self.moves.parked.keys().copied().filter(is_there).collect();
        shards
            .into_iter()
            .flat_map(|s| self.take_parked(s))
            .collect()
    }

    /// Whether a message cannot be handled where it is: its shard has moved, or does not serve. Then it
    /// is on its way, or waits.
    pub(crate) fn is_diverted(&mut self, id: u32) -> bool {
        let message = self.messages[id];
        let primary = self.model.shards[message.shard as usize].primary.node;
        if message.what != What::Work {
            return false;
        }
        if message.to != primary {
            self.divert(id, primary);
            return true;
        }
        let Some(parked) = self.moves.parked.get_mut(&message.shard) else {
            return false;
        };
        self.messages[id].entered = self.now;
        parked.station.enter(self.now);
        parked.queue.push(id, &mut self.messages);
        true
    }

    fn divert(&mut self, id: u32, primary: u32) {
        let message = &mut self.messages[id];
        message.from = message.to;
        message.to = primary;
        message.is_from_client = false;
        self.send(id);
    }

    /// The agents of the nodes that are heard report.
    pub(crate) fn on_heartbeat(&mut self, controller: &mut dyn Controller) {
        let nodes = self.model.nodes.len();
        let now = self.now;
        let beat = Beat {
            at: now,
            work: (0..nodes).map(|n| self.threads.work(n)).collect(),
            ports: (0..nodes).map(|n| self.paths.port_busy(n, now)).collect(),
        };
        let last = std::mem::replace(&mut self.moves.last, beat);
        let beat = &self.moves.last;
        let span = (now - last.at).max(1) as f64;
        let heard = (0..nodes).filter(|n| self.is_heard(*n));
        let beats: Vec<Heartbeat> = heard
            .map(|n| {
                let work = beat.work[n] - last.work.get(n).copied().unwrap_or(0);
                let (tx, rx) = beat.ports[n];
                let (tx_before, rx_before) = last.ports.get(n).copied().unwrap_or((0, 0));
                let waiting = match &self.plane {
                    Some(plane) => plane.waiting(n as u32),
                    None => self.threads.waiting(n),
                };
                Heartbeat {
                    node: NodeId::of_index(n),
                    process: self.outages.failures(n),
                    waiting: waiting + self.paths.held(n),
                    busy_cores: (work as f64 / span).min(self.model.nodes[n].core_count.into()),
                    port_utilisation: (tx - tx_before).max(rx - rx_before) as f64 / span,
                    port_busy_ns: tx + rx,
                }
            })
            .collect();
        let counts = self.instance_counts();
        let actions = controller.on_heartbeats(Nanos(now), &beats, &counts);
        self.act(actions);
        self.plane(|plane, actions| plane.on_controlled(now, actions));
    }

    fn instance_counts(&self) -> Vec<InstanceCount> {
        let services = (0..).map(ServiceId).zip(&self.model.services);
        let of = |(service, s): (ServiceId, &crate::model::Service)| {
            let first = s.first_shard as usize;
            (0..s.shards).map(move |shard| (service, ShardId(shard), first + usize::from(shard)))
        };
        let count = |(service, shard, at): (ServiceId, ShardId, usize)| InstanceCount {
            service,
            shard,
            node: NodeId(self.model.shards[at].primary.node),
            handled: self.moves.counts[at].0,
            busy: Nanos(self.moves.counts[at].1),
        };
        services.flat_map(of).map(count).collect()
    }

    /// Whether a node's heartbeats reach the controller.
    fn is_heard(&self, node: usize) -> bool {
        let ports = self.model.nodes[node].ports.all();
        let mut ports = ports.iter().map(|p| *p as usize);
        !self.outages.is_down(node as u32) && ports.any(|p| self.outages.port_works(p))
    }
}

fn ms(ms: f64) -> u64 {
    (ms * 1e6) as u64
}
