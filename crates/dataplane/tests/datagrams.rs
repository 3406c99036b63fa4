//! Datagrams as nodes and strangers send them: what is taken, what is counted and dropped.

use crate::common::manifests::ONE;
use crate::common::{Cluster, address, shard};
use e3_dataplane::Output;
use e3_model::{Address, DropReason, Format, Formats, NodeId, Timestamp};
use e3_wire::client::ClientFrame;
use e3_wire::codec::Reader;
use e3_wire::datagram::{Header, Kind, open, seal};
use e3_wire::frame::Frame;
use std::collections::BTreeMap;

const CLIENT: Address = Address {
    ip: [0; 16],
    port: 9_999,
};

/// A shard on nodes 0 and 1; node 2 has no part in it.
fn three() -> Cluster {
    Cluster::new(ONE, 3, |_| vec![0, 1])
}

/// As a node writes to any other.
fn header(from: u32) -> Header {
    Header {
        kind: Kind::Peer,
        from: NodeId(from),
        cluster: 7,
        incarnation: 1,
        to_incarnation: 1,
    }
}

fn datagram(header: Header, frames: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes.extend(frames);
    seal(Format::NEWEST, &mut bytes);
    bytes
}

fn probe(sent: Timestamp) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame::Probe { sent }.encode(&mut bytes);
    bytes
}

/// A datagram reaches a node; what it sends at once.
fn deliver(c: &mut Cluster, node: u32, from: Address, bytes: &[u8]) -> Vec<(Address, Vec<u8>)> {
    let now = c.now;
    let worker = &mut c.nodes.get_mut(&node).unwrap().worker;
    worker.handle_datagram(now, from, bytes);
    worker.handle_tick(now);
    let outputs = std::iter::from_fn(|| worker.poll_output());
    let sent = outputs.filter_map(|output| match output {
        Output::Send { to, bytes } => Some((to, bytes)),
        _ => None,
    });
    sent.collect()
}

#[test]
fn whatever_is_wrong_with_a_datagram_is_counted_and_not_answered() {
    let mut c = three();
    let now = c.now;
    let mut damaged = datagram(header(2), &probe(now));
    *damaged.last_mut().unwrap() ^= 1;
    let mut short = datagram(header(2), &probe(now));
    short.pop();
    let from = |change: fn(&mut Header)| {
        let mut header = header(2);
        change(&mut header);
        datagram(header, &probe(now))
    };
    let cases = [
        (DropReason::Header, b"hello".to_vec()),
        (DropReason::Length, short),
        (DropReason::Checksum, damaged),
        (DropReason::Empty, datagram(header(2), &[])),
        (DropReason::Empty, datagram(Header::CLIENT, &[])),
        (DropReason::Header, from(|h| h.kind = Kind::Client)),
        (DropReason::Kind, from(|h| h.kind = Kind::Heartbeat)),
        (DropReason::Cluster, from(|h| h.cluster = 8)),
        (DropReason::Incarnation, from(|h| h.to_incarnation = 2)),
        (DropReason::Sender, from(|h| h.from = NodeId(9))),
        // Another process of the same node.
        (DropReason::Sender, from(|h| h.incarnation = 2)),
        (DropReason::Frame, datagram(header(2), &[99])),
        (DropReason::ClientFrame, datagram(Header::CLIENT, &[99])),
    ];
    let before = c.nodes[&0].worker.report().stats;
    let mut expected: BTreeMap<DropReason, u64> = before.dropped.clone();
    for (reason, bytes) in &cases {
        let sent = deliver(&mut c, 0, address(2), bytes);
        assert_eq!(sent, [], "{reason:?}");
        *expected.entry(*reason).or_default() += 1;
        let stats = c.nodes[&0].worker.report().stats;
        assert_eq!(stats.dropped, expected, "{reason:?}");
    }
    let stats = c.nodes[&0].worker.report().stats;
    let came = stats.datagrams_in - before.datagrams_in;
    assert_eq!(came, cases.len() as u64);
    assert_eq!(stats.datagrams_out, before.datagrams_out);
}

#[test]
fn a_probe_is_answered_with_one_datagram() {
    let mut c = three();
    let before = c.nodes[&0].worker.report().stats;
    let now = c.now;
    let sent = deliver(&mut c, 0, address(2), &datagram(header(2), &probe(now)));
    assert_eq!(sent.len(), 1);
    let (to, bytes) = &sent[0];
    assert_eq!(*to, address(2));
    let (_, mut reader) = open(Formats::PROGRAM, bytes).unwrap();
    let answer = Frame::ProbeAnswer { sent: now, now };
    assert_eq!(Frame::decode(&mut reader), Ok(answer));
    let stats = c.nodes[&0].worker.report().stats;
    assert_eq!(stats.datagrams_in, before.datagrams_in + 1);
    assert_eq!(stats.datagrams_out, before.datagrams_out + 1);
    assert_eq!(stats.dropped, before.dropped);
}

#[test]
fn a_buffer_that_was_sent_is_used_again() {
    let mut c = three();
    let now = c.now;
    let large = Vec::with_capacity(60_000);
    c.nodes.get_mut(&0).unwrap().worker.recycle(large);
    let sent = deliver(&mut c, 0, address(2), &datagram(header(2), &probe(now)));
    assert!(sent[0].1.capacity() >= 60_000);
    assert!(
        open(Formats::PROGRAM, &sent[0].1).is_ok(),
        "without what it held before"
    );
}

/// Whether node 1, which has a backup, grants its lease.
fn grants(c: &mut Cluster, to: u32, plan_version: u64) -> bool {
    let sent = c.now;
    let mut bytes = Vec::new();
    Frame::LeaseRequest { sent, plan_version }.encode(&mut bytes);
    let answers = deliver(c, 1, address(to), &datagram(header(to), &bytes));
    answers.iter().any(|(_, bytes)| {
        let (_, mut reader) = open(Formats::PROGRAM, bytes).unwrap();
        is_granted(&mut reader, sent)
    })
}

fn is_granted(reader: &mut Reader<'_>, of: Timestamp) -> bool {
    while !reader.is_empty() {
        if Frame::decode(reader) == Ok(Frame::LeaseGrant { sent: of }) {
            return true;
        }
    }
    false
}

#[test]
fn a_lease_is_granted_to_those_who_may_need_it() {
    let mut c = three();
    let version = c.version;
    for (plan_version, expected) in [(version - 1, false), (version, false), (version + 1, true)] {
        assert!(grants(&mut c, 0, plan_version), "the shard's primary");
        let granted = grants(&mut c, 2, plan_version);
        assert_eq!(granted, expected, "version {plan_version} of {version}");
    }
}

#[test]
fn a_client_that_sends_what_nodes_send_is_refused() {
    let mut c = three();
    let letters = e3_wire::client::DeadLetters {
        shard: shard(0, 0),
        skipped: 0,
        total: 0,
        letters: Vec::new(),
    };
    let bytes = ClientFrame::DeadLetters(letters).to_datagram(Format::NEWEST);
    assert_eq!(deliver(&mut c, 0, CLIENT, &bytes), []);
    let dropped = c.nodes[&0].worker.report().stats.dropped;
    assert_eq!(dropped[&DropReason::ClientFrame], 1);
}
