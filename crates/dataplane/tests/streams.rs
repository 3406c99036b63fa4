//! Replicas that join: how long the primary waits for one, when it counts, and what begins again.

use crate::store::{Store, key};
use e3_dataplane::limits::{JOIN_LEN_MAX, JOIN_PATIENCE, QUEUE_MAX};
use e3_model::plan::ShardPlan;
use e3_model::{DropReason, Nanos, NodeId};
use e3_wire::entry::Outcome;

/// Node 1 joins and is silent. Requests come to these nodes at once, so many to each; how many are
/// handled at once, and how many when the primary has waited.
fn handled_with_a_silent_joiner(s: &mut Store, nodes: &[u32], each: u64) -> (u64, u64) {
    s.c.cut.insert((1, 0));
    s.join(1);
    let patient_until = s.c.now + JOIN_PATIENCE;
    for _ in 0..each {
        for node in nodes {
            s.request(*node);
        }
    }
    while s.c.now + Nanos::from_millis(1) < patient_until {
        s.c.pass(1);
    }
    let before = s.c.report(0, key()).op;
    s.c.pass(1);
    let after = s.c.report(0, key()).op;
    (before, after)
}

#[test]
fn a_primary_waits_a_moment_for_a_joiner_with_too_many_bytes_open() {
    let mut s = Store::new(2, 1, &[]);
    s.value_len.set(30_000);
    let (before, after) = handled_with_a_silent_joiner(&mut s, &[0], 200);
    let fit = (JOIN_LEN_MAX / 30_000) as u64;
    assert!((fit - 5..fit + 40).contains(&before), "{before} handled");
    assert_eq!(after, 200, "a silent one holds nobody up");
    assert!(s.open(0) < 120, "{} items are kept for it", s.open(0));
    s.c.cut.clear();
    s.until_synced(0, 1, 0);
    s.c.pass(100);
    assert_eq!(s.digest(1), s.digest(0));
}

#[test]
fn a_primary_waits_a_moment_for_a_joiner_with_too_many_items_open() {
    let mut s = Store::new(6, 1, &[]);
    let (before, after) = handled_with_a_silent_joiner(&mut s, &[2, 3, 4, 5], 200);
    let fit = (QUEUE_MAX / 2) as u64;
    assert!((fit - 5..fit + 40).contains(&before), "{before} handled");
    assert_eq!(after, 800);
    assert!(s.open(0) < fit, "{} items are kept for it", s.open(0));
}

#[test]
fn a_snapshot_ends_although_all_that_is_written_comes_behind_it() {
    let mut s = Store::new(2, 1, &[1_000; 4_000]);
    s.c.narrow = Some((1, 24 << 10));
    s.value_len.set(5_000);
    s.join(1);
    let begin = s.c.now;
    while !s.backup(0, 1).required {
        // Pieces of the snapshot are longer.
        let open_max = (JOIN_LEN_MAX / 5_000) as u64 + 40;
        assert!(s.open(0) < open_max, "{} items are open", s.open(0));
        assert!(begin.until(s.c.now) < Nanos::from_secs(2), "it never ends");
        s.load(0, 1, 16);
    }
    s.until_synced(0, 1, 4);
}

#[test]
fn a_joiner_counts_when_it_has_all_that_was_committed() {
    // The end of the snapshot is on its way for longer than what comes before.
    let mut s = Store::new(2, 1, &[1_000, 20_000, 32_700]);
    s.load(0, 10, 1);
    s.c.narrow = Some((1, 0));
    s.join(1);
    s.until_synced(0, 1, 1);
    let (mine, theirs) = (s.c.report(0, key()), s.c.report(1, key()));
    assert!(theirs.op > 0 && theirs.op >= mine.commit, "{theirs:?}");
}

/// Whether a request is answered within a few seconds.
fn is_answered(s: &mut Store) -> bool {
    let seq = s.request(0);
    s.c.pass(4_000);
    s.c.outcomes(seq) == [Outcome::Done]
}

#[test]
fn a_joiner_that_the_controller_may_count_on_is_waited_for() {
    for each in [0, 30] {
        let mut s = Store::new(2, 1, &[1_000; 200]);
        s.load(0, 5, 1);
        s.c.pass(100);
        s.join(1);
        s.until_synced(0, 1, each);
        s.c.pass(1_000);
        // It refuses what comes, again and again.
        s.set_behind(1, true);
        assert!(!is_answered(&mut s), "acknowledged without its copy");
        let again = s.dropped(0, DropReason::Channel);
        assert!((3..20).contains(&again), "began {again} times again");
        s.set_behind(1, false);
        s.c.pass(2_000);
        assert_eq!(s.c.outcomes(s.sent), [Outcome::Done]);
        assert_eq!(s.digest(1), s.digest(0));
    }
}

/// The primary is away from the controller meanwhile. No request comes, so nothing else shows it that the joiner
/// has dropped its copy.
#[test]
fn a_joiner_that_left_in_a_view_that_its_primary_has_not_seen_begins_again() {
    let mut s = Store::new(2, 1, &[1_000; 50]);
    s.load(0, 5, 3);
    s.join(1);
    s.c.pass(100);
    assert!(s.backup(0, 1).synced && s.is_synced(0, 1));
    s.c.shard(key()).view += 1;
    s.c.publish();
    let op = s.c.report(0, key()).op;
    let joiner = s.backup(0, 1);
    assert!(joiner.synced && joiner.acked == op, "no view was skipped");
    // A plan that does not name its node is no reason to give its stream up.
    let peers = s.c.peers.clone();
    s.c.peers.remove(&NodeId(1));
    s.c.shard(key()).view += 2;
    s.c.version += 1;
    s.c.publish_to(0);
    let joiner = s.backup(0, 1);
    assert!(
        joiner.synced && joiner.required && joiner.acked == op,
        "{joiner:?}"
    );
    // It may have dropped its copy meanwhile, in a view that the primary has not seen.
    s.c.peers = peers;
    s.c.shard(key()).view += 1;
    s.c.publish();
    assert!(!s.backup(0, 1).synced, "its stream begins again");
    s.c.pass(2_000);
    assert!(s.backup(0, 1).synced);
    let shard = s.c.shard(key());
    shard.view += 1;
    shard.joining.clear();
    s.c.version += 1;
    s.c.publish_to(1);
    assert!(s.c.nodes[&1].worker.state(key()).is_none());
    s.join(1);
    assert!(!s.is_synced(0, 1), "it has nothing");
    s.c.pass(2_000);
    assert!(s.is_synced(0, 1));
    assert_eq!(s.digest(1), s.digest(0));
}

/// Its node learns later than the primary that it left and joins again: what it takes with the copy that it is
/// about to drop must not count.
#[test]
fn a_copy_takes_no_stream_of_a_view_that_its_node_does_not_know() {
    for is_skipped in [false, true] {
        let mut s = Store::new(2, 2, &[1_000; 50]);
        s.load(0, 5, 3);
        s.c.pass(100);
        let dropped_before = s.dropped(1, DropReason::View);
        let mut left = s.c.shard(key()).clone();
        (left.view, left.backups) = (left.view + 1, Vec::new());
        let mut joins = left.clone();
        (joins.view, joins.joining) = (left.view + 1, vec![NodeId(1)]);
        let tell = |s: &mut Store, node, plan: &ShardPlan| {
            s.c.shard(key()).clone_from(plan);
            s.c.version += 1;
            s.c.publish_to(node);
        };
        tell(&mut s, 0, &left);
        tell(&mut s, 0, &joins);
        s.load(0, 100, 1);
        assert!(s.dropped(1, DropReason::View) > dropped_before);
        assert!(s.backup(0, 1).acked == 0 && !s.is_synced(0, 1));
        if !is_skipped {
            tell(&mut s, 1, &left);
            assert!(s.c.nodes[&1].worker.state(key()).is_none());
        }
        tell(&mut s, 1, &joins);
        s.until_synced(0, 1, 1);
        s.c.pass(100);
        assert_eq!(s.digest(1), s.digest(0));
    }
}

/// A copy leaves, stays on its node and joins again. It may have refused what came, so that its stream began again in
/// an epoch after its view. Whether its next stream has as many items as the one before.
fn joins_again(refuses: bool, written: u64) -> bool {
    let mut s = Store::new(2, 1, &[]);
    s.load(0, 50, 1);
    s.join(1);
    s.until_synced(0, 1, 1);
    s.set_behind(1, refuses);
    s.load(0, 3, 1);
    s.c.pass(100);
    s.set_behind(1, false);
    s.c.pass(2_000);
    assert!(s.backup(0, 1).synced);
    let items = s.stream(0).sent;
    let shard = s.c.shard(key());
    shard.view += 1;
    (shard.leaving, shard.joining) = (vec![NodeId(1)], Vec::new());
    s.c.publish();
    s.value_len.set(16_000);
    s.load(0, written, 1);
    let shard = s.c.shard(key());
    shard.view += 1;
    shard.joining = vec![NodeId(1)];
    s.c.publish();
    // Its confirmations come when all of the stream has been sent.
    s.c.cut.insert((1, 0));
    s.c.pass(10);
    s.c.cut.clear();
    s.c.pass(2_000);
    assert!(s.backup(0, 1).synced);
    assert_eq!(
        s.digest(1),
        s.digest(0),
        "refuses: {refuses}, {written} written"
    );
    s.stream(0).sent == items
}

#[test]
fn a_copy_that_left_and_stayed_confirms_nothing_of_its_next_stream_that_it_does_not_have() {
    for refuses in [false, true] {
        let mut as_long = (1..12).map(|written| joins_again(refuses, written));
        assert!(as_long.by_ref().any(|is| is), "no two streams are as long");
        as_long.for_each(drop);
    }
}

#[test]
fn a_node_that_knows_that_it_joins_takes_its_stream_again_whatever_views_follow() {
    let mut s = Store::new(2, 1, &[1_000; 50]);
    s.join(1);
    s.until_synced(0, 1, 1);
    s.c.shard(key()).view += 1;
    s.c.version += 1;
    s.c.publish_to(0);
    s.set_behind(1, true);
    s.load(0, 5, 1);
    s.c.pass(1_000);
    assert!(s.dropped(0, DropReason::Channel) > 0 && !s.is_synced(0, 1));
    s.set_behind(1, false);
    s.until_synced(0, 1, 1);
    s.c.pass(100);
    assert_eq!(s.digest(1), s.digest(0));
}

#[test]
fn a_joiner_that_nobody_was_told_of_holds_nobody_up() {
    let mut s = Store::new(2, 1, &[1_000; 2_000]);
    s.join(1);
    // Its stream begins again before it has everything.
    s.load(0, 5, 3);
    s.set_behind(1, true);
    s.load(0, 1, 1);
    s.c.pass(1_200);
    s.set_behind(1, false);
    while !s.backup(0, 1).required {
        s.load(0, 1, 30);
    }
    assert!(s.dropped(0, DropReason::Channel) > 0);
    assert!(!s.is_synced(0, 1), "it lacks the latest entries");
    // Then it refuses what comes, before it says that it has what came before.
    s.set_behind(1, true);
    s.c.cut.insert((1, 0));
    s.load(0, 3, 3);
    s.c.cut.clear();
    assert!(is_answered(&mut s), "the shard waits for it");
    assert!(!s.is_synced(0, 1));
    s.set_behind(1, false);
    s.until_synced(0, 1, 3);
}

#[test]
fn a_backup_of_the_view_is_waited_for_however_often_its_stream_begins_again() {
    let mut s = Store::new(2, 2, &[]);
    s.load(0, 1, 1);
    s.c.pass(100);
    s.c.kill(1);
    s.c.start(1, 2);
    s.set_behind(1, true);
    s.c.publish();
    assert!(!is_answered(&mut s), "acknowledged without its copy");
    let again = s.dropped(0, DropReason::Channel);
    assert!((3..20).contains(&again), "began {again} times again");
    let error = s.c.report(1, key()).error.unwrap_or_default();
    assert!(error.starts_with("replication: "), "{error}");
    s.set_behind(1, false);
    s.c.pass(2_000);
    assert_eq!(s.c.outcomes(s.sent), [Outcome::Done]);
    assert_eq!(s.c.report(1, key()).error, None);
    assert_eq!(s.c.shard(key()).backups, [NodeId(1)]);
}
