//! A cluster in virtual time: workers, clients and network. A controller outside makes the plans.

mod calls;
mod disks;
mod http;
mod nodes;
mod parts;
mod senders;

use crate::asks::HttpServer;
use crate::client::Client;
use crate::ledger::Ledger;
use crate::network::{Cuts, Faults, Party, node_address, party};
use crate::service::{FAILING, Service};
use disks::Disk;
pub use disks::Found;
use e3_dataplane::{HttpAsk, Output};
use e3_invocation::Invocation;
use e3_model::outbound::Answer;
use e3_model::plan::NodePlan;
use e3_model::{Address, Nanos, ShardKey, Timestamp};
use e3_random::Random;
use nodes::{HandlerRun, Node};
pub(crate) use parts::{Export, Fetch};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;

/// The cluster id of all simulated clusters.
pub const CLUSTER: u64 = 7;
/// The time at which a run begins.
pub const BEGIN: Timestamp = Timestamp(1_000_000_000_000_000);

/// An event to come.
#[derive(Debug)]
enum Event {
    /// A datagram arrives.
    Datagram {
        from: Address,
        to: Party,
        bytes: Vec<u8>,
    },
    /// The handler that a node runs returns.
    HandlerEnds { node: u32, incarnation: u32 },
    /// A plan arrives.
    Plan { node: u32, plan: Arc<NodePlan> },
    /// A node's disk has done its work.
    Synced { node: u32, incarnation: u32 },
    /// The answer to a request over HTTP arrives at a node, or none has come in time.
    HttpAnswer {
        node: u32,
        incarnation: u32,
        ask: Rc<HttpAsk>,
        answer: Option<Answer>,
    },
    /// A node's timer expires.
    Tick { node: u32, incarnation: u32 },
    /// A client's timer expires.
    ClientTick { client: u16 },
    /// A client sends the next burst of its load.
    Load { client: u16 },
}

impl Event {
    /// The node on which it happens.
    fn node(&self) -> Option<u32> {
        match self {
            Event::Datagram {
                to: Party::Node(node),
                ..
            }
            | Event::HandlerEnds { node, .. }
            | Event::Plan { node, .. }
            | Event::Synced { node, .. }
            | Event::HttpAnswer { node, .. }
            | Event::Tick { node, .. } => Some(*node),
            Event::Datagram { .. } | Event::ClientTick { .. } | Event::Load { .. } => None,
        }
    }
}

/// A simulated cluster.
pub struct Cluster {
    /// Virtual time.
    pub now: Timestamp,
    /// The faults of the network now.
    pub faults: Faults,
    /// The pairs of parties that are cut off from each other.
    pub cuts: Cuts,
    /// Clients.
    pub clients: Vec<Client>,
    /// The source of everything random.
    pub random: Random,
    nodes: BTreeMap<u32, Node>,
    disks: BTreeMap<u32, Disk>,
    /// How the applications' services behave, by application and service.
    pub services: Vec<Vec<Service>>,
    /// The effects that were observed.
    pub ledger: Ledger,
    /// What services ask over HTTP.
    pub http: HttpServer,
    /// What nodes have for backups.
    pub(crate) exports: Vec<Export>,
    /// What nodes need of restored applications.
    pub(crate) fetches: Vec<Fetch>,
    events: BinaryHeap<Reverse<(Timestamp, u64, usize)>>,
    bodies: Slab<Event>,
    next_event: u64,
    /// The invariants of a node are checked once in this many of its steps.
    pub validates_every: u64,
    /// The number of datagrams damaged so far.
    pub damaged: u64,
    /// A digest of everything that happened, to compare two runs of one seed.
    pub trace: u64,
}

impl Cluster {
    /// An empty cluster of one application whose services behave as `services`, by service id.
    pub fn new(seed: u64, services: Vec<Service>) -> Cluster {
        Cluster {
            now: BEGIN,
            faults: Faults::NONE,
            cuts: Cuts::default(),
            clients: Vec::new(),
            random: Random::new(seed),
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            services: vec![services],
            ledger: Ledger::default(),
            http: HttpServer::default(),
            exports: Vec::new(),
            fetches: Vec::new(),
            events: BinaryHeap::new(),
            bodies: Slab::new(),
            next_event: 0,
            validates_every: 1,
            damaged: 0,
            trace: 0,
        }
    }

    /// The number of events so far.
    pub fn events_so_far(&self) -> u64 {
        self.next_event
    }

    /// Runs for a span of virtual time.
    pub fn run(&mut self, span: Nanos) {
        let end = self.now + span;
        while let Some(Reverse((at, _, body))) = self.events.peek().copied() {
            if at > end {
                break;
            }
            self.events.pop();
            self.now = self.now.max(at);
            let event = self.bodies.remove(body);
            self.step(event);
        }
        self.now = end;
    }

    fn push(&mut self, at: Timestamp, event: Event) {
        let body = self.bodies.insert(event);
        self.events.push(Reverse((at, self.next_event, body)));
        self.next_event += 1;
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what ^ self.now.0).wrapping_mul(0x0000_0100_0000_01b3);
    }

    fn transmit(&mut self, from: Address, to: Address, bytes: Vec<u8>) {
        let Some(to) = party(to) else { return };
        if party(from).is_some_and(|from| self.cuts.is_cut(from, to)) {
            return;
        }
        if let Some((permille, damage)) = self.faults.damaged
            && self.random.chance(permille)
            && let Some(damaged) = damage.apply(&bytes, &mut self.random)
        {
            self.damaged += 1;
            self.deliver(from, to, damaged);
            if self.random.chance(500) {
                return;
            }
        }
        self.deliver(from, to, bytes);
    }

    fn deliver(&mut self, from: Address, to: Party, bytes: Vec<u8>) {
        let (first, second) = self.faults.arrivals(self.now, &mut self.random);
        if let Some(at) = second {
            let bytes = bytes.clone();
            self.push(at, Event::Datagram { from, to, bytes });
        }
        if let Some(at) = first {
            self.push(at, Event::Datagram { from, to, bytes });
        }
    }

    fn step(&mut self, event: Event) {
        if let Some(node) = event.node() {
            return self.step_node(node, event);
        }
        match event {
            Event::Datagram {
                to: Party::Client(client),
                bytes,
                ..
            } => {
                self.note(1 << 32);
                self.clients[usize::from(client)].receive(self.now, &bytes);
                self.drain_client(client);
            }
            Event::ClientTick { client } => self.tick_client(client),
            Event::Load { client } => self.load_client(client),
            _ => {}
        }
    }

    fn step_node(&mut self, node: u32, event: Event) {
        let Some(n) = self.nodes.get_mut(&node) else {
            return;
        };
        if n.is_paused {
            return n.hold(event);
        }
        let now = n.clock.shown(self.now);
        match event {
            Event::Datagram { from, bytes, .. } => {
                n.worker.handle_datagram(now, from, &bytes);
                self.note(bytes.len() as u64);
            }
            Event::HandlerEnds { incarnation, .. } => {
                if n.incarnation != incarnation {
                    return;
                }
                self.on_handler_end(node, incarnation);
            }
            Event::Plan { plan, .. } => n.worker.handle_plan(now, plan),
            Event::Synced { incarnation, .. } => {
                if n.incarnation != incarnation {
                    return;
                }
                self.on_synced(node);
            }
            Event::HttpAnswer {
                incarnation,
                ask,
                answer,
                ..
            } => self.on_http_answer(node, incarnation, ask, answer),
            Event::Tick { incarnation, .. } => {
                if n.incarnation != incarnation || n.tick_at > self.now {
                    return;
                }
                n.tick_at = Timestamp::MAX;
            }
            Event::ClientTick { .. } | Event::Load { .. } => {}
        }
        self.drain(node);
    }

    /// The driver's loop: drains all outputs, then sets one timer.
    fn drain(&mut self, id: u32) {
        let now = self.now;
        let validates = self.next_event.is_multiple_of(self.validates_every);
        while self.drain_once(id, validates) {}
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let next = node.clock.when(node.worker.next_deadline());
        let next = next.max(now + Nanos(1));
        if next < node.tick_at {
            node.tick_at = next;
            let incarnation = node.incarnation;
            let node = id;
            self.push(next, Event::Tick { node, incarnation });
        }
    }

    /// One turn of the loop; whether a handler goes on with the answer to its call.
    fn drain_once(&mut self, id: u32, validates: bool) -> bool {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&id) else {
            return false;
        };
        node.worker.handle_tick(node.clock.shown(now));
        if validates {
            node.worker.validate();
        }
        let mut goes_on = false;
        while let Some(node) = self.nodes.get_mut(&id)
            && let Some(output) = node.worker.poll_output()
        {
            match output {
                Output::Send { to, bytes } => self.transmit(node_address(id), to, bytes),
                Output::Answer { .. } => unreachable!("clients send datagrams"),
                Output::Relay { .. } => unreachable!("no host is behind a SmartNIC here"),
                Output::Http(ask) => self.begin_http(id, ask),
                Output::HttpCancel { ticket } => self.cancel_http(id, ticket),
                Output::Start { key, state } => node.start(key, state, self.next_event),
                Output::Stop { key } => node.stop(key),
                Output::Discard { .. } => {}
                Output::Execute { key, invocation } => self.execute(id, key, invocation),
                Output::CallAnswer {
                    key,
                    awaited: (token, _),
                    answer,
                } => {
                    goes_on = true;
                    self.on_call_answer(id, (key, token), answer);
                }
                Output::Journal { number, record } => self.append(id, number, record),
                Output::Export {
                    key,
                    number,
                    offset,
                    bytes,
                } => self.exports.push(Export {
                    node: id,
                    incarnation: self.nodes[&id].incarnation,
                    key,
                    number,
                    offset,
                    bytes,
                }),
                Output::Fetch {
                    key,
                    order,
                    number,
                    part,
                } => self.fetches.push(Fetch {
                    node: id,
                    incarnation: self.nodes[&id].incarnation,
                    key,
                    order,
                    number,
                    part,
                    len: 0,
                }),
                Output::TrimJournal { before } => {
                    self.disk(id).trim(before);
                }
            }
        }
        goes_on
    }

    /// Gives the worker the result of a run, unless the instance has stopped meanwhile, or the run waits
    /// for a call.
    fn complete(&mut self, id: u32, run: HandlerRun) {
        let node = self.nodes.get(&id);
        if !node.is_some_and(|node| node.has_instance(&run)) {
            return;
        }
        let Some(run) = self.begin_call(id, run) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let HandlerRun {
            key, invocation, ..
        } = run;
        let state = node.states.get(&key);
        let Some((_, state)) = state.filter(|(of, _)| *of == run.instance) else {
            return;
        };
        let (app, service) = (usize::from(key.app.0) - 1, usize::from(key.service.0));
        let plan = node.worker.plan().apps.iter().find(|a| a.id == key.app);
        let service = if plan.is_some_and(|plan| plan.modules[service] == FAILING) {
            &Service::Failing
        } else {
            &self.services[app][service]
        };
        let (random, ledger) = (&mut self.random, &mut self.ledger);
        ledger.now = self.now;
        let done = service.handle(key, invocation, &mut state.borrow_mut(), random, ledger);
        let now = node.clock.shown(self.now);
        node.worker.handle_completion(now, key, done);
    }

    fn execute(&mut self, id: u32, key: ShardKey, invocation: Invocation) {
        let (app, service) = (usize::from(key.app.0) - 1, usize::from(key.service.0));
        let busy = self.services[app][service].service_time();
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        if let Some(incarnation) = node.incarnation_under_leases(key) {
            self.ledger.on_acting(key, incarnation, id);
        }
        let instance = node.states.get(&key).map_or(0, |(instance, _)| *instance);
        node.runs.push_back(HandlerRun {
            key,
            instance,
            invocation,
            has_called: false,
            busy,
        });
        let (is_first, incarnation) = (node.runs.len() == 1, node.incarnation);
        if let Some(at) = node.run_ends(self.now).filter(|_| is_first) {
            let node = id;
            self.push(at, Event::HandlerEnds { node, incarnation });
        }
    }
}
