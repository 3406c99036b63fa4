//! Supervisors tell the controller that processes have ended, again and again while it is away, and wait
//! while it listens.

use crate::cluster::Cluster;
use crate::network::Party;
use e3_model::{Nanos, Timestamp};

/// How late a supervisor notices the end of a process.
const NOTICED_NS_MAX: u64 = 20_000_000;
/// As `POLL_INTERVAL` of the supervisor.
const REPORT_NS: u64 = 40_000_000;
/// As `EXIT_REPORT_TIME` of the supervisor.
const REPORT_TIME: Nanos = Nanos::from_secs(3);

/// Ends of processes that are not decided yet.
#[derive(Debug, Default)]
pub(super) struct Ends(Vec<Ended>);

/// The end of a process of which the controller is to be told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) node: u32,
    pub(super) process: u64,
    next: Timestamp,
    until: Timestamp,
}

impl Ends {
    /// A process of a node has ended, and its supervisor runs.
    pub(super) fn insert(&mut self, cluster: &mut Cluster, node: u32, process: u64) {
        let noticed = cluster.now + Nanos(cluster.random.below(NOTICED_NS_MAX));
        self.0.push(Ended {
            node,
            process,
            next: noticed,
            until: noticed + REPORT_TIME,
        });
    }

    /// Takes those that are reported now. What cannot be sent is tried again.
    pub(super) fn take(&mut self, cluster: &mut Cluster) -> Vec<Ended> {
        let now = cluster.now;
        self.0.retain(|ended| now <= ended.until);
        let all = std::mem::take(&mut self.0);
        let (due, later): (Vec<Ended>, Vec<Ended>) =
            all.into_iter().partition(|ended| ended.next <= now);
        self.0 = later;
        let (cut, sent): (Vec<Ended>, Vec<Ended>) = due.into_iter().partition(|ended| {
            let (me, it) = (Party::Node(ended.node), Party::Controller);
            cluster.cuts.is_cut(me, it) || cluster.cuts.is_cut(it, me)
        });
        for ended in cut {
            self.again(cluster, ended);
        }
        sent
    }

    /// It is reported again.
    pub(super) fn again(&mut self, cluster: &mut Cluster, ended: Ended) {
        let next = cluster.now + Nanos(cluster.random.below(REPORT_NS));
        self.0.push(Ended { next, ..ended });
    }
}
