//! Which applications concern a node, and which part of a change. Design: docs/design/027.
//!
//! A node must have the applications that it hosts replicas of, those that are subscribed to their topics,
//! since a publisher's node admits their requests, and those that it says it is asked for. Of shards that
//! it has no part in it must know where they are served, and no more.

use crate::index::Index;
use crate::state::Control;
use e3_model::plan::{AppPlan, ShardPlan};
use e3_model::plan_change::{AppChange, PlanChange};
use e3_model::{AppId, NodeId, ServiceId, ShardId};
use std::collections::{BTreeMap, BTreeSet};

/// By application: those that are subscribed to its topics.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(BTreeMap<AppId, BTreeSet<AppId>>);

impl Subscriptions {
    pub(crate) fn new(control: &Control) -> Subscriptions {
        let mut by_name: BTreeMap<String, BTreeSet<AppId>> = BTreeMap::new();
        for (id, app) in control.apps.iter() {
            let app = &app.plan.app;
            for subscription in &app.spec.subscriptions {
                let publisher = app.topic_of(subscription).application;
                by_name.entry(publisher).or_default().insert(*id);
            }
        }
        if by_name.is_empty() {
            return Subscriptions::default();
        }
        let apps = control.apps.iter();
        let subscribed =
            apps.filter_map(|(id, app)| Some((*id, by_name.remove(&app.plan.app.name)?)));
        Subscriptions(subscribed.collect())
    }
}

impl Control {
    /// The applications that concern a node which wants the routes of these, in their order.
    pub(crate) fn concern(
        &self,
        index: &Index,
        node: NodeId,
        wants: &BTreeSet<AppId>,
        subscriptions: &Subscriptions,
    ) -> Vec<AppId> {
        let hosted = index.apps_on(node);
        let subscribed = hosted.iter().filter_map(|id| subscriptions.0.get(id));
        let wanted = wants.iter().filter(|id| self.apps.contains_key(id));
        let others: Vec<AppId> = subscribed.flatten().chain(wanted).copied().collect();
        let mut all = hosted;
        if !others.is_empty() {
            all.extend(others);
            all.sort_unstable();
            all.dedup();
        }
        all
    }
}

/// What has changed between two versions of the plan, and for whom.
#[derive(Debug)]
pub(crate) struct Difference {
    change: PlanChange,
    /// Shards whose change concerns some nodes only: those that have or had a part in it.
    parts: BTreeMap<(AppId, ServiceId, ShardId), BTreeSet<NodeId>>,
    /// By node: the applications of these shards.
    by_node: BTreeMap<NodeId, BTreeSet<AppId>>,
    /// Applications of which something has changed that concerns all their nodes, in order.
    wide: Vec<AppId>,
}

impl Difference {
    /// `old`: an application as it was before.
    pub(crate) fn new<'a>(
        change: PlanChange,
        old: impl Fn(AppId) -> Option<&'a AppPlan>,
    ) -> Difference {
        let (mut parts, mut wide) = (BTreeMap::new(), Vec::new());
        let mut by_node: BTreeMap<NodeId, BTreeSet<AppId>> = BTreeMap::new();
        for (id, app) in &change.apps {
            let before = old(*id).map_or(&[][..], |old| &old.shards);
            let mut is_wide = app.app.is_some() || !app.gone.is_empty();
            for shard in &app.shards {
                let at = before.binary_search_by_key(&shard.id(), ShardPlan::id);
                let before = at.ok().map(|at| &before[at]);
                let Some(before) = before.filter(|before| is_routed_alike(before, shard)) else {
                    is_wide = true;
                    continue;
                };
                let nodes: BTreeSet<NodeId> = part_of(before).chain(part_of(shard)).collect();
                for node in &nodes {
                    by_node.entry(*node).or_default().insert(*id);
                }
                parts.insert((*id, shard.service, shard.shard), nodes);
            }
            if is_wide {
                wide.push(*id);
            }
        }
        Difference {
            change,
            parts,
            by_node,
            wide,
        }
    }

    /// What a node is sent that these applications concern, and that has those in `has`.
    pub(crate) fn for_node(
        &self,
        control: &Control,
        index: &Index,
        node: NodeId,
        concern: &[AppId],
        has: &[AppId],
    ) -> PlanChange {
        let all = &self.change;
        // Most nodes have what concerns them.
        let has_all = has == concern;
        let is_there = |id: &AppId| has.binary_search(id).is_ok();
        let of_node = self.by_node.get(&node).into_iter().flatten();
        let of_node = of_node.filter(|id| concern.binary_search(id).is_ok());
        let kept = common(&self.wide, concern).chain(of_node);
        let kept = kept.filter(|id| has_all || is_there(id));
        let changed = kept.filter_map(|id| Some((*id, self.of_app(*id, node)?)));
        let mut apps: BTreeMap<AppId, AppChange> = changed.collect();
        let mut gone = Vec::new();
        if !has_all {
            let new = concern.iter().filter(|id| !is_there(id));
            let whole = |id: &AppId| AppChange::between(None, &control.apps[id].plan);
            apps.extend(new.filter_map(|id| Some((*id, whole(id)?))));
            let concerns = |id: &&AppId| concern.binary_search(id).is_ok();
            gone.extend(has.iter().filter(|id| !concerns(id)));
        }
        PlanChange {
            base: all.base,
            version: all.version,
            cluster: all.cluster,
            format: all.format,
            peers: control.peers_as_seen_by(index, node, &all.peers),
            exited: all.exited.clone(),
            directory: all.directory.clone(),
            gone,
            apps,
        }
    }

    fn of_app(&self, id: AppId, node: NodeId) -> Option<AppChange> {
        let all = self.change.apps.get(&id)?;
        let concerns = |shard: &&ShardPlan| {
            let nodes = self.parts.get(&(id, shard.service, shard.shard));
            nodes.is_none_or(|nodes| nodes.contains(&node))
        };
        let change = AppChange {
            app: all.app.clone(),
            shards: all.shards.iter().filter(concerns).cloned().collect(),
            gone: all.gone.clone(),
        };
        (change != AppChange::default()).then_some(change)
    }
}

/// What is in both of two ordered lists.
fn common<'a>(a: &'a [AppId], b: &'a [AppId]) -> impl Iterator<Item = &'a AppId> {
    let mut b = b.iter().peekable();
    a.iter().filter(move |id| {
        while b.next_if(|other| other < id).is_some() {}
        b.peek() == Some(id)
    })
}

/// Whether a node without a part in the shard need not be told of the change.
fn is_routed_alike(old: &ShardPlan, new: &ShardPlan) -> bool {
    let route = |s: &ShardPlan| (s.primary, s.incarnation, s.era);
    route(old) == route(new)
}

/// The nodes that have a part in a shard, or had one when its primary took over.
fn part_of(shard: &ShardPlan) -> impl Iterator<Item = NodeId> + '_ {
    let copies = shard.backups.iter().chain(&shard.joining);
    let copies = copies.chain(&shard.leaving).chain(&shard.predecessor);
    copies.copied().chain([shard.primary])
}
