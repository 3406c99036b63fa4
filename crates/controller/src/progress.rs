//! Which shards and channels make no progress.

use e3_control::Control;
use e3_model::plan::{NodeReport, ShardPlan};
use e3_model::{Nanos, NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

/// How long shards and channels that should make progress have made none.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Shards that wait for a copy, with the view in which the wait began.
    shards: BTreeMap<ShardKey, (u32, Timestamp)>,
    /// Channels with messages in flight: how many were durable, and since when.
    channels: BTreeMap<(NodeId, String), (u64, Timestamp)>,
}

impl Progress {
    /// Updates the shards from the desired state.
    pub(crate) fn look(&mut self, now: Timestamp, control: &Control) {
        let mut waiting = BTreeMap::new();
        for key in control.busy_shards() {
            let shard = control.apps.get(&key.app).and_then(|app| app.shard(key));
            let changes =
                |s: &&ShardPlan| !s.joining.is_empty() || !s.leaving.is_empty() || s.frozen;
            if let Some(shard) = shard.filter(changes) {
                let since = match self.shards.get(&key) {
                    Some((view, since)) if *view == shard.view => *since,
                    _ => now,
                };
                waiting.insert(key, (shard.view, since));
            }
        }
        self.shards = waiting;
    }

    /// Updates the channels from a node's report.
    pub(crate) fn on_report(&mut self, now: Timestamp, report: &NodeReport, control: &Control) {
        let node = report.node;
        let mut before = std::mem::take(&mut self.channels);
        for c in report
            .stats
            .channels
            .iter()
            .filter(|c| c.sent.saturating_add(c.waiting.into()) > c.durable)
        {
            let app = control.apps.get(&c.app).map(|a| a.plan.app.name.as_str());
            let Some(app) = app else { continue };
            let name = format!("{} of {app} from {} to {}", c.name, c.from, c.to);
            let key = (node, name);
            let since = match before.get(&key) {
                Some((durable, since)) if *durable == c.durable => *since,
                _ => now,
            };
            self.channels.insert(key, (c.durable, since));
        }
        before.retain(|(n, _), _| *n != node);
        self.channels.append(&mut before);
    }

    /// Removes the channels of a node's process that is gone.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.channels.retain(|(n, _), _| *n != node);
    }

    /// What has made no progress for `limit`.
    pub(crate) fn stuck(&self, now: Timestamp, limit: Nanos) -> (Vec<ShardKey>, Vec<&str>) {
        let late = |since: &Timestamp| now > *since + limit;
        let shards = self
            .shards
            .iter()
            .filter(|(_, (_, since))| late(since))
            .map(|(k, _)| *k);
        let channels = self.channels.iter().filter(|(_, (_, since))| late(since));
        (
            shards.collect(),
            channels.map(|((_, name), _)| name.as_str()).collect(),
        )
    }
}
