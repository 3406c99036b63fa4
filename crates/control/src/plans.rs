//! The plans of nodes, and how they differ from those that nodes have. Soft state: a controller that
//! has just started knows no earlier plan, and sends whole ones.
//!
//! The difference between two versions is found once, by comparing what they do not share. Each node is
//! sent the part of it that concerns the node ([`crate::concern`]).

use crate::concern::{Difference, Subscriptions};
use crate::index::Index;
use crate::limits::PLANS_MAX;
use crate::relays::{host_behind, relayed_host, relays_of};
use crate::state::{AppState, Control, Member};
use crate::table::Table;
use e3_model::plan::{ListedApp, NodePlan, Peer};
use e3_model::plan_change::{AppChange, PlanChange};
use e3_model::{AppId, Format, NodeId, Topology};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The last versions of the plan.
#[derive(Debug, Default)]
pub struct Plans {
    /// The oldest first, at most [`PLANS_MAX`].
    past: VecDeque<Past>,
    /// By the version before: what has changed since; none if that is not known.
    differences: BTreeMap<u64, Option<Difference>>,
    subscriptions: Subscriptions,
}

/// A node's request for a newer plan.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// The node.
    pub node: NodeId,
    /// The version that it has; 0 if it has none.
    pub after: u64,
    /// Whether this process of the controller sent that version.
    pub is_known: bool,
    /// None of nodes of older releases, which have all applications.
    pub interest: Option<Interest>,
}

/// What a node says of the applications whose routes it has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    /// Those that its plan has, in their order.
    pub has: Vec<AppId>,
    /// Those that it is asked for.
    pub wants: BTreeSet<AppId>,
}

/// What a node is sent.
#[derive(Clone, PartialEq, Debug)]
pub enum PlanAnswer {
    /// What has changed since the version that it has.
    Change(PlanChange),
    /// All of it.
    Whole(NodePlan),
}

/// What the plan of a version was made of.
#[derive(Debug)]
struct Past {
    version: u64,
    topology: Arc<Topology>,
    format: Format,
    members: Table<NodeId, Member>,
    apps: Table<AppId, AppState>,
    /// Silent nodes that were peers.
    silent_peers: BTreeSet<NodeId>,
}

impl Plans {
    /// Notes the plan that nodes are sent from now on.
    pub fn note(&mut self, control: &Control) {
        if self
            .past
            .back()
            .is_some_and(|p| p.version == control.version)
        {
            return;
        }
        self.differences.clear();
        if !self.has_same_manifests(control) {
            self.subscriptions = Subscriptions::new(control);
        }
        self.past.push_back(Past {
            version: control.version,
            topology: control.topology.clone(),
            format: control.format,
            members: control.members.clone(),
            apps: control.apps.clone(),
            silent_peers: control.silent_peers(),
        });
        if self.past.len() > PLANS_MAX {
            self.past.pop_front();
        }
    }

    /// Whether the applications of the last plan have the manifests that they have now.
    fn has_same_manifests(&self, control: &Control) -> bool {
        let Some(past) = self.past.back() else {
            return false;
        };
        let is_same = |id: &AppId| match (past.apps.get(id), control.apps.get(id)) {
            (Some(old), Some(new)) => Arc::ptr_eq(&old.plan.app, &new.plan.app),
            _ => false,
        };
        control.apps.unshared(&past.apps).iter().all(is_same)
    }

    /// What a node is sent that asks for its plan. None if nothing but the version differs from what it
    /// has. The plan must have been noted.
    pub fn answer(&mut self, control: &Control, asked: &PlanRequest) -> Option<PlanAnswer> {
        let (node, after) = (asked.node, asked.after);
        let is_newer = control.version > after;
        let Some(Interest { has, wants }) = &asked.interest else {
            let change = asked
                .is_known
                .then(|| self.change(control, after))
                .flatten();
            let answer = match change {
                Some(change) => PlanAnswer::Change(change),
                None => PlanAnswer::Whole(control.plan_for(node)),
            };
            return is_newer.then_some(answer);
        };
        let is_known = asked.is_known && control.version >= after;
        let change = is_known.then(|| self.change_for(control, node, after, (has, wants)));
        match change.flatten() {
            Some(change) if change.is_empty() => None,
            Some(change) => Some(PlanAnswer::Change(change)),
            None => {
                let concern = control.concern(&control.index(), node, wants, &self.subscriptions);
                let differs = is_newer || control.version == after && *has != concern;
                differs.then(|| PlanAnswer::Whole(control.plan_with(node, concern.into_iter())))
            }
        }
    }

    /// What has changed since a version for a node that has the routes of these applications, in their order,
    /// and wants those of others. None as in [`Plans::change`]. The plan must have been noted.
    pub fn change_for(
        &mut self,
        control: &Control,
        node: NodeId,
        base: u64,
        (has, wants): (&[AppId], &BTreeSet<AppId>),
    ) -> Option<PlanChange> {
        if !self.differences.contains_key(&base) {
            let change = self.since(control, base);
            let difference = change.map(|change| {
                let past = self.past_of(base);
                let old = |app| past.and_then(|past| Some(&past.apps.get(&app)?.plan));
                Difference::new(change, old)
            });
            self.differences.insert(base, difference);
        }
        let difference = self.differences[&base].as_ref()?;
        let index = control.index();
        if !index.relays.is_empty() {
            let before = &self.past_of(base)?.members;
            if !control.is_relayed_as_before(&index, before, node) {
                return None;
            }
        }
        let concern = control.concern(&index, node, wants, &self.subscriptions);
        Some(difference.for_node(control, &index, node, &concern, has))
    }

    /// The plan of a node that wants the routes of these applications: with what concerns it, and no
    /// other applications. The plan must have been noted.
    pub fn plan_for(&self, control: &Control, node: NodeId, wants: &BTreeSet<AppId>) -> NodePlan {
        let concern = control.concern(&control.index(), node, wants, &self.subscriptions);
        control.plan_with(node, concern.iter().copied())
    }

    /// What has changed since a version, for a node that has all applications; none if that version is not known any more,
    /// the active format or the topology was another, in which servers may have other numbers, or SmartNICs relay, so that
    /// the addresses of nodes depend on who asks.
    pub fn change(&self, control: &Control, base: u64) -> Option<PlanChange> {
        let is_relayed = !control.index().relays.is_empty();
        if is_relayed {
            return None;
        }
        self.since(control, base)
    }

    /// The same, also where SmartNICs relay, with the addresses that nodes of the same server use.
    fn since(&self, control: &Control, base: u64) -> Option<PlanChange> {
        let past = self.past_of(base)?;
        let is_same = Arc::ptr_eq(&past.topology, &control.topology);
        if !is_same || past.format != control.format {
            return None;
        }
        let (apps, gone) = changed_apps(past, control);
        Some(PlanChange {
            base,
            version: control.version,
            cluster: control.cluster,
            format: control.format,
            peers: changed_peers(past, control),
            exited: changed_exits(past, control),
            directory: changed_directory(past, control),
            gone,
            apps,
        })
    }

    fn past_of(&self, version: u64) -> Option<&Past> {
        let at = self
            .past
            .binary_search_by_key(&version, |past| past.version);
        self.past.get(at.ok()?)
    }
}

fn changed_apps(past: &Past, control: &Control) -> (BTreeMap<AppId, AppChange>, Vec<AppId>) {
    let (mut apps, mut gone) = (BTreeMap::new(), Vec::new());
    for id in control.apps.unshared(&past.apps) {
        let old = past.apps.get(&id).map(|app| &app.plan);
        match control.apps.get(&id) {
            Some(new) => apps.extend(AppChange::between(old, &new.plan).map(|c| (id, c))),
            None => gone.push(id),
        }
    }
    (apps, gone)
}

fn changed_directory(past: &Past, control: &Control) -> BTreeMap<AppId, Option<ListedApp>> {
    let listed = |apps: &Table<AppId, AppState>, id| apps.get(&id).map(|app| app.plan.listed());
    let apps = control.apps.unshared(&past.apps).into_iter();
    let changed = apps.filter_map(|id| {
        let now = listed(&control.apps, id);
        (now != listed(&past.apps, id)).then_some((id, now))
    });
    changed.collect()
}

fn changed_peers(past: &Past, control: &Control) -> BTreeMap<NodeId, Option<Peer>> {
    let silent = control.silent_peers();
    let mut nodes = control.members.unshared(&past.members);
    nodes.extend(past.silent_peers.symmetric_difference(&silent));
    let mut changed = BTreeMap::new();
    let index = control.index();
    let hosts: Vec<NodeId> = nodes
        .iter()
        .filter_map(|n| relayed_host(&index, *n))
        .collect();
    nodes.extend(hosts);
    for node in nodes {
        let old = past.members.get(&node);
        let old = old.filter(|m| m.up || past.silent_peers.contains(&node));
        let new = control.members.get(&node);
        let new = new.filter(|m| m.up || silent.contains(&node));
        let what = |members, m: &Member| {
            let relays = relays_of(members, &index, node);
            (m.incarnation, m.address, relays)
        };
        let was = old.map(|m| what(&past.members, m));
        if was != new.map(|m| what(&control.members, m)) {
            changed.insert(node, new.map(|member| peer(&index, node, member)));
        }
    }
    changed
}

fn changed_exits(past: &Past, control: &Control) -> BTreeMap<NodeId, u32> {
    let nodes = control.members.unshared(&past.members).into_iter();
    let exited = |members: &Table<NodeId, Member>, node| members.get(&node).map_or(0, |m| m.exited);
    let changed = nodes.filter_map(|node| {
        let now = exited(&control.members, node);
        (now != exited(&past.members, node)).then_some((node, now))
    });
    changed.collect()
}

/// A node as those of its server see it.
fn peer(index: &Index, node: NodeId, member: &Member) -> Peer {
    let state = index.cluster.node(node);
    Peer {
        name: state.name.clone(),
        server: state.server as u32,
        incarnation: member.incarnation,
        address: member.address,
    }
}

impl Control {
    /// The current plan of a node that has all applications.
    pub fn plan_for(&self, node: NodeId) -> NodePlan {
        self.plan_with(node, self.apps.keys().copied())
    }

    fn plan_with(&self, node: NodeId, apps: impl Iterator<Item = AppId>) -> NodePlan {
        let silent = self.silent_peers();
        let index = self.index();
        let members = self.members.iter();
        let peers = members.clone().filter(|(n, m)| m.up || silent.contains(n));
        let peers = peers
            .map(|(n, m)| (*n, self.peer_of(&index, node, *n, m)))
            .collect();
        let exited = members.filter(|(_, m)| m.exited > 0);
        let exited = exited.map(|(n, m)| (*n, m.exited)).collect();
        NodePlan {
            version: self.version,
            revision: 0,
            cluster: self.cluster,
            format: self.format,
            node,
            peers,
            exited,
            relays: relays_of(&self.members, &index, node),
            relayed: host_behind(&self.members, &index, node),
            apps: apps.map(|id| self.apps[&id].plan.clone()).collect(),
            directory: self
                .apps
                .iter()
                .map(|(id, a)| (*id, a.plan.listed()))
                .collect(),
        }
    }

    /// A node as another sees it, which may reach it through a relay.
    fn peer_of(&self, index: &Index, other: NodeId, node: NodeId, member: &Member) -> Peer {
        let peer = peer(index, node, member);
        if index.relays.is_empty()
            || index.servers.get(other.index()) == Some(&(peer.server as usize))
        {
            return peer;
        }
        Peer {
            address: self.address_from_afar(index, node, member, other.index()),
            ..peer
        }
    }

    /// Peers as a node sees them.
    pub(crate) fn peers_as_seen_by(
        &self,
        index: &Index,
        node: NodeId,
        peers: &BTreeMap<NodeId, Option<Peer>>,
    ) -> BTreeMap<NodeId, Option<Peer>> {
        if index.relays.is_empty() {
            return peers.clone();
        }
        let ids = peers.iter().map(|(id, peer)| (*id, peer.is_some()));
        let seen = ids.map(|(id, is_there)| {
            let member = self.members.get(&id).filter(|_| is_there);
            (id, member.map(|m| self.peer_of(index, node, id, m)))
        });
        seen.collect()
    }

    /// Silent nodes that keep a role: they may be cut off from the controller alone.
    fn silent_peers(&self) -> BTreeSet<NodeId> {
        let silent: Vec<NodeId> = self.index().silent.iter().copied().collect();
        silent.into_iter().filter(|n| self.keeps_part(*n)).collect()
    }

    /// Whether a shard waits for a silent node, or has not left it yet. Of a shard that waits, also a
    /// joining node keeps its part: it may have everything, and have told so.
    fn keeps_part(&self, node: NodeId) -> bool {
        self.index().keys_on(node).any(|key| {
            let app = &self.apps[&key.app];
            let shard = app.shard(*key).expect("the index names it");
            let copies = self.waits_for(app, shard);
            let joins = shard.joining.contains(&node) && !copies.is_empty();
            shard.leaving.contains(&node) || copies.contains(&node) || joins
        })
    }
}
