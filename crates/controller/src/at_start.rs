//! What the log led to when this process started. Nodes that were cut off then may show later that it lacks
//! decisions, when new ones have taken the same numbers. Soft state. Design: docs/design/009.

use e3_control::{Control, LaterCopy};
use e3_model::NodeId;
use e3_model::plan::NodeHello;
use std::collections::BTreeSet;

pub(crate) struct AtStart {
    control: Control,
    /// Nodes that have joined since, or asked for a plan.
    asked: BTreeSet<NodeId>,
}

impl AtStart {
    pub(crate) fn new(control: &Control) -> AtStart {
        AtStart {
            control: control.clone(),
            asked: BTreeSet::new(),
        }
    }

    pub(crate) fn on_asked(&mut self, node: NodeId) {
        self.asked.insert(node);
    }

    /// The version at which the log ended, if an earlier process sent a later one.
    pub(crate) fn end_before(&self, sent: u64) -> Option<u64> {
        (sent > self.control.version).then_some(self.control.version)
    }

    /// A copy on the disk of a node that has no plan of this process, of a view that the log did not have.
    pub(crate) fn later_copy(&self, hello: &NodeHello) -> Option<LaterCopy> {
        let node = self.control.topology.node_named(&hello.name)?.id;
        let later = || self.control.later_copy(hello);
        (!self.asked.contains(&node)).then(later).flatten()
    }

    /// Whether each member whose process may run has said what it has applied. What the log does not name
    /// may be needed before that.
    pub(crate) fn have_all_asked(&self, control: &Control) -> bool {
        let mut members = control.members.iter();
        members.all(|(node, m)| m.exited >= m.incarnation || self.asked.contains(node))
    }
}
