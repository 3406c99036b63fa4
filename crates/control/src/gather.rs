//! Shards that are to be merged are brought to the same nodes first: to those of the first of them.
//!
//! Every step is an ordinary move. Which steps are due follows from where the copies are, so that
//! fail-overs and moves by hand in between only change what is left to do.

use crate::command::CommandError;
use crate::limits::GATHER_MOVES_MAX;
use crate::reshard::copies;
use crate::state::{AppState, Control};
use e3_model::plan::ShardPlan;
use e3_model::reshard::Split;
use e3_model::{AppId, Format, NodeId, ServiceId, ShardId, ShardKey};

/// Two shards that are to be merged and are on different nodes.
pub(crate) struct Apart<'a> {
    /// The first of those that are merged.
    pub(crate) first: &'a ShardPlan,
    /// Another.
    pub(crate) other: &'a ShardPlan,
}

impl AppState {
    /// The shards that a merge needs together and that are not.
    pub(crate) fn apart(&self, service: ServiceId, split: Split) -> Vec<Apart<'_>> {
        let shard = |n| self.shard(self.plan.key_of(service, n));
        let mut apart = Vec::new();
        for child in (0..split.after).map(ShardId) {
            let mut parents = split.parents(child).filter_map(shard);
            if let Some(first) = parents.next() {
                let others = parents.filter(|other| copies(other) != copies(first));
                apart.extend(others.map(|other| Apart { first, other }));
            }
        }
        apart
    }
}

impl Control {
    /// Whether shards that are on different nodes can begin to come together.
    pub(crate) fn check_apart(
        &self,
        app: &AppState,
        service: ServiceId,
        split: Split,
    ) -> Result<(), CommandError> {
        let settled = |s| self.is_in_place(app, s);
        let apart = app.apart(service, split);
        let mut stuck = apart
            .iter()
            .filter(|a| settled(a.first) && settled(a.other));
        match stuck.find(|a| self.step(app, a).is_none()) {
            Some(stuck) => Err(self.cannot_gather(app, stuck)),
            None => Ok(()),
        }
    }

    fn cannot_gather(&self, app: &AppState, apart: &Apart<'_>) -> CommandError {
        let Apart { first: one, other } = apart;
        let nodes = |s: &ShardPlan| {
            let nodes = copies(s).into_iter().map(|(node, _)| self.node_name(node));
            nodes.collect::<Vec<_>>().join(", ")
        };
        CommandError::Apart {
            one: self.shard_name(app.plan.key(one)),
            other: self.shard_name(app.plan.key(other)),
            nodes: nodes(one),
            others: nodes(other),
        }
    }

    /// Begins moves that bring shards together, a few at a time.
    pub(crate) fn gather(&mut self, id: AppId, service: ServiceId, split: Split) {
        while self.moves() < GATHER_MOVES_MAX {
            let app = &self.apps[&id];
            let apart = app.apart(service, split);
            let steps = apart.iter().filter(|a| self.is_in_place(app, a.first));
            let mut steps = steps.filter_map(|a| self.step(app, a));
            let Some((key, from, to)) = steps.next() else {
                return;
            };
            if self.migrate(key, from, to, false).is_err() {
                return;
            }
        }
    }

    /// A move that can begin now and brings a shard closer to where the first is.
    fn step(&self, app: &AppState, apart: &Apart<'_>) -> Option<(ShardKey, NodeId, NodeId)> {
        let Apart { first, other } = apart;
        let key = app.plan.key(other);
        if !self.is_in_place(app, other) {
            return None;
        }
        let primary = (other.primary != first.primary).then_some((other.primary, first.primary));
        let stray = other.backups.iter().filter(|n| !first.backups.contains(n));
        let free = || first.backups.iter().filter(|n| !other.backups.contains(n));
        let backups = stray.flat_map(|from| free().map(|to| (*from, *to)));
        // A backup on the server to which the primary is to go moves to the node there, and then changes places
        // with the primary: where as many servers as copies are in use, there is no other way.
        let servers = self.servers();
        let server = |n: NodeId| servers[n.index()];
        let is_near = |n: &&NodeId| server(**n) == server(first.primary);
        let near = other.backups.iter().filter(is_near);
        let near = near.map(|from| (*from, first.primary));
        let mut moves = primary.into_iter().chain(backups).chain(near);
        // A primary that changes places with its backup leaves its node, which gets no new copy then.
        let keeps_copies = self.format >= Format::MERGES_KEEP_COPIES;
        let costs_a_copy = |from: NodeId, to: NodeId| {
            keeps_copies && other.backups.contains(&to) && self.is_out_of_service(from)
        };
        let (from, to) = moves.find(|&(from, to)| {
            !self.is_out_of_service(to)
                && !costs_a_copy(from, to)
                && self.check_move(key, from, to, false).is_ok()
        })?;
        Some((key, from, to))
    }
}
