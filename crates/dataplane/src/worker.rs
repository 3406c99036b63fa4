//! The worker: what one core of a node does with messages, as one state machine.
//!
//! The driver passes in datagrams, plans, completions and the time, then drains
//! [`Worker::poll_output`] and comes back at [`Worker::next_deadline`]. The real node and the
//! simulator drive the same code. Replicas decide; the worker routes: frames to them, their effects
//! to channels, ingress and executor. A turn costs what happened in it: replicas and channel ends
//! are called when something came for them or their timer fired, and looked at by number.

mod calls;
mod clients;
mod disk;
mod frames;
mod interest;
mod outbound;
mod plan;
mod report;
mod reshard;
mod restore;
mod routing;
mod traffic;

use crate::app::ReplicaId;
use crate::config::Config;
use crate::ends::EndId;
use crate::ingress::Ingress;
use crate::interest::Interest;
use crate::journal::Journal;
use crate::lease::Leases;
use crate::links::{Links, Tag};
use crate::outbound::{HttpAsk, Passage};
use crate::packer::Packer;
use crate::publications::Subscribers;
use crate::reach::{ClockCheck, Reach};
use crate::recovery::Copy;
use crate::replica::Replica;
use crate::restore::Reading;
use crate::shard::{Counts, Effect, World};
use crate::timers::{Timer, Timers};
use e3_collections::State;
use e3_invocation::{CallAnswer, Completion, Invocation};
use e3_model::backup::Part;
use e3_model::timing::LEASE_INTERVAL;
use e3_model::{Address, AppId, DropReason, NodeId, RequestId, ShardKey, Timestamp};
use e3_wire::codec::Reader;
use e3_wire::datagram::{Header, seal};
use e3_wire::entry::Reply;
use e3_wire::frame::Frame;
use slab::Slab;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

pub use report::{Beside, Health, Kept};
pub use traffic::Work;

/// What the driver must do.
#[derive(Debug)]
pub enum Output {
    /// Send a datagram.
    Send {
        /// Where to.
        to: Address,
        /// Its bytes; [`Worker::recycle`] takes the buffer back.
        bytes: Vec<u8>,
    },
    /// Send a datagram on that came by [`Worker::handle_relayed`].
    Relay {
        /// Where from.
        from: Address,
        /// Where to.
        to: Address,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Answer a request that came by [`Worker::handle_request`].
    Answer {
        /// The application.
        app: AppId,
        /// The request.
        id: RequestId,
        /// The answer.
        reply: Reply,
    },
    /// Make a request over HTTP for a service. [`Worker::on_http_answer`] takes the answer. On failures
    /// to connect, and on answers that say so, the driver repeats it until its deadline. If it cannot
    /// begin now, it answers [`e3_wire::entry::Outcome::Overloaded`] and is asked again.
    Http(HttpAsk),
    /// Make no more attempts at a request over HTTP: nobody waits for its answer.
    HttpCancel {
        /// That of its [`HttpAsk`].
        ticket: u64,
    },
    /// Make an instance of the shard's service ready.
    Start {
        /// The shard.
        key: ShardKey,
        /// Its collections. The executor applies a handler's writes and reports it done, with no
        /// plan, datagram or tick between: a snapshot must hold what is logged, no more.
        state: Rc<RefCell<State>>,
    },
    /// Drop the instance and what it has been given, before any other handler runs: its state may be a backup's now.
    Stop {
        /// The shard.
        key: ShardKey,
    },
    /// Free the collections of a replica that is not here any more. That takes long if they have many
    /// entries, so a driver does it beside its loop.
    Discard {
        /// The collections; an instance that ran on them has been stopped before.
        state: Rc<RefCell<State>>,
    },
    /// Run the handler of the shard's service.
    Execute {
        /// The shard.
        key: ShardKey,
        /// What the handler is given.
        invocation: Invocation,
    },
    /// Hand a handler the answer to its call, see [`Worker::handle_call`].
    CallAnswer {
        /// The shard whose handler waits.
        key: ShardKey,
        /// Token of its invocation, and index of the call.
        awaited: (u64, u32),
        /// What the call brings.
        answer: CallAnswer,
    },
    /// Append a record to the journal. [`Worker::handle_journaled`] takes how far it is durable.
    Journal {
        /// Its number: one more than that of the record before.
        number: u64,
        /// Its content.
        record: Vec<u8>,
    },
    /// Send bytes of a shard's part of a backup to the controller. [`Worker::handle_exported`] takes
    /// how many have left.
    Export {
        /// The shard.
        key: ShardKey,
        /// Number of the backup.
        number: u64,
        /// Place of the first byte in the part.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Fetch the state with which a shard begins, for [`Worker::handle_part`].
    Fetch {
        /// The shard.
        key: ShardKey,
        /// Number of this order: an earlier one may still be on its way.
        order: u64,
        /// Number of the parts at the controller.
        number: u64,
        /// Which part.
        part: Part,
    },
    /// No record before this one is needed.
    TrimJournal {
        /// The first that is.
        before: u64,
    },
}

/// A replica, and what the worker knows of its work.
#[derive(Debug)]
struct Hosted {
    replica: Replica,
    /// Channel ends with messages for it.
    inputs: VecDeque<EndId>,
    /// In `Worker::ready`.
    is_ready: bool,
    /// In `Worker::released`.
    has_released: bool,
    /// Its runs that occupy an emulated core although their handlers are done.
    held: usize,
}

/// One worker core.
#[derive(Debug)]
pub struct Worker {
    world: World,
    replicas: Slab<Hosted>,
    /// What was done as the primary of shards that have no replica here any more.
    past: BTreeMap<ShardKey, Counts>,
    /// Primaries with messages that may be handled now.
    ready: VecDeque<ReplicaId>,
    /// Primaries with messages for which no core of an emulated node is free.
    waiting_for_core: VecDeque<ReplicaId>,
    /// What stands for the hardware of an emulated node.
    emulated: Option<traffic::Emulated>,
    /// Since [`Worker::take_work`].
    work: Work,
    /// Primaries whose backups do not know what was released.
    released: Vec<ReplicaId>,
    /// Of the transition that runs.
    effects: Vec<Effect>,
    freed: Vec<Tag>,
    links: Links,
    calls: calls::Calls,
    packer: Packer,
    timers: Timers,
    reach: Reach,
    journal: Journal,
    /// What was on disk, until a plan says what becomes of it.
    recovered: BTreeMap<ShardKey, Copy>,
    /// Shards that wait for their state.
    restoring: BTreeMap<ShardKey, Reading>,
    /// Orders for the states of shards so far.
    fetches: u64,
    ingress: Ingress,
    interest: Interest,
    passage: Passage,
    outputs: VecDeque<Output>,
    /// Answers to clients on their way into datagrams.
    client_open: BTreeMap<Address, Vec<u8>>,
    /// Primaries so far.
    generation: u32,
    dropped: BTreeMap<DropReason, u64>,
    datagrams_in: u64,
    datagrams_out: u64,
}

impl Worker {
    /// A worker without a plan.
    pub fn new(config: Config) -> Worker {
        let mut timers = Timers::default();
        timers.set(Timestamp::ZERO, Timer::Leases);
        timers.set(Timestamp::ZERO, Timer::Probes);
        Worker {
            world: World {
                config,
                now: Timestamp::ZERO,
                plan: Arc::default(),
                apps: BTreeMap::new(),
                subscribers: Subscribers::default(),
                leases: Leases::default(),
                memory_full: None,
                recovered_at: Timestamp::ZERO,
                clock: ClockCheck::Right,
            },
            replicas: Slab::new(),
            past: BTreeMap::new(),
            ready: VecDeque::new(),
            waiting_for_core: VecDeque::new(),
            emulated: config.emulated.map(|e| traffic::Emulated::new(e.cores)),
            work: Work::default(),
            released: Vec::new(),
            effects: Vec::new(),
            freed: Vec::new(),
            links: Links::default(),
            calls: calls::Calls::default(),
            packer: Packer::new(config.node, config.cluster, config.incarnation),
            timers,
            reach: Reach::default(),
            journal: Journal::new(),
            recovered: BTreeMap::new(),
            restoring: BTreeMap::new(),
            fetches: 0,
            ingress: Ingress::default(),
            interest: Interest::default(),
            passage: Passage::default(),
            outputs: VecDeque::new(),
            client_open: BTreeMap::new(),
            generation: 0,
            dropped: BTreeMap::new(),
            datagrams_in: 0,
            datagrams_out: 0,
        }
    }

    /// Takes what the executor made of a message.
    pub fn handle_completion(&mut self, now: Timestamp, key: ShardKey, done: Completion) {
        self.world.now = now;
        let occupied = self.occupy(key, &done);
        if let Some(done) = self.hold(key, done, occupied) {
            self.complete(key, done, occupied);
        }
    }

    /// Does what is due: dispatches, retransmits, packs. The driver calls it after it has passed in
    /// all that it had, and whenever [`Worker::next_deadline`] has come.
    pub fn handle_tick(&mut self, now: Timestamp) {
        self.world.now = now;
        while let Some(timer) = self.timers.pop_due(now) {
            self.on_timer(timer);
        }
        self.complete_held();
        self.go_on_with_cores();
        loop {
            loop {
                if let Some(id) = self.ready.pop_front() {
                    self.dispatch(id);
                } else if !self.pass_traffic() && !self.pass_outbound() {
                    break;
                }
            }
            self.links.flush(now, &mut self.timers, &mut self.packer);
            let Some(bytes) = self.packer.pop_local() else {
                break;
            };
            let mut reader = Reader(&bytes);
            let header = Header::decode(&mut reader);
            let taken = header.map_err(|_| DropReason::Header);
            let taken = taken.and_then(|header| self.on_peer(&header, &mut reader));
            self.count(taken);
            self.packer.recycle(bytes);
        }
        while let Some((to, bytes)) = self.packer.remote.pop_front() {
            self.outputs.push_back(Output::Send { to, bytes });
        }
        while let Some((to, mut bytes)) = self.client_open.pop_first() {
            seal(self.world.config.client_format(), &mut bytes);
            self.outputs.push_back(Output::Send { to, bytes });
        }
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Ack(end) => self.links.on_ack_timer(end),
            Timer::Retransmit(end) => {
                if let Some((link, epoch)) = self.links.on_retransmit_timer(self.world.now, end) {
                    self.restart(&link, epoch);
                }
            }
            Timer::Replica(id) => self.primary(id, |p, turn| {
                p.streams.pump(turn);
                p.pump_export(turn);
                p.advance(turn);
                p.expire(turn);
                p.ask_again(turn);
                p.publish_again(turn);
                p.remove_confirmed(turn);
                p.settle_declared(turn);
                p.arm(turn);
            }),
            Timer::Call(token) => self.on_call_timer(token),
            Timer::Released => {
                for id in std::mem::take(&mut self.released) {
                    if let Some(hosted) = self.replicas.get_mut(id.at()) {
                        hosted.has_released = false;
                    }
                    self.primary(id, |p, turn| p.streams.tell_released(turn));
                }
            }
            // The tick in which it fires lets go on what waits for a core.
            Timer::Core => {}
            Timer::Checkpoint => self.checkpoint(),
            Timer::Probes => {
                let now = self.world.now;
                let (this, peers) = (self.world.config.node, &self.world.plan.peers);
                let next = now + Reach::period(peers.len());
                self.timers.set(next, Timer::Probes);
                for node in self.reach.ask(now, this, peers) {
                    self.packer.frame(node, &Frame::Probe { sent: now });
                }
                self.check_clock();
            }
            Timer::Leases => {
                self.timers
                    .set(self.world.now + LEASE_INTERVAL, Timer::Leases);
                self.request_leases();
                self.ingress.forget(self.world.now);
                self.refuse_held();
                self.lose_interest();
            }
        }
    }

    /// Takes the time that the controller's clock showed between `sent`, when this process asked to
    /// join, and `now`.
    pub fn handle_controller_time(&mut self, now: Timestamp, sent: Timestamp, theirs: Timestamp) {
        self.reach.on_controller_time(now, sent, theirs);
    }

    /// Stops or resumes all work as this node's clock is wrong or right.
    fn check_clock(&mut self) {
        let peers = self.world.plan.peers.keys();
        let others = peers.filter(|n| **n != self.world.config.node).count();
        let clock = self.reach.check_clock(others);
        let before = std::mem::replace(&mut self.world.clock, clock);
        if before != clock && clock == ClockCheck::Right {
            self.wake_all();
        }
    }

    /// Whether this node's clock is far from most others', so that it serves nothing.
    pub fn is_clock_off(&self) -> bool {
        self.world.clock == ClockCheck::Off
    }

    fn request_leases(&mut self) {
        let primaries = self.replicas.iter().map(|(_, h)| &h.replica);
        let primaries = primaries.filter_map(Replica::as_primary);
        let backups: BTreeSet<NodeId> = primaries
            .flat_map(|p| p.streams.iter().map(|(node, _)| node))
            .collect();
        let frame = Frame::LeaseRequest {
            sent: self.world.now,
            plan_version: self.world.plan.version,
        };
        for node in backups {
            self.world.leases.on_asked(self.world.now, node);
            self.packer.frame(node, &frame);
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        if matches!(output, Some(Output::Send { .. })) {
            self.datagrams_out += 1;
        }
        output
    }

    /// Takes back the buffer of a datagram that was sent.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.packer.recycle(buffer);
    }

    /// When [`Worker::handle_tick`] wants to be called, at the latest.
    pub fn next_deadline(&self) -> Timestamp {
        self.timers.next().unwrap_or(Timestamp::MAX)
    }

    /// Peers that could be reached, there and back, and cannot now. A node whose clock is wrong serves
    /// nobody, and names itself too.
    pub fn unreachable(&self) -> Vec<NodeId> {
        let mut unreachable = self.reach.unreachable();
        if self.is_clock_off() {
            unreachable.push(self.world.config.node);
        }
        unreachable
    }

    /// Notes that the node's memory is used up, and how much it is, or that it is not.
    pub fn set_memory_full(&mut self, reason: Option<String>) {
        self.world.memory_full = reason;
    }

    /// Notes that the shard's service may start now, or that not all that it needs is here. Until then its
    /// messages wait. An earlier start that failed does not matter any more.
    pub fn handle_startable(&mut self, now: Timestamp, key: ShardKey, is_startable: bool) {
        self.world.now = now;
        if let Some(id) = self.find(key) {
            self.primary(id, |p, turn| {
                p.is_startable = is_startable;
                turn.shard.error = None;
            });
        }
    }

    /// Notes that the shard's service does not run here, and why.
    pub fn handle_start_failed(&mut self, key: ShardKey, error: String) {
        let id = self.find(key);
        if let Some(hosted) = id.and_then(|id| self.replicas.get_mut(id.at())) {
            hosted.replica.shard.error = Some(error);
        }
    }

    /// The shard's collections, if there is a replica here.
    pub fn state(&self, key: ShardKey) -> Option<Rc<RefCell<State>>> {
        let hosted = self.replicas.get(self.find(key)?.at())?;
        Some(hosted.replica.shard.log.state.clone())
    }
}
