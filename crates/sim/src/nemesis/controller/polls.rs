//! Nodes ask the controller for newer plans, and wait for them.

use super::ControllerProcess;
use crate::cluster::Cluster;
use crate::nemesis::agents::{Agents, Answer};
use e3_control::{Interest, PlanAnswer, PlanRequest};
use e3_model::{Nanos, NodeId, Timestamp};

/// `PLAN_QUIET` of the controller.
const PLAN_QUIET: Nanos = Nanos::from_millis(200);
/// `PLAN_WAIT` of the node.
const PLAN_WAIT: Nanos = Nanos::from_secs(10);

/// A request for a newer plan.
#[derive(Clone, Debug)]
pub(in crate::nemesis) struct Poll {
    /// The process that asks.
    pub(in crate::nemesis) process: u64,
    pub(in crate::nemesis) incarnation: u32,
    /// The version that it has.
    pub(in crate::nemesis) after: u64,
    /// The process of the controller that sent it.
    pub(in crate::nemesis) source: Option<u64>,
    pub(in crate::nemesis) interest: Interest,
}

/// A request for a newer plan that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    poll: Poll,
    since: Timestamp,
    /// The version for which it was looked at.
    looked_at: Option<u64>,
    /// When the number of a version that does not concern the node is its answer.
    quiet_until: Option<Timestamp>,
}

impl Waiting {
    pub(super) fn new(now: Timestamp, poll: Poll) -> Waiting {
        Waiting {
            poll,
            since: now,
            looked_at: None,
            quiet_until: None,
        }
    }
}

impl ControllerProcess {
    pub(super) fn answer_polls(&mut self, cluster: &mut Cluster, agents: &mut Agents) {
        let now = cluster.now;
        // As `check_current` of the controller: who is a member must be known first.
        let knows = self.can_decide(now);
        self.plans.note(&self.control);
        let mut polls = std::mem::take(&mut self.polls);
        polls.retain(|node, waiting| {
            let is_member = self.is_member(NodeId(*node), waiting.poll.incarnation);
            let answer = match (is_member, knows) {
                (true, _) => self.answer_poll(*node, waiting, now),
                (false, true) => Some(Answer::Expelled),
                (false, false) => None,
            };
            let is_over = now > waiting.since + PLAN_WAIT;
            let answer = answer.or(is_over.then_some(Answer::Nothing));
            let waits = answer.is_none();
            if let Some(answer) = answer {
                agents.answer(cluster, *node, waiting.poll.process, answer);
            }
            waits
        });
        self.polls = polls;
    }

    /// What the node is sent, or the number of the version after a while if that does not concern it.
    fn answer_poll(&mut self, node: u32, waiting: &mut Waiting, now: Timestamp) -> Option<Answer> {
        let (version, poll) = (self.control.version, &waiting.poll);
        if waiting.looked_at.replace(version) != Some(version) {
            let asked = PlanRequest {
                node: NodeId(node),
                after: poll.after,
                is_known: poll.source == Some(self.process),
                interest: Some(poll.interest.clone()),
            };
            if let Some(answer) = self.plans.answer(&self.control, &asked) {
                return Some(match answer {
                    PlanAnswer::Change(change) => Answer::Change(change.into()),
                    PlanAnswer::Whole(plan) => Answer::Plan(plan.into(), self.process),
                });
            }
        }
        if version <= poll.after {
            return None;
        }
        let quiet_until = *waiting.quiet_until.get_or_insert(now + PLAN_QUIET);
        (now >= quiet_until).then_some(Answer::Unchanged(version))
    }
}
