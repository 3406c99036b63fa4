//! A cluster whose nodes have all joined.

use super::scene::{NODES_PER_SERVER, topology};
use e3_control::{Control, Member};
use e3_model::{Address, Format, Formats, NodeId};
use std::collections::BTreeSet;

pub(super) const CLUSTER: u64 = 7;
/// Every node runs its first process.
pub(super) const INCARNATION: u32 = 1;

/// All nodes of the cluster up, and no application.
pub(super) fn cluster(servers: usize) -> Control {
    let mut control = Control::new(CLUSTER, topology(servers));
    control.format = Format::NEWEST;
    for node in 0..servers * NODES_PER_SERVER {
        let member = Member {
            incarnation: INCARNATION,
            process: 1,
            release: String::new(),
            formats: Formats::PROGRAM,
            address: Address::default(),
            relay: None,
            up: true,
            exited: 0,
            unreachable: BTreeSet::new(),
        };
        control.members.insert(NodeId::of_index(node), member);
    }
    control
}
