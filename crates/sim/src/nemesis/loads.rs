//! What nodes say of their load: SmartNICs look starved as the scenario says.

use crate::cluster::Cluster;
use e3_control::{InstanceLoad, NodeLoad};
use e3_model::plan::{NodeReport, ShardCounts};

/// What a node's heartbeats say.
pub(super) fn load(is_starved: bool) -> NodeLoad {
    if is_starved {
        NodeLoad {
            queue_len: 1_000,
            busy_permille: 2_000,
            port_permille: 50,
        }
    } else {
        NodeLoad {
            queue_len: 0,
            busy_permille: 1_000,
            port_permille: 500,
        }
    }
}

/// What a node reports of its instances.
pub(super) fn instance_loads(cluster: &Cluster, node: u32) -> Vec<InstanceLoad> {
    let Some(worker) = cluster.worker(node) else {
        return Vec::new();
    };
    let NodeReport { counts, .. } = worker.report();
    let load = |c: &ShardCounts| InstanceLoad {
        key: c.key,
        handled: c.handled,
        busy: c.busy,
        state_bytes: 0,
    };
    counts.iter().map(load).collect()
}
