//! Channels between nodes: whose acknowledgements count, when they begin again, and what is left of
//! them when a shard moves or an application goes.

use crate::common;
use crate::common::manifests::{PAIR, STATELESS};
use crate::common::{Cluster, address, shard};
use e3_dataplane::Kept;
use e3_model::plan::{AppPlan, ChannelReport, NodePlan, NodeStats};
use e3_model::{AppId, DropReason, EdgeId, Format, Nanos, NodeId, ShardId, Timestamp};
use e3_wire::datagram::{Header, Kind, seal};
use e3_wire::entry::Outcome;
use e3_wire::frame::{Ack, Ends, Frame, Link};
use std::sync::Arc;

/// The front end on node 0, the back end on node 2.
fn pair() -> Cluster {
    Cluster::new(PAIR, 3, |key| vec![2 * u32::from(key.service.0)])
}

fn soon(c: &Cluster) -> Timestamp {
    c.now + Nanos::from_secs(20)
}

fn stats(c: &Cluster, node: u32) -> NodeStats {
    c.nodes[&node].worker.report().stats
}

fn dropped(c: &Cluster, node: u32, reason: DropReason) -> u64 {
    stats(c, node).dropped.get(&reason).copied().unwrap_or(0)
}

/// A node's channel of this name.
fn channel(c: &Cluster, node: u32, name: &str) -> ChannelReport {
    let mut channels = stats(c, node).channels.into_iter();
    channels.find(|c| c.name == name).expect("it has sent")
}

/// A frame arrives, as if it came from the first process of another node.
fn forge(c: &mut Cluster, from: u32, to: u32, frame: &Frame<'_>) {
    let header = Header {
        kind: Kind::Peer,
        from: NodeId(from),
        cluster: c.nodes[&to].worker.plan().cluster,
        incarnation: 1,
        to_incarnation: 1,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    frame.encode(&mut bytes);
    seal(Format::NEWEST, &mut bytes);
    c.send_raw(address(to), bytes);
    c.pass(1);
}

/// The channel from the front end to the back end.
fn link() -> Link {
    Link {
        app: common::APP,
        ends: Ends::Edge {
            edge: EdgeId(0),
            from: ShardId(0),
            to: ShardId(0),
        },
        from_incarnation: 1,
        to_incarnation: 1,
    }
}

#[test]
fn only_the_receiver_of_a_channel_acknowledges_it() {
    let mut c = pair();
    c.cut.insert((0, 2));
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(10);
    let ack = Ack {
        received: 1,
        durable: 1,
        limit: 257,
        ..Ack::default()
    };
    let other = Link {
        to_incarnation: 2,
        ..link()
    };
    for (from, link, durable, wrong) in [
        (1, link(), 0, 1),
        (2, other, 0, 2),
        (1, other, 0, 3),
        (2, link(), 1, 3),
    ] {
        forge(&mut c, from, 0, &Frame::Ack { link, ack });
        assert_eq!(channel(&c, 0, "a").durable, durable, "from {from}");
        assert_eq!(dropped(&c, 0, DropReason::View), wrong);
    }
}

#[test]
fn a_channel_whose_ends_do_not_fit_begins_again_but_not_at_every_frame() {
    let mut c = pair();
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(100);
    let confused = |c: &mut Cluster, epoch, ms| {
        c.pass(ms);
        let ack = Ack {
            epoch,
            limit: 256,
            ..Ack::default()
        };
        forge(c, 2, 0, &Frame::Ack { link: link(), ack });
        dropped(c, 0, DropReason::Channel)
    };
    assert_eq!(confused(&mut c, 10, 0), 1);
    assert_eq!(confused(&mut c, 20, 0), 1);
    assert_eq!(confused(&mut c, 30, 497), 1, "half a second is not over");
    assert_eq!(confused(&mut c, 40, 0), 2);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(100);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
}

#[test]
fn what_came_by_a_former_channel_is_not_acknowledged_on_the_next_one() {
    let mut c = pair();
    let deadline = soon(&c);
    let front = |c: &mut Cluster, held| {
        let node = c.nodes.get_mut(&0).unwrap();
        (node.held, node.per_ms) = (held, 1);
    };
    front(&mut c, true);
    c.request(1, 1, 0, b"k", deadline);
    c.pass(10);
    // The ingress starts again, and its next request is its first.
    c.start(1, 2);
    c.publish();
    c.pass(500);
    c.request(1, 2, 0, b"k", deadline);
    c.pass(10);
    front(&mut c, false);
    c.pass(1);
    front(&mut c, true);
    c.pass(100);
    assert_eq!(c.count(0, shard(0, 0), 1, 1), 1);
    assert_eq!(c.count(0, shard(0, 0), 1, 2), 0);
    let ingress = channel(&c, 1, "ingress");
    assert_eq!((ingress.sent, ingress.durable), (1, 0));
    front(&mut c, false);
    c.pass(100);
    assert_eq!(channel(&c, 1, "ingress").durable, 1);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
}

#[test]
fn retransmissions_stay_counted_when_their_channel_is_gone() {
    let mut c = pair();
    let deadline = soon(&c);
    c.cut.insert((0, 2));
    c.request(0, 1, 0, b"k", deadline);
    c.pass(3_000);
    let before = stats(&c, 0).retransmitted;
    assert!(before > 1, "{before}");
    // The front end moves, and its channel to the back end goes with it.
    c.promote(shard(0, 0), 1);
    c.publish();
    assert_eq!(stats(&c, 0).retransmitted, before);
    c.pass(100);
    c.cut.insert((0, 1));
    c.request(0, 2, 0, b"k", deadline);
    c.pass(3_000);
    let after = stats(&c, 0).retransmitted;
    assert!(after > before, "{after} after {before}");
}

#[test]
fn a_primary_that_comes_back_takes_messages_although_its_channels_were_full() {
    let mut c = pair();
    let deadline = soon(&c);
    c.nodes.get_mut(&0).unwrap().held = true;
    for seq in 1..=1_500 {
        c.request(1, seq, 0, b"k", deadline);
    }
    c.pass(50);
    assert!(c.report(0, shard(0, 0)).queue > 1_000);
    c.promote(shard(0, 0), 2);
    c.publish();
    c.promote(shard(0, 0), 0);
    c.publish();
    c.nodes.get_mut(&0).unwrap().held = false;
    c.pass(2_000);
    for seq in [1, 1_500] {
        assert_eq!(c.outcomes(seq), [Outcome::Done], "request {seq}");
    }
}

/// Gives all nodes a plan with these applications.
fn publish(c: &mut Cluster, apps: &[AppPlan]) {
    c.version += 1;
    for node in Vec::from_iter(c.nodes.keys().copied()) {
        let (now, version) = (c.clock(node), c.version);
        let worker = &mut c.nodes.get_mut(&node).unwrap().worker;
        let plan = NodePlan {
            version,
            apps: apps.to_vec(),
            ..(**worker.plan()).clone()
        };
        worker.handle_plan(now, Arc::new(plan));
        c.drain(node);
    }
}

#[test]
fn an_application_that_goes_leaves_nothing_behind() {
    let mut c = pair();
    let deadline = soon(&c);
    c.request(1, 1, 0, b"k", deadline);
    c.pass(100);
    c.cut.extend([(0, 2), (1, 0)]);
    for seq in [2, 3] {
        c.request(1, seq, 0, b"k", deadline);
        c.request(0, 10 + seq, 0, b"k", deadline);
        c.pass(100);
    }
    let kept = |c: &Cluster, node: u32| c.nodes[&node].worker.kept();
    assert!(kept(&c, 0).open > 0 && kept(&c, 1).open > 0);
    publish(&mut c, &[]);
    let sent = |c: &Cluster| -> Vec<u64> { (0..3).map(|n| stats(c, n).retransmitted).collect() };
    let before = sent(&c);
    assert!(before[0] > 0 && before[1] > 0, "{before:?}");
    c.pass(3_000);
    assert_eq!(sent(&c), before);
    for node in 0..3 {
        assert_eq!(kept(&c, node), Kept::default(), "node {node}");
        assert_eq!(c.nodes[&node].worker.in_flight(), 0);
        assert!(stats(&c, node).ingress.is_empty() && stats(&c, node).channels.is_empty());
    }
    // It comes back empty.
    c.cut.clear();
    c.publish();
    c.request(1, 4, 0, b"k", deadline);
    c.pass(100);
    assert_eq!(c.outcomes(4), [Outcome::Done]);
    assert_eq!(c.count(0, shard(0, 0), 1, 1), 0);
}

#[test]
fn what_waits_for_a_node_that_is_gone_is_kept() {
    let mut c = pair();
    let deadline = soon(&c);
    c.request(1, 1, 0, b"k", deadline);
    c.pass(100);
    c.kill(0);
    c.publish();
    for seq in [2, 3] {
        c.request(1, seq, 0, b"k", deadline);
    }
    c.pass(100);
    let ingress = channel(&c, 1, "ingress");
    assert_eq!((ingress.durable, ingress.waiting), (1, 2));
    assert!(c.nodes[&1].worker.kept().open >= 2);
    c.start(0, 2);
    c.promote(shard(0, 0), 0);
    c.publish();
    c.pass(500);
    for seq in [2, 3] {
        assert_eq!(c.outcomes(seq), [Outcome::Done]);
    }
}

#[test]
fn a_plan_disturbs_no_channel_of_another_application() {
    let mut c = pair();
    let mut other = Cluster::new(STATELESS, 3, |_| vec![1]).plan;
    other.id = AppId(9);
    let both = [c.plan.clone(), other];
    publish(&mut c, &both);
    let deadline = soon(&c);
    for seq in 1..=3 {
        c.request(1, seq, 0, b"k", deadline);
        c.pass(100);
        assert_eq!(c.outcomes(seq), [Outcome::Done]);
        publish(&mut c, &both);
    }
    for node in 0..3 {
        assert_eq!(dropped(&c, node, DropReason::Channel), 0, "node {node}");
    }
}
