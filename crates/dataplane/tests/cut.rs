//! Backups of an application: a cut over all its shards, and shards that begin with it.

mod steps;

use crate::common::{APP, Cluster, outbound, shard};
use e3_model::plan::{NodeEvent, Role};
use e3_model::timing::BACKUP_STILL_MAX;
use e3_model::{AppId, Nanos, NodeId, ServiceId, ShardKey};
use e3_wire::entry::Outcome;
use std::collections::BTreeSet;
use steps::*;

#[test]
fn what_a_cut_under_load_has_of_a_message_its_sender_has_sent() {
    for durability in ["memory", "disk"] {
        let mut c = cluster(durability);
        c.loss_permille = 50;
        let before = load(&mut c, 1, 200);
        c.pass(500);
        let acked: BTreeSet<u64> = (1..before).filter(|seq| is_done(&c, *seq)).collect();
        assert!(acked.len() > 100, "{durability}: {}", acked.len());
        let (parts, next) = back_up(&mut c, before);
        let end = load(&mut c, next, 50);
        c.pass(2_000);
        c.loss_permille = 0;
        begin_with(&mut c, &parts, Nanos::from_secs(3_600 * 24));
        wait_until_restored(&mut c);
        for (seq, (front, back)) in counts(&c, end, Role::Primary) {
            assert!(
                front <= 1 && back <= front,
                "{durability}: request {seq}: {front} {back}"
            );
            assert!(
                !acked.contains(&seq) || (front, back) == (1, 1),
                "{durability}: request {seq}"
            );
            assert!(
                seq < next || front == 0,
                "{durability}: request {seq} came later"
            );
        }
        assert_eq!(letters_and_timers(&c), (1, 1), "{durability}");
        go_on(&mut c);
        c.pass(2_000);
        for at in [Role::Primary, Role::Backup] {
            for (seq, (front, back)) in counts(&c, end, at) {
                assert_eq!(
                    front, back,
                    "{durability}: what was in flight arrived: request {seq}"
                );
            }
        }
        assert_eq!(letters_and_timers(&c).0, 1, "{durability}: nothing expired");
    }
}

#[test]
fn a_retry_after_a_restore_is_answered_as_before_and_does_nothing() {
    let (mut c, before, parts) = backed_up("memory");
    begin_with(&mut c, &parts, Nanos::from_secs(3_600));
    wait_until_restored(&mut c);
    let restored = counts(&c, before, Role::Primary);
    assert!(
        restored
            .iter()
            .all(|(seq, n)| *seq == FAILS || *n == (1, 1))
    );
    go_on(&mut c);
    c.pass(100);
    c.replies.clear();
    for seq in 1..before {
        let deadline = c.now + Nanos::from_secs(60);
        c.request(2, seq, 1, &seq.to_le_bytes(), deadline);
    }
    c.pass(500);
    let counts = counts(&c, before, Role::Primary);
    for seq in (1..before).filter(|seq| *seq != FAILS) {
        assert_eq!(c.outcomes(seq), [Outcome::Done], "request {seq}");
        assert_eq!(counts[&seq], (1, 1), "request {seq}");
    }
    assert_eq!(c.outcomes(FAILS), [Outcome::Failed]);
}

#[test]
fn what_was_asked_before_a_backup_is_asked_again_under_the_identity_of_then() {
    // The second restore makes identities in the name of another application, and shows that they count.
    for (identity, effects) in [(APP, 1), (AppId(77), 2)] {
        let mut c = cluster_on("memory", [[0, 2], [1, 2]]);
        // The answer does not arrive before the backup.
        c.cut.insert((1, 0));
        request(&mut c, ASKS);
        c.pass(500);
        let asked = |c: &Cluster| outbound::counted(c, 1, shard(1, 0), b"asked");
        assert_eq!(asked(&c), 1);
        let (parts, _) = back_up(&mut c, ASKS + 1);
        begin_with(&mut c, &parts, Nanos::from_secs(3_600));
        if let Some(restored) = &mut c.plan.restored {
            restored.identity = identity;
        }
        c.publish();
        wait_until_restored(&mut c);
        go_on(&mut c);
        c.pass(5_000);
        assert_eq!(asked(&c), effects, "{identity}");
        let timers = |c: &Cluster| letters_and_timers(c).1;
        assert_eq!(timers(&c), 1, "its deadline has moved");
        c.cut.clear();
        c.pass(5_000);
        assert_eq!(timers(&c), 0, "it is answered");
        assert_eq!(asked(&c), effects, "{identity}");
    }
}

#[test]
fn a_copy_that_takes_over_during_a_restore_does_not_wait_for_the_state_that_it_has() {
    let (mut c, before, parts) = backed_up("memory");
    begin_with(&mut c, &parts, Nanos::from_secs(60));
    let key = shard(1, 0);
    let of_key = |c: &Cluster, is: fn(&NodeEvent) -> Option<ShardKey>| {
        events(c).iter().any(|e| is(e) == Some(key))
    };
    while !of_key(&c, |e| match e {
        NodeEvent::Synced { key, .. } => Some(*key),
        _ => None,
    }) {
        c.pass(1);
    }
    // The plan in which the copy is a backup does not reach its node.
    let shard = c.shard(key);
    let (former, heir) = (shard.primary, shard.joining.remove(0));
    shard.view += 3;
    (shard.incarnation, shard.predecessor) = (shard.view, Some(former));
    (shard.primary, shard.backups) = (heir, vec![former]);
    c.publish();
    c.pass(2_000);
    let is_restored = of_key(&c, |e| match e {
        NodeEvent::Restored { key, .. } => Some(*key),
        _ => None,
    });
    assert!(is_restored, "{:?}", events(&c));
    wait_until_restored(&mut c);
    go_on(&mut c);
    c.pass(500);
    each_once(&c, before, Role::Primary);
}

#[test]
fn shards_go_on_after_a_cut_that_is_cancelled() {
    let mut c = cluster("memory");
    c.plan.backup = order(true);
    c.publish();
    let end = load(&mut c, 1, 20);
    c.pass(50);
    assert_eq!(cut(&c).len(), 3);
    c.plan.backup = None;
    c.publish();
    c.pass(500);
    assert_eq!(
        events(&c)
            .iter()
            .filter(|e| matches!(e, NodeEvent::Cut { .. }))
            .count(),
        0
    );
    for (seq, counts) in counts(&c, end, Role::Primary) {
        let times = i64::from(seq != FAILS);
        assert_eq!(counts, (times, times), "request {seq}");
    }
}

#[test]
fn shards_go_on_without_the_controller_and_fix_no_further_position() {
    let mut c = cluster("memory");
    c.plan.backup = order(true);
    // One shard hears of it when the others have gone on.
    c.version += 1;
    c.publish_to(0);
    let end = load(&mut c, 1, 20);
    c.pass(BACKUP_STILL_MAX.as_millis() - 100);
    let still = counts(&c, end, Role::Primary);
    assert!(still.values().all(|(front, _)| *front == 0), "{still:?}");
    assert_eq!(cut(&c).len(), 2);
    c.pass(200);
    for (seq, counts) in counts(&c, end, Role::Primary) {
        let times = i64::from(seq != FAILS);
        assert_eq!(counts, (times, times), "request {seq}");
    }
    assert_eq!(cut(&c).len(), 0, "what they have fixed is no position now");
    // Whatever else changes, the order is an old one.
    for node in [0, 1] {
        c.version += 1;
        c.publish_to(node);
    }
    let last = load(&mut c, end, 20);
    c.pass(100);
    let front = counts(&c, last, Role::Primary).split_off(&end);
    assert!(front.values().all(|(front, _)| *front == 1), "{front:?}");
    let of: Vec<ServiceId> = cut(&c).iter().map(|part| part.service).collect();
    assert_eq!(of, [ServiceId(1)]);
}

#[test]
fn a_shard_that_stands_still_for_something_else_fixes_no_position() {
    let mut c = cluster("memory");
    load(&mut c, 1, 20);
    c.plan.backup = order(false);
    c.shard(shard(1, 0)).frozen = true;
    c.publish();
    c.pass(100);
    assert_eq!((copied(&c), cut(&c).len()), (3, 0));
    // It goes on, and all stop.
    c.shard(shard(1, 0)).frozen = false;
    c.publish();
    load(&mut c, 21, 20);
    c.pass(100);
    c.plan.backup = order(true);
    c.publish();
    c.pass(100);
    let ops: Vec<u64> = cut(&c).iter().map(|part| part.op).collect();
    let last = |key: ShardKey| c.report(u32::from(key.service == ServiceId(1)), key).op;
    assert_eq!(ops, all().map(last));
    assert!(ops[2] >= 39, "{ops:?}");
}

#[test]
fn what_an_earlier_order_brings_is_no_part_of_the_state() {
    let (mut c, before, parts) = backed_up("memory");
    begin_with(&mut c, &parts, Nanos::from_secs(60));
    for key in all() {
        let primary = u32::from(key.service == ServiceId(1));
        let (now, part) = (c.clock(primary), c.parts[&key].clone());
        let node = c.nodes.get_mut(&primary).unwrap();
        node.worker.handle_part(now, key, 0, &part[..10]);
    }
    wait_until_restored(&mut c);
    go_on(&mut c);
    c.pass(500);
    each_once(&c, before, Role::Primary);
}

#[test]
fn a_process_that_ends_before_its_state_is_durable_fetches_it_again() {
    let (mut c, before, parts) = backed_up("disk");
    c.disks.values_mut().for_each(|disk| disk.held = true);
    begin_with(&mut c, &parts, Nanos::from_secs(60));
    c.pass(200);
    let is_restored = |e: &NodeEvent| matches!(e, NodeEvent::Restored { .. });
    assert!(!events(&c).iter().any(is_restored), "nothing is durable");
    for key in all() {
        let primary = u32::from(key.service == ServiceId(1));
        assert_eq!(c.report(primary, key).role, Role::Joining);
    }
    c.disks.values_mut().for_each(|disk| disk.held = false);
    for node in [0, 1] {
        c.start(node, 2);
    }
    for shard in &mut c.plan.shards {
        shard.view += 1;
        shard.incarnation = shard.view;
        shard.predecessor = Some(shard.primary);
    }
    c.publish();
    wait_until_restored(&mut c);
    go_on(&mut c);
    c.pass(500);
    for at in [Role::Primary, Role::Backup] {
        each_once(&c, before, at);
    }
    // What is on disk is the state now.
    for node in [0, 1] {
        c.start(node, 3);
    }
    for shard in &mut c.plan.shards {
        shard.view += 1;
        shard.incarnation = shard.view;
        shard.predecessor = Some(shard.primary);
    }
    c.parts.clear();
    c.publish();
    c.pass(1_000);
    each_once(&c, before, Role::Primary);
}

#[test]
fn damaged_state_is_refused_and_never_served() {
    let mut c = cluster("memory");
    let before = load(&mut c, 1, 20);
    c.pass(100);
    let (parts, _) = back_up(&mut c, before);
    let of = shard(1, 0);
    let whole = c.exports[&(1, of)].clone();
    for at in (0..whole.len()).step_by(37) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        c.exports.insert((1, of), damaged);
        begin_with(&mut c, &parts, Nanos::from_secs(60));
        c.pass(20);
        let primary: NodeId = c.shard(of).primary;
        let report = c.report(primary.0, of);
        let error = report.error.unwrap_or_default();
        assert!(
            error.contains("state in the backup cannot be used"),
            "byte {at}: {error}"
        );
        assert_eq!(report.role, Role::Joining, "byte {at}");
        c.shard(of).backups = c.shard(of).joining.clone();
        for shard in &mut c.plan.shards {
            shard.backups = std::mem::take(&mut shard.joining);
        }
    }
}
