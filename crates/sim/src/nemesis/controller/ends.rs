//! Supervisors tell the controller that processes have ended, again and again while it is away, and wait
//! while it listens.

use super::ControllerProcess;
use crate::cluster::Cluster;
use crate::network::Party;
use e3_control::Command;
use e3_model::{Nanos, NodeId, Timestamp};

/// How late a supervisor notices the end of a process.
const NOTICED_NS_MAX: u64 = 20_000_000;
/// As `POLL_INTERVAL` of the supervisor.
const REPORT_NS: u64 = 40_000_000;
/// As `EXIT_REPORT_TIME` of the supervisor.
const REPORT_TIME: Nanos = Nanos::from_secs(3);

/// The end of a process of which the controller is to be told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    node: u32,
    process: u64,
    next: Timestamp,
    until: Timestamp,
}

impl ControllerProcess {
    /// A process of a node has ended, and its supervisor runs.
    pub(in crate::nemesis) fn on_ended(&mut self, cluster: &mut Cluster, node: u32, process: u64) {
        let noticed = cluster.now + Nanos(cluster.random.below(NOTICED_NS_MAX));
        self.ended.push(Ended {
            node,
            process,
            next: noticed,
            until: noticed + REPORT_TIME,
        });
    }

    /// Supervisors report what is due.
    pub(super) fn take_ended(&mut self, cluster: &mut Cluster) {
        let now = cluster.now;
        self.ended.retain(|ended| now <= ended.until);
        let (due, later) = std::mem::take(&mut self.ended)
            .into_iter()
            .partition(|ended| ended.next <= now);
        self.ended = later;
        for ended in due {
            let (me, it) = (Party::Node(ended.node), Party::Controller);
            let is_cut = cluster.cuts.is_cut(me, it) || cluster.cuts.is_cut(it, me);
            if is_cut || !self.on_exited(now, ended) {
                let next = now + Nanos(cluster.random.below(REPORT_NS));
                self.ended.push(Ended { next, ..ended });
            }
        }
    }

    /// Whether the report is answered: the end is decided, or the process is no member's.
    fn on_exited(&mut self, now: Timestamp, ended: Ended) -> bool {
        let node = NodeId(ended.node);
        let member = self.control.members.get(&node);
        let Some(member) = member.filter(|m| m.process == ended.process) else {
            return true;
        };
        let exit = Command::Exit {
            node,
            incarnation: member.incarnation,
            at: now,
        };
        self.execute(now, &exit).is_some()
    }
}
