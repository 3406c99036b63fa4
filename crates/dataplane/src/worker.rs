//! The worker: what one core of a node does with messages, as one state machine.
//!
//! The driver passes in datagrams, plans, results of handlers and the time, then drains
//! [`Worker::poll_output`] and comes back at [`Worker::next_deadline`]. The real node and the
//! simulator drive the same code.

use crate::app::App;
use crate::ingress::Ingress;
use crate::lease::Leases;
use crate::limits::*;
use crate::links::{LinkKey, Links, Tag};
use crate::replica::{Counts, Replica};
use e3_channel::{Arrival, Number};
use e3_collections::State;
use e3_invocation::Invocation;
use e3_model::plan::{NodePlan, Role};
use e3_model::{Address, AppId, NodeId, NodeKind, RequestId, ShardKey, Timestamp};
use e3_wire::codec::Reader;
use e3_wire::datagram::{Header, Kind, open, seal};
use e3_wire::entry::Reply;
use e3_wire::frame::{Ends, Frame, Link};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// Who this worker is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The node.
    pub node: NodeId,
    /// Its process.
    pub incarnation: u32,
    /// Its cluster.
    pub cluster: u64,
    /// Kind of node that it is or stands for.
    pub kind: NodeKind,
    /// Whether services take as many times longer as the plan's slowdown says, by idling.
    pub slowed: bool,
}

/// What the driver must do.
#[derive(Debug)]
pub enum Output {
    /// Send a datagram.
    Send {
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

/// One worker core.
#[derive(Debug)]
pub struct Worker {
    pub(crate) config: Config,
    pub(crate) now: Timestamp,
    pub(crate) plan: Arc<NodePlan>,
    pub(crate) apps: BTreeMap<AppId, App>,
    pub(crate) replicas: BTreeMap<ShardKey, Replica>,
    /// What was done as the primary of shards that have no replica here any more.
    pub(crate) past: BTreeMap<ShardKey, Counts>,
    /// Channels with messages for a replica.
    pub(crate) inputs: BTreeMap<ShardKey, BTreeSet<LinkKey>>,
    pub(crate) links: Links,
    pub(crate) leases: Leases,
    pub(crate) ingress: Ingress,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) client_open: BTreeMap<Address, Vec<u8>>,
    pub(crate) next_token: u64,
    next_released: Timestamp,
    /// Why nothing new is taken on, if the node's memory is used up.
    pub(crate) memory_full: Option<String>,
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    pub(crate) datagrams_in: u64,
    pub(crate) datagrams_out: u64,
}

impl Worker {
    /// A worker without a plan.
    pub fn new(config: Config) -> Worker {
        let mut links = Links::default();
        links.packer.node = config.node;
        links.packer.cluster = config.cluster;
        links.packer.incarnation = config.incarnation;
        Worker {
            config,
            now: Timestamp(0),
            plan: Arc::default(),
            apps: BTreeMap::new(),
            replicas: BTreeMap::new(),
            past: BTreeMap::new(),
            inputs: BTreeMap::new(),
            links,
            leases: Leases::default(),
            ingress: Ingress::default(),
            outputs: VecDeque::new(),
            client_open: BTreeMap::new(),
            next_token: 0,
            next_released: Timestamp(0),
            memory_full: None,
            dropped: BTreeMap::new(),
            datagrams_in: 0,
            datagrams_out: 0,
        }
    }

    /// Takes a datagram. Whatever it holds, at worst it is counted and dropped.
    pub fn handle_datagram(&mut self, now: Timestamp, from: Address, bytes: &[u8]) {
        self.now = now;
        self.datagrams_in += 1;
        let dropped = match open(bytes) {
            Err(e) => Some(e.reason()),
            Ok((_, reader)) if reader.is_empty() => Some("empty"),
            Ok((Header::CLIENT, mut reader)) => self.on_client(now, from, &mut reader).err(),
            Ok((header, mut reader)) => match header.kind {
                Kind::Peer => self.on_peer(now, &header, &mut reader).err(),
                Kind::Client => Some("header"),
                Kind::Heartbeat => Some("kind"),
            },
        };
        if let Some(reason) = dropped {
            self.drop_for(reason);
        }
    }

    /// Counts something that came and was not taken.
    pub(crate) fn drop_for(&mut self, reason: &'static str) {
        *self.dropped.entry(reason).or_default() += 1;
    }

    fn on_peer(
        &mut self,
        now: Timestamp,
        h: &Header,
        r: &mut Reader<'_>,
    ) -> Result<(), &'static str> {
        if h.cluster != self.config.cluster {
            return Err("cluster");
        }
        if h.to_incarnation != self.config.incarnation {
            return Err("incarnation");
        }
        match self.links.packer.peers.get(&h.from) {
            Some(peer) if peer.incarnation == h.incarnation => {}
            _ => return Err("sender"),
        }
        while !r.is_empty() {
            let frame = Frame::decode(r).map_err(|_| "frame")?;
            self.on_frame(now, h, frame);
        }
        Ok(())
    }

    fn on_frame(&mut self, now: Timestamp, h: &Header, frame: Frame<'_>) {
        match frame {
            Frame::Data {
                link,
                epoch,
                seq,
                behind,
                body,
            } => match self.check_link(h, &link) {
                Ok(key) => {
                    let number = Number { epoch, seq };
                    self.on_data(now, key, (h.from, link), number, behind, body);
                }
                Err(reason) => self.drop_for(reason),
            },
            Frame::Ack { link, ack } => {
                let mut freed = Vec::new();
                match self.links.on_ack(now, h.from, link, &ack, &mut freed) {
                    Ok(None) => self.on_freed(now, freed),
                    Ok(Some(epoch)) => self.restart(now, (link.app, link.ends), epoch),
                    Err(reason) => self.drop_for(reason),
                }
            }
            Frame::LeaseRequest { sent, plan_version } => {
                if self.may_need_lease(h.from, plan_version)
                    && self.leases.on_request(now, h.from, plan_version)
                {
                    self.links.packer.frame(h.from, &Frame::LeaseGrant { sent });
                }
            }
            Frame::LeaseGrant { sent } => {
                if self.leases.on_grant(h.from, sent) {
                    self.advance_all(now);
                } else {
                    self.drop_for("lease");
                }
            }
            Frame::Reply {
                app,
                request,
                attempt,
                reply,
            } => self.on_reply(app, request, attempt, reply),
        }
    }

    fn on_data(
        &mut self,
        now: Timestamp,
        key: ShardKey,
        (from, link): (NodeId, Link),
        number: Number,
        behind: u32,
        body: &[u8],
    ) {
        match self.links.on_data(now, from, link, number, behind, body) {
            Arrival::New => {}
            Arrival::Duplicate | Arrival::Beyond | Arrival::Late => return,
            Arrival::Confused | Arrival::Invalid => return self.drop_for("channel"),
        }
        let inputs = self.inputs.entry(key).or_default();
        inputs.insert((link.app, link.ends));
        if matches!(link.ends, Ends::Replication { .. }) {
            self.drain_replication(now, key);
        }
    }

    /// Begins a new epoch of a channel whose ends do not fit together. A replication stream begins
    /// with a snapshot again.
    fn restart(&mut self, now: Timestamp, (app, ends): LinkKey, epoch: u32) {
        self.drop_for("channel");
        let Ends::Replication {
            service,
            shard,
            backup,
        } = ends
        else {
            return self.links.restart(now, (app, ends), epoch);
        };
        let key = ShardKey {
            app,
            service,
            shard,
        };
        let replica = self.replicas.get(&key);
        if let Some(b) = replica.and_then(|r| r.primary.backups.get(&backup)) {
            let required = b.required;
            self.add_backup(now, key, backup, required, Some(epoch));
        }
    }

    pub(crate) fn on_freed(&mut self, now: Timestamp, freed: Vec<Tag>) {
        for tag in freed {
            match tag {
                Tag::Ingress => {}
                Tag::Output(key, op) => {
                    let replica = self.replicas.get_mut(&key);
                    if let Some(outgoing) = replica.and_then(|r| r.log.outgoing(op)) {
                        outgoing.open = outgoing.open.saturating_sub(1);
                        self.trim(key);
                    }
                }
                Tag::Replicated(key, node, op) => self.on_replicated(now, key, node, op),
            }
        }
    }

    pub(crate) fn advance_all(&mut self, now: Timestamp) {
        let keys: Vec<ShardKey> = self
            .replicas
            .iter()
            .filter(|(_, r)| r.role == Role::Primary && !r.primary.pending.is_empty())
            .map(|(k, _)| *k)
            .collect();
        for key in keys {
            self.advance(key, now);
        }
    }

    /// Does what is due: dispatches, repeats, packs. The driver calls it after it has passed in all
    /// that it had, and whenever [`Worker::next_deadline`] has come.
    pub fn handle_tick(&mut self, now: Timestamp) {
        self.now = now;
        if self.leases.request_due(now) {
            self.request_leases(now);
            self.ingress.forget(now);
        }
        if now >= self.next_released {
            self.next_released = now + RELEASED_INTERVAL;
            self.tell_released();
        }
        for (key, epoch) in self.links.on_timer(now) {
            self.restart(now, key, epoch);
        }
        if self.config.slowed {
            self.advance_all(now);
        }
        loop {
            self.dispatch(now);
            self.links.flush(now);
            let Some(bytes) = self.links.packer.local.pop_front() else {
                break;
            };
            let mut reader = Reader(&bytes);
            let header = Header::decode(&mut reader).expect("written here");
            if let Err(reason) = self.on_peer(now, &header, &mut reader) {
                self.drop_for(reason);
            }
        }
        while let Some((to, bytes)) = self.links.packer.remote.pop_front() {
            self.outputs.push_back(Output::Send { to, bytes });
        }
        for (to, mut bytes) in std::mem::take(&mut self.client_open) {
            seal(&mut bytes);
            self.outputs.push_back(Output::Send { to, bytes });
        }
    }

    fn request_leases(&mut self, now: Timestamp) {
        let mut backups = BTreeSet::new();
        for replica in self.replicas.values().filter(|r| r.role == Role::Primary) {
            backups.extend(replica.primary.backups.keys().copied());
        }
        let frame = Frame::LeaseRequest {
            sent: now,
            plan_version: self.plan.version,
        };
        for node in backups {
            self.leases.on_asked(now, node);
            self.links.packer.frame(node, &frame);
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

    /// When [`Worker::handle_tick`] wants to be called, at the latest.
    pub fn next_deadline(&self) -> Timestamp {
        let mut next = self.leases.next_request();
        if let Some(links) = self.links.next_deadline() {
            next = next.min(links);
        }
        for r in self.replicas.values().filter(|r| r.role == Role::Primary) {
            let p = &r.primary;
            if r.log.released != p.released_told {
                next = next.min(self.next_released);
            }
            if let Some(pending) = p.pending.front()
                && pending.release_at > self.now
            {
                next = next.min(pending.release_at);
            }
            if !p.queue.is_empty() || self.inputs.get(&r.key).is_some_and(|i| !i.is_empty()) {
                for at in [p.serve_at, p.idle_at] {
                    if at > self.now {
                        next = next.min(at);
                    }
                }
            }
        }
        next
    }

    /// Notes that the node's memory is used up, and how much it is, or that it is not.
    pub fn set_memory_full(&mut self, reason: Option<String>) {
        self.memory_full = reason;
    }

    /// Notes that the shard's service does not run here, and why.
    pub fn handle_start_failed(&mut self, key: ShardKey, error: String) {
        if let Some(replica) = self.replicas.get_mut(&key) {
            replica.error = Some(error);
        }
    }

    /// The shard's collections, if there is a replica here.
    pub fn state(&self, key: ShardKey) -> Option<Rc<RefCell<State>>> {
        self.replicas.get(&key).map(|r| r.log.state.clone())
    }

    /// Panics if an invariant is broken.
    pub fn validate(&self) {
        for replica in self.replicas.values() {
            replica.validate();
        }
    }
}
