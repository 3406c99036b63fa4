//! Hardware threads and their queues.

use crate::arena::{Arena, Message, NONE, What};
use crate::event::Kind;
use crate::fifo::Fifo;
use crate::input::Steering;
use crate::model::Model;
use crate::report::Span;
use crate::simulator::Simulator;
use crate::station::Station;
use crate::turns::Turn;
use e3_hardware::cores::Awake;
use e3_model::NodeKind;

/// A hardware thread.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Thread {
    node: u32,
    last_service: u16,
    core: u32,
    /// What it runs, or [`NONE`].
    running: u32,
    queue: Fifo,
    station: Station,
    busy: u64,
}

// One line of the cache.
const _: () = assert!(size_of::<Thread>() == 64);

/// What the threads of a node share.
#[derive(Clone, Copy, Default)]
struct OfNode {
    /// The thread that gets the next message of a stateless service.
    next: u32,
    /// Messages that wait for its threads.
    waiting: u32,
    queue: Fifo,
    station: Station,
    awake: Awake,
    /// When it was switched on last: a SmartNIC by its first message, a host that never sleeps by its
    /// first instance. None if it is off.
    on_since: Option<u64>,
    /// How long it was on before that.
    on_time: u64,
    /// Time of its cores that work took.
    work: u64,
}

impl OfNode {
    /// How long it was on until now.
    fn on_total(&self, now: u64) -> u64 {
        self.on_time + self.on_since.map_or(0, |since| now - since)
    }
}

/// All threads.
pub(crate) struct Threads {
    threads: Vec<Thread>,
    cores: Vec<Awake>,
    nodes: Vec<OfNode>,
    /// By node: its first core.
    first_core: Vec<u32>,
    /// By node and service: how much longer the service takes there.
    factor: Vec<f32>,
    /// By thread, on a measured machine only.
    pub(crate) turns: Vec<Turn>,
}

impl Threads {
    pub fn new(model: &Model) -> Threads {
        let mut threads = Vec::new();
        let (mut first_core, mut cores) = (Vec::new(), 0);
        for (at, node) in model.nodes.iter().enumerate() {
            first_core.push(cores);
            threads.extend((0..node.threads()).map(|n| Thread {
                node: at as u32,
                last_service: u16::MAX,
                core: cores + n / node.threads_per_core,
                running: NONE,
                queue: Fifo::default(),
                station: Station::default(),
                busy: 0,
            }));
            cores += node.core_count;
        }
        let turns = model.options.machine.iter().flat_map(|_| &threads);
        let mut all = Threads {
            turns: turns.map(|_| Turn::default()).collect(),
            threads,
            cores: vec![Awake::default(); cores as usize],
            nodes: vec![OfNode::default(); model.nodes.len()],
            first_core,
            factor: factors(model),
        };
        (0..model.nodes.len()).for_each(|node| all.switch_on(model, node, 0));
        all
    }

    /// A host whose cores never sleep draws power if it has an instance.
    pub fn switch_on(&mut self, model: &Model, node: usize, now: u64) {
        let of = &model.nodes[node];
        let sleeps = model.cores[of.kind as usize].linger.is_some();
        if of.kind == NodeKind::Host && !sleeps && of.used_from.is_some() {
            self.nodes[node].on_since.get_or_insert(now);
        }
    }

    /// A node that has failed draws nothing beside its part of the server's idle power.
    pub fn switch_off(&mut self, node: usize, now: u64) {
        let of = &mut self.nodes[node];
        of.on_time = of.on_total(now);
        of.on_since = None;
    }

    /// A service has moved: other services are its neighbours.
    pub fn note_moved(&mut self, model: &Model) {
        self.factor = factors(model);
    }

    /// A message waits in the queue of a thread.
    pub fn push(&mut self, at: usize, id: u32, messages: &mut Arena<Message>) {
        self.threads[at].queue.push(id, messages);
    }

    /// A message waits for a thread.
    pub fn note_waiting(&mut self, at: usize) {
        self.nodes[self.threads[at].node as usize].waiting += 1;
    }

    /// Messages that wait for the threads of a node.
    pub fn waiting(&self, node: usize) -> u32 {
        self.nodes[node].waiting
    }

    /// Time of a node's cores that work took.
    pub fn work(&self, node: usize) -> u64 {
        self.nodes[node].work
    }

    /// Time that each thread of a node was busy until now.
    pub fn busy<'a>(
        &'a self,
        model: &'a Model,
        messages: &'a Arena<Message>,
        node: usize,
        now: u64,
    ) -> impl Iterator<Item = u64> + 'a {
        let of = self.threads[model.nodes[node].all_threads()].iter();
        of.map(move |t| match t.running {
            NONE => t.busy,
            id => t.busy + now - messages[id].started,
        })
    }

    /// What the threads of a node run.
    pub fn running(&self, model: &Model, node: usize) -> impl Iterator<Item = u32> {
        let of = self.threads[model.nodes[node].all_threads()].iter();
        of.map(|t| t.running).filter(|id| *id != NONE)
    }

    /// Takes out of the queues of a node what waits there and is meant, in the order in which it came.
    pub fn take_where(
        &mut self,
        model: &Model,
        messages: &mut Arena<Message>,
        node: usize,
        now: u64,
        is_it: impl Fn(&Message) -> bool,
    ) -> Vec<u32> {
        let of = &mut self.nodes[node];
        let own = self.threads[model.nodes[node].all_threads()].iter_mut();
        let own = own.map(|t| (&mut t.queue, &mut t.station));
        let mut taken = Vec::new();
        for (queue, station) in own.chain([(&mut of.queue, &mut of.station)]) {
            let mut all = std::mem::take(queue);
            while let Some(id) = all.pop(messages) {
                if !is_it(&messages[id]) {
                    queue.push(id, messages);
                    continue;
                }
                station.leave(now, messages[id].entered);
                of.waiting -= 1;
                taken.push(id);
            }
        }
        taken.sort_by_key(|id| messages[*id].entered);
        taken
    }

    /// Energy of a node above idle until now, in joules.
    pub fn joules(&self, model: &Model, at: usize, now: u64) -> f64 {
        let (node, of) = (&model.nodes[at], &self.nodes[at]);
        let first = self.first_core[at] as usize;
        let cores = &self.cores[first..first + node.core_count as usize];
        let (fixed, per_core) = match node.kind {
            // It serves from its first message on.
            NodeKind::SmartNic => (of.on_total(now), of.work),
            NodeKind::Host => match model.cores[node.kind as usize].linger {
                Some(linger) => {
                    let cores = cores.iter().map(|c| c.total(now, linger));
                    (of.awake.total(now, linger), cores.sum())
                }
                None => (
                    of.on_total(now),
                    of.on_total(now) * u64::from(node.core_count),
                ),
            },
        };
        (fixed as f64 * node.power.fixed_w + per_core as f64 * node.power.per_core_w) * 1e-9
    }

    pub fn memory_bytes(&self) -> usize {
        self.threads.len() * size_of::<Thread>()
            + self.cores.len() * size_of::<Awake>()
            + self.nodes.len() * size_of::<OfNode>()
            + self.factor.len() * size_of::<f32>()
            + self.turns.len() * size_of::<Turn>()
    }
}

/// Several services on a SmartNIC contend for its cache.
fn factors(model: &Model) -> Vec<f32> {
    let services = model.services.len();
    let mut there = vec![false; model.nodes.len() * services];
    for (s, service) in model.services.iter().enumerate() {
        for i in 0..u32::from(service.shards) {
            let shard = model.shards[(service.first_shard + i) as usize];
            there[shard.primary.node as usize * services + s] = true;
        }
    }
    let of_node = |(node, there): (&crate::model::Node, &[bool])| {
        let count = there.iter().filter(|t| **t).count();
        let more = if count > 1 {
            model.cores[node.kind as usize].contention
        } else {
            0.0
        };
        vec![(1.0 + more) as f32; services]
    };
    let nodes = model.nodes.iter().zip(there.chunks(services));
    nodes.flat_map(of_node).collect()
}

impl Simulator {
    /// A message waits for a thread of its node.
    pub(crate) fn enqueue(&mut self, id: u32) {
        if self.moves.is_active && self.is_diverted(id) {
            return;
        }
        let now = self.now;
        self.messages[id].entered = now;
        let message = self.messages[id];
        let node = message.to as usize;
        self.threads.nodes[node].on_since.get_or_insert(now);
        let pinned = self.pinned(&message);
        let is_shared = pinned == NONE && self.model.options.steering == Steering::Shared;
        self.messages[id].is_shared = is_shared;
        if is_shared {
            return self.enqueue_shared(node, id);
        }
        let at = match pinned {
            NONE => self.steer(node),
            thread => thread as usize,
        };
        let thread = &mut self.threads.threads[at];
        thread.station.enter(now);
        let is_idle = thread.running == NONE;
        if self.wait_for_turn(at, id) {
            return;
        }
        if is_idle {
            self.start(at, id);
        } else {
            self.threads.push(at, id, &mut self.messages);
            self.threads.note_waiting(at);
        }
    }

    /// The thread of a stateful shard's replica.
    #[inline]
    fn pinned(&self, message: &Message) -> u32 {
        let shard = &self.model.shards[message.shard as usize];
        if message.what == What::Work {
            // In the full fidelity it may have just moved away.
            let is_here = shard.primary.node == message.to;
            return if is_here { shard.primary.thread } else { NONE };
        }
        let first = shard.first_backup as usize;
        let backups = &self.model.backups[first..first + usize::from(shard.backups)];
        let place = backups.iter().find(|b| b.node == message.to);
        place.map_or(NONE, |p| p.thread)
    }

    #[inline]
    fn steer(&mut self, node: usize) -> usize {
        let of = &mut self.threads.nodes[node];
        let at = self.model.nodes[node].thread(of.next);
        of.next = (of.next + 1) % self.model.nodes[node].threads();
        at as usize
    }

    fn enqueue_shared(&mut self, node: usize, id: u32) {
        let threads = self.model.nodes[node].threads();
        let of = &mut self.threads.nodes[node];
        of.station.enter(self.now);
        let order = (0..threads).map(|n| self.model.nodes[node].thread(n) as usize);
        let idle = order
            .into_iter()
            .find(|t| self.threads.threads[*t].running == NONE);
        match idle {
            Some(at) => self.start(at, id),
            None => {
                let of = &mut self.threads.nodes[node];
                of.queue.push(id, &mut self.messages);
                of.waiting += 1;
            }
        }
    }

    fn start(&mut self, at: usize, id: u32) {
        let now = self.now;
        let thread = &mut self.threads.threads[at];
        let message = &mut self.messages[id];
        let (node_at, service_at) = (thread.node as usize, message.service as usize);
        let node = &self.model.nodes[node_at];
        let cores = &self.model.cores[node.kind as usize];
        let service = &self.model.services[service_at];
        let mut work = service.time[node.kind as usize].sample(&mut self.random);
        if message.what == What::Entry {
            work *= self.model.options.guesses.backup_cpu_fraction;
        }
        work *= f64::from(self.threads.factor[node_at * self.model.services.len() + service_at]);
        if thread.last_service != message.service {
            thread.last_service = message.service;
            work += cores.context_switch as f64;
        }
        message.work = work as u32;
        let core = &mut self.threads.cores[thread.core as usize];
        let alone = core.busy() == 0;
        let mut time = (work * if alone { cores.alone } else { cores.beside }) as u64;
        let linger = cores.linger.unwrap_or(u64::MAX);
        if core.begin(now, linger) && cores.linger.is_some() {
            time += cores.wake;
        }
        if alone {
            self.threads.nodes[node_at].awake.begin(now, linger);
        }
        thread.running = id;
        message.started = now;
        if let (Some(turn), Some(machine)) =
            (self.threads.turns.get_mut(at), &self.model.options.machine)
            && turn.wake(now)
        {
            time += machine.wake_ns[node.kind as usize];
        }
        self.schedule(now + time, Kind::Done, at as u32);
    }

    /// A thread has finished its message.
    pub(crate) fn on_done(&mut self, at: u32) {
        let now = self.now;
        let at = at as usize;
        let thread = &mut self.threads.threads[at];
        let id = std::mem::replace(&mut thread.running, NONE);
        let message = self.messages[id];
        let node = thread.node as usize;
        thread.busy += now - message.started;
        let core = &mut self.threads.cores[thread.core as usize];
        core.end(now);
        let of = &mut self.threads.nodes[node];
        if core.busy() == 0 {
            of.awake.end(now);
        }
        of.work += u64::from(message.work);
        if self.run.spans {
            let span = Span {
                node: node as u32,
                thread: at as u32 - self.model.nodes[node].first_thread,
                service: message.service,
                is_backup: message.what == What::Entry,
                start_ns: message.started,
                end_ns: now,
            };
            self.note(span);
        }
        self.book(&message, node);
        let station = if message.is_shared {
            &mut self.threads.nodes[node].station
        } else {
            &mut self.threads.threads[at].station
        };
        station.leave(now, message.entered);
        let has_turns = self.on_turn_done(at, id);
        if !has_turns {
            self.start_next(at);
        }
        if self.model.nodes[node].is_managed {
            self.release(node);
        }
        if has_turns {
            return;
        }
        if message.what == What::Ghost {
            self.messages.remove(id);
            return;
        }
        self.handled(id);
        if !self.moves.stopping.is_empty() && message.what == What::Work {
            self.stop_if_due(message.shard);
        }
    }

    /// Whether Little's law holds on the queues of all threads and nodes.
    pub(crate) fn threads_obey_little(&self) -> bool {
        let entered = |id: u32| self.messages[id].entered;
        let mut nodes: Vec<Vec<u64>> = vec![Vec::new(); self.threads.nodes.len()];
        for (at, thread) in self.threads.threads.iter().enumerate() {
            let turn = self.threads.turns.get(at);
            let arrived = turn.into_iter().flat_map(|t| t.arrived(&self.messages));
            let own = thread.queue.iter(&self.messages).chain(arrived);
            let mut own: Vec<u64> = own.map(entered).collect();
            if thread.running != NONE {
                if self.messages[thread.running].is_shared {
                    nodes[thread.node as usize].push(entered(thread.running))
                } else {
                    own.push(entered(thread.running))
                }
            }
            if !thread.station.obeys_little(self.now, own.into_iter()) {
                return false;
            }
        }
        let all = self.threads.nodes.iter().zip(nodes);
        all.into_iter().all(|(node, running)| {
            let waiting = node.queue.iter(&self.messages).map(entered);
            let there = running.into_iter().chain(waiting);
            node.station.obeys_little(self.now, there)
        })
    }

    /// Starts what has waited longest for a thread.
    pub(crate) fn start_next(&mut self, at: usize) {
        let threads = &mut self.threads;
        let node = threads.threads[at].node as usize;
        let entered = |id: Option<u32>| id.map_or(u64::MAX, |id| self.messages[id].entered);
        let own = entered(threads.threads[at].queue.first());
        let shared = entered(threads.nodes[node].queue.first());
        let queue = if own <= shared {
            &mut threads.threads[at].queue
        } else {
            &mut threads.nodes[node].queue
        };
        if let Some(next) = queue.pop(&self.messages) {
            threads.nodes[node].waiting -= 1;
            self.start(at, next);
        }
    }

    /// Counts what was handled and to whom its energy is attributed.
    fn book(&mut self, message: &Message, node: usize) {
        let services = self.model.services.len();
        let weight = f64::from(message.work) * self.model.nodes[node].power.weight_w;
        let service = usize::from(message.service);
        self.totals.weight_nj[node * services + service] += weight;
        if message.what == What::Ghost {
            self.totals.other_weight_nj += weight;
            return;
        }
        let request = match message.what {
            What::Entry if self.plane.is_none() => self.messages[message.of].of,
            _ => message.of,
        };
        match request {
            NONE => self.totals.other_weight_nj += weight,
            request => self.requests[request].weight_nj += weight,
        }
        if message.what == What::Work {
            self.totals.handled[service] += 1;
            self.totals.sojourn_ns[service] += (self.now - message.entered) as f64;
            if let Some(count) = self.moves.counts.get_mut(message.shard as usize) {
                count.0 += 1;
                count.1 += self.now - message.started;
            }
        }
    }
}
