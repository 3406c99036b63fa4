//! Nodes that are sent what concerns them, at some of the versions.

use super::{Control, Plans};
use e3_model::plan::{AppPlan, NodePlan, ShardPlan};
use e3_model::plan_change::PlanChange;
use e3_model::{AppId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// What nodes have that are sent what concerns them.
#[derive(Default)]
pub struct Followers(BTreeMap<NodeId, NodePlan>);

impl Followers {
    /// Brings every node, or every other one, to the present plan, and compares with the whole one.
    pub fn follow(&mut self, plans: &mut Plans, control: &Control, step: usize) {
        let nodes: Vec<NodeId> = control.topology.nodes().map(|n| n.id).collect();
        self.0.retain(|node, _| nodes.contains(node));
        for node in nodes {
            if step % 2 == 1 && node.index() % 2 == 1 {
                continue;
            }
            let wants = wanted_by(control, node, step);
            let whole = plans.plan_for(control, node, &wants);
            let followed = self.0.entry(node).or_default();
            let has: Vec<AppId> = followed.routed().collect();
            let change = plans.change_for(control, node, followed.version, (&has, &wants));
            *followed = match change {
                Some(change) => {
                    let next = followed.changed(through_json(&change)).expect("it fits");
                    check(&next, &whole, node);
                    next
                }
                None => whole,
            };
        }
    }
}

/// Nodes are interested in applications that they have nothing of, and lose interest.
fn wanted_by(control: &Control, node: NodeId, step: usize) -> BTreeSet<AppId> {
    let apps = control.apps.keys().copied();
    let number = |app: &AppId| usize::from(app.0) + node.index() + step / 4;
    apps.filter(|app| number(app).is_multiple_of(3)).collect()
}

fn through_json(change: &PlanChange) -> PlanChange {
    serde_json::from_str(&serde_json::to_string(change).unwrap()).unwrap()
}

/// The plans agree in all but the shards that the node has no part in: of those it knows where they
/// are served.
fn check(plan: &NodePlan, whole: &NodePlan, node: NodeId) {
    let others = |shard: &ShardPlan| ShardPlan {
        service: shard.service,
        shard: shard.shard,
        primary: shard.primary,
        incarnation: shard.incarnation,
        era: shard.era,
        view: 0,
        backups: Vec::new(),
        joining: Vec::new(),
        leaving: Vec::new(),
        predecessor: None,
        fenced: false,
        frozen: false,
        quiet: false,
        filled: false,
    };
    let known = |app: &AppPlan| AppPlan {
        shards: (app.shards.iter())
            .map(|shard| {
                if shard.keeps(node) {
                    shard.clone()
                } else {
                    others(shard)
                }
            })
            .collect(),
        ..app.clone()
    };
    let known = |plan: &NodePlan| NodePlan {
        apps: plan.apps.iter().map(known).collect(),
        ..plan.clone()
    };
    assert_eq!(known(plan), known(whole));
}
