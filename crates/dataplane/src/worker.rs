//! The worker: what one core of a node does with messages, as one state machine.
//!
//! The driver passes in datagrams, plans, completions and the time, then drains
//! [`Worker::poll_output`] and comes back at [`Worker::next_deadline`]. The real node and the
//! simulator drive the same code. Replicas decide; the worker routes: frames to them, their effects
//! to channels, ingress and executor. A turn costs what happened in it: replicas and channel ends
//! are called when something came for them or their timer fired, and looked at by number.

mod clients;
mod plan;
mod report;

use crate::app::{App, ReplicaId};
use crate::check::LinkCheck;
use crate::config::Config;
use crate::ingress::Ingress;
use crate::lease::Leases;
use crate::limits::*;
use crate::links::{Data, EndId, Links, Tag};
use crate::packer::Packer;
use crate::primary::Primary;
use crate::replica::Replica;
use crate::shard::{Context, Counts, Effect, Turn, World};
use crate::timers::{Timer, Timers};
use e3_channel::Number;
use e3_collections::State;
use e3_invocation::{Completion, Invocation};
use e3_model::{Address, AppId, DropReason, Nanos, NodeId, RequestId, ShardKey, Timestamp};
use e3_wire::codec::Reader;
use e3_wire::datagram::{Header, Kind, open, seal};
use e3_wire::entry::Reply;
use e3_wire::frame::{Ends, Frame, Link};
use slab::Slab;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

pub use report::Health;

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
    /// Answer a request that came by [`Worker::handle_request`].
    Answer {
        /// The application.
        app: AppId,
        /// The request.
        id: RequestId,
        /// The answer.
        reply: Reply,
    },
    /// Make an instance of the shard's service ready.
    Start {
        /// The shard.
        key: ShardKey,
        /// Its collections. The executor applies a handler's writes and reports it done at once,
        /// with no other input between: a snapshot must hold what is logged, no more.
        state: Rc<RefCell<State>>,
    },
    /// Drop the instance and what it has been given.
    Stop {
        /// The shard.
        key: ShardKey,
    },
    /// Run the handler of the shard's service.
    Execute {
        /// The shard.
        key: ShardKey,
        /// What the handler is given.
        invocation: Invocation,
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
    /// Primaries whose backups do not know what was released.
    released: Vec<ReplicaId>,
    /// Of the transition that runs.
    effects: Vec<Effect>,
    freed: Vec<Tag>,
    links: Links,
    packer: Packer,
    timers: Timers,
    ingress: Ingress,
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
        Worker {
            world: World {
                config,
                now: Timestamp::ZERO,
                plan: Arc::default(),
                apps: BTreeMap::new(),
                leases: Leases::default(),
                memory_full: None,
            },
            replicas: Slab::new(),
            past: BTreeMap::new(),
            ready: VecDeque::new(),
            released: Vec::new(),
            effects: Vec::new(),
            freed: Vec::new(),
            links: Links::default(),
            packer: Packer::new(config.node, config.cluster, config.incarnation),
            timers,
            ingress: Ingress::default(),
            outputs: VecDeque::new(),
            client_open: BTreeMap::new(),
            generation: 0,
            dropped: BTreeMap::new(),
            datagrams_in: 0,
            datagrams_out: 0,
        }
    }

    /// Takes a datagram. Whatever it holds, at worst it is counted and dropped.
    pub fn handle_datagram(&mut self, now: Timestamp, from: Address, bytes: &[u8]) {
        self.world.now = now;
        self.datagrams_in += 1;
        let taken = match open(bytes) {
            Err(e) => Err(e.drop_reason()),
            Ok((_, reader)) if reader.is_empty() => Err(DropReason::Empty),
            Ok((Header::CLIENT, mut reader)) => self.on_client(from, &mut reader),
            Ok((header, mut reader)) => match header.kind {
                Kind::Peer => self.on_peer(&header, &mut reader),
                Kind::Client => Err(DropReason::Header),
                Kind::Heartbeat => Err(DropReason::Kind),
            },
        };
        self.count(taken);
    }

    /// Counts something that came and was not taken.
    fn drop_for(&mut self, reason: DropReason) {
        *self.dropped.entry(reason).or_default() += 1;
    }

    fn count(&mut self, taken: Result<(), DropReason>) {
        if let Err(reason) = taken {
            self.drop_for(reason);
        }
    }

    fn on_peer(&mut self, h: &Header, r: &mut Reader<'_>) -> Result<(), DropReason> {
        if h.cluster != self.world.config.cluster {
            return Err(DropReason::Cluster);
        }
        if h.to_incarnation != self.world.config.incarnation {
            return Err(DropReason::Incarnation);
        }
        match self.world.plan.peers.get(&h.from) {
            Some(peer) if peer.incarnation == h.incarnation => {}
            _ => return Err(DropReason::Sender),
        }
        while !r.is_empty() {
            let frame = Frame::decode(r).map_err(|_| DropReason::Frame)?;
            let taken = self.on_frame(h, frame);
            self.count(taken);
        }
        Ok(())
    }

    fn on_frame(&mut self, h: &Header, frame: Frame<'_>) -> Result<(), DropReason> {
        match frame {
            Frame::Data {
                link,
                epoch,
                seq,
                behind,
                body,
            } => {
                let data = Data {
                    from: h.from,
                    key: self.check_link(h, &link)?,
                    link,
                    number: Number { epoch, seq },
                    behind,
                    body,
                };
                self.on_data(&data)
            }
            Frame::Ack { link, ack } => {
                let app = self.world.apps.get(&link.app).ok_or(DropReason::Link)?;
                let from = (h.from, link);
                let (now, mut freed) = (self.world.now, std::mem::take(&mut self.freed));
                let confused = self.links.on_ack(now, app, from, &ack, &mut freed);
                for tag in freed.drain(..) {
                    self.on_freed(tag);
                }
                self.freed = freed;
                if let Some(epoch) = confused? {
                    self.restart(&link, epoch);
                }
                Ok(())
            }
            Frame::LeaseRequest { sent, plan_version } => {
                if self.may_need_lease(h.from, plan_version)
                    && self
                        .world
                        .leases
                        .on_request(self.world.now, h.from, plan_version)
                {
                    self.packer.frame(h.from, &Frame::LeaseGrant { sent });
                }
                Ok(())
            }
            Frame::LeaseGrant { sent } => self.on_grant(h.from, sent),
            Frame::Reply {
                app,
                request,
                attempt,
                reply,
            } => self.on_reply(app, request, attempt, reply),
        }
    }

    fn check_link(&self, header: &Header, link: &Link) -> Result<ShardKey, DropReason> {
        let check = LinkCheck {
            app: self.world.apps.get(&link.app).ok_or(DropReason::Link)?,
            config: &self.world.config,
            header,
        };
        check.check(link, |key| {
            let id = check.app.replica(key)?;
            let replica = &self.replicas.get(id.at())?.replica;
            Some((replica.role(), replica.shard.incarnation))
        })
    }

    fn on_data(&mut self, data: &Data<'_>) -> Result<(), DropReason> {
        let app = self.world.apps.get(&data.key.app).ok_or(DropReason::Link)?;
        let id = app.replica(data.key).ok_or(DropReason::View)?;
        let (now, timers) = (self.world.now, &mut self.timers);
        if let Some(end) = self.links.on_data(now, timers, app, data)?
            && let Some(hosted) = self.replicas.get_mut(id.at())
        {
            hosted.inputs.push_back(end);
        }
        if let Ends::Replication { .. } = data.link.ends {
            self.take_stream(id);
        } else {
            self.make_ready(id);
        }
        Ok(())
    }

    /// A backup takes what has arrived from its primary.
    fn take_stream(&mut self, id: ReplicaId) {
        let Some((hosted, cx)) = hosted(&mut self.replicas, &self.world, id) else {
            return;
        };
        let (key, timers, links) = (hosted.replica.shard.key, &mut self.timers, &mut self.links);
        while let Some((delivery, body)) = links.pop(key, &mut hosted.inputs) {
            if hosted.replica.on_item(&cx, &body).is_ok() {
                links.complete(cx.now, timers, &delivery, Nanos::ZERO);
            } else {
                // Not acknowledged, so never counted as a copy. The primary begins again with a
                // snapshot.
                *self.dropped.entry(DropReason::Replication).or_default() += 1;
                links.ask_again(cx.now, timers, &delivery);
            }
        }
    }

    /// Begins a new epoch of a channel whose ends do not fit together. A replication stream begins
    /// with a snapshot again.
    fn restart(&mut self, link: &Link, epoch: u32) {
        self.drop_for(DropReason::Channel);
        let Some(app) = self.world.apps.get(&link.app) else {
            return;
        };
        let Ends::Replication {
            service,
            shard,
            backup,
        } = link.ends
        else {
            return self.links.restart(self.world.now, app, link, epoch);
        };
        let app = link.app;
        let key = ShardKey {
            app,
            service,
            shard,
        };
        if let Some(id) = self.find(key) {
            self.primary(id, |p, turn| {
                p.streams.restart(turn, p.commit, backup, epoch);
            });
        }
    }

    fn on_freed(&mut self, tag: Tag) {
        match tag {
            Tag::None => {}
            Tag::Output(id, op) => self.primary(id, |p, turn| p.on_output_durable(turn, op)),
            Tag::Replicated(id, node, op) => self.primary(id, |p, turn| {
                let log_op = turn.shard.log.op;
                p.streams.on_durable(node, op, p.commit, log_op);
                p.advance(turn);
            }),
        }
    }

    /// A node grants its lease. What had to wait for it goes on.
    fn on_grant(&mut self, from: NodeId, sent: Timestamp) -> Result<(), DropReason> {
        let held_before = self.world.leases.holds(self.world.now, from);
        if !self.world.leases.on_grant(from, sent) {
            return Err(DropReason::Lease);
        }
        if !held_before {
            self.wake_all();
        }
        Ok(())
    }

    /// Takes what the executor made of a message.
    pub fn handle_completion(&mut self, now: Timestamp, key: ShardKey, done: Completion) {
        self.world.now = now;
        if let Some(id) = self.find(key) {
            self.primary(id, |p, turn| p.on_completion(turn, done));
        }
    }

    /// Does what is due: dispatches, retransmits, packs. The driver calls it after it has passed in
    /// all that it had, and whenever [`Worker::next_deadline`] has come.
    pub fn handle_tick(&mut self, now: Timestamp) {
        self.world.now = now;
        while let Some(timer) = self.timers.pop_due(now) {
            self.on_timer(timer);
        }
        loop {
            while let Some(id) = self.ready.pop_front() {
                self.dispatch(id);
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
            seal(&mut bytes);
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
            Timer::Replica(id) => self.primary(id, |p, turn| p.advance(turn)),
            Timer::Released => {
                for id in std::mem::take(&mut self.released) {
                    if let Some(hosted) = self.replicas.get_mut(id.at()) {
                        hosted.has_released = false;
                    }
                    self.primary(id, |p, turn| p.streams.tell_released(turn));
                }
            }
            Timer::Leases => {
                self.timers
                    .set(self.world.now + LEASE_INTERVAL, Timer::Leases);
                self.request_leases();
                self.ingress.forget(self.world.now);
            }
        }
    }

    /// Whether a node that has applied `plan_version` may need this one's lease: by this node's plan
    /// it is the primary of a replica here, or it knows more than this node.
    fn may_need_lease(&self, node: NodeId, plan_version: u64) -> bool {
        let is_backup_of = |replica: &Replica| {
            let key = replica.shard.key;
            let app = self.world.apps.get(&key.app);
            replica.as_primary().is_none() && app.is_some_and(|a| a.shard(key).primary == node)
        };
        let mut replicas = self.replicas.iter().map(|(_, h)| &h.replica);
        plan_version > self.world.plan.version || replicas.any(is_backup_of)
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

    /// Notes that the node's memory is used up, and how much it is, or that it is not.
    pub fn set_memory_full(&mut self, reason: Option<String>) {
        self.world.memory_full = reason;
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

/// A replica, and the world around it.
fn hosted<'a>(
    replicas: &'a mut Slab<Hosted>,
    world: &'a World,
    id: ReplicaId,
) -> Option<(&'a mut Hosted, Context<'a>)> {
    let hosted = replicas.get_mut(id.at())?;
    let cx = world.context(hosted.replica.shard.key.app)?;
    Some((hosted, cx))
}

/// Routing.
impl Worker {
    fn find(&self, key: ShardKey) -> Option<ReplicaId> {
        self.world.apps.get(&key.app)?.replica(key)
    }

    /// Runs a transition of a primary, does what it asks for, and sees that its messages go on.
    fn primary(&mut self, id: ReplicaId, transition: impl FnOnce(&mut Primary, &mut Turn<'_>)) {
        let Some((hosted, cx)) = hosted(&mut self.replicas, &self.world, id) else {
            return;
        };
        let effects = &mut self.effects;
        let Some((primary, mut turn)) = hosted.replica.primary(&cx, effects) else {
            return;
        };
        transition(primary, &mut turn);
        self.route(id);
        self.make_ready(id);
    }

    /// Has a replica dispatched in this turn, if messages wait for it.
    fn make_ready(&mut self, id: ReplicaId) {
        let Some(hosted) = self.replicas.get_mut(id.at()) else {
            return;
        };
        let waits = |p: &Primary| p.has_waiting() || !hosted.inputs.is_empty();
        if !hosted.is_ready && hosted.replica.as_primary().is_some_and(waits) {
            hosted.is_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Something has changed that any primary may have waited for.
    fn wake_all(&mut self) {
        let ids: Vec<ReplicaId> = self.world.apps.values().flat_map(App::replicas).collect();
        for id in ids {
            self.primary(id, |p, turn| p.advance(turn));
        }
    }

    /// Gives a primary messages and lets it hand them to the executor, as long as something moves.
    fn dispatch(&mut self, id: ReplicaId) {
        let Some((hosted, cx)) = hosted(&mut self.replicas, &self.world, id) else {
            return;
        };
        hosted.is_ready = false;
        let key = hosted.replica.shard.key;
        let Some((primary, mut turn)) = hosted.replica.primary(&cx, &mut self.effects) else {
            return;
        };
        loop {
            while primary.has_room()
                && let Some((delivery, body)) = self.links.pop(key, &mut hosted.inputs)
            {
                primary.on_message(&mut turn, delivery, &body);
            }
            let before = primary.has_room();
            primary.dispatch(&mut turn);
            if before || !primary.has_room() {
                break;
            }
        }
        self.route(id);
    }

    /// Does what a replica asks for.
    fn route(&mut self, id: ReplicaId) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            self.perform(id, effect);
        }
        self.effects = effects;
    }

    fn perform(&mut self, id: ReplicaId, effect: Effect) {
        let Some(hosted) = self.replicas.get_mut(id.at()) else {
            return;
        };
        let key = hosted.replica.shard.key;
        let Some(app) = self.world.apps.get(&key.app) else {
            return;
        };
        let (now, links) = (self.world.now, &mut self.links);
        match effect {
            Effect::Start(state) => self.outputs.push_back(Output::Start { key, state }),
            Effect::Run(invocation) => self.outputs.push_back(Output::Execute { key, invocation }),
            Effect::Complete { delivery, delay } => {
                links.complete(now, &mut self.timers, &delivery, delay);
            }
            Effect::Send { link, to, body, op } => {
                let tag = op.map_or(Tag::None, |op| Tag::Output(id, op));
                links.send(app, link, to, body, tag);
            }
            Effect::BeginStream {
                link,
                backup,
                epoch,
            } => links.begin(now, app, link, backup, epoch),
            Effect::Replicate {
                link,
                backup,
                body,
                op,
            } => {
                let tag = op.map_or(Tag::None, |op| Tag::Replicated(id, backup, op));
                links.send(app, link, backup, body, tag);
            }
            Effect::EndStream(gone) => {
                links.drop_senders(|l| (l.app, l.ends) == (gone.app, gone.ends));
            }
            Effect::Reply {
                asked,
                request,
                reply,
            } => self.send_reply(key.app, asked, request, reply),
            Effect::WakeAt(at) => self.timers.set(at, Timer::Replica(id)),
            Effect::Released => {
                if !std::mem::replace(&mut hosted.has_released, true) {
                    if self.released.is_empty() {
                        self.timers.set(now + RELEASED_INTERVAL, Timer::Released);
                    }
                    self.released.push(id);
                }
            }
            Effect::Drop(reason) => self.drop_for(reason),
        }
    }

    /// Panics if an invariant is broken; called between two turns. Nothing that could go on waits,
    /// and whatever becomes due has a timer.
    pub fn validate(&self) {
        self.links.validate();
        for (at, hosted) in &self.replicas {
            let key = hosted.replica.shard.key;
            assert_eq!(self.find(key).map(ReplicaId::at), Some(at), "{key}: place");
            let cx = self
                .world
                .context(key.app)
                .expect("its application is here");
            hosted.replica.validate(&cx, hosted.is_ready);
            let room = hosted.replica.as_primary().is_none_or(Primary::has_room);
            assert!(
                !room || hosted.inputs.is_empty(),
                "{key}: messages wait in the channels"
            );
        }
    }
}
