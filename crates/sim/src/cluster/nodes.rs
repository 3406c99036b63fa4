//! The nodes of a simulated cluster: processes that start, pause and die.

use super::{CLUSTER, Cluster, Event};
use crate::clock::SimClock;
use crate::effects::Effect;
use e3_collections::State;
use e3_dataplane::{Config, Worker};
use e3_invocation::Invocation;
use e3_model::plan::{NodeEvent, NodePlan};
use e3_model::timing::CLOCK_SKEW_MAX;
use e3_model::{AppId, Formats, Nanos, NodeId, NodeKind, ServiceId, ShardKey, Timestamp};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// Short, so that there are many checkpoints.
const JOURNAL_LEN_MIN: u64 = 20_000;
/// Datagrams that wait for a paused process; the system drops any more.
const HELD_MAX: usize = 2_000;

/// A run of a handler.
pub(super) struct HandlerRun {
    pub(super) key: ShardKey,
    /// The number of the instance that it was given to.
    pub(super) instance: u64,
    pub(super) invocation: Invocation,
    /// It has decided about its call.
    pub(super) has_called: bool,
    /// How long it takes on a node that is not slow.
    pub(super) busy: Nanos,
}

/// A handler that waits for the answer to its call.
pub(super) struct Calling {
    pub(super) run: HandlerRun,
    pub(super) service: (AppId, ServiceId),
    pub(super) effect: Effect,
    /// Whether the effect must be there.
    pub(super) is_certain: bool,
}

pub(super) struct Node {
    pub(super) worker: Worker,
    pub(super) incarnation: u32,
    /// By shard: the number of its instance, and its state.
    pub(super) states: BTreeMap<ShardKey, (u64, Rc<RefCell<State>>)>,
    /// What its core runs, and what it runs next.
    pub(super) runs: VecDeque<HandlerRun>,
    /// Runs that wait for the answer to their call, by shard and token.
    pub(super) calling: BTreeMap<(ShardKey, u64), Calling>,
    /// Tickets of requests over HTTP that nobody waits for.
    pub(super) http_cancelled: BTreeSet<u64>,
    /// Runs that come after one of these at the same instance.
    pub(super) blocked: VecDeque<HandlerRun>,
    pub(super) tick_at: Timestamp,
    pub(super) clock: SimClock,
    pub(super) is_paused: bool,
    /// The events that wait until it resumes.
    held: VecDeque<Event>,
    /// The factor by which handlers take longer.
    pub(super) slowness: u64,
}

impl Node {
    pub(super) fn hold(&mut self, event: Event) {
        let is_datagram = matches!(event, Event::Datagram { .. });
        if !is_datagram || self.held.len() < HELD_MAX {
            self.held.push_back(event);
        }
    }

    /// Starts the instance of a shard, with this number, or gives the one that runs another state.
    pub(super) fn start(&mut self, key: ShardKey, state: Rc<RefCell<State>>, number: u64) {
        let running = self.states.get(&key).map(|(instance, _)| *instance);
        self.states.insert(key, (running.unwrap_or(number), state));
    }

    /// Stops the instance of a shard. Its runs that wait for a call of their own, or for that of the one
    /// before them, end with it.
    pub(super) fn stop(&mut self, key: ShardKey) {
        self.states.remove(&key);
        self.calling.retain(|(of, _), _| *of != key);
        self.blocked.retain(|run| run.key != key);
    }

    /// Whether the instance of a run still runs.
    pub(super) fn has_instance(&self, run: &HandlerRun) -> bool {
        let state = self.states.get(&run.key);
        state.is_some_and(|(of, _)| *of == run.instance)
    }

    /// Whether a run of a shard's instance waits for a call.
    pub(super) fn is_calling(&self, key: ShardKey) -> bool {
        self.calling.keys().any(|(of, _)| *of == key)
    }

    /// The next run of a shard's instance that waited for the call of another, if none waits any more.
    pub(super) fn unblock(&mut self, key: ShardKey) -> Option<HandlerRun> {
        let blocked = self.blocked.iter().position(|run| run.key == key);
        self.blocked
            .remove(blocked.filter(|_| !self.is_calling(key))?)
    }

    /// When the run that begins now ends, if there is one.
    pub(super) fn run_ends(&self, now: Timestamp) -> Option<Timestamp> {
        Some(now + self.runs.front()?.busy * self.slowness)
    }

    /// The incarnation of a shard in this node's plan, if leases decide who serves it.
    pub(super) fn incarnation_under_leases(&self, key: ShardKey) -> Option<u32> {
        let app = self.worker.plan().apps.iter().find(|a| a.id == key.app)?;
        let service = app.app.service(key.service);
        let mut shards = app.shards.iter();
        let shard = shards.find(|s| (s.service, s.shard) == (key.service, key.shard))?;
        (service.stateful && service.replicas > 1).then_some(shard.incarnation)
    }
}

impl Cluster {
    /// Requests that hold a place of their application's `admittedMax` at some node.
    pub fn admitted(&self) -> u32 {
        self.nodes.values().map(|n| n.worker.in_flight()).sum()
    }

    /// Starts a node's process.
    pub fn start(&mut self, node: u32, incarnation: u32) {
        self.start_with(node, incarnation, SimClock::TRUE, Formats::PROGRAM);
    }

    /// Starts a node's process with this clock, of a program that has these formats.
    pub fn start_with(&mut self, node: u32, incarnation: u32, clock: SimClock, formats: Formats) {
        let config = Config {
            node: NodeId(node),
            incarnation,
            cluster: CLUSTER,
            formats,
            kind: NodeKind::Host,
            journal_len_min: JOURNAL_LEN_MIN,
            slowed: false,
            emulated: None,
        };
        let mut worker = Worker::new(config);
        let recovery = self
            .disks
            .get_mut(&node)
            .and_then(|disk| disk.begin(formats));
        if let Some(recovery) = recovery {
            worker.handle_recovery(clock.shown(self.now), recovery);
        }
        let new = Node {
            worker,
            incarnation,
            states: BTreeMap::new(),
            runs: VecDeque::new(),
            calling: BTreeMap::new(),
            http_cancelled: BTreeSet::new(),
            blocked: VecDeque::new(),
            tick_at: Timestamp::MAX,
            clock,
            is_paused: false,
            held: VecDeque::new(),
            slowness: 1,
        };
        self.ledger.on_started(self.now);
        self.nodes.insert(node, new);
    }

    /// Tells a node what the controller's clock showed after `asked`.
    pub fn take_controller_time(&mut self, node: u32, asked: Timestamp, theirs: Timestamp) {
        if let Some(n) = self.nodes.get_mut(&node) {
            let (now, asked) = (n.clock.shown(self.now), n.clock.shown(asked));
            n.worker.handle_controller_time(now, asked, theirs);
        }
    }

    /// Kills a node's process: everything in its memory is gone, and of its last write to its disk a part
    /// may be there.
    pub fn kill(&mut self, node: u32) {
        self.nodes.remove(&node);
        self.crash_disk(node, false);
    }

    /// Cuts the power of a node: of what is not durable on its disk, any parts may be gone too.
    pub fn cut_power(&mut self, node: u32) {
        self.nodes.remove(&node);
        self.crash_disk(node, true);
    }

    /// Pauses a node's process, or resumes it.
    pub fn pause(&mut self, node: u32, is_paused: bool) {
        let Some(n) = self.nodes.get_mut(&node) else {
            return;
        };
        n.is_paused = is_paused;
        if !is_paused {
            for event in std::mem::take(&mut n.held) {
                self.push(self.now, event);
            }
        }
    }

    /// Slows a node's handlers down by this factor.
    pub fn slow(&mut self, node: u32, slowness: u64) {
        if let Some(n) = self.nodes.get_mut(&node) {
            n.slowness = slowness;
        }
    }

    /// Whether a node's clock is off by more than the product allows.
    pub(crate) fn has_wrong_clock(&self, node: u32) -> bool {
        self.nodes.get(&node).is_some_and(|n| {
            let shown = n.clock.shown(self.now);
            shown.since(self.now).max(self.now.since(shown)) > CLOCK_SKEW_MAX
        })
    }

    /// Lets a node's clock drift from now on.
    pub fn drift(&mut self, node: u32, fast_ppm: i64) {
        if let Some(n) = self.nodes.get_mut(&node) {
            n.clock = n.clock.drift(self.now, fast_ppm);
        }
    }

    /// The nodes whose process runs.
    pub fn up(&self) -> Vec<u32> {
        self.nodes.keys().copied().collect()
    }

    /// The incarnation of a node, if its process runs.
    pub fn incarnation(&self, node: u32) -> Option<u32> {
        Some(self.nodes.get(&node)?.incarnation)
    }

    /// Gives a node its plan after a short delay.
    pub fn plan(&mut self, plan: NodePlan) {
        let node = plan.node.0;
        let at = self.now + Nanos(1_000_000 + self.random.below(20_000_000));
        let plan = Arc::new(plan);
        self.push(at, Event::Plan { node, plan });
    }

    /// Gives a node its plan now.
    pub fn plan_now(&mut self, plan: Arc<NodePlan>) {
        let node = plan.node.0;
        self.push(self.now, Event::Plan { node, plan });
    }

    /// The events that a node has for the controller.
    pub fn events(&self, node: u32) -> Vec<NodeEvent> {
        let node = self.nodes.get(&node);
        node.map(|n| n.worker.events()).unwrap_or_default()
    }

    /// The collections of a shard on a node.
    pub fn state(&self, node: u32, key: ShardKey) -> Option<Rc<RefCell<State>>> {
        self.nodes.get(&node)?.worker.state(key)
    }

    /// The worker of a node.
    pub fn worker(&self, node: u32) -> Option<&Worker> {
        Some(&self.nodes.get(&node)?.worker)
    }

    /// The same, to be changed.
    pub fn worker_mut(&mut self, node: u32) -> Option<&mut Worker> {
        Some(&mut self.nodes.get_mut(&node)?.worker)
    }

    /// Whether this process of a node runs; None if it is gone.
    pub(crate) fn runs(&self, node: u32, incarnation: u32) -> Option<bool> {
        let n = self.nodes.get(&node);
        let n = n.filter(|n| n.incarnation == incarnation)?;
        Some(!n.is_paused)
    }

    /// Bytes of a shard's part of a backup up to this one have left a node.
    pub(crate) fn on_exported(&mut self, node: u32, key: ShardKey, number: u64, len: u64) {
        let Some(n) = self.nodes.get_mut(&node) else {
            return;
        };
        let now = n.clock.shown(self.now);
        n.worker.handle_exported(now, key, number, len);
        self.drain(node);
    }

    /// The next bytes of a part arrive at a node.
    pub(crate) fn on_part(&mut self, node: u32, key: ShardKey, order: u64, bytes: &[u8]) {
        let Some(n) = self.nodes.get_mut(&node) else {
            return;
        };
        let now = n.clock.shown(self.now);
        n.worker.handle_part(now, key, order, bytes);
        self.drain(node);
    }
}
