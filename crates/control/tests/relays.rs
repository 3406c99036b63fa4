//! A host behind SmartNICs that relay is reached through one of them.

use crate::script::{NODES, Script, TOPOLOGY};
use e3_model::{Format, NodeId};

const HOST: NodeId = NodeId(0);
const NIC: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

/// The topology of the scripts, with SmartNICs that relay.
pub fn relaying_topology() -> String {
    let plain = "emulated: true, linkLatency: 5us";
    TOPOLOGY.replace(plain, &format!("{plain}, relay: true"))
}

/// Three servers whose SmartNICs relay. Each process listens on its own port, and for its host on that
/// port plus 10,000.
fn up() -> Script {
    let mut s = Script::of(&relaying_topology(), Format::NEWEST);
    s.join_all(&NODES);
    s
}

/// Where a node reaches another one.
fn port(s: &Script, from: NodeId, to: NodeId) -> u16 {
    s.control.plan_for(from).peers[&to].address.port
}

/// Where a node's relays listen, and where the host of which it is one does.
fn ways(s: &Script, node: NodeId) -> (Vec<u16>, Option<u16>) {
    let plan = s.control.plan_for(node);
    let relays = plan.relays.iter().map(|a| a.port).collect();
    (relays, plan.relayed.map(|a| a.port))
}

#[test]
fn others_reach_a_host_through_its_smartnic_while_that_is_heard() {
    let mut s = up();
    assert_eq!(port(&s, OTHER, HOST), 10_101);
    assert_eq!(port(&s, OTHER, NIC), 101);
    assert_eq!(port(&s, NIC, HOST), 100);
    assert_eq!(s.control.client_address(HOST).unwrap().port, 10_101);
    assert_eq!(ways(&s, HOST), (vec![10_101], None));
    assert_eq!(ways(&s, NIC), (vec![], Some(100)));

    s.lose(NIC);
    assert_eq!(port(&s, OTHER, HOST), 100);
    assert_eq!(s.control.client_address(HOST).unwrap().port, 100);
    assert_eq!(ways(&s, HOST), (vec![], None));
    // A silent SmartNIC may still relay, so its plan still names its host.
    assert_eq!(ways(&s, NIC), (vec![], Some(100)));

    s.hear(NIC);
    assert_eq!(port(&s, OTHER, HOST), 10_101);
}

#[test]
fn the_relays_of_a_host_share_its_peers() {
    let topology = relaying_topology();
    let nic = topology
        .lines()
        .find(|line| line.contains("s1-nic0"))
        .unwrap();
    let two = format!("{nic}\n{}", nic.replace("nic0", "nic1"));
    let mut s = Script::of(&topology.replace(nic, &two), Format::NEWEST);
    s.join_all(&NODES);
    s.join("s1-nic1", 200);
    let others = [3, 4, 5, 6].map(NodeId);
    let of = |s: &Script| others.map(|from| port(s, from, HOST));
    assert_eq!(of(&s), [10_200, 10_101, 10_200, 10_101]);
    assert_eq!(ways(&s, HOST), (vec![10_101, 10_200], None));
    s.lose(NIC);
    assert_eq!(of(&s), [10_200; 4]);
}
