//! The free resources while decisions are made: those of the state, and what the decisions before have
//! taken. They are changed in the state's own index and taken back at the end: a copy of the index of
//! 250,000 nodes would take longer than all decisions.

use super::moving::Moving;
use crate::state::Control;
use e3_model::NodeId;
use e3_model::plan::Role;
use e3_placement::{Changes, Cluster};

/// One call of `Orchestrator::decide`.
pub(super) struct Round<'a> {
    control: &'a Control,
    changes: Changes,
}

impl<'a> Round<'a> {
    pub(super) fn new(control: &'a Control) -> Round<'a> {
        let changes = Changes::default();
        Round { control, changes }
    }

    /// Does something with the free resources. `work` must ask the state nothing that needs its index.
    pub(super) fn with<T>(&mut self, work: impl FnOnce(&mut Cluster) -> T) -> T {
        let mut index = self.control.index();
        index.cluster.record(&mut self.changes, work)
    }

    /// The primary of a shard is on another node.
    pub(super) fn move_primary(&mut self, moving: &Moving<'_>, from: NodeId, to: NodeId) {
        let (request, service) = (&moving.request, moving.key.service);
        self.with(|cluster| {
            cluster.remove(request, service, Role::Primary, from);
            cluster.add(request, service, Role::Primary, to);
        });
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        self.control.index().cluster.undo(changes);
    }
}
