//! Draining: an operator takes a node out of service, and its replicas move elsewhere.
//!
//! Which nodes are drained is logged; the moves follow from it, and their targets are logged too. After every change of the state, the
//! replicas that can move begin to, a few at a time, so what has no room now moves when there is some.
//! A replica moves as a whole copy to a new node before the old one goes: draining never leaves a
//! shard with fewer copies. Design: docs/design/011.

use crate::choice::Question;
use crate::command::{Applied, CommandError};
use crate::limits::DRAIN_MOVES_MAX;
use crate::migration::Cancelled;
use crate::reach::Ways;
use crate::state::{AppState, Control};
use e3_model::plan::{Role, ShardPlan};
use e3_model::{Format, NodeId, ShardKey};
use e3_placement::limits::REJECTED_MAX;
use e3_placement::{Decision, Misfit, Request, fits, fits_firmly, pick_backup, pick_primary};

/// A replica that is still on a drained node.
#[derive(Clone, PartialEq, Debug)]
pub struct Undrained {
    /// Its shard.
    pub key: ShardKey,
    /// Why it is there.
    pub stays: Stays,
}

/// Why a replica is still on a drained node.
#[derive(Clone, PartialEq, Debug)]
pub enum Stays {
    /// It is moving.
    Moving {
        /// Where.
        to: NodeId,
    },
    /// Another replica of its shard is moving.
    OtherMoves,
    /// A copy of the shard is being brought up to date, or is leaving.
    Settling,
    /// The primary of the shard is on a silent node, without which nothing moves.
    Waits {
        /// That node.
        node: NodeId,
    },
    /// Other shards move first.
    Queued,
    /// Its last move made no progress. It is tried again when a node comes back.
    Stalled,
    /// No other node can take it: why not, by node, at most [`REJECTED_MAX`].
    NoRoom(Vec<(NodeId, Misfit)>),
}

impl Control {
    /// Takes a node out of service. Moves to it end.
    pub(crate) fn drain(&mut self, node: NodeId) -> Result<Applied, CommandError> {
        self.check_node(node)?;
        if !self.drained.insert(node) {
            if self.format < Format::WAITS_END || self.stalled.is_empty() {
                return Ok(Applied::Nothing);
            }
            // The operator asks again.
            self.stalled.clear();
            self.settle_all();
            return Ok(Applied::Changed);
        }
        self.cordoned.remove(&node);
        self.stalled.clear();
        self.returned.remove(&node);
        let moves = self.apps.values().flat_map(|app| &app.migrations);
        let to_it: Vec<ShardKey> = moves.filter(|m| m.to == node).map(|m| m.key).collect();
        for key in to_it {
            self.undo_move(key, Cancelled::Drained);
        }
        self.settle_all();
        Ok(Applied::Changed)
    }

    /// Takes a drained or cordoned node back into service.
    pub(crate) fn resume(&mut self, node: NodeId) -> Result<Applied, CommandError> {
        self.check_node(node)?;
        if !self.drained.remove(&node) && !self.cordoned.remove(&node) {
            return Ok(Applied::Nothing);
        }
        self.note_return(node);
        self.settle_all();
        Ok(Applied::Changed)
    }

    /// The replicas that are still on a drained node, each with the reason; empty for other nodes.
    pub fn undrained(&self, node: NodeId) -> Vec<Undrained> {
        if !self.drained.contains(&node) {
            return Vec::new();
        }
        let ways = self.ways();
        let mut left = Vec::new();
        for key in self.shards_on(node) {
            let app = &self.apps[&key.app];
            let shard = app.shard(key).expect("the index names it");
            if shard.keeps(node) && !app.is_orphan(shard) {
                let stays = match self.target(app, shard, node, &ways) {
                    Ok(_) => Stays::Queued,
                    Err(stays) => stays,
                };
                left.push(Undrained { key, stays });
            }
        }
        left
    }

    /// Begins to move replicas off drained nodes, as many as may move at a time. Those without state
    /// have moved at once.
    pub(crate) fn move_drained(&mut self) {
        if self.drained.is_empty() {
            return;
        }
        let ways = self.ways();
        for node in self.drained.clone() {
            for key in self.shards_on(node) {
                let app = &self.apps[&key.app];
                let shard = app.shard(key).expect("the index names it");
                if shard.role(node).is_none() {
                    continue;
                }
                let stateful = app.plan.app.service(key.service).stateful;
                if stateful && self.moves() >= DRAIN_MOVES_MAX {
                    continue;
                }
                let chosen = self.choose(Question::Drain(key, node), |control| {
                    let app = &control.apps[&key.app];
                    let to = control.target(app, app.shard(key)?, node, &ways).ok()?;
                    Some((key, Some(node), to))
                });
                if let Some((.., to)) = chosen {
                    // What is refused is tried again at the next change.
                    let _ = self.migrate(key, node, to, false);
                }
            }
        }
    }

    /// Moves in flight.
    pub(crate) fn moves(&self) -> usize {
        self.apps.values().map(|app| app.migrations.len()).sum()
    }

    /// Where a replica on a drained node goes now.
    fn target(
        &self,
        app: &AppState,
        shard: &ShardPlan,
        from: NodeId,
        ways: &Ways,
    ) -> Result<NodeId, Stays> {
        let key = app.plan.key(shard);
        if let Some(m) = app.migrations.iter().find(|m| m.key == key) {
            let is_it = m.from == from;
            return Err(if is_it {
                Stays::Moving { to: m.to }
            } else {
                Stays::OtherMoves
            });
        }
        if !self.is_up(shard.primary) {
            let node = shard.primary;
            return Err(Stays::Waits { node });
        }
        if !shard.joining.is_empty() || !shard.leaving.is_empty() {
            return Err(Stays::Settling);
        }
        if self.stalled.contains(&key) {
            return Err(Stays::Stalled);
        }
        let request = Request::new(&app.plan.app, &app.profiles);
        let primary = shard.primary;
        let (service, number) = (shard.service, shard.shard);
        let mut others = vec![primary];
        others.extend(shard.staying());
        others.retain(|n| *n != from);
        let is_off = |n| ways.is_isolated(n) || (n != from && ways.are_cut(primary, n));
        let parents = self.primaries_of_parent(key.app, &request, service);
        self.try_resources(|cluster| {
            Control::leave_out(cluster, ways, is_off);
            let (role, found) = if from == primary {
                let found = pick_primary(&request, cluster, service, number, &parents, &others);
                (Role::Primary, found)
            } else {
                let found = pick_backup(&request, cluster, service, number, &others);
                (Role::Backup, found)
            };
            // Cores and bandwidth may be exceeded, as with a move by hand; what is firm may not.
            let has_room = |d: &Decision| match &d.overcommitted {
                Some(Misfit::Power { .. }) => !self.is_firm(),
                misfit => misfit.as_ref().is_none_or(|misfit| !misfit.is_firm()),
            };
            if let Some(decision) = found.ok().filter(has_room) {
                return Ok(decision.node);
            }
            let fits = if self.is_firm() { fits_firmly } else { fits };
            let nodes = cluster.nodes().map(|(id, _)| id).filter(|n| *n != from);
            let misfits = nodes.filter_map(|n| {
                let misfit = fits(&request, cluster, service, role, n, &others).err()?;
                Some((n, misfit))
            });
            Err(Stays::NoRoom(misfits.take(REJECTED_MAX).collect()))
        })
    }
}
