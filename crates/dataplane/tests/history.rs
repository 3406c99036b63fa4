//! Fail-overs: which backups go on from their own log, and which are sent a snapshot.

use crate::store::{Store, key};
use e3_dataplane::limits::TAIL_LEN_MAX;
use e3_model::{DropReason, NodeId};
use e3_wire::entry::Outcome;

/// Node 0 dies, and node 1 takes its place; what it sends to node 2 then.
fn lose_primary(s: &mut Store) -> usize {
    s.c.kill(0);
    s.c.promote(key(), 1);
    let before = s.c.sent_to(2);
    s.c.publish();
    s.c.pass(500);
    assert!(s.c.report(1, key()).serving);
    s.c.sent_to(2) - before
}

/// Whether a backup took the end of the log that a primary offered it.
fn has_resumed(s: &Store, node: u32) -> bool {
    s.dropped(node, DropReason::Replication) == 0
}

#[test]
fn a_backup_with_the_same_log_goes_on_and_is_sent_the_end_of_it_only() {
    let mut s = Store::new(3, 3, &[]);
    s.value_len.set(1_000);
    s.load(0, 300, 3);
    s.c.pass(200);
    let sent = lose_primary(&mut s);
    assert!(has_resumed(&s, 2));
    let about = TAIL_LEN_MAX / 2..TAIL_LEN_MAX * 5 / 4;
    assert!(about.contains(&sent), "{sent} bytes");
    s.load(1, 10, 3);
    s.c.pass(100);
    assert_eq!(s.digest(1), s.digest(2));
}

#[test]
fn an_empty_process_takes_a_log_that_is_offered_from_its_first_entry() {
    let mut s = Store::new(3, 3, &[]);
    s.load(0, 10, 3);
    s.c.pass(200);
    s.c.start(2, 2);
    lose_primary(&mut s);
    assert!(has_resumed(&s, 2));
    assert_eq!(s.c.report(2, key()).op, 30);
    assert_eq!(s.digest(1), s.digest(2));
    s.load(1, 1, 1);
    s.c.pass(20);
    assert_eq!(s.c.outcomes(s.sent), [Outcome::Done]);
}

#[test]
fn a_backup_whose_last_entry_another_primary_replaced_is_sent_a_snapshot() {
    let mut s = Store::new(4, 4, &[]);
    s.load(0, 10, 3);
    s.c.pass(200);
    // The primary dies when one backup alone has its last entry.
    s.c.cut.extend([(0, 1), (0, 2)]);
    s.load(0, 1, 1);
    s.c.pass(5);
    let lost = s.sent;
    let counts = |s: &Store, seq| [1, 2, 3].map(|node| s.c.count(node, key(), 1, seq));
    assert_eq!(counts(&s, lost), [0, 0, 1]);
    s.c.kill(0);
    s.c.promote(key(), 1);
    // That backup has not heard of the next primary, which appends another entry and dies.
    s.c.version += 1;
    s.c.publish_to(1);
    s.c.publish_to(2);
    s.c.pass(500);
    s.load(1, 1, 1);
    s.c.pass(5);
    let next = s.sent;
    assert_eq!(counts(&s, next), [1, 1, 0]);
    s.c.kill(1);
    s.c.promote(key(), 2);
    assert_eq!(s.c.shard(key()).backups, [NodeId(3)]);
    s.c.publish();
    s.c.pass(2_000);
    assert!(s.c.report(2, key()).serving);
    for (seq, count) in [(lost, 0), (next, 1)] {
        for node in [2, 3] {
            let here = s.c.count(node, key(), 1, seq);
            assert_eq!(here, count, "request {seq} on node {node}");
        }
    }
    assert_eq!(s.digest(2), s.digest(3));
}
