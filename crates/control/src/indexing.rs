//! Keeping the index up to date with the state, for the members and applications that may have
//! changed.

use crate::deliberate::{self, Fault};
use crate::index::{Held, Index, IndexedApp, Parts, Reservations};
use crate::state::{AppState, Control};
use e3_model::plan::{Role, ShardPlan};
use e3_model::topology::NodeRef;
use e3_model::{AppId, Format, NodeId, NodeKind, PowerCaps, Topology};
use e3_placement::{Cluster, Request};
use std::cell::RefMut;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Control {
    /// The index, up to date. It must be given back before it is asked for again.
    pub(crate) fn index(&self) -> RefMut<'_, Index> {
        let cell = self.index.cell.borrow_mut();
        let (members, apps) = (self.members.take_touched(), self.apps.take_touched());
        let mut is_new = false;
        let mut index = RefMut::map(cell, |cell| {
            cell.get_or_insert_with(|| {
                is_new = true;
                Box::new(Index::build(self))
            })
            .as_mut()
        });
        if !is_new {
            index.refresh(self, members, apps);
        }
        index
    }

    /// The index for what follows from the topology alone: the rest may be out of date.
    pub(crate) fn index_of_topology(&self) -> RefMut<'_, Index> {
        let cell = self.index.cell.borrow_mut();
        match RefMut::filter_map(cell, |cell| cell.as_deref_mut()) {
            Ok(index) => index,
            Err(cell) => {
                drop(cell);
                self.index()
            }
        }
    }

    /// Forgets the index, which is of another topology.
    pub(crate) fn forget_index(&mut self) {
        *self.index.cell.get_mut() = None;
    }

    /// Takes up on which nodes many requests wait, for what is placed from now on: nothing new goes there if it
    /// can go elsewhere. Not part of the state, so a log whose commands are searched for again does without.
    pub fn set_waiting_requests(&mut self, waiting: &BTreeMap<NodeId, u32>) {
        if self.format < Format::CHOICES {
            return;
        }
        let mut index = self.index();
        let before = std::mem::take(&mut index.waiting);
        for node in before.keys().chain(waiting.keys()) {
            let now = waiting.get(node).copied().unwrap_or(0);
            if before.get(node) != Some(&now) && index.cluster.get(*node).is_some() {
                index.cluster.set_outstanding(*node, now.into());
            }
        }
        index.waiting.clone_from(waiting);
    }

    /// Looks at all shards from now on when it settles what a command changed, so that a test can
    /// compare that with looking at those that the index names.
    pub fn look_at_all(&mut self) {
        self.index.is_thorough = true;
    }

    /// A copy of the state that takes the index along. The original makes another if it needs one.
    pub fn fork(&mut self) -> Control {
        let copy = self.clone();
        copy.index.cell.swap(&self.index.cell);
        copy
    }

    /// Panics if the index is not what follows from the state.
    pub(crate) fn validate_index(&self) {
        let (index, expected) = (self.index(), Index::build(self));
        let nodes = index.cluster.nodes().zip(expected.cluster.nodes());
        for ((id, node), (_, expected)) in nodes {
            assert_eq!(node, expected, "what is reserved on {id}");
        }
        assert_eq!(index.by_node, expected.by_node, "shards by node");
        let apps = (&index.apps_by_node, &expected.apps_by_node);
        assert_eq!(apps.0, apps.1, "applications by node");
        assert_eq!(index.unsettled, expected.unsettled, "shards to settle");
        assert_eq!(index.working, expected.working, "applications to settle");
        assert_eq!(index.busy, expected.busy, "shards that change");
        assert_eq!(index.cut, expected.cut, "members that miss peers");
        let up = |index: &Index| (index.up, index.silent.clone());
        assert_eq!(up(&index), up(&expected), "members that are heard");
        assert!(index.apps == expected.apps, "applications");
    }
}

impl Index {
    /// The index of a state.
    fn build(control: &Control) -> Index {
        let mut cluster = Cluster::new(&control.topology);
        if !control.is_firm() {
            cluster = cluster.without_ranked_power();
        }
        let mut servers = vec![usize::MAX; control.topology.table_len()];
        for (id, node) in cluster.nodes() {
            servers[id.index()] = node.server;
        }
        let mut index = Index {
            by_node: vec![BTreeMap::new(); servers.len()],
            apps_by_node: vec![Vec::new(); servers.len()],
            servers: servers.into(),
            places: places(&control.topology),
            relays: relays(&control.topology),
            has_emulated: control.topology.nodes().any(|n| n.node.emulated),
            cluster,
            up: 0,
            silent: BTreeSet::new(),
            cut: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            working: BTreeSet::new(),
            busy: BTreeSet::new(),
            out_of_service: BTreeSet::new(),
            apps: BTreeMap::new(),
            power_caps: PowerCaps::default(),
            waiting: BTreeMap::new(),
        };
        for node in control.topology.nodes() {
            index.cluster.set_member(node.id, false);
        }
        let members = control.members.keys().copied().collect();
        let apps = control.apps.keys().copied().collect();
        index.refresh(control, members, apps);
        index
    }

    /// Takes up what may have changed.
    fn refresh(&mut self, control: &Control, members: BTreeSet<NodeId>, apps: BTreeSet<AppId>) {
        for node in members {
            self.update_member(control, node);
        }
        let none = BTreeSet::new();
        let cordoned = if deliberate::is(Fault::CordonIgnored) {
            &none
        } else {
            &control.cordoned
        };
        let out_of_service = control.drained.union(cordoned);
        if !out_of_service.clone().eq(&self.out_of_service) {
            let now = out_of_service.copied().collect();
            for node in self.out_of_service.symmetric_difference(&now) {
                self.cluster.set_drained(*node, now.contains(node));
            }
            self.out_of_service = now;
        }
        if self.power_caps != control.power_caps {
            self.power_caps = control.power_caps.clone();
            self.cluster
                .set_power_caps(&control.topology, &self.power_caps);
        }
        let mut changed = BTreeSet::new();
        for app in apps {
            self.update_app(control, app, &mut changed);
        }
        for node in changed {
            self.note_shards(node);
        }
    }

    fn update_member(&mut self, control: &Control, node: NodeId) {
        let Some(member) = control.members.get(&node) else {
            return;
        };
        set(&mut self.cut, node, !member.unreachable.is_empty());
        let was_silent = self.silent.contains(&node);
        let was_up = self.is_up(node);
        if (was_up, was_silent) == (member.up, !member.up) {
            return;
        }
        self.cluster.set_member(node, member.up);
        set(&mut self.silent, node, !member.up);
        self.up += usize::from(member.up);
        self.up -= usize::from(was_up);
        for key in self.shards_on(node) {
            let app = control.apps.get(&key.app);
            if let Some((app, shard)) = app.and_then(|app| Some((app, app.shard(key)?))) {
                self.note_status(app, shard);
            }
        }
    }

    /// Takes up an application; adds the nodes whose instances have changed.
    fn update_app(&mut self, control: &Control, id: AppId, changed: &mut BTreeSet<NodeId>) {
        let before = self.apps.remove(&id);
        let has_work = control.apps.get(&id).is_some_and(AppState::has_work);
        set(&mut self.working, id, has_work);
        let Some(app) = control.apps.get(&id) else {
            for held in before.iter().flat_map(|before| &before.shards) {
                self.remove(id, held, changed);
            }
            return;
        };
        let manifest = app.plan.app.clone();
        let same = |b: &&IndexedApp| Arc::ptr_eq(&b.manifest, &manifest);
        let same = before.as_ref().filter(same);
        let is_same = same.is_some();
        let reservations = match same {
            Some(before) => before.reservations.clone(),
            None => {
                let request = Request::new(&manifest, &app.profiles);
                let services = request.services();
                services.map(|s| Reservations::new(&request, s)).collect()
            }
        };
        let mut before = before
            .map_or_else(Vec::new, |b| b.shards)
            .into_iter()
            .peekable();
        let mut shards = Vec::with_capacity(app.plan.shards.len());
        for shard in &app.plan.shards {
            while let Some(gone) = before.next_if(|b| b.id < shard.id()) {
                self.remove(id, &gone, changed);
            }
            let held = match before.next_if(|b| b.id == shard.id()) {
                Some(same) if is_same && same.is_of(app, shard) => same,
                old => {
                    if let Some(old) = old {
                        self.remove(id, &old, changed);
                    }
                    let held = Held::new(app, shard);
                    let of_service = &reservations[usize::from(shard.service.0)];
                    for (node, role) in &held.nodes {
                        let there = self.cluster.get(*node);
                        let reserved = there.and_then(|n| Some(of_service.of((*role)?, n.kind)));
                        self.by_node[node.index()].insert(held.key(id), reserved);
                        changed.insert(*node);
                    }
                    self.note_status(app, shard);
                    held
                }
            };
            shards.push(held);
        }
        for gone in before {
            self.remove(id, &gone, changed);
        }
        self.apps.insert(
            id,
            IndexedApp {
                manifest,
                reservations,
                shards,
            },
        );
    }

    fn note_status(&mut self, app: &AppState, shard: &ShardPlan) {
        let key = app.plan.key(shard);
        let is_up = |node| self.is_up(node);
        let is_unsettled = app.is_unsettled(shard, is_up);
        let changes = !shard.joining.is_empty() || !shard.leaving.is_empty() || shard.frozen;
        let waits = app.is_orphan(shard) || !is_up(shard.primary);
        set(&mut self.unsettled, key, is_unsettled);
        set(&mut self.busy, key, changes || waits);
    }

    /// Whether a node is a member that is heard, as in the state.
    fn is_up(&self, node: NodeId) -> bool {
        self.cluster.get(node).is_some_and(|n| n.member)
    }
}

impl Held {
    fn new(app: &AppState, shard: &ShardPlan) -> Held {
        Held {
            id: shard.id(),
            nodes: held_by(app, shard).collect(),
            parts: parts_of(app, shard),
        }
    }

    /// Whether the shard still names the same nodes in the same order and for the same.
    fn is_of(&self, app: &AppState, shard: &ShardPlan) -> bool {
        self.parts == parts_of(app, shard) && self.nodes.iter().copied().eq(held_by(app, shard))
    }
}

fn parts_of(app: &AppState, shard: &ShardPlan) -> Parts {
    Parts::of(shard, app.is_moving(app.plan.key(shard)))
}

/// The nodes that a shard names, in the order of its plan, with what it reserves there.
fn held_by(app: &AppState, shard: &ShardPlan) -> impl Iterator<Item = (NodeId, Option<Role>)> {
    let primary = (!app.is_orphan(shard)).then_some(Role::Primary);
    let has_left = |n: &&NodeId| shard.role(**n).is_none();
    let left = shard.leaving.iter().filter(has_left);
    let copies = shard.backups.iter().chain(&shard.joining).chain(left);
    let copies = copies.map(|node| (*node, Some(Role::Backup)));
    std::iter::once((shard.primary, primary)).chain(copies)
}

fn places(topology: &Topology) -> BTreeMap<NodeId, (usize, usize, usize)> {
    let mut ids: Vec<Vec<NodeId>> = Vec::new();
    for node in topology.nodes() {
        ids.resize_with(ids.len().max(node.server + 1), Vec::new);
        ids[node.server].push(node.id);
    }
    let mut ids = ids.into_iter();
    let mut places = BTreeMap::new();
    for (rack, servers) in topology.spec.racks.iter().enumerate() {
        for at in 0..servers.servers.len() {
            // Within a server, the ids ascend.
            let of_server = ids.next().unwrap_or_default().into_iter().enumerate();
            places.extend(of_server.map(|(node, id)| (id, (rack, at, node))));
        }
    }
    places
}

fn relays(topology: &Topology) -> BTreeMap<NodeId, Vec<NodeId>> {
    let is_host = |n: &NodeRef<'_>| n.node.kind == NodeKind::Host;
    let hosts = topology.nodes().filter(is_host).map(|n| (n.server, n.id));
    let hosts: BTreeMap<usize, NodeId> = hosts.collect();
    let mut relays: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for relay in topology.nodes().filter(|n| n.node.relay) {
        if let Some(host) = hosts.get(&relay.server) {
            relays.entry(*host).or_default().push(relay.id);
        }
    }
    relays
}

fn set<T: Ord>(set: &mut BTreeSet<T>, item: T, is_in: bool) {
    if is_in {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}
