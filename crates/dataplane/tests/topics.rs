//! Topics: each subscription gets each publication once, in the order of its key, wherever the shards
//! are that publish and that are subscribed.

use crate::common::topics::*;
use crate::common::{Cluster, shard};
use e3_model::Nanos;
use e3_wire::entry::Outcome;

#[test]
fn every_subscriber_handles_a_publication_once() {
    let mut c = cluster();
    publish(&mut c, 1, b"k");
    c.pass(100);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    for subscriber in SUBSCRIBERS {
        assert_eq!(handled(&c, subscriber), [1]);
    }
    c.pass(5_000);
    for subscriber in SUBSCRIBERS {
        assert_eq!(handled(&c, subscriber), [1]);
    }
    for node in [0, 1] {
        assert_eq!(open(&c, node), 0, "nothing is kept of it at node {node}");
    }
}

#[test]
fn an_application_and_one_that_began_with_its_state_each_get_publications() {
    let mut c = cluster();
    restore_beside(&mut c);
    for seq in 1..=5 {
        publish(&mut c, seq, b"k");
    }
    c.pass(5_000);
    assert_eq!(handled(&c, "back"), [1, 2, 3, 4, 5]);
    assert_eq!(handled_beside(&c), [1, 2, 3, 4, 5]);
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn a_confirmation_by_an_application_counts_for_itself_only() {
    let mut c = cluster();
    restore_beside(&mut c);
    // The back is away, and the copy is not.
    c.cut.extend([(0, 2), (2, 0), (1, 2), (2, 1)]);
    publish(&mut c, 1, b"k");
    c.pass(25_000);
    assert_eq!(handled_beside(&c), [1]);
    assert!(handled(&c, "back").is_empty());
    assert!(open(&c, 0) > 0, "the back has not confirmed it");
    // So it is by the log, from which the next primary goes on.
    c.kill(0);
    c.promote(shard(0, 0), 1);
    back_returns(&mut c);
    assert_eq!(handled(&c, "back"), [1]);
    assert_eq!(handled_beside(&c), [1]);
    assert_eq!(open(&c, 1), 0);
}

#[test]
fn a_confirmation_does_not_count_for_a_restored_application_that_has_its_copy_already() {
    let mut c = cluster();
    // The back is away, and so is the restored application, which is sent its copy of the first.
    let (back, beside) = ([(0, 2), (2, 0)], [(0, 3), (3, 0)]);
    c.cut.extend(back);
    for seq in [1, 2] {
        publish(&mut c, seq, b"k");
        c.pass(100);
    }
    c.cut.extend(beside);
    restore_beside(&mut c);
    c.pass(2_000);
    c.cut.retain(|link| !back.contains(link));
    c.pass(3_000);
    assert_eq!(handled(&c, "back"), [1], "the second waits for the first");
    c.cut.clear();
    c.pass(10_000);
    assert_eq!(handled(&c, "back"), [1, 2]);
    assert_eq!(handled_beside(&c), [1, 2]);
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn a_publication_follows_when_no_successor_can_send_the_one_before_again() {
    let mut c = cluster();
    let (back, backup) = ([(0, 2), (2, 0)], [(0, 1), (1, 0)]);
    c.cut.extend(back);
    for seq in [1, 2] {
        publish(&mut c, seq, b"k");
        c.pass(100);
    }
    // The back confirms the first; the entry that removes it is not committed.
    c.cut = backup.into_iter().collect();
    c.pass(3_000);
    assert_eq!(handled(&c, "back"), [1]);
    c.cut.clear();
    c.pass(5_000);
    assert_eq!(handled(&c, "back"), [1, 2]);
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn the_handler_is_told_the_topic() {
    let mut c = cluster();
    let topics = note_topics(&mut c);
    publish(&mut c, 1, b"k");
    c.pass(100);
    assert_eq!(*topics.borrow(), ["shop/orders", "shop/orders"]);
}

#[test]
fn publications_of_a_key_arrive_in_order_under_loss() {
    let mut c = cluster();
    c.loss_permille = 200;
    for seq in 1..=60 {
        publish(&mut c, seq, key(seq));
        c.pass(5);
    }
    c.pass(20_000);
    c.loss_permille = 0;
    c.pass(5_000);
    let published = published(&c, 0);
    assert!(published.len() > 30, "{published:?}");
    for subscriber in SUBSCRIBERS {
        assert_eq!(handled(&c, subscriber), published, "{subscriber}");
    }
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn a_new_primary_of_the_publisher_publishes_again_what_is_not_confirmed() {
    for lost in [(2, 0), (0, 2), (0, 1)] {
        let mut c = cluster();
        c.cut.insert(lost);
        for seq in 1..=20 {
            publish(&mut c, seq, key(seq));
        }
        c.pass(100);
        c.kill(0);
        c.promote(shard(0, 0), 1);
        c.publish();
        c.pass(10_000);
        let published = published(&c, 1);
        for subscriber in SUBSCRIBERS {
            assert_eq!(handled(&c, subscriber), published, "{subscriber} {lost:?}");
        }
        assert_eq!(open(&c, 1), 0, "{lost:?}");
    }
}

#[test]
fn a_subscriber_that_fails_over_gets_each_publication_once() {
    for lost in [(2, 0), (0, 2), (2, 3)] {
        let mut c = cluster();
        c.cut.insert(lost);
        for seq in 1..=20 {
            publish(&mut c, seq, key(seq));
        }
        c.pass(100);
        c.kill(2);
        c.promote(shard(1, 0), 3);
        leave(&mut c, 2);
        c.publish();
        c.pass(10_000);
        for subscriber in SUBSCRIBERS {
            let handled = handled(&c, subscriber);
            assert_eq!(handled, published(&c, 0), "{subscriber} {lost:?}");
        }
    }
}

#[test]
fn a_subscriber_that_is_away_beyond_its_deadline_gets_the_publication_when_it_is_back() {
    let mut c = cluster();
    c.cut.extend([(0, 2), (2, 0)]);
    publish(&mut c, 1, b"k");
    publish(&mut c, 2, b"k");
    c.pass(25_000);
    assert!(handled(&c, "back").is_empty());
    assert_eq!(handled(&c, "audit"), [1], "the next of a key waits for all");
    c.cut.clear();
    c.pass(15_000);
    for subscriber in SUBSCRIBERS {
        assert_eq!(handled(&c, subscriber), [1, 2]);
    }
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn a_subscriber_that_confirmed_gets_no_second_copy_after_it_forgot_the_first() {
    let mut c = cluster();
    back_is_away_until_the_audit_forgets(&mut c);
    c.kill(0);
    c.promote(shard(0, 0), 1);
    back_returns(&mut c);
    assert_eq!(handled(&c, "back"), [1]);
    assert_eq!(handled(&c, "audit"), [1, 2]);
    assert_eq!(open(&c, 1), 0, "nothing is kept of who has confirmed");
}

#[test]
fn a_joining_backup_learns_who_has_confirmed() {
    let mut c = cluster();
    back_is_away_until_the_audit_forgets(&mut c);
    // The former backup is gone; another node gets a snapshot.
    let shop = c.shard(shard(0, 0));
    shop.backups.clear();
    shop.joining.push(e3_model::NodeId(4));
    c.publish();
    c.pass(500);
    let shop = c.shard(shard(0, 0));
    shop.backups = std::mem::take(&mut shop.joining);
    c.publish();
    c.pass(500);
    c.kill(0);
    c.promote(shard(0, 0), 4);
    back_returns(&mut c);
    assert_eq!(handled(&c, "back"), [1]);
    assert_eq!(handled(&c, "audit"), [1, 2]);
    assert_eq!(open(&c, 4), 0);
}

#[test]
fn who_has_confirmed_comes_back_from_disk() {
    let mut c = disk_cluster();
    back_is_away_until_the_audit_forgets(&mut c);
    c.restart(0);
    c.promote(shard(0, 0), 0);
    back_returns(&mut c);
    assert_eq!(handled(&c, "back"), [1]);
    assert_eq!(handled(&c, "audit"), [1, 2]);
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn who_has_confirmed_is_written_once_and_not_for_what_all_confirm() {
    let mut c = cluster();
    publish(&mut c, 1, b"all");
    c.pass_coarsely(60);
    assert_eq!(open(&c, 0), 0);
    c.cut.extend([(0, 2), (2, 0)]);
    publish(&mut c, 2, b"k");
    c.pass(500);
    assert_eq!(open(&c, 0), 1, "not at once");
    c.pass_coarsely(60);
    assert_eq!(open(&c, 0), 2, "the publication, and who has confirmed it");
    let written = c.report(0, shard(0, 0)).op;
    c.pass_coarsely(60);
    assert_eq!(c.report(0, shard(0, 0)).op, written);
}

#[test]
fn a_slow_subscriber_delays_only_its_keys() {
    let mut c = cluster();
    c.nodes.get_mut(&2).unwrap().held = true;
    publish(&mut c, 1, b"slow");
    publish(&mut c, 2, b"slow");
    publish_on(&mut c, "sales", 3, b"quick");
    publish_on(&mut c, "sales", 4, b"quick");
    c.pass(200);
    assert_eq!(handled(&c, "audit"), [1, 3, 4]);
    c.nodes.get_mut(&2).unwrap().held = false;
    c.pass(5_000);
    assert_eq!(handled(&c, "audit"), [1, 2, 3, 4]);
    assert_eq!(handled(&c, "back"), [1, 2]);
}

#[test]
fn a_deleted_subscription_is_waited_for_no_more() {
    let mut c = cluster();
    c.nodes.get_mut(&2).unwrap().held = true;
    publish(&mut c, 1, b"k");
    publish(&mut c, 2, b"k");
    c.pass(50);
    subscribe_only_audit(&mut c);
    c.pass(3_000);
    assert_eq!(handled(&c, "audit"), [1, 2]);
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn more_keys_than_may_be_in_progress_do_not_hold_up_others() {
    let mut c = cluster();
    // Who is subscribed to refunds does not answer; who is to orders does.
    c.nodes.get_mut(&2).unwrap().held = true;
    for seq in 1..=300u64 {
        publish_on(&mut c, "refunds", seq, &seq.to_le_bytes());
        c.pass(1);
    }
    c.pass(100);
    publish_on(&mut c, "sales", 301, b"k");
    c.pass(10_000);
    assert_eq!(handled(&c, "audit"), [301]);
    c.nodes.get_mut(&2).unwrap().held = false;
    c.pass(30_000);
    assert_eq!(handled(&c, "back").len(), 300);
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn without_subscribers_nothing_is_kept() {
    let mut c = cluster();
    publish_on(&mut c, "nobody", 1, b"k");
    c.pass(100);
    assert_eq!(published(&c, 0), [1]);
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn a_deleted_subscriber_holds_nothing_up() {
    let mut c = cluster();
    c.nodes.get_mut(&3).unwrap().held = true;
    for seq in 1..=100u64 {
        publish_on(&mut c, "sales", seq, &(seq % 50).to_le_bytes());
    }
    c.pass(200);
    assert_eq!(open(&c, 0), 100);
    c.other = None;
    c.publish();
    c.pass(5_000);
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn a_failing_subscriber_keeps_a_dead_letter_and_its_replay_brings_the_topic() {
    let mut c = cluster();
    fail_at_back(&mut c);
    publish(&mut c, 1, b"k");
    publish(&mut c, 2, b"k");
    c.pass(500);
    assert_eq!(handled(&c, "audit"), [1, 2], "a failure is final");
    assert_eq!(c.report(2, shard(1, 0)).dead_letters, 2);
    c.handler = handler();
    let topics = note_topics(&mut c);
    c.replay_first(2, shard(1, 0), 1);
    assert_eq!(handled(&c, "back"), [1]);
    assert_eq!(*topics.borrow(), ["shop/orders"]);
}

#[test]
fn a_subscriber_without_state_gets_publications_in_order() {
    let mut c = cluster();
    let handled = without_state(&mut c);
    for seq in 1..=20 {
        publish(&mut c, seq, b"k");
    }
    c.pass(5_000);
    assert_eq!(*handled.borrow(), Vec::from_iter(1..=20));
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn publications_come_back_from_disk() {
    let mut c = disk_cluster();
    c.cut.insert((0, 2));
    for seq in 1..=20 {
        publish(&mut c, seq, key(seq));
    }
    c.pass(300);
    let before = published(&c, 0);
    assert_eq!(before.len(), 20);
    assert_eq!(open(&c, 0), 20);
    c.restart(0);
    c.promote(shard(0, 0), 0);
    c.cut.clear();
    c.publish();
    c.pass(10_000);
    for subscriber in SUBSCRIBERS {
        assert_eq!(handled(&c, subscriber), before, "{subscriber}");
    }
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn a_publication_counts_towards_the_quota() {
    let mut c = cluster();
    c.nodes.get_mut(&2).unwrap().held = true;
    let room = room_found(&mut c);
    for seq in 1..=2 {
        publish(&mut c, seq, b"k");
        c.pass(50);
    }
    let room = room.borrow();
    assert!(room[1] + 100 < room[0], "{room:?}");
}

#[test]
fn a_copy_that_waits_is_admitted_after_its_subscriber_has_a_shorter_deadline() {
    let mut c = cluster();
    let set_deadline = |c: &mut Cluster, deadline| {
        let (plan, _) = c.other.as_mut().unwrap();
        let mut app = plan.app.as_ref().clone();
        app.spec.deadline = deadline;
        app.spec.admitted_max = 1;
        plan.app = app.into();
        c.publish();
    };
    set_deadline(&mut c, Nanos::from_secs(3_600));
    // The first copy takes the only place, the second is refused.
    c.nodes.get_mut(&3).unwrap().held = true;
    publish_on(&mut c, "sales", 1, b"k");
    c.pass(50);
    publish_on(&mut c, "sales", 2, b"other");
    c.pass(500);
    set_deadline(&mut c, Nanos::from_secs(10));
    c.nodes.get_mut(&3).unwrap().held = false;
    c.pass(5_000);
    assert_eq!(handled(&c, "audit"), [1, 2]);
}

fn leave(c: &mut Cluster, node: u32) {
    let (plan, _) = c.other.as_mut().unwrap();
    for shard in &mut plan.shards {
        shard.backups.retain(|n| n.0 != node);
    }
}
