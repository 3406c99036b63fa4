//! What follows from the state and would be slow to find each time: what is free on each node, which
//! shards a node has, and which shards wait for something.
//!
//! It is brought up to date when it is asked, for the members and applications that may have changed
//! since. It is not part of the state: nothing of it is stored, a copy of the state begins without it,
//! and each decision is the same with an index that was just made. `Control::validate` compares both.

use e3_model::plan::{Role, ShardPlan};
use e3_model::topology::Node;
use e3_model::{
    AppId, Application, NodeId, NodeKind, PowerCaps, ServiceId, ShardId, ShardKey, Topology,
};
use e3_placement::{Cluster, Request, Reservation};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The index of a state, once it is needed.
#[derive(Default)]
pub(crate) struct IndexCell {
    pub(crate) cell: RefCell<Option<Box<Index>>>,
    /// All shards are looked at, as if there were no index.
    pub(crate) is_thorough: bool,
}

impl Clone for IndexCell {
    fn clone(&self) -> IndexCell {
        IndexCell {
            cell: RefCell::default(),
            is_thorough: self.is_thorough,
        }
    }
}

impl PartialEq for IndexCell {
    fn eq(&self, _: &IndexCell) -> bool {
        true
    }
}

impl fmt::Debug for IndexCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IndexCell")
    }
}

/// The index.
pub(crate) struct Index {
    /// The free resources.
    pub(crate) cluster: Cluster,
    /// By node: its server; none where there is no such node.
    pub(crate) servers: Arc<[usize]>,
    /// By node: its rack, and its places in the rack and in the server.
    pub(crate) places: BTreeMap<NodeId, (usize, usize, usize)>,
    /// By host that has some: the SmartNICs that relay its traffic.
    pub(crate) relays: BTreeMap<NodeId, Vec<NodeId>>,
    /// Some node of the cluster is emulated.
    pub(crate) has_emulated: bool,
    /// Members that are heard.
    pub(crate) up: usize,
    /// Members that are not.
    pub(crate) silent: BTreeSet<NodeId>,
    /// Members that miss peers.
    pub(crate) cut: BTreeSet<NodeId>,
    /// Shards that the next settling may change, if no way is cut.
    pub(crate) unsettled: BTreeSet<ShardKey>,
    /// Applications in which something goes on that takes more than one step.
    pub(crate) working: BTreeSet<AppId>,
    /// Shards that change, wait or stand still.
    pub(crate) busy: BTreeSet<ShardKey>,
    /// By node: the shards that name it, and what they reserve there.
    pub(crate) by_node: Vec<BTreeMap<ShardKey, Option<Reservation>>>,
    /// By node: their applications, in their order.
    pub(crate) apps_by_node: Vec<Vec<AppId>>,
    /// Nodes that take no new instances.
    pub(crate) out_of_service: BTreeSet<NodeId>,
    pub(crate) apps: BTreeMap<AppId, IndexedApp>,
    /// As in the state.
    pub(crate) power_caps: PowerCaps,
    /// By node on which many requests wait: how many. Not of the state.
    pub(crate) waiting: BTreeMap<NodeId, u32>,
}

/// An application as it is in the index.
#[derive(PartialEq)]
pub(crate) struct IndexedApp {
    /// Kept so that another manifest has another address.
    pub(crate) manifest: Arc<Application>,
    /// By service.
    pub(crate) reservations: Vec<Reservations>,
    /// As in the plan.
    pub(crate) shards: Vec<Held>,
}

/// What the instances of a service reserve.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Reservations {
    primary: [Reservation; 2],
    backup: [Reservation; 2],
}

/// The nodes that a shard names, in the order of its plan, with what it reserves there.
#[derive(PartialEq)]
pub(crate) struct Held {
    pub(crate) id: (ServiceId, ShardId),
    pub(crate) nodes: Vec<(NodeId, Option<Role>)>,
    pub(crate) parts: Parts,
}

/// With its nodes all that the status of a shard follows from, beside the manifest and which nodes are up.
#[derive(Clone, PartialEq)]
pub(crate) struct Parts {
    backups: u16,
    joining: u16,
    leaving: Vec<NodeId>,
    is_frozen: bool,
    is_moving: bool,
}

impl Parts {
    pub(crate) fn of(shard: &ShardPlan, is_moving: bool) -> Parts {
        Parts {
            backups: shard.backups.len() as u16,
            joining: shard.joining.len() as u16,
            leaving: shard.leaving.clone(),
            is_frozen: shard.frozen,
            is_moving,
        }
    }
}

impl Reservations {
    pub(crate) fn new(request: &Request<'_>, service: ServiceId) -> Reservations {
        let of = |role| {
            let kinds = [NodeKind::Host, NodeKind::SmartNic];
            kinds.map(|kind| request.reservation(service, role, kind))
        };
        Reservations {
            primary: of(Role::Primary),
            backup: of(Role::Backup),
        }
    }

    pub(crate) fn of(&self, role: Role, kind: NodeKind) -> Reservation {
        let by_kind = match role {
            Role::Primary => &self.primary,
            Role::Backup | Role::Joining => &self.backup,
        };
        by_kind[usize::from(kind == NodeKind::SmartNic)]
    }
}

impl Held {
    pub(crate) fn key(&self, app: AppId) -> ShardKey {
        let (service, shard) = self.id;
        ShardKey {
            app,
            service,
            shard,
        }
    }
}

impl Index {
    pub(crate) fn remove(&mut self, app: AppId, held: &Held, changed: &mut BTreeSet<NodeId>) {
        let key = held.key(app);
        for (node, _) in &held.nodes {
            self.by_node[node.index()].remove(&key);
            changed.insert(*node);
        }
        self.unsettled.remove(&key);
        self.busy.remove(&key);
    }

    /// Notes which shards a node has now: reserves what they take, in their order.
    pub(crate) fn note_shards(&mut self, node: NodeId) {
        let shards = &self.by_node[node.index()];
        let apps = &mut self.apps_by_node[node.index()];
        apps.clear();
        apps.extend(shards.keys().map(|key| key.app));
        apps.dedup();
        if self.cluster.get(node).is_some() {
            let reserved = shards.values().copied().flatten();
            self.cluster.set_instances(node, reserved);
        }
    }

    /// Asks what is free something, as if an application did not run. What is changed meanwhile is taken
    /// back.
    pub(crate) fn try_without<T>(&mut self, app: AppId, work: impl FnOnce(&mut Cluster) -> T) -> T {
        let (apps, by_node) = (&self.apps, &self.by_node);
        let held = apps.get(&app).into_iter().flat_map(|app| &app.shards);
        let nodes: BTreeSet<NodeId> = held.flat_map(|h| &h.nodes).map(|(n, _)| *n).collect();
        self.cluster.try_out(|cluster| {
            for node in nodes {
                if cluster.get(node).is_some() {
                    let others = by_node[node.index()]
                        .iter()
                        .filter(|(key, _)| key.app != app);
                    cluster.set_instances(node, others.filter_map(|(_, reserved)| *reserved));
                }
            }
            work(cluster)
        })
    }

    /// What the topology says of a node.
    pub(crate) fn hardware<'a>(&self, topology: &'a Topology, node: NodeId) -> Option<&'a Node> {
        let (rack, server, at) = *self.places.get(&node)?;
        let server = &topology.spec.racks[rack].servers[server];
        server.nodes.get(at)
    }

    /// All shards, in their order.
    pub(crate) fn all_shards(&self) -> impl Iterator<Item = ShardKey> {
        let apps = self.apps.iter();
        apps.flat_map(|(id, app)| app.shards.iter().map(|held| held.key(*id)))
    }

    /// The applications that have copies on a node, in their order.
    pub(crate) fn apps_on(&self, node: NodeId) -> Vec<AppId> {
        let apps = self.apps_by_node.get(node.index());
        apps.cloned().unwrap_or_default()
    }

    /// The shards that name a node, in their order.
    pub(crate) fn shards_on(&self, node: NodeId) -> Vec<ShardKey> {
        self.keys_on(node).copied().collect()
    }

    /// The same, borrowed.
    pub(crate) fn keys_on(&self, node: NodeId) -> impl Iterator<Item = &ShardKey> {
        let shards = self.by_node.get(node.index()).into_iter();
        shards.flat_map(BTreeMap::keys)
    }
}
