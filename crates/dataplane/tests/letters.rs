//! Dead letters: what is kept of messages that failed for good, wherever the primary moves.

use crate::common::manifests::ONE;
use crate::common::{Cluster, count_and_forward, shard};
use e3_invocation::HandlerError;
use e3_model::{Nanos, NodeId};
use e3_wire::entry::Outcome;

/// Requests that are done come first, then so many that fail.
fn failed(c: &mut Cluster, done: u64, letters: u64) {
    let deadline = c.now + Nanos::from_secs(50);
    for seq in 1..=done + letters {
        c.request(0, seq, 0, b"k", deadline);
    }
    c.handler = Box::new(move |_, invocation, state| {
        if invocation.id.request.seq > done {
            return Err(HandlerError::Code(1));
        }
        count_and_forward(0, invocation, state)
    });
    c.pass(100);
    assert_eq!(c.outcomes(done), [Outcome::Done]);
    assert_eq!(c.outcomes(done + letters), [Outcome::Failed]);
}

#[test]
fn who_joins_and_takes_over_has_the_dead_letters_and_what_was_handled() {
    let mut c = Cluster::new(ONE, 3, |_| vec![0]);
    let key = shard(0, 0);
    failed(&mut c, 300, 3);
    assert_eq!(c.report(0, key).dead_letters, 3);
    let plan = c.shard(key);
    plan.view += 1;
    plan.joining = vec![NodeId(1)];
    c.publish();
    c.pass(1_000);
    assert_eq!(c.report(1, key).dead_letters, 3);
    c.promote(key, 1);
    c.shard(key).joining.clear();
    c.kill(0);
    c.publish();
    c.pass(1_000);
    c.handler = Box::new(|_, invocation, state| count_and_forward(0, invocation, state));
    // Every request comes once more: nothing is done twice, or for a letter.
    let deadline = c.now + Nanos::from_secs(45);
    for seq in 1..=303 {
        c.request(2, seq, 1, b"k", deadline);
    }
    c.pass(1_000);
    for seq in 1..=300 {
        assert_eq!(c.count(1, key, 1, seq), 1, "request {seq}");
        assert_eq!(c.outcomes(seq), [Outcome::Done; 2]);
    }
    assert_eq!(c.outcomes(303), [Outcome::Failed; 2]);
    let letters = c.read_letters(1, key);
    let seqs: Vec<u64> = letters.letters.iter().map(|l| l.0.request.seq).collect();
    assert_eq!((letters.total, seqs), (3, vec![301, 302, 303]));
    c.replay_first(1, key, 9_000);
    assert_eq!(c.outcomes(9_000), [Outcome::Done]);
    assert_eq!(c.count(1, key, 2, 9_000), 1);
    assert_eq!(c.report(1, key).dead_letters, 2);
}
