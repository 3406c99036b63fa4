//! Workers joined by a network in memory, and a client. Time goes in milliseconds; a datagram that
//! is sent in one arrives in the next. Tests decide what is cut off, which handlers are held back,
//! and what the plan says.

pub mod calls;
mod client;
mod disk;
mod driver;
pub mod manifests;
pub mod outbound;
pub mod topics;

use disk::Disk;
use e3_collections::limits::EXPIRED_LEN_MAX;
use e3_collections::{State, Txn};
use e3_dataplane::{Config, EmulatedCores, HttpAsk, Worker};
use e3_invocation::Output as Message;
use e3_invocation::{Effects, HandlerError, Invocation};
use e3_model::document::parse_application;
use e3_model::plan::{AppPlan, InstanceReport, NodePlan, Peer, ShardPlan};
use e3_model::{
    Address, AppId, Format, Formats, Nanos, NodeId, NodeKind, RequestId, ServiceId, ShardId,
    ShardKey, Slot, Timestamp,
};
use e3_random::Random;
use e3_wire::client::DeadLetters;
use e3_wire::entry::Reply;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

pub const APP: AppId = AppId(1);
const CLUSTER: u64 = 7;
const CLIENT: Address = Address {
    ip: [0; 16],
    port: 9_999,
};

/// What a handler does: its service, what it is given, its collections.
pub type Handler =
    Box<dyn FnMut(ServiceId, &Invocation, &mut State) -> Result<Effects, HandlerError>>;

pub struct Node {
    pub worker: Worker,
    incarnation: u32,
    states: BTreeMap<ShardKey, Rc<RefCell<State>>>,
    /// What the executor has been given.
    pub waiting: Vec<(ShardKey, Invocation)>,
    pub calling: calls::Calling,
    /// Its executor runs nothing.
    pub held: bool,
    /// Handlers that its executor runs in a millisecond.
    pub per_ms: usize,
    budget: usize,
    /// How far its clock is ahead.
    pub ahead: Nanos,
    /// How far it is behind.
    pub behind: Nanos,
}

pub struct Cluster {
    pub now: Timestamp,
    pub nodes: BTreeMap<u32, Node>,
    pub peers: BTreeMap<NodeId, Peer>,
    /// The active format.
    pub format: Format,
    /// Formats of nodes that start.
    pub formats: Formats,
    pub plan: AppPlan,
    pub version: u64,
    /// Of the plans of this version.
    pub revision: u64,
    /// Whether plans have a directory of applications, so that they need not have all of them.
    pub lists_apps: bool,
    /// Nodes whose plans have no applications.
    pub strangers: BTreeSet<u32>,
    wire: Vec<(Option<u32>, Address, Vec<u8>)>,
    /// From and to: what is lost.
    pub cut: BTreeSet<(u32, u32)>,
    /// Of a thousand datagrams so many are lost.
    pub loss_permille: u64,
    pub random: Random,
    /// Datagrams for a client that reads them itself, if it does.
    pub unread: Option<Vec<Vec<u8>>>,
    /// What the client got, with the attempt.
    pub replies: Vec<(RequestId, u16, Reply)>,
    pub letters: Vec<DeadLetters>,
    /// What nodes answered to [`Cluster::ask`].
    pub answers: Vec<(RequestId, Reply)>,
    pub handler: Handler,
    /// Another application on all nodes, and its handlers.
    pub other: Option<(AppPlan, Handler)>,
    /// How long the handler of a request takes.
    pub busy: Box<dyn Fn(RequestId) -> Nanos>,
    /// Datagrams that nodes passed on.
    pub relayed: Vec<(Address, Vec<u8>)>,
    /// Nodes that are emulated, when they start.
    pub emulated: BTreeMap<u32, EmulatedCores>,
    /// Requests over HTTP that nodes asked their drivers to make.
    pub http: Vec<(u32, HttpAsk)>,
    /// Nodes, and the tickets of the requests over HTTP that they want no answers to.
    pub cancelled: Vec<(u32, u64)>,
    /// Nodes that have given collections away to be freed, and how many bytes.
    pub discarded: Vec<(u32, usize)>,
    /// Which calls handlers make.
    pub caller: calls::Caller,
    pub called: calls::Answers,
    /// Most bytes that a node sent in one turn.
    pub most_sent: usize,
    /// Bytes sent so far, by receiver.
    sent_to: BTreeMap<Address, usize>,
    /// What the disk of each node holds.
    pub disks: BTreeMap<u32, Disk>,
    /// Of nodes that start: see [`Config::journal_len_min`].
    pub journal_len_min: u64,
    /// By backup and shard: what came of its state. A controller keeps it.
    pub exports: BTreeMap<(u64, ShardKey), Vec<u8>>,
    /// By shard: the state that it begins with.
    pub parts: BTreeMap<ShardKey, Vec<u8>>,
    /// Nodes that asked for these.
    fetches: Vec<(u32, ShardKey, u64)>,
    /// A node, and how many bytes reach it in a millisecond; others wait.
    pub narrow: Option<(u32, usize)>,
}

pub fn address(node: u32) -> Address {
    Address {
        ip: [0; 16],
        port: u16::try_from(node + 1).expect("a test has few nodes"),
    }
}

pub fn shard(service: u16, shard: u16) -> ShardKey {
    ShardKey {
        app: APP,
        service: ServiceId(service),
        shard: ShardId(shard),
    }
}

/// A key that begins so deletes what follows it.
pub const DELETE: &[u8] = b"delete ";

/// Counts the request in collection 0 if the service has one, sends the message on along all
/// channels, replies where there are none.
pub fn count_and_forward(
    channels: u16,
    invocation: &Invocation,
    state: &mut State,
) -> Result<Effects, HandlerError> {
    let request = invocation.id.request;
    let id = [request.client.to_le_bytes(), request.seq.to_le_bytes()].concat();
    let mut effects = Effects::default();
    if !state.specs().is_empty() {
        let mut txn = Txn::new();
        txn.begin(invocation.slot.0);
        state.advance(invocation.now);
        match invocation.key.strip_prefix(DELETE) {
            Some(key) => txn.delete(state, 0, key).map(|_| ()),
            None => txn.counter_add(state, 0, &id, 1).map(|_| ()),
        }
        .expect("a counter");
        effects.writes = txn.finish();
        let (slot, bytes_max) = (invocation.slot.0, invocation.state_bytes_max);
        state.commit(&mut effects.writes, slot, bytes_max, EXPIRED_LEN_MAX)?;
    }
    let output = |channel| Message {
        channel,
        key: invocation.key.clone(),
        payload: invocation.payload.clone(),
    };
    effects.outputs = (0..channels).map(output).collect();
    if channels == 0 {
        effects.reply = Some(e3_invocation::Reply {
            status: 0,
            payload: b"ok".to_vec(),
        });
    }
    Ok(effects)
}

impl Cluster {
    /// Nodes 0.., which have the application; every shard's primary and backups are given by
    /// `place`.
    pub fn new(manifest: &str, nodes: u32, place: impl Fn(ShardKey) -> Vec<u32>) -> Cluster {
        let app = parse_application("test.yaml", manifest).unwrap();
        let channels: Vec<u16> = (0..app.spec.services.len())
            .map(|s| app.channels_from(ServiceId(s as u16)).count() as u16)
            .collect();
        let services = app.spec.services.iter().enumerate();
        let shards = services.flat_map(|(s, service)| {
            let place = &place;
            (0..service.shards).map(move |n| {
                let on = place(shard(s as u16, n));
                ShardPlan {
                    service: ServiceId(s as u16),
                    shard: ShardId(n),
                    view: 1,
                    incarnation: 1,
                    primary: NodeId(on[0]),
                    backups: on[1..].iter().copied().map(NodeId).collect(),
                    joining: Vec::new(),
                    leaving: Vec::new(),
                    predecessor: None,
                    fenced: false,
                    frozen: false,
                    quiet: false,
                    era: 1,
                    filled: false,
                }
            })
        });
        let plan = AppPlan {
            id: APP,
            code_version: 1,
            shards: shards.collect(),
            modules: Vec::new(),
            assets: BTreeMap::new(),
            proven: None,
            resharded: Vec::new(),
            backup: None,
            secrets: BTreeMap::new(),
            restored: None,
            slowdown: Vec::new(),
            app: app.into(),
        };
        let mut cluster = Cluster {
            now: Timestamp(1_000_000_000_000_000),
            nodes: BTreeMap::new(),
            peers: BTreeMap::new(),
            format: Format::NEWEST,
            formats: Formats::PROGRAM,
            plan,
            version: 0,
            revision: 0,
            lists_apps: false,
            strangers: BTreeSet::new(),
            wire: Vec::new(),
            cut: BTreeSet::new(),
            loss_permille: 0,
            random: Random::new(1),
            unread: None,
            replies: Vec::new(),
            letters: Vec::new(),
            answers: Vec::new(),
            most_sent: 0,
            sent_to: BTreeMap::new(),
            disks: BTreeMap::new(),
            exports: BTreeMap::new(),
            parts: BTreeMap::new(),
            fetches: Vec::new(),
            journal_len_min: u64::MAX,
            narrow: None,
            other: None,
            busy: Box::new(|_| Nanos::from_micros(1)),
            relayed: Vec::new(),
            emulated: BTreeMap::new(),
            http: Vec::new(),
            cancelled: Vec::new(),
            discarded: Vec::new(),
            caller: Box::new(|_, _| None),
            called: calls::Answers::default(),
            handler: Box::new(move |service, invocation, state| {
                let channels = channels[usize::from(service.0)];
                count_and_forward(channels, invocation, state)
            }),
        };
        for node in 0..nodes {
            cluster.start(node, 1);
        }
        cluster.publish();
        cluster.pass(500);
        cluster
    }

    /// Starts a node's process, in place of the one before. Nobody knows of it before
    /// [`Cluster::publish`].
    pub fn start(&mut self, node: u32, incarnation: u32) {
        let config = Config {
            node: NodeId(node),
            incarnation,
            cluster: CLUSTER,
            formats: self.formats,
            kind: NodeKind::Host,
            journal_len_min: self.journal_len_min,
            slowed: self.emulated.contains_key(&node),
            emulated: self.emulated.get(&node).copied(),
        };
        let mut worker = Worker::new(config);
        let disk = self.disks.entry(node).or_default();
        worker.handle_recovery(self.now, disk.recover(self.formats));
        let ahead = self.nodes.get(&node).map_or(Nanos::ZERO, |n| n.ahead);
        self.nodes.insert(
            node,
            Node {
                worker,
                incarnation,
                states: BTreeMap::new(),
                waiting: Vec::new(),
                calling: calls::Calling::default(),
                held: false,
                per_ms: usize::MAX,
                budget: usize::MAX,
                ahead,
                behind: Nanos::ZERO,
            },
        );
        let peer = Peer {
            name: format!("n{node}"),
            server: node,
            incarnation,
            address: address(node),
        };
        self.peers.insert(NodeId(node), peer);
    }

    /// Kills a node's process and takes it out of the cluster.
    pub fn kill(&mut self, node: u32) {
        self.nodes.remove(&node);
        self.peers.remove(&NodeId(node));
    }

    pub fn shard(&mut self, key: ShardKey) -> &mut ShardPlan {
        let mut shards = self.plan.shards.iter_mut();
        shards
            .find(|s| (s.service, s.shard) == (key.service, key.shard))
            .unwrap()
    }

    /// A backup takes over.
    pub fn promote(&mut self, key: ShardKey, node: u32) {
        let shard = self.shard(key);
        shard.view += 1;
        shard.incarnation = shard.view;
        shard.predecessor = Some(shard.primary);
        shard.primary = NodeId(node);
        shard.backups.retain(|n| n.0 != node);
    }

    /// Gives all nodes the plan.
    pub fn publish(&mut self) {
        self.version += 1;
        let nodes: Vec<u32> = self.nodes.keys().copied().collect();
        for node in nodes {
            self.publish_to(node);
        }
    }

    fn apps(&self) -> Vec<AppPlan> {
        let other = self.other.as_ref().map(|(plan, _)| plan);
        std::iter::once(&self.plan).chain(other).cloned().collect()
    }

    /// Gives one node the plan as it is now.
    pub fn publish_to(&mut self, node: u32) {
        let plan = NodePlan {
            version: self.version,
            cluster: CLUSTER,
            format: self.format,
            node: NodeId(node),
            peers: self.peers.clone(),
            exited: BTreeMap::new(),
            apps: if self.strangers.contains(&node) {
                Vec::new()
            } else {
                self.apps()
            },
            directory: if self.lists_apps {
                self.apps().iter().map(|a| (a.id, a.listed())).collect()
            } else {
                BTreeMap::new()
            },
            revision: self.revision,
            ..NodePlan::default()
        };
        let now = self.clock(node);
        let to = self.nodes.get_mut(&node).expect("it runs");
        to.worker.handle_plan(now, Arc::new(plan));
        self.drain(node);
    }

    pub fn clock(&self, node: u32) -> Timestamp {
        let node = &self.nodes[&node];
        Timestamp((self.now + node.ahead).0 - node.behind.0)
    }

    /// Lets time pass.
    pub fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += Nanos::from_millis(1);
            let mut narrow_len = 0;
            for (from, to, bytes) in std::mem::take(&mut self.wire) {
                if let Some((node, len_max)) = self.narrow
                    && to == address(node)
                {
                    if narrow_len > len_max {
                        self.wire.push((from, to, bytes));
                        continue;
                    }
                    narrow_len += bytes.len();
                }
                self.deliver(from, to, &bytes);
            }
            self.give_parts();
            let nodes: Vec<u32> = self.nodes.keys().copied().collect();
            for id in nodes {
                let node = self.nodes.get_mut(&id).expect("it runs");
                node.budget = node.per_ms;
                self.sync_disk(id);
                self.drain(id);
            }
        }
    }

    /// Lets many seconds pass, in steps that leases survive. A datagram takes a step.
    pub fn pass_coarsely(&mut self, seconds: u64) {
        const STEP: Nanos = Nanos::from_millis(20);
        let until = self.now + Nanos::from_secs(seconds);
        while self.now < until {
            self.now += STEP;
            self.pass(1);
        }
    }

    /// Gives nodes the states that they asked for.
    fn give_parts(&mut self) {
        for (id, key, order) in std::mem::take(&mut self.fetches) {
            let now = self.clock(id);
            let node = self.nodes.get_mut(&id).expect("it runs");
            for chunk in self.parts[&key].chunks(1_000) {
                node.worker.handle_part(now, key, order, chunk);
            }
        }
    }

    fn deliver(&mut self, from: Option<u32>, to: Address, bytes: &[u8]) {
        if self.random.chance(self.loss_permille) {
            return;
        }
        if to == CLIENT
            && let Some(unread) = &mut self.unread
        {
            return unread.push(bytes.to_vec());
        }
        if to == CLIENT {
            return self.on_client_datagram(bytes);
        }
        let node = u32::from(to.port) - 1;
        if from.is_some_and(|from| self.cut.contains(&(from, node))) {
            return;
        }
        if !self.nodes.contains_key(&node) {
            return;
        }
        let now = self.clock(node);
        if let Some(n) = self.nodes.get_mut(&node) {
            let from = from.map_or(CLIENT, address);
            n.worker.handle_datagram(now, from, bytes);
        }
    }

    /// Bytes that were sent to a node so far.
    pub fn sent_to(&self, node: u32) -> usize {
        self.sent_to.get(&address(node)).copied().unwrap_or(0)
    }

    /// How often a request was counted at a node's replica of a shard.
    pub fn count(&self, node: u32, key: ShardKey, client: u64, seq: u64) -> i64 {
        let id = [client.to_le_bytes(), seq.to_le_bytes()].concat();
        let state = self.nodes[&node].worker.state(key);
        state.map_or(0, |s| s.borrow().counter_get(0, &id))
    }

    /// What a node reports of a shard.
    pub fn report(&self, node: u32, key: ShardKey) -> InstanceReport {
        let report = self.nodes[&node].worker.report();
        let mut instances = report.instances.into_iter();
        instances.find(|i| i.key == key).expect("it has a replica")
    }
}

/// A key of this shard, of so many.
pub fn key_of(shard: u16, shards: u16) -> Vec<u8> {
    let mut keys = (0..=u16::MAX).map(|n| n.to_be_bytes().to_vec());
    keys.find(|k| Slot::of(k).shard(shards) == ShardId(shard))
        .unwrap()
}
