//! Simulated annealing with the published structure of Service Fabric's resource balancer, as E3 (ATC
//! 2019, 5.4) compares it: load is spread, topology and energy do not count.
//!
//! 1. A random walk from a random placement until no constraint is broken: those of every placer.
//! 2. Annealing. The energy is the standard deviation of the nodes' use, averaged over cores, memory
//!    and bandwidth, times the cost of moves (1 where nothing runs yet), and [`SHARED_RACK`] for each replica
//!    in the rack of another one of its shard. The start temperature is the
//!    mean change of energy over [`PROBES`] random moves; it is multiplied by a factor after each round.
//!
//! It ends when it is cold or when the caller has no more time. The same seed gives the same result,
//! time permitting.

use crate::assignment::{Assignment, reserve};
use crate::cluster::Cluster;
use crate::decision::{PlaceError, Placement, Rule};
use crate::draw;
use crate::fit::{Ask, check_hard, wanted};
use crate::limits::ROUNDING;
use crate::request::{Demand, Request, shift_bytes};
use crate::search::{PRINTED, Search};
use e3_model::plan::Role;
use e3_model::{NodeId, ServiceId};
use e3_random::Random;

/// Random moves from which the start temperature is taken.
const PROBES: usize = 50;
/// Moves of a round, for each instance.
const MOVES_PER_INSTANCE: usize = 8;
/// The search ends at this part of the start temperature.
const COLD: f64 = 1e-3;
/// Energy of a placement in which every replica is in the rack of another one of its shard: more than the
/// deviations change.
const SHARED_RACK: f64 = 2.0;
/// Steps of the random walk, for each instance.
const WALK_PER_INSTANCE: usize = 400;

/// By how much the temperature falls after each round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cooling {
    /// To 0.8 of it.
    Fast,
    /// To 0.98 of it.
    Slow,
}

impl Cooling {
    fn factor(self) -> f64 {
        match self {
            Cooling::Fast => 0.8,
            Cooling::Slow => 0.98,
        }
    }
}

/// An instance that is moved around.
struct Item {
    place: usize,
    shard: usize,
    service: ServiceId,
    role: Role,
}

/// An assignment that is being improved.
struct State<'a> {
    request: &'a Request<'a>,
    cluster: &'a Cluster,
    items: Vec<Item>,
    /// By service in the order of the walk: the nodes that may run it.
    allowed: Vec<Vec<NodeId>>,
    /// By item.
    at: Vec<NodeId>,
    /// By service in the order of the walk, by shard: its items.
    shards: Vec<Vec<Vec<usize>>>,
    /// By node.
    used: Vec<Demand>,
    /// Sums of the nodes' use and of its square, for cores, memory and bandwidth.
    sums: [(f64, f64); 3],
    /// Pairs of replicas of a shard that are in the same rack, where there are several racks.
    pairs: usize,
}

/// Places a whole application and reserves what it takes. `more` says whether there is time left.
pub(crate) fn place(
    request: &Request<'_>,
    cluster: &mut Cluster,
    cooling: Cooling,
    random: &mut Random,
    more: &mut dyn FnMut() -> bool,
) -> Result<Placement, PlaceError> {
    let assignment = {
        let mut state = State::new(request, cluster, random)?;
        state.walk(random, more);
        state.anneal(cooling.factor(), random, more);
        state.part()?;
        state.assignment()
    };
    Ok(reserve(
        request,
        cluster,
        &assignment,
        Rule::Annealed,
        |_, _| Vec::new(),
    ))
}

impl<'a> State<'a> {
    /// A random placement.
    fn new(
        request: &'a Request<'a>,
        cluster: &'a Cluster,
        random: &mut Random,
    ) -> Result<State<'a>, PlaceError> {
        let mut state = State {
            request,
            cluster,
            items: Vec::new(),
            allowed: Vec::new(),
            at: Vec::new(),
            shards: Vec::new(),
            used: vec![Demand::default(); cluster.table_len()],
            sums: [(0.0, 0.0); 3],
            pairs: 0,
        };
        for (id, node) in cluster.nodes() {
            state.used[id.index()] = node.used;
            state.count(id, 1.0);
        }
        for (place, (service, _)) in request.walk().iter().enumerate() {
            let first = state.items.len();
            let allowed = state.allowed(*service)?;
            let spec = request.app.service(*service);
            let mut shards = vec![Vec::new(); usize::from(spec.shards)];
            for (shard, items) in shards.iter_mut().enumerate() {
                for replica in 0..spec.replicas {
                    let role = if replica == 0 {
                        Role::Primary
                    } else {
                        Role::Backup
                    };
                    items.push(state.items.len());
                    let node = *random.pick(&allowed);
                    state.items.push(Item {
                        place,
                        shard,
                        service: *service,
                        role,
                    });
                    state.at.push(node);
                    state.put(state.items.len() - 1, node, 1.0);
                }
            }
            state.allowed.push(allowed);
            state.shards.push(shards);
            let items = first..state.items.len();
            state.pairs += items.map(|item| state.in_rack(item)).sum::<usize>() / 2;
        }
        Ok(state)
    }

    fn allowed(&self, service: ServiceId) -> Result<Vec<NodeId>, PlaceError> {
        let ask = Ask::new(service, Role::Primary, &[]);
        let wanted = wanted(self.request, self.cluster, ask);
        let nodes = self.cluster.nodes().filter(|(id, node)| {
            check_hard(self.request, self.cluster, ask, *id).is_ok()
                && wanted.need.of(node.kind).is_some()
                && node.outstanding <= node.outstanding_max()
        });
        let allowed: Vec<NodeId> = nodes.map(|(id, _)| id).collect();
        if allowed.is_empty() {
            // Where nothing holds it the closest node does, with its flag.
            return Ok(vec![
                Search::new(self.request, self.cluster, PRINTED).closest(ask)?,
            ]);
        }
        Ok(allowed)
    }

    /// Adds or takes away what an item uses of a node.
    fn put(&mut self, item: usize, id: NodeId, sign: f64) {
        let Item { service, role, .. } = self.items[item];
        let demand = self
            .request
            .demand(service, role, self.cluster.node(id).kind);
        self.count(id, -1.0);
        let used = &mut self.used[id.index()];
        used.cpu_cores += sign * demand.cpu_cores;
        used.bandwidth_gbps += sign * demand.bandwidth_gbps;
        shift_bytes(&mut used.memory_bytes, demand.memory_bytes, sign);
        shift_bytes(&mut used.disk_bytes, demand.disk_bytes, sign);
        self.count(id, 1.0);
    }

    fn count(&mut self, id: NodeId, sign: f64) {
        let uses = self.uses(id);
        for ((sum, squares), used) in self.sums.iter_mut().zip(uses) {
            *sum += sign * used;
            *squares += sign * used * used;
        }
    }

    fn uses(&self, id: NodeId) -> [f64; 3] {
        let (node, used) = (self.cluster.node(id), &self.used[id.index()]);
        [
            used.cpu_cores / node.cores,
            used.memory_bytes as f64 / node.memory_bytes as f64,
            used.bandwidth_gbps / node.bandwidth_gbps,
        ]
    }

    /// Mean of the standard deviations, and the cost of shared racks.
    fn energy(&self) -> f64 {
        let count = self.used.len() as f64;
        let deviation = |(sum, squares): &(f64, f64)| {
            let mean = sum / count;
            (squares / count - mean * mean).max(0.0).sqrt()
        };
        let racks = SHARED_RACK * self.pairs as f64 / self.items.len().max(1) as f64;
        self.sums.iter().map(deviation).sum::<f64>() / 3.0 + racks
    }

    fn is_over(&self, id: NodeId) -> bool {
        let (node, used) = (self.cluster.node(id), &self.used[id.index()]);
        used.memory_bytes > node.memory_bytes
            || used.disk_bytes > node.disk_bytes
            || self.uses(id).iter().any(|used| *used > 1.0 + ROUNDING)
    }

    /// Whether its server or rack draws more than it may because of an item.
    fn is_overdrawn(&self, item: usize) -> bool {
        let Item { service, role, .. } = self.items[item];
        let id = self.at[item];
        let kind = self.cluster.node(id).kind;
        let demand = self.request.demand(service, role, kind);
        draw::is_over(self.cluster, &self.used, id, &demand)
    }

    /// Other replicas of its shard in the same rack, where there are several racks.
    fn in_rack(&self, item: usize) -> usize {
        if self.cluster.racks() == 1 {
            return 0;
        }
        let Item { place, shard, .. } = self.items[item];
        let rack = |i: usize| self.cluster.node(self.at[i]).rack;
        let others = self.shards[place][shard].iter().filter(|i| **i != item);
        others.filter(|other| rack(**other) == rack(item)).count()
    }

    /// Whether another replica of its shard is on the same server.
    fn is_shared(&self, item: usize) -> bool {
        let Item { place, shard, .. } = self.items[item];
        let server = |i: usize| self.cluster.node(self.at[i]).server;
        let mut others = self.shards[place][shard].iter().filter(|i| **i != item);
        others.any(|other| server(*other) == server(item))
    }

    fn is_broken(&self, item: usize) -> bool {
        self.is_over(self.at[item]) || self.is_shared(item) || self.is_overdrawn(item)
    }

    fn move_to(&mut self, item: usize, to: NodeId) {
        self.put(item, self.at[item], -1.0);
        self.pairs -= self.in_rack(item);
        self.at[item] = to;
        self.pairs += self.in_rack(item);
        self.put(item, to, 1.0);
    }

    fn random_node(&self, item: usize, random: &mut Random) -> NodeId {
        *random.pick(&self.allowed[self.items[item].place])
    }

    /// Moves instances that break a constraint to random nodes until none does.
    fn walk(&mut self, random: &mut Random, more: &mut dyn FnMut() -> bool) {
        let mut broken: Vec<usize> = (0..self.items.len()).collect();
        for _ in 0..WALK_PER_INSTANCE * self.items.len() {
            let Some(at) = (!broken.is_empty()).then(|| random.index(broken.len())) else {
                return;
            };
            let item = broken[at];
            if !self.is_broken(item) {
                broken.swap_remove(at);
                continue;
            }
            let (from, to) = (self.at[item], self.random_node(item, random));
            self.move_to(item, to);
            if self.is_broken(item) {
                self.move_to(item, from);
            } else {
                broken.swap_remove(at);
            }
            if !more() {
                return;
            }
        }
    }

    /// Tries a random move; takes it back unless `accept` says yes to its change of energy.
    fn try_move(
        &mut self,
        random: &mut Random,
        accept: impl FnOnce(f64, &mut Random) -> bool,
    ) -> f64 {
        let item = random.index(self.items.len());
        let (from, to) = (self.at[item], self.random_node(item, random));
        let before = self.energy();
        self.move_to(item, to);
        let change = self.energy() - before;
        if self.is_broken(item) || !accept(change, random) {
            self.move_to(item, from);
        }
        change
    }

    fn anneal(&mut self, factor: f64, random: &mut Random, more: &mut dyn FnMut() -> bool) {
        if self.items.is_empty() {
            return;
        }
        let probes = (0..PROBES).map(|_| self.try_move(random, |_, _| false).abs());
        let start = probes.sum::<f64>() / PROBES as f64;
        let mut temperature = start;
        while temperature > start * COLD {
            for _ in 0..MOVES_PER_INSTANCE * self.items.len() {
                let accept = |change: f64, random: &mut Random| {
                    change <= 0.0 || random.unit() < (-change / temperature).exp()
                };
                self.try_move(random, accept);
                if !more() {
                    return;
                }
            }
            temperature *= factor;
        }
    }

    /// Parts replicas that still share a server, if the walk has ended too early: that rule is never
    /// broken.
    fn part(&mut self) -> Result<(), PlaceError> {
        for item in 0..self.items.len() {
            if !self.is_shared(item) {
                continue;
            }
            let Item {
                place,
                shard,
                service,
                role,
            } = self.items[item];
            let others = self.shards[place][shard].iter().filter(|i| **i != item);
            let apart: Vec<NodeId> = others.map(|i| self.at[*i]).collect();
            let ask = Ask::new(service, role, &apart);
            let to = Search::new(self.request, self.cluster, PRINTED).closest(ask)?;
            self.move_to(item, to);
        }
        Ok(())
    }

    fn assignment(&self) -> Assignment {
        let nodes = |items: &Vec<usize>| items.iter().map(|i| self.at[*i]).collect();
        let shards = self.shards.iter();
        shards
            .map(|shards| shards.iter().map(nodes).collect())
            .collect()
    }
}
