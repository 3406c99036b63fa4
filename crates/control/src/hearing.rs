//! What a heartbeat changes: when its node was last heard, the load that the orchestrator knows of it, and
//! what views show. Soft state: never logged, lost with the process.
//!
//! A cluster of 50,000 servers sends millions of heartbeats a second. So each changes one entry in each of
//! a few tables by node, and searches no map. Design: docs/design/023.

use crate::membership::{Membership, Sender};
use crate::orchestrator::{NodeLoad, Orchestrator};
use crate::state::Control;
use e3_model::{NodeId, Timestamp};

/// A heartbeat as it is on the wire, whoever has sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pulse {
    /// Cluster that the sender says it belongs to.
    pub cluster: u64,
    /// Sending node.
    pub node: NodeId,
    /// Its process.
    pub incarnation: u32,
    /// Its number among the heartbeats of this process, from 1; 0 in a format without them.
    pub sequence: u32,
    /// Its load.
    pub load: NodeLoad,
    /// Low half of the version of the plan that it has applied.
    pub plan_version_low: u32,
}

/// What the last heartbeat of a node said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastPulse {
    /// Its load.
    pub load: NodeLoad,
    /// Low half of the version of the plan that it had applied.
    pub plan_version_low: u32,
}

/// What a heartbeat shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heard {
    /// Whose it is.
    pub sender: Sender,
    /// The version that a node of the cluster has applied, if the state is older: decisions are missing.
    pub missing: Option<u64>,
}

/// What is known from heartbeats.
#[derive(Debug)]
pub struct Hearing {
    /// Who has sent heartbeats lately.
    pub membership: Membership,
    /// The load of nodes.
    pub orchestrator: Orchestrator,
}

impl Hearing {
    /// No heartbeat has come yet.
    pub fn new(membership: Membership, orchestrator: Orchestrator) -> Hearing {
        Hearing {
            membership,
            orchestrator,
        }
    }

    /// Takes heartbeats that have arrived together; gives what each shows, in their order. One that no present
    /// process of a member has sent changes nothing: a damaged incarnation must not make the real one look
    /// old. Neither does one that comes twice or late: whoever records heartbeats could keep a dead node up.
    ///
    /// The nodes' entries are rarely in the processor's caches. So all heartbeats pass one table after the
    /// other, and the processor waits for many entries at once.
    pub fn on_pulses(
        &mut self,
        now: Timestamp,
        control: &Control,
        pulses: &[Pulse],
        heard: &mut Vec<Heard>,
    ) {
        self.membership.note_members(control);
        heard.clear();
        heard.extend(pulses.iter().map(|p| self.heard(control, p)));
        for (p, h) in pulses.iter().zip(&*heard) {
            match h.sender {
                Sender::Present | Sender::Silent => {
                    self.membership.on_heartbeat(now, p.node, p.incarnation);
                    self.membership.on_sequence(p.node, p.sequence);
                    self.membership.on_applied(p.node, p.plan_version_low);
                }
                Sender::Stranger if p.cluster == control.cluster => {
                    self.membership.on_stranger(p.node, p.incarnation, control);
                }
                Sender::Stranger | Sender::Late => {}
            }
        }
        for (p, h) in pulses.iter().zip(&*heard) {
            if matches!(h.sender, Sender::Present | Sender::Silent) {
                self.orchestrator
                    .on_heartbeat(now, p.node, p.incarnation, p.load);
            }
        }
    }

    /// What a heartbeat shows.
    fn heard(&self, control: &Control, pulse: &Pulse) -> Heard {
        if pulse.cluster != control.cluster {
            return Heard {
                sender: Sender::Stranger,
                missing: None,
            };
        }
        let sender = self.membership.sender(pulse.node, pulse.incarnation);
        let is_late =
            sender != Sender::Stranger && self.membership.is_late(pulse.node, pulse.sequence);
        Heard {
            sender: if is_late { Sender::Late } else { sender },
            missing: control.missing_version(pulse.plan_version_low),
        }
    }

    /// The last heartbeat of a node.
    pub fn last(&self, node: NodeId) -> Option<LastPulse> {
        Some(LastPulse {
            plan_version_low: self.membership.applied_low(node)?,
            load: self.orchestrator.load(node)?,
        })
    }

    /// Forgets the last heartbeat of a node's process that is gone.
    pub fn forget(&mut self, node: NodeId) {
        self.membership.forget_applied(node);
    }
}
