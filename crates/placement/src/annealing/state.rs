//! What is annealed: where the instances are, with what that uses and breaks.

use crate::assignment::Assignment;
use crate::cluster::Cluster;
use crate::decision::{InstanceKey, PlaceError};
use crate::draw;
use crate::fit::{Ask, check_hard, wanted};
use crate::hcm::instance;
use crate::limits::ROUNDING;
use crate::request::{Demand, Request, shift_bytes};
use crate::search::{PRINTED, Search};
use e3_model::plan::Role;
use e3_model::{NodeId, ServiceId, ShardId};
use e3_random::Random;

/// Energy of a placement in which every replica is in the rack of another one of its shard: more than the
/// deviations change.
const SHARED_RACK: f64 = 2.0;
/// Added to the deviation, so that moves also cost something where the load is spread evenly.
const DEVIATION_MIN: f64 = 0.001;
/// Service Fabric's default of `MoveCostOffset`: how many instances are added to those that there are before the
/// moved ones are compared with them.
const MOVE_COST_OFFSET: f64 = 1000.0;

/// An instance that is moved around.
pub(super) struct Item {
    pub(super) place: usize,
    shard: usize,
    pub(super) key: InstanceKey,
    /// Where it runs, if it does.
    from: Option<NodeId>,
}

/// An assignment that is being improved.
pub(super) struct State<'a> {
    request: &'a Request<'a>,
    cluster: &'a Cluster,
    pub(super) items: Vec<Item>,
    /// By service in the order of the walk: the nodes that may run it.
    pub(super) allowed: Vec<Vec<NodeId>>,
    /// By item.
    pub(super) at: Vec<NodeId>,
    /// By service in the order of the walk, by shard: its items.
    shards: Vec<Vec<Vec<usize>>>,
    /// By node.
    pub(super) used: Vec<Demand>,
    /// Nodes of the cluster.
    nodes: usize,
    /// Sums of the nodes' use and of its square, for cores, memory and bandwidth.
    sums: [(f64, f64); 3],
    /// Pairs of replicas of a shard that are in the same rack, where there are several racks.
    pairs: usize,
    /// Items that run elsewhere.
    moved: usize,
}

impl<'a> State<'a> {
    /// Instances are where `current` says that they run; those that do not run, or on a node that may not run
    /// them, are on random nodes.
    pub(super) fn new(
        request: &'a Request<'a>,
        cluster: &'a Cluster,
        current: &dyn Fn(InstanceKey) -> Option<NodeId>,
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
            nodes: cluster.nodes().count(),
            sums: [(0.0, 0.0); 3],
            pairs: 0,
            moved: 0,
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
                    let key = instance(*service, ShardId(shard as u16), replica);
                    let from = current(key).filter(|id| cluster.get(*id).is_some());
                    let stays = from.filter(|id| allowed.contains(id));
                    items.push(state.items.len());
                    state.items.push(Item {
                        place,
                        shard,
                        key,
                        from,
                    });
                    let node = stays.unwrap_or_else(|| *random.pick(&allowed));
                    state.at.push(node);
                    state.put(state.items.len() - 1, node, 1.0);
                    state.moved += usize::from(state.is_moved(state.items.len() - 1));
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

    /// What an item uses of a node.
    pub(super) fn demand(&self, item: usize, id: NodeId) -> Demand {
        let (key, kind) = (self.items[item].key, self.cluster.node(id).kind);
        self.request.demand(key.service, key.role(), kind)
    }

    /// Adds or takes away what an item uses of a node.
    fn put(&mut self, item: usize, id: NodeId, sign: f64) {
        let demand = self.demand(item, id);
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

    /// Mean of the standard deviations, times the cost of moves, and the cost of shared racks.
    pub(super) fn energy(&self) -> f64 {
        let count = self.nodes as f64;
        let deviation = |(sum, squares): &(f64, f64)| {
            let mean = sum / count;
            (squares / count - mean * mean).max(0.0).sqrt()
        };
        let deviations = self.sums.iter().map(deviation).sum::<f64>() / 3.0;
        let items = self.items.len();
        let racks = SHARED_RACK * self.pairs as f64 / items.max(1) as f64;
        let moves = 1.0 + self.moved as f64 / (items as f64 + MOVE_COST_OFFSET);
        (deviations + DEVIATION_MIN) * moves + racks
    }

    /// Whether an item runs, on another node.
    fn is_moved(&self, item: usize) -> bool {
        self.items[item]
            .from
            .is_some_and(|from| from != self.at[item])
    }

    fn is_over(&self, id: NodeId) -> bool {
        let (node, used) = (self.cluster.node(id), &self.used[id.index()]);
        used.memory_bytes > node.memory_bytes
            || used.disk_bytes > node.disk_bytes
            || self.uses(id).iter().any(|used| *used > 1.0 + ROUNDING)
    }

    /// Whether its server or rack draws more than it may because of an item.
    fn is_overdrawn(&self, item: usize) -> bool {
        let id = self.at[item];
        let demand = self.demand(item, id);
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

    pub(super) fn is_broken(&self, item: usize) -> bool {
        self.is_over(self.at[item]) || self.is_shared(item) || self.is_overdrawn(item)
    }

    pub(super) fn move_to(&mut self, item: usize, to: NodeId) {
        self.put(item, self.at[item], -1.0);
        self.pairs -= self.in_rack(item);
        self.moved -= usize::from(self.is_moved(item));
        self.at[item] = to;
        self.moved += usize::from(self.is_moved(item));
        self.pairs += self.in_rack(item);
        self.put(item, to, 1.0);
    }

    /// Parts replicas that still share a server, if the walk has ended too early: that rule is never
    /// broken.
    pub(super) fn part(&mut self) -> Result<(), PlaceError> {
        for item in 0..self.items.len() {
            if !self.is_shared(item) {
                continue;
            }
            let Item {
                place, shard, key, ..
            } = self.items[item];
            let others = self.shards[place][shard].iter().filter(|i| **i != item);
            let apart: Vec<NodeId> = others.map(|i| self.at[*i]).collect();
            let ask = Ask::new(key.service, key.role(), &apart);
            let to = Search::new(self.request, self.cluster, PRINTED).closest(ask)?;
            self.move_to(item, to);
        }
        Ok(())
    }

    pub(super) fn assignment(&self) -> Assignment {
        let nodes = |items: &Vec<usize>| items.iter().map(|i| self.at[*i]).collect();
        let shards = self.shards.iter();
        shards
            .map(|shards| shards.iter().map(nodes).collect())
            .collect()
    }
}
