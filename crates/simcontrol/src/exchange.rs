//! What the controller and nodes that run the product's data plane send each other: plans one way, events
//! the other.

use e3_control::Control;
use e3_model::NodeId;
use e3_model::plan::{NodeEvent, NodePlan};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What is on its way between the controller and the nodes.
#[derive(Debug, Default)]
pub struct Exchange {
    /// The latest plan of each node that it has not taken.
    plans: BTreeMap<NodeId, NodePlan>,
    /// What the controller has not taken.
    events: Vec<NodeEvent>,
}

/// An [`Exchange`] of both sides.
pub type SharedExchange = Rc<RefCell<Exchange>>;

impl Exchange {
    /// Sends each node its plan.
    pub(crate) fn post_plans(&mut self, control: &Control) {
        let plan = |node: &NodeId| (*node, control.plan_for(*node));
        self.plans = control.members.keys().map(plan).collect();
    }

    /// Takes the plans that are new.
    pub fn take_plans(&mut self) -> BTreeMap<NodeId, NodePlan> {
        std::mem::take(&mut self.plans)
    }

    /// A node reports what its part of a change of the plan is waiting for. It does so until the plan says
    /// that the controller knows.
    pub fn report(&mut self, events: Vec<NodeEvent>) {
        self.events.extend(events);
    }

    pub(crate) fn take_events(&mut self) -> Vec<NodeEvent> {
        std::mem::take(&mut self.events)
    }
}
