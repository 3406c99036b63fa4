//! Gives each node a core of this machine, and the client and the rest of the cluster the others. Otherwise the
//! scheduler puts the client and the node that it wakes on one core now and then, where one waits for the other.

use crate::cluster::process::Process;
use crate::commands::demo::cluster::DemoCluster;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// The cores are given until this is dropped.
pub struct Given {
    /// On which cores this thread ran before.
    before: Option<CpuSet>,
}

/// Gives cores, if there are more than nodes and the system lets it.
pub fn give(cluster: &DemoCluster, nodes: &[String]) -> Given {
    let Some(all) = sched_getaffinity(None)
        .ok()
        .filter(|all| all.count() as usize > nodes.len())
    else {
        return Given { before: None };
    };
    let mut free = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
    let mut rest = all;
    let mut of_nodes = Vec::new();
    for (node, core) in nodes.iter().zip(&mut free) {
        let mut own = CpuSet::new();
        own.set(core);
        rest.unset(core);
        of_nodes.push((node, own));
    }
    for (name, process) in cluster.state.processes_alive() {
        let own = of_nodes.iter().find(|(node, _)| **node == name);
        pin(&process, own.map_or(&rest, |(_, own)| own));
    }
    // Threads that this one starts later are there too.
    let _ = sched_setaffinity(None, &rest);
    Given { before: Some(all) }
}

impl Given {
    /// Whether each node has a core of its own.
    pub fn is_given(&self) -> bool {
        self.before.is_some()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// All threads of a process. Where the system refuses it, they run where they did.
fn pin(process: &Process, cores: &CpuSet) {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", process.pid)) else {
        return;
    };
    let id = |thread: std::fs::DirEntry| thread.file_name().to_str()?.parse().ok();
    for thread in threads.flatten().filter_map(id).filter_map(Pid::from_raw) {
        let _ = sched_setaffinity(Some(thread), cores);
    }
}
