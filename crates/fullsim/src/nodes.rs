//! The nodes of the full fidelity: workers, the shards' collections, and the datagrams and runs that the simulator
//! moves by number.
//!
//! A log entry waits at its backup until the hardware thread of the shard has applied it; then the worker gets it, in
//! a datagram of its own. Everything else that a worker does takes no time: the profiles' service times
//! contain receiving and sending.

use crate::boot::{self, BEGIN, client_address};
use crate::requests::Requests;
use crate::stub::{self, Stub};
use e3_collections::State;
use e3_dataplane::{Output, Worker};
use e3_invocation::{Completion, Invocation, Outcome};
use e3_model::plan::{AppPlan, ShardPlan};
use e3_model::{
    Address, AppId, Format, Formats, Nanos, NodeId, ServiceId, ShardId, ShardKey, Slot, Timestamp,
};
use e3_perfsim::{Arrival, DataPlane, Input, NodeAction};
use e3_simcontrol::{ProductController, SharedExchange, node_address, node_of};
use e3_wire::client::ClientFrame;
use e3_wire::datagram::{HEADER_LEN, Kind, open, seal};
use e3_wire::entry::Outcome as Answered;
use e3_wire::frame::{Ends, Frame};
use e3_wire::replicated::Replicated;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// A number in a table whose places are used again.
#[derive(Debug)]
struct Numbered<T> {
    all: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Numbered<T> {
    fn new() -> Numbered<T> {
        Numbered {
            all: Vec::new(),
            free: Vec::new(),
        }
    }

    fn add(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.all[at as usize] = Some(item);
                at
            }
            None => {
                self.all.push(Some(item));
                (self.all.len() - 1) as u32
            }
        }
    }

    fn take(&mut self, at: u32) -> T {
        self.free.push(at);
        self.all[at as usize].take().expect("it was added")
    }
}

/// A run on a hardware thread.
#[derive(Debug)]
enum Work {
    /// Of a handler.
    Handler {
        key: ShardKey,
        invocation: Box<Invocation>,
    },
    /// Of an entry at a backup: where it comes from, and its datagram.
    Entry { from: Address, bytes: Vec<u8> },
}

struct Node {
    worker: Worker,
    states: BTreeMap<ShardKey, Rc<RefCell<State>>>,
    wake_at: Timestamp,
}

/// All nodes.
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    stubs: Vec<Stub>,
    answered_by: Option<ServiceId>,
    /// The cluster's.
    format: Format,
    requests: Requests,
    app: AppId,
    ingress_service: ServiceId,
    /// By shard of the ingress service: the node of its primary.
    ingress: Vec<u32>,
    exchange: SharedExchange,
    /// Plans that nodes have taken from it.
    plans: u64,
    /// Datagrams on their way, with the addresses that they come from.
    datagrams: Numbered<(Address, Vec<u8>)>,
    work: Numbered<Work>,
    /// Of what stubs draw.
    seed: u64,
}

fn time(now: u64) -> Timestamp {
    BEGIN + Nanos(now)
}

impl Nodes {
    /// A cluster that is ready, with the plan of a controller.
    pub fn new(
        input: &Input<'_>,
        seed: u64,
        controller: &ProductController,
        exchange: SharedExchange,
    ) -> Nodes {
        let control = controller.control();
        let cluster = boot::start(input, control);
        let (ingress_service, _) = input
            .app
            .service_named(&input.app.spec.ingress)
            .expect("checked when parsed");
        let services = 0..input.app.spec.services.len();
        let stubs = services.map(|s| Stub::new(input, ServiceId(s as u16)));
        let node = |worker| Node {
            worker,
            states: BTreeMap::new(),
            wake_at: Timestamp::MAX,
        };
        let mut nodes = Nodes {
            stubs: stubs.collect(),
            answered_by: input.options.answered_by,
            format: control.format,
            requests: Requests::new(controller.app(), input.request_bytes),
            app: controller.app(),
            ingress_service,
            ingress: Vec::new(),
            exchange,
            plans: 0,
            nodes: cluster.workers.into_iter().map(node).collect(),
            datagrams: Numbered::new(),
            work: Numbered::new(),
            seed,
        };
        nodes.find_ingress(&control.apps[&controller.app()].plan);
        let mut actions = Vec::new();
        for (node, output) in cluster.outputs {
            nodes.on_output(BEGIN, node, output, &mut actions);
        }
        nodes
    }

    /// Clients send to the primaries of the ingress service.
    fn find_ingress(&mut self, plan: &AppPlan) {
        let is_ingress = |shard: &&ShardPlan| shard.service == self.ingress_service;
        let shards = plan.shards.iter().filter(is_ingress);
        self.ingress = shards.map(|shard| shard.primary.0).collect();
    }

    /// The driver's loop on a node: one tick, all outputs, one timer.
    fn turn(&mut self, now: u64, id: u32, actions: &mut Vec<NodeAction>) {
        let at = time(now);
        loop {
            let worker = &mut self.nodes[id as usize].worker;
            worker.handle_tick(at);
            let mut has_more = false;
            while let Some(output) = self.nodes[id as usize].worker.poll_output() {
                has_more |= self.on_output(at, id, output, actions);
            }
            if !has_more {
                break;
            }
        }
        let node = &mut self.nodes[id as usize];
        let next = node.worker.next_deadline().max(at + Nanos(1));
        if next < node.wake_at {
            node.wake_at = next;
            actions.push(NodeAction::Wake {
                node: id,
                at: next.since(BEGIN).0,
            });
        }
    }

    /// Does what a worker wants done; whether the worker may go on at once.
    fn on_output(
        &mut self,
        now: Timestamp,
        id: u32,
        output: Output,
        actions: &mut Vec<NodeAction>,
    ) -> bool {
        match output {
            Output::Send { to, bytes } => match node_of(to) {
                Some(to) => actions.push(NodeAction::Send {
                    from: id,
                    to: to.0,
                    bytes: bytes.len() as u32,
                    token: self.datagrams.add((node_address(NodeId(id)), bytes)),
                }),
                None => self.on_client(id, &bytes, actions),
            },
            Output::Start { key, state } => {
                self.nodes[id as usize].states.insert(key, state);
            }
            Output::Stop { key } => {
                self.nodes[id as usize].states.remove(&key);
            }
            Output::Execute { key, invocation } => {
                let request = self.requests.number(invocation.id.request.seq);
                let (service, shard) = (key.service.0, key.shard.0);
                let invocation = Box::new(invocation);
                actions.push(NodeAction::Run {
                    node: id,
                    service,
                    shard,
                    is_backup: false,
                    request,
                    token: self.work.add(Work::Handler { key, invocation }),
                });
            }
            // The disk takes no time here.
            Output::Journal { number, .. } => {
                let node = &mut self.nodes[id as usize];
                node.worker.handle_journaled(now, number);
                return true;
            }
            // Applications with calls are refused, stubs ask nothing over HTTP, and nothing is backed up.
            Output::Relay { .. }
            | Output::Answer { .. }
            | Output::Http(_)
            | Output::HttpCancel { .. }
            | Output::Discard { .. }
            | Output::CallAnswer { .. }
            | Output::Export { .. }
            | Output::Fetch { .. }
            | Output::TrimJournal { .. } => {}
        }
        false
    }

    /// Answers for the client.
    fn on_client(&mut self, from: u32, bytes: &[u8], actions: &mut Vec<NodeAction>) {
        let Ok((_, mut reader)) = open(Formats::PROGRAM, bytes) else {
            return;
        };
        let mut first = bytes.len() as u32;
        while let Ok(ClientFrame::Reply { id, reply, .. }) = ClientFrame::decode(&mut reader) {
            let Some(request) = self.requests.on_outcome(id.seq) else {
                continue;
            };
            // Answers that share a datagram share its time on the port.
            let bytes = std::mem::take(&mut first);
            actions.push(match reply.outcome {
                Answered::Done => NodeAction::Answer {
                    from,
                    bytes,
                    request,
                },
                _ => NodeAction::Refuse { request },
            });
        }
    }

    /// Separates the log entries of a datagram from the rest of it: the runs that apply them, and the rest.
    fn separate(&mut self, id: u32, from: Address, bytes: Vec<u8>) -> (Vec<NodeAction>, Vec<u8>) {
        let Ok((header, mut reader)) = open(Formats::PROGRAM, &bytes) else {
            return (Vec::new(), bytes);
        };
        if header.kind != Kind::Peer {
            return (Vec::new(), bytes);
        }
        let datagram = |frame: Option<&Frame<'_>>| {
            let mut out = Vec::new();
            header.encode(&mut out);
            if let Some(frame) = frame {
                frame.encode(&mut out);
            }
            out
        };
        let (mut runs, mut rest) = (Vec::new(), datagram(None));
        while let Ok(frame) = Frame::decode(&mut reader) {
            let replicated = replicated(&frame);
            if let Some((service, shard, Replicated::Entry(entry))) = replicated {
                let mut bytes = datagram(Some(&frame));
                seal(self.format, &mut bytes);
                runs.push(NodeAction::Run {
                    node: id,
                    service: service.0,
                    shard: shard.0,
                    is_backup: true,
                    request: self.requests.number(entry.id.request.seq),
                    token: self.work.add(Work::Entry { from, bytes }),
                });
            } else {
                if let Some((_, _, Replicated::SnapshotState { piece, .. })) = replicated {
                    let bytes = piece.len() as u32;
                    runs.push(NodeAction::Copied { bytes });
                }
                frame.encode(&mut rest);
            }
        }
        if runs.is_empty() {
            return (runs, bytes);
        }
        if rest.len() == HEADER_LEN {
            rest.clear();
        } else {
            seal(self.format, &mut rest);
        }
        (runs, rest)
    }

    /// A handler has run.
    fn complete(&mut self, now: u64, id: u32, key: ShardKey, invocation: Invocation) {
        let node = &mut self.nodes[id as usize];
        let Some(state) = node.states.get(&key) else {
            return;
        };
        let stub = &self.stubs[usize::from(key.service.0)];
        let mut effects = stub.handle(&invocation, &mut state.borrow_mut(), self.seed);
        let answers = self.answered_by == Some(key.service);
        if self
            .requests
            .on_run(invocation.id, effects.outputs.len(), answers)
        {
            effects.reply = Some(stub::answer(&invocation));
        }
        let done = Completion {
            token: invocation.token,
            outcome: Outcome::Completed(effects),
            busy: Nanos::ZERO,
        };
        node.worker.handle_completion(time(now), key, done);
    }
}

/// What a primary sends to a replica of its shard.
fn replicated(frame: &Frame<'_>) -> Option<(ServiceId, ShardId, Replicated)> {
    let Frame::Data { link, body, .. } = frame else {
        return None;
    };
    let Ends::Replication { service, shard, .. } = link.ends else {
        return None;
    };
    Some((service, shard, Replicated::decode(body).ok()?))
}

impl DataPlane for Nodes {
    fn on_begin(&mut self, actions: &mut Vec<NodeAction>) {
        for node in 0..self.nodes.len() as u32 {
            self.turn(0, node, actions);
        }
    }

    fn on_request(&mut self, now: u64, request: u32, slot: u16) -> Arrival {
        let bytes = self.requests.submit(time(now), request, slot);
        let shard = Slot(slot).shard(self.ingress.len() as u16);
        Arrival {
            to: self.ingress[usize::from(shard.0)],
            bytes: bytes.len() as u32,
            token: self.datagrams.add((client_address(), bytes)),
        }
    }

    fn on_datagram(&mut self, now: u64, node: u32, token: u32, actions: &mut Vec<NodeAction>) {
        let (from, bytes) = self.datagrams.take(token);
        let (runs, rest) = self.separate(node, from, bytes);
        actions.extend(runs);
        if !rest.is_empty() {
            let worker = &mut self.nodes[node as usize].worker;
            worker.handle_datagram(time(now), from, &rest);
            self.turn(now, node, actions);
        }
    }

    fn on_done(&mut self, now: u64, node: u32, token: u32, actions: &mut Vec<NodeAction>) {
        match self.work.take(token) {
            Work::Handler { key, invocation } => self.complete(now, node, key, *invocation),
            Work::Entry { from, bytes } => {
                let worker = &mut self.nodes[node as usize].worker;
                worker.handle_datagram(time(now), from, &bytes);
            }
        }
        self.turn(now, node, actions);
    }

    fn on_wake(&mut self, now: u64, node: u32, actions: &mut Vec<NodeAction>) {
        let at = &mut self.nodes[node as usize];
        if at.wake_at > time(now) {
            return;
        }
        at.wake_at = Timestamp::MAX;
        self.turn(now, node, actions);
    }

    fn waiting(&self, node: u32) -> u32 {
        self.nodes[node as usize].worker.queue_len()
    }

    fn on_controlled(&mut self, now: u64, actions: &mut Vec<NodeAction>) {
        let plans = self.exchange.borrow_mut().take_plans();
        for (node, mut plan) in plans {
            self.plans += 1;
            plan.revision = self.plans;
            if let Some(app) = plan.apps.iter().find(|app| app.id == self.app) {
                self.find_ingress(app);
            }
            let worker = &mut self.nodes[node.index()].worker;
            worker.handle_plan(time(now), Arc::new(plan));
            self.turn(now, node.0, actions);
        }
        let events = self.nodes.iter().flat_map(|node| node.worker.events());
        self.exchange.borrow_mut().report(events.collect());
    }
}
