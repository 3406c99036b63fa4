//! The simulator: state, the loop over events, and the life of a request.
//!
//! A request arrives at the switch of its ingress shard's rack, passes port and traffic manager, waits
//! for a thread, and is handled. A stateful shard sends a log entry to each backup and waits for their
//! acknowledgements; then its messages to other services leave. When the last message of the request is
//! committed, the answer leaves. The key of a request stays the same on its whole way.
//!
//! [`crate::paths`] moves messages between nodes, [`crate::threads`] runs them.

use crate::arena::{Arena, Message, NONE, Request, What};
use crate::control::{Controller, Outcome};
use crate::event::{Event, Kind};
use crate::faults::Outages;
use crate::input::{Input, ModelError};
use crate::limits::{MESSAGES_MAX, SAMPLES_MAX, SPANS_MAX, TICKS};
use crate::load::{Arrivals, Load};
use crate::model::Model;
use crate::moves::Moves;
use crate::paths::Paths;
use crate::plane::{DataPlane, NodeAction};
use crate::queue::Queue;
use crate::report::{Dropped, Report, Sample, Span};
use crate::threads::Threads;
use crate::totals::Totals;
use e3_model::limits::SLOTS;
use e3_model::{Nanos, ServiceId, Slot};
use e3_random::Random;

/// How a run goes.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// When requests arrive.
    pub load: Load,
    /// Length in simulated time.
    pub duration: Nanos,
    /// From here on it is measured: before, the queues fill.
    pub warm_up: Nanos,
    /// The same seed gives the same result.
    pub seed: u64,
    /// Keep the latency and energy of each request.
    pub samples: bool,
    /// Keep when each message ran, for a trace.
    pub spans: bool,
}

/// One simulated cluster.
pub struct Simulator {
    pub(crate) model: Model,
    pub(crate) run: Run,
    pub(crate) now: u64,
    pub(crate) events: u64,
    pub(crate) queue: Queue,
    number: u64,
    pub(crate) arrivals: Arrivals,
    pub(crate) random: Random,
    pub(crate) requests: Arena<Request>,
    pub(crate) messages: Arena<Message>,
    pub(crate) paths: Paths,
    pub(crate) threads: Threads,
    pub(crate) outages: Outages,
    pub(crate) moves: Moves,
    /// What the controller has not been told yet.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) totals: Totals,
    pub(crate) samples: Vec<Sample>,
    pub(crate) spans: Vec<Span>,
    /// Samples and spans that are kept.
    kept_max: (usize, usize),
    /// Samples and spans beyond these bounds.
    pub(crate) dropped: Dropped,
    /// What decides instead of the table of visits, in the full fidelity.
    pub(crate) plane: Option<Box<dyn DataPlane>>,
    pub(crate) actions: Vec<NodeAction>,
    /// Requests that a data plane refused or gave up.
    pub(crate) refused: u64,
    /// The run ended early because too many messages were in flight.
    pub(crate) overflowed: bool,
    /// Highest number of pending events.
    pub(crate) pending_max: usize,
}

impl Simulator {
    /// A cluster at rest.
    pub fn new(input: &Input<'_>, run: Run) -> Result<Simulator, ModelError> {
        run.validate()?;
        let model = Model::new(input)?;
        let mut seeds = Random::new(run.seed);
        let duration = run.duration.0;
        let events_per_s = run.load.rate_max(duration) * model.events_per_request(input.visits);
        Ok(Simulator {
            now: 0,
            events: 0,
            queue: Queue::new(events_per_s),
            number: 0,
            arrivals: Arrivals::new(run.load.clone(), duration, seeds.next_u64()),
            random: Random::new(seeds.next_u64()),
            requests: Arena::default(),
            messages: Arena::default(),
            paths: Paths::new(&model),
            threads: Threads::new(&model),
            outages: outages(&model),
            moves: Moves::default(),
            outcomes: Vec::new(),
            totals: Totals::new(&model),
            samples: Vec::new(),
            spans: Vec::new(),
            kept_max: (SAMPLES_MAX, SPANS_MAX),
            dropped: Dropped::default(),
            plane: None,
            actions: Vec::new(),
            refused: 0,
            overflowed: false,
            pending_max: 0,
            model,
            run,
        })
    }

    /// Keeps at most so many samples and spans, instead of the limits.
    pub fn keep_at_most(mut self, samples: usize, spans: usize) -> Simulator {
        self.kept_max = (samples, spans);
        self
    }

    /// Runs to the end and reports.
    pub fn run(mut self, controller: &mut dyn Controller) -> Report {
        let end = self.run.duration.0;
        self.plane(|plane, actions| plane.on_begin(actions));
        self.next_arrival();
        let tick = (end / TICKS).max(1);
        self.schedule(tick, Kind::Tick, 0);
        self.schedule_faults();
        let heartbeat = controller.heartbeat_interval();
        if let Some(interval) = heartbeat {
            self.moves.counts = vec![(0, 0); self.model.shards.len()];
            self.schedule(interval.0, Kind::Heartbeat, 0);
        }
        // Also the warm-up is measured: of a run that breaks off in it, that is all there is to report.
        self.begin_measurement();
        let mut is_warm = self.run.warm_up.0 == 0;
        while let Some(event) = self.queue.pop() {
            if event.time > end || self.overflowed {
                break;
            }
            if !is_warm && event.time >= self.run.warm_up.0 {
                is_warm = true;
                self.now = self.run.warm_up.0;
                self.begin_measurement();
            }
            debug_assert!(event.time >= self.now, "events in the order of time");
            self.now = event.time;
            self.events += 1;
            match event.kind() {
                Kind::Arrive => self.on_arrive(),
                Kind::Switch => self.on_switch(event.of),
                Kind::Port => self.on_port(event.of),
                Kind::PcieIn | Kind::Deliver => self.accept(event.of),
                Kind::PcieOut => self.leave(event.of),
                Kind::Done => self.on_done(event.of),
                Kind::Wake => {
                    let (now, node) = (event.time, event.of);
                    self.plane(|plane, actions| plane.on_wake(now, node, actions));
                }
                Kind::Tick => {
                    self.on_tick(controller);
                    self.schedule(event.time + tick, Kind::Tick, 0);
                }
                Kind::Heartbeat => {
                    self.on_heartbeat(controller);
                    let interval = heartbeat.map_or(end, |i| i.0.max(1));
                    self.schedule(event.time + interval, Kind::Heartbeat, 0);
                }
                Kind::Fault => self.on_fault(event.of),
                Kind::Resend => self.on_resend(event.of),
                Kind::Chunk => self.on_chunk(event.of),
                Kind::Resume => self.on_resume(event.of),
            }
            if !self.outcomes.is_empty() {
                self.report_outcomes(controller);
            }
        }
        if !self.overflowed {
            self.now = end;
        }
        self.check_queues();
        self.report()
    }

    /// Bytes of memory of all that is simulated.
    pub fn memory_bytes(&self) -> usize {
        self.queue.memory_bytes()
            + self.requests.memory_bytes()
            + self.messages.memory_bytes()
            + self.paths.memory_bytes()
            + self.threads.memory_bytes()
            + self.totals.memory_bytes()
            + self.model.memory_bytes()
    }

    #[inline]
    pub(crate) fn schedule(&mut self, at: u64, kind: Kind, of: u32) {
        self.queue.push(Event::new(at, self.number, kind, of));
        self.number += 1;
    }

    fn next_arrival(&mut self) {
        if let Some(at) = self.arrivals.next() {
            self.schedule(at, Kind::Arrive, 0);
        }
    }

    fn on_arrive(&mut self) {
        let slot = self.random.below(u64::from(SLOTS)) as u16;
        let service = self.model.ingress;
        let shard = self.shard(service, slot);
        let to = self.model.shards[shard as usize].primary.node;
        let request = self.requests.add(Request {
            start: self.now as i64 - self.model.client_ns(to) as i64,
            weight_nj: 0.0,
            latency: 0,
            open: 1,
            is_answered: false,
            slot,
            has_failed: false,
        });
        self.totals.arrived += 1;
        self.totals
            .pauses
            .on_sent(self.now, self.requests.len() == 1);
        if self.plane.is_some() {
            self.on_plane_arrive(request, slot);
            return self.next_arrival();
        }
        let id = self.messages.add(Message {
            of: request,
            next: NONE,
            shard,
            service,
            from: slot.into(),
            to,
            is_from_client: true,
            ..Message::default()
        });
        self.overflowed |= self.messages.len() > MESSAGES_MAX;
        self.ingress(id);
        self.next_arrival();
    }

    #[inline]
    fn shard(&self, service: u16, slot: u16) -> u32 {
        let service = &self.model.services[usize::from(service)];
        service.first_shard + u32::from(Slot(slot).shard(service.shards).0)
    }

    /// A message has arrived at its node.
    pub(crate) fn accept(&mut self, id: u32) {
        let message = &self.messages[id];
        if !self.outages.is_calm && self.outages.is_down(message.to) {
            return self.lose(id);
        }
        match message.what {
            What::Ack => {
                let waiting = message.of;
                self.messages.remove(id);
                self.acknowledge(waiting);
            }
            What::Back => self.send_answer(id),
            What::Datagram => {
                let (now, node, token) = (self.now, message.to, message.shard);
                self.messages.remove(id);
                self.plane(|plane, actions| plane.on_datagram(now, node, token, actions));
            }
            What::Chunk => self.on_copied(id),
            _ => self.enqueue(id),
        }
    }

    /// A backup has a message's log entry.
    pub(crate) fn acknowledge(&mut self, waiting: u32) {
        let message = &mut self.messages[waiting];
        message.waits -= 1;
        if message.waits == 0 {
            self.commit(waiting);
        }
    }

    /// A thread has run a message.
    pub(crate) fn handled(&mut self, id: u32) {
        if self.plane.is_some() {
            return self.on_plane_done(id);
        }
        match self.messages[id].what {
            What::Work => {
                let shard = self.model.shards[self.messages[id].shard as usize];
                if shard.backups == 0 {
                    return self.commit(id);
                }
                self.messages[id].waits = shard.backups;
                for i in 0..u32::from(shard.backups) {
                    let backup = self.model.backups[(shard.first_backup + i) as usize];
                    let primary = self.messages[id];
                    let entry = self.messages.add(Message {
                        of: id,
                        from: primary.to,
                        to: backup.node,
                        what: What::Entry,
                        ..primary
                    });
                    self.send(entry);
                }
            }
            What::Entry => {
                let entry = &mut self.messages[id];
                entry.what = What::Ack;
                (entry.from, entry.to) = (entry.to, entry.from);
                self.send(id);
            }
            What::Ack | What::Back | What::Reply | What::Datagram | What::Chunk | What::Ghost => {}
        }
    }

    /// A message is committed: what it sends leaves.
    fn commit(&mut self, id: u32) {
        let message = self.messages[id];
        if !self.outages.is_calm && self.outages.is_down(message.to) {
            return self.lose(id);
        }
        let slot = self.requests[message.of].slot;
        for i in 0..self.model.services[usize::from(message.service)]
            .edges
            .len()
        {
            let edge = &self.model.services[usize::from(message.service)].edges[i];
            let (to, part) = (edge.to, edge.part);
            let more = part > 0.0 && self.random.unit() < part;
            for _ in 0..edge.whole + u32::from(more) {
                let shard = self.shard(to, slot);
                let next = self.messages.add(Message {
                    of: message.of,
                    next: NONE,
                    shard,
                    service: to,
                    from: message.to,
                    to: self.model.shards[shard as usize].primary.node,
                    ..Message::default()
                });
                self.requests[message.of].open += 1;
                self.send(next);
            }
        }
        let request = &mut self.requests[message.of];
        request.open -= 1;
        let answers = self.model.options.answered_by == Some(ServiceId(message.service));
        let waits = !request.is_answered && !request.has_failed;
        if waits && (answers || request.open == 0) {
            request.is_answered = true;
            request.open += 1;
            return self.send_answer(id);
        }
        self.messages.remove(id);
        self.end_if_over(message.of);
    }

    /// The answer goes to the node that took the request, which answers the client.
    pub(crate) fn send_answer(&mut self, id: u32) {
        let slot = self.requests[self.messages[id].of].slot;
        let shard = self.shard(self.model.ingress, slot);
        let ingress = self.model.shards[shard as usize].primary.node;
        let answer = &mut self.messages[id];
        answer.from = answer.to;
        if answer.from == ingress {
            answer.what = What::Reply;
            answer.to = slot.into();
            self.depart(id);
        } else {
            answer.what = What::Back;
            answer.to = ingress;
            self.send(id);
        }
    }

    /// The answer of a request has left its last node and reaches the client at a time.
    pub(crate) fn answer(&mut self, id: u32, mut at: u64) {
        let of = self.messages[id].of;
        self.messages.remove(id);
        if let Some(machine) = &self.model.options.machine {
            at += machine.tail.sample(&mut self.random);
        }
        let request = &mut self.requests[of];
        request.latency = (at as i64 - request.start) as u64;
        self.close(of);
    }

    /// A message of a request is over.
    pub(crate) fn close(&mut self, of: u32) {
        let request = &mut self.requests[of];
        request.open -= 1;
        self.end_if_over(of);
    }

    /// Removes a request that has no message left.
    pub(crate) fn end_if_over(&mut self, of: u32) {
        let request = self.requests[of];
        match request.open {
            0 if request.has_failed => self.end_failed(of),
            0 => self.finish(of),
            _ => (),
        }
    }

    /// A request is answered and all of its messages are committed.
    fn finish(&mut self, of: u32) {
        let request = self.requests[of];
        self.requests.remove(of);
        let latency = Some(request.latency).filter(|l| *l < u64::MAX);
        self.totals.pauses.on_outcome(self.now, latency);
        if request.latency == u64::MAX {
            self.totals.other_weight_nj += request.weight_nj;
            return;
        }
        self.totals.done += 1;
        if request.start < self.totals.begin.at as i64 {
            self.totals.other_weight_nj += request.weight_nj;
            return;
        }
        let latency = request.latency;
        self.totals.latency.saturating_record(latency);
        self.totals.latency_sum += latency as f64;
        self.totals.late += u64::from(latency > self.model.latency_max_ns);
        self.totals.request_weight_nj += request.weight_nj;
        if !self.run.samples {
            return;
        }
        if self.samples.len() == self.kept_max.0 {
            self.dropped.samples += 1;
            return;
        }
        self.samples.push(Sample {
            start_ns: request.start as u64,
            latency_ns: latency,
            joules: request.weight_nj,
        });
    }

    pub(crate) fn note(&mut self, span: Span) {
        if self.spans.len() == self.kept_max.1 {
            self.dropped.spans += 1;
            return;
        }
        self.spans.push(span);
    }

    fn on_tick(&mut self, controller: &mut dyn Controller) {
        self.pending_max = self.pending_max.max(self.queue.len());
        self.check_queues();
        let loads = self.node_loads();
        controller.on_loads(Nanos(self.now), &loads);
    }

    /// # Panics
    /// If Little's law does not hold on a queue: the simulator is wrong.
    fn check_queues(&mut self) {
        assert!(
            self.threads_obey_little()
                && self.paths.obeys_little(self.now, &self.messages)
                && self.moves.obeys_little(self.now, &self.messages),
            "Little's law holds on every queue at {} ns",
            self.now
        );
    }
}

fn outages(model: &Model) -> Outages {
    let guesses = &model.options.guesses;
    let uplinks = guesses.uplinks_per_rack.round() as usize;
    let detection_ns = (guesses.link_detection_ms * 1e6) as u64;
    Outages::new(model.nodes.len(), model.racks, uplinks, detection_ns)
}

impl Run {
    fn validate(&self) -> Result<(), ModelError> {
        self.load.validate()?;
        let wrong = |what, ns: Nanos, bound| {
            Err(ModelError::Time {
                what,
                ns: ns.0,
                bound,
            })
        };
        if self.duration.0 == 0 || self.duration > crate::limits::DURATION_MAX {
            return wrong("duration", self.duration, "above 0 and at most 48 h");
        }
        if self.warm_up >= self.duration {
            return wrong("warm-up", self.warm_up, "shorter than the run");
        }
        Ok(())
    }
}
