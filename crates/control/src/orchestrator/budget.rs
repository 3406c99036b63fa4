//! How many more migrations the orchestrator may begin: in the cluster, and on each server.

use std::collections::BTreeMap;

/// How many more migrations may begin.
pub(super) struct Budget {
    pub(super) left: u32,
    pub(super) per_server: u32,
    pub(super) by_server: BTreeMap<u32, u32>,
}

impl Budget {
    pub(super) fn allows(&self, servers: &[u32]) -> bool {
        let free = |s: &u32| self.by_server.get(s).is_none_or(|n| *n < self.per_server);
        self.left > 0 && servers.iter().all(free)
    }

    pub(super) fn take(&mut self, mut servers: Vec<u32>) {
        self.left = self.left.saturating_sub(1);
        servers.sort_unstable();
        servers.dedup();
        for server in servers {
            *self.by_server.entry(server).or_default() += 1;
        }
    }

    /// Notes a migration on these servers. What is left in the cluster is counted by the decision.
    pub(super) fn note(&mut self, servers: Vec<u32>) {
        let left = self.left;
        self.take(servers);
        self.left = left;
    }
}
