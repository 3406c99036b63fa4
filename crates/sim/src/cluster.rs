//! A cluster in virtual time: workers, clients, network, and whoever makes the plans.

use crate::client::Client;
use crate::network::{Faults, Party, client_address, node_address, party};
use crate::service::Service;
use e3_collections::State;
use e3_dataplane::{Config, Output, Worker};
use e3_invocation::Invocation;
use e3_model::plan::{NodeEvent, NodePlan, Role};
use e3_model::{Address, MessageId, Nanos, NodeId, NodeKind, ShardKey, Timestamp};
use e3_random::Random;
use e3_wire::entry::DeadLetter;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;

/// Cluster id of all simulated clusters.
pub const CLUSTER: u64 = 7;

/// Something that will happen.
#[derive(Debug)]
enum Event {
    /// A datagram arrives.
    Datagram {
        from: Address,
        to: Party,
        bytes: Vec<u8>,
    },
    /// A handler ends.
    HandlerEnds {
        node: u16,
        incarnation: u32,
        key: ShardKey,
        invocation: Invocation,
    },
    /// A plan arrives.
    Plan { node: u16, plan: Arc<NodePlan> },
    /// A node looks at the time.
    Tick { node: u16, incarnation: u32 },
    /// A client looks at the time.
    ClientTick { client: u16 },
}

struct Node {
    worker: Worker,
    incarnation: u32,
    states: BTreeMap<ShardKey, Rc<RefCell<State>>>,
    /// When its core is free.
    free_at: Timestamp,
    tick_at: Timestamp,
}

/// A simulated cluster.
pub struct Cluster {
    /// Virtual time.
    pub now: Timestamp,
    /// What the network does now.
    pub faults: Faults,
    /// Clients.
    pub clients: Vec<Client>,
    /// Everything random comes from here.
    pub random: Random,
    nodes: BTreeMap<u16, Node>,
    /// How the applications' services behave, by service id.
    pub services: Vec<Service>,
    events: BinaryHeap<Reverse<(Timestamp, u64)>>,
    bodies: BTreeMap<u64, Event>,
    next_event: u64,
    /// Datagrams damaged so far.
    pub damaged: u64,
    /// Digest of everything that happened, to compare two runs of one seed.
    pub trace: u64,
}

impl Cluster {
    /// An empty cluster whose applications' services behave as `services`, by service id.
    pub fn new(seed: u64, services: Vec<Service>) -> Cluster {
        Cluster {
            now: Timestamp(1_000_000_000_000),
            faults: Faults::NONE,
            clients: Vec::new(),
            random: Random::new(seed),
            nodes: BTreeMap::new(),
            services,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            next_event: 0,
            damaged: 0,
            trace: 0,
        }
    }

    /// Starts a node's process.
    pub fn start(&mut self, node: u16, incarnation: u32) {
        let config = Config {
            node: NodeId(node),
            incarnation,
            cluster: CLUSTER,
            kind: NodeKind::Host,
            slowed: false,
        };
        let (free_at, tick_at) = (self.now, Timestamp::MAX);
        let worker = Worker::new(config);
        let states = BTreeMap::new();
        self.nodes.insert(
            node,
            Node {
                worker,
                incarnation,
                states,
                free_at,
                tick_at,
            },
        );
    }

    /// Kills a node's process: all that it had in memory is gone.
    pub fn kill(&mut self, node: u16) {
        self.nodes.remove(&node);
    }

    /// Nodes whose process runs.
    pub fn up(&self) -> Vec<u16> {
        self.nodes.keys().copied().collect()
    }

    /// Number of a node's process, if it runs.
    pub fn incarnation(&self, node: u16) -> Option<u32> {
        Some(self.nodes.get(&node)?.incarnation)
    }

    /// Gives a node its plan after a short while.
    pub fn plan(&mut self, plan: NodePlan) {
        let node = plan.node.0;
        let at = self.now + Nanos(1_000_000 + self.random.below(20_000_000));
        self.push(
            at,
            Event::Plan {
                node,
                plan: Arc::new(plan),
            },
        );
    }

    /// What a node has to tell the controller.
    pub fn events(&self, node: u16) -> Vec<NodeEvent> {
        self.nodes
            .get(&node)
            .map(|n| n.worker.events())
            .unwrap_or_default()
    }

    /// A shard's collections on a node.
    pub fn state(&self, node: u16, key: ShardKey) -> Option<Rc<RefCell<State>>> {
        self.nodes.get(&node)?.worker.state(key)
    }

    /// The worker of a node.
    pub fn worker(&self, node: u16) -> Option<&Worker> {
        Some(&self.nodes.get(&node)?.worker)
    }

    /// A client sends a request to a node.
    pub fn request(&mut self, client: u16, to: u16, deadline: Nanos) {
        self.set_routes(client, to);
        let sender = &mut self.clients[usize::from(client)];
        sender.request(self.now, &mut self.random, deadline);
        self.drain_client(client);
    }

    /// A client asks a node for the dead letters of a shard.
    pub fn read_dead_letters(&mut self, client: u16, to: u16, shard: ShardKey) {
        self.set_routes(client, to);
        self.clients[usize::from(client)].read_dead_letters(self.now, shard);
        self.drain_client(client);
    }

    /// A client has a dead letter handled again.
    pub fn replay(
        &mut self,
        client: u16,
        to: u16,
        shard: ShardKey,
        letter: &(MessageId, DeadLetter),
        deadline: Nanos,
    ) {
        self.set_routes(client, to);
        self.clients[usize::from(client)].replay(self.now, shard, letter, deadline);
        self.drain_client(client);
    }

    /// Tells a client which nodes are up, this one first and the others in random order; and where
    /// primaries are, if it waits for a replay.
    fn set_routes(&mut self, client: u16, first: u16) {
        let mut others: Vec<u16> = self.up().into_iter().filter(|n| *n != first).collect();
        for at in (1..others.len()).rev() {
            others.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        let nodes = std::iter::once(first).chain(others);
        let client = &mut self.clients[usize::from(client)];
        let asked = self.nodes.iter().filter(|_| client.replays());
        let primaries: Vec<(ShardKey, u16)> = asked
            .flat_map(|(id, node)| {
                let instances = node.worker.report().instances.into_iter();
                let primaries = instances.filter(|i| i.role == Role::Primary);
                primaries.map(|i| (i.key, *id))
            })
            .collect();
        client.set_routes(self.now, nodes, primaries.into_iter());
    }

    /// The client's driver: all outputs, then one timer.
    fn drain_client(&mut self, client: u16) {
        let at = usize::from(client);
        while let Some((to, bytes)) = self.clients[at].poll_transmit() {
            self.transmit(client_address(client), to, bytes);
        }
        let next = self.clients[at].next_deadline();
        if let Some(next) = next.filter(|next| *next < self.clients[at].tick_at) {
            self.clients[at].tick_at = next;
            self.push(next, Event::ClientTick { client });
        }
    }

    /// Runs for a span of virtual time.
    pub fn run(&mut self, span: Nanos) {
        let end = self.now + span;
        while let Some(Reverse((at, id))) = self.events.peek().copied() {
            if at > end {
                break;
            }
            self.events.pop();
            self.now = at;
            let event = self.bodies.remove(&id).expect("queued with its id");
            self.step(event);
        }
        self.now = end;
    }

    fn push(&mut self, at: Timestamp, event: Event) {
        self.events.push(Reverse((at, self.next_event)));
        self.bodies.insert(self.next_event, event);
        self.next_event += 1;
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what ^ self.now.0).wrapping_mul(0x0000_0100_0000_01b3);
    }

    fn transmit(&mut self, from: Address, to: Address, bytes: Vec<u8>) {
        let Some(to) = party(to) else { return };
        if let Some((permille, damage)) = self.faults.damaged
            && self.random.chance(permille)
            && let Some(damaged) = damage.apply(&bytes, &mut self.random)
        {
            self.damaged += 1;
            self.deliver(from, to, &damaged);
            if self.random.chance(500) {
                return;
            }
        }
        self.deliver(from, to, &bytes);
    }

    fn deliver(&mut self, from: Address, to: Party, bytes: &[u8]) {
        for at in self.faults.arrivals(self.now, &mut self.random) {
            self.push(
                at,
                Event::Datagram {
                    from,
                    to,
                    bytes: bytes.to_vec(),
                },
            );
        }
    }

    fn step(&mut self, event: Event) {
        let now = self.now;
        let node = match event {
            Event::Datagram {
                from,
                to: Party::Node(node),
                bytes,
            } => {
                self.note(bytes.len() as u64);
                let Some(n) = self.nodes.get_mut(&node) else {
                    return;
                };
                n.worker.handle_datagram(now, from, &bytes);
                node
            }
            Event::Datagram {
                to: Party::Client(client),
                bytes,
                ..
            } => {
                self.note(1 << 32);
                self.clients[usize::from(client)].receive(now, &bytes);
                self.drain_client(client);
                return;
            }
            Event::HandlerEnds {
                node,
                incarnation,
                key,
                invocation,
            } => {
                let Some(n) = self.nodes.get_mut(&node) else {
                    return;
                };
                // Stopped meanwhile: the run has no effect.
                let (true, Some(state)) = (n.incarnation == incarnation, n.states.get(&key)) else {
                    return;
                };
                let service = self.services[usize::from(key.service.0)];
                let done = service.handle(invocation, &mut state.borrow_mut());
                n.worker.handle_completion(now, key, done);
                node
            }
            Event::Plan { node, plan } => {
                let Some(n) = self.nodes.get_mut(&node) else {
                    return;
                };
                n.worker.handle_plan(now, plan);
                node
            }
            Event::Tick { node, incarnation } => {
                let Some(n) = self.nodes.get_mut(&node) else {
                    return;
                };
                if n.incarnation != incarnation || n.tick_at > now {
                    return;
                }
                n.tick_at = Timestamp::MAX;
                node
            }
            Event::ClientTick { client } => {
                self.tick_client(client);
                return;
            }
        };
        self.drain(node);
    }

    /// Lets a client retry, at nodes that are up now.
    fn tick_client(&mut self, client: u16) {
        let up = self.up();
        if !up.is_empty() {
            let first = up[self.random.below(up.len() as u64) as usize];
            self.set_routes(client, first);
        }
        let ticked = &mut self.clients[usize::from(client)];
        if ticked.tick_at <= self.now {
            ticked.tick_at = Timestamp::MAX;
            ticked.on_timer(self.now);
        }
        self.drain_client(client);
    }

    /// The driver's loop: all outputs, then one timer.
    fn drain(&mut self, id: u16) {
        let now = self.now;
        let node = self.nodes.get_mut(&id).expect("its caller has it");
        node.worker.handle_tick(now);
        node.worker.validate();
        let mut sends = Vec::new();
        let mut runs = Vec::new();
        while let Some(output) = node.worker.poll_output() {
            match output {
                Output::Send { to, bytes } => sends.push((to, bytes)),
                Output::Answer { .. } => unreachable!("clients send datagrams"),
                Output::Start { key, state } => {
                    node.states.insert(key, state);
                }
                Output::Stop { key } => {
                    node.states.remove(&key);
                }
                Output::Execute { key, invocation } => {
                    let busy = self.services[usize::from(key.service.0)].service_time();
                    node.free_at = node.free_at.max(now) + busy;
                    runs.push((node.free_at, key, invocation));
                }
            }
        }
        let incarnation = node.incarnation;
        let next = node.worker.next_deadline().max(now + Nanos(1));
        let earlier = next < node.tick_at;
        if earlier {
            node.tick_at = next;
        }
        for (at, key, invocation) in runs {
            self.push(
                at,
                Event::HandlerEnds {
                    node: id,
                    incarnation,
                    key,
                    invocation,
                },
            );
        }
        for (to, bytes) in sends {
            self.transmit(node_address(id), to, bytes);
        }
        if earlier {
            self.push(
                next,
                Event::Tick {
                    node: id,
                    incarnation,
                },
            );
        }
    }
}
