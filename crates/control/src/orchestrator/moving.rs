//! An instance that is to move, with what the search for its destination needs, and why nodes refuse it.

use crate::state::Control;
use e3_model::plan::ShardPlan;
use e3_model::{NodeId, NodeKind, ShardKey};
use e3_placement::Request;

/// An instance that is to move.
pub(super) struct Moving<'a> {
    pub(super) key: ShardKey,
    pub(super) shard: &'a ShardPlan,
    pub(super) request: Request<'a>,
    /// Thousandths of a core that it uses where it is.
    pub(super) cpu_permille: u64,
    /// Thousandths of a core at most that the instances of its destination use with it.
    pub(super) busy_permille_max: Option<u64>,
}

impl<'a> Moving<'a> {
    /// An instance whose primary is on `from` and may move now.
    pub(super) fn new(
        control: &'a Control,
        key: ShardKey,
        from: NodeId,
        cpu_permille: u64,
    ) -> Option<Moving<'a>> {
        let app = control.apps.get(&key.app)?;
        let shard = app.shard(key).filter(|s| s.primary == from)?;
        let is_settled = shard.joining.is_empty() && shard.leaving.is_empty() && !shard.frozen;
        let moves = app.is_moving(key);
        let stalled = control.stalled.contains(&key);
        let changes = app.is_resharding(key) || app.is_restoring(key) || app.is_orphan(shard);
        if !is_settled || moves || stalled || changes || !control.is_up(from) {
            return None;
        }
        Some(Moving {
            key,
            shard,
            request: Request::new(&app.plan.app, &app.profiles),
            cpu_permille,
            busy_permille_max: None,
        })
    }

    /// Thousandths of a core that it would use on another kind of node.
    pub(super) fn cpu_permille_on(&self, here: NodeKind, there: NodeKind) -> u64 {
        let factor = |kind| self.request.cost(self.key.service, kind).factor;
        let scaled = self.cpu_permille as f64 * factor(there) / factor(here).max(f64::MIN_POSITIVE);
        scaled.round() as u64
    }
}

/// Why nodes cannot take an instance, in one line.
pub(super) fn by_node(control: &Control, rejected: &[(NodeId, String)], separator: &str) -> String {
    let of = |(n, why): &(NodeId, String)| format!("{}: {why}", control.node_name(*n));
    rejected.iter().map(of).collect::<Vec<_>>().join(separator)
}
