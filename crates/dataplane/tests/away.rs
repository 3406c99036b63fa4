//! Requests to a shard that is away for long.

use crate::common::manifests::ONE;
use crate::common::{Cluster, shard};
use e3_channel::limits::WINDOW_MESSAGES;
use e3_dataplane::limits::DEDUP_GRACE;
use e3_model::Nanos;
use e3_wire::entry::Outcome;

/// A thousand requests in each second, with a deadline of one second; the most that wait at node 0.
fn load(c: &mut Cluster, sent: &mut u64, seconds: u64) -> u64 {
    let mut most = 0;
    for _ in 0..seconds * 50 {
        let deadline = c.now + Nanos::from_secs(1);
        for _ in 0..20 {
            *sent += 1;
            c.request(0, *sent, 0, b"k", deadline);
        }
        c.now += Nanos::from_millis(19);
        c.pass(1);
        let open = c.nodes[&0].worker.report().stats.channels;
        let open = open
            .iter()
            .map(|ch| ch.sent - ch.durable + u64::from(ch.waiting));
        most = most.max(open.sum());
    }
    most
}

#[test]
fn requests_to_a_shard_that_is_away_do_not_pile_up() {
    for is_gone in [false, true] {
        let mut c = Cluster::new(&ONE.replace("replicas: 2", "replicas: 1"), 2, |_| vec![1]);
        let mut sent = 0;
        load(&mut c, &mut sent, 1);
        if is_gone {
            c.kill(1);
            c.publish();
        } else {
            c.cut.extend([(0, 1), (1, 0)]);
        }
        let most = load(&mut c, &mut sent, 180);
        // Those that the ingress still knows, and as many before they are looked at again.
        let known = 1_000 * (1 + DEDUP_GRACE.as_secs());
        assert!(
            most > known && most < 2 * known + 2 * WINDOW_MESSAGES,
            "{most}"
        );
        if is_gone {
            c.start(1, 2);
            c.promote(shard(0, 0), 1);
            c.publish();
        }
        c.cut.clear();
        c.pass(3_000);
        let away = sent;
        load(&mut c, &mut sent, 5);
        c.pass(1_000);
        for seq in 1..=sent {
            let count = c.count(1, shard(0, 0), 1, seq);
            assert!(count <= 1, "request {seq} was handled {count} times");
        }
        for seq in away + 1..=sent {
            assert_eq!(c.outcomes(seq), [Outcome::Done], "request {seq}");
        }
    }
}
