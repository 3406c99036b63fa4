//! The difference between the controller's plan and what the simulator has been told of it.

use e3_control::AppState;
use e3_model::NodeId;
use e3_model::plan::{AppPlan, NodeEvent, ShardPlan};
use e3_perfsim::Action;
use std::collections::BTreeMap;

/// What the simulator does with a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    primary: NodeId,
    backups: Vec<NodeId>,
    is_stopped: bool,
}

/// What the simulator has been told.
pub(crate) struct Followed {
    /// By shard, in the order of the plan.
    told: Vec<Told>,
    /// Copies in flight: their numbers, by shard and destination.
    copies: BTreeMap<(usize, NodeId), u32>,
    next_copy: u32,
    /// Version of the state that it agrees with.
    pub version: u64,
}

impl Followed {
    pub fn new(plan: &AppPlan) -> Followed {
        Followed {
            told: plan.shards.iter().map(told).collect(),
            copies: BTreeMap::new(),
            next_copy: 0,
            version: 0,
        }
    }

    /// What is to be done so that the simulator does what the plan says.
    pub fn actions(&mut self, app: &AppState, is_up: impl Fn(NodeId) -> bool) -> Vec<Action> {
        let mut actions = Vec::new();
        for (at, shard) in app.plan.shards.iter().enumerate() {
            // Nobody serves a shard without a copy.
            if app.is_orphan(shard) {
                continue;
            }
            let has_moved = self.told[at].primary != shard.primary;
            self.cancel(at, shard, has_moved, &mut actions);
            self.replicas(at, shard, &mut actions);
            if !is_up(shard.primary) {
                continue;
            }
            for to in &shard.joining {
                if self.copies.contains_key(&(at, *to)) {
                    continue;
                }
                let number = self.next_copy;
                self.next_copy += 1;
                self.copies.insert((at, *to), number);
                actions.push(Action::Copy {
                    number,
                    service: shard.service,
                    shard: shard.shard,
                    to: *to,
                });
            }
        }
        actions
    }

    /// Copies that are not needed any more, or whose source no longer serves.
    fn cancel(&mut self, at: usize, shard: &ShardPlan, has_moved: bool, out: &mut Vec<Action>) {
        let nodes = (at, NodeId(0))..(at + 1, NodeId(0));
        let needed = |to: &NodeId| !has_moved && shard.joining.contains(to);
        let stale = self.copies.range(nodes).filter(|((_, to), _)| !needed(to));
        let stale: Vec<(usize, NodeId)> = stale.map(|(key, _)| *key).collect();
        for key in stale {
            let number = self.copies.remove(&key);
            out.extend(number.map(|number| Action::Cancel { number }));
        }
    }

    fn replicas(&mut self, at: usize, shard: &ShardPlan, out: &mut Vec<Action>) {
        let wanted = told(shard);
        let before = std::mem::replace(&mut self.told[at], wanted.clone());
        if before == wanted {
            return;
        }
        let resumes = before.is_stopped && !wanted.is_stopped;
        let is_same = (before.primary, &before.backups) == (wanted.primary, &wanted.backups);
        if resumes || !is_same {
            out.push(Action::Serve {
                service: shard.service,
                shard: shard.shard,
                primary: wanted.primary,
                is_prepared: before.backups.contains(&wanted.primary),
                backups: wanted.backups,
            });
        }
        if wanted.is_stopped {
            out.push(Action::Stop {
                service: shard.service,
                shard: shard.shard,
            });
        }
    }

    /// A copy is complete: what the new backup reports.
    pub fn copied(&mut self, plan: &AppPlan, number: u32) -> Option<NodeEvent> {
        let key = self.copies.iter().find(|(_, n)| **n == number);
        let (at, backup) = *key?.0;
        self.copies.remove(&(at, backup));
        let shard = &plan.shards[at];
        Some(NodeEvent::Synced {
            key: plan.key(shard),
            view: shard.view,
            backup,
        })
    }
}

fn told(shard: &ShardPlan) -> Told {
    Told {
        primary: shard.primary,
        backups: shard.staying().collect(),
        is_stopped: shard.frozen,
    }
}
