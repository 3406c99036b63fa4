//! Copies of publications that come again, with later deadlines, while their subscriber cannot confirm
//! them or has forgotten the first.

use crate::common::topics::*;
use crate::common::{Cluster, Handler, shard};
use e3_invocation::{Effects, Output};
use e3_model::{AppId, NodeId, ShardKey};

/// What the audit sends orders on to.
const LEDGER: &str = "    - name: ledger
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
  channels:
    - {from: audit, to: ledger}
";

/// The audit, at nodes 3 and 2, sends each order on to a ledger, which is at node 4 with the ingress.
fn cluster_with_ledger() -> Cluster {
    let mut c = cluster();
    let mut plan = Cluster::new(&format!("{AUDIT}{LEDGER}"), 5, |key| match key.service.0 {
        0 => vec![3, 2],
        _ => vec![4],
    })
    .plan;
    plan.id = AppId(2);
    let handler: Handler = Box::new(|service, invocation, state| {
        let mut effects = count(invocation, state);
        if service.0 == 0 && invocation.payload.starts_with(b"orders") {
            effects.reply = None;
            effects.outputs.push(Output {
                channel: 0,
                key: invocation.key.clone(),
                payload: invocation.payload.clone(),
            });
        }
        Ok(effects)
    });
    c.other = Some((plan, handler));
    c.publish();
    c.pass(500);
    c
}

#[test]
fn a_subscriber_remembers_a_publication_for_as_long_as_its_copies_come() {
    let mut c = cluster_with_ledger();
    c.cut.extend([(2, 4), (3, 4)]);
    publish(&mut c, 1, b"k");
    for seq in 2..=4 {
        // It forgets when it handles another.
        c.pass_coarsely(320);
        publish_on(&mut c, "sales", seq, b"other");
    }
    c.pass_coarsely(5);
    assert_eq!(handled(&c, "audit"), [1, 2, 3, 4]);
    assert!(open(&c, 0) > 0, "the ledger has not answered");
    let kept = c.nodes[&3].worker.kept().open;
    assert!(kept < 150, "{kept} messages wait for the ledger");
    c.cut.clear();
    c.pass(20_000);
    let app = AppId(2);
    let ledger = ShardKey { app, ..shard(1, 0) };
    let state = c.nodes[&4].worker.state(ledger).unwrap();
    assert_eq!(state.borrow().counter_get(0, &1u64.to_le_bytes()), 1);
    assert_eq!(handled(&c, "audit"), [1, 2, 3, 4]);
    assert_eq!(open(&c, 0), 0);
    assert_eq!(c.nodes[&3].worker.kept().open, 0);
}

#[test]
fn a_copy_that_expired_before_a_stateless_subscriber_moved_comes_again() {
    let mut c = cluster();
    let handled = without_state(&mut c);
    c.cut.extend([(0, 3), (3, 0), (1, 3), (3, 1)]);
    publish(&mut c, 1, b"k");
    c.pass(11_000);
    assert!(handled.borrow().is_empty());
    let (mut plan, _) = c.other.take().unwrap();
    let shard = &mut plan.shards[0];
    (shard.view, shard.incarnation) = (shard.view + 1, shard.view + 1);
    shard.predecessor = Some(shard.primary);
    shard.primary = NodeId(2);
    let noted = handled.clone();
    let handler: Handler = Box::new(move |_, _, _| {
        noted.borrow_mut().push(1);
        Ok(Effects::default())
    });
    c.other = Some((plan, handler));
    c.publish();
    c.pass(10_000);
    assert_eq!(*handled.borrow(), [1]);
    assert_eq!(open(&c, 0), 0, "it is confirmed");
}

/// A node has a copy on the way when another becomes the publisher's primary. Meanwhile the subscriber
/// loses its state: what was on the way to the process before is older than what it has handled since.
#[test]
fn a_former_primary_of_the_publisher_sends_nothing_to_a_subscriber_that_begins_empty() {
    let mut c = cluster();
    c.cut.extend([(0, 2), (2, 0)]);
    publish(&mut c, 1, b"k");
    c.pass(100);
    assert_eq!(open(&c, 1), 1);
    let publish_to_others = |c: &mut Cluster| {
        c.version += 1;
        for node in 1..5 {
            c.publish_to(node);
        }
    };
    c.cut.extend([(0, 1), (1, 0)]);
    c.promote(shard(0, 0), 1);
    publish_to_others(&mut c);
    publish(&mut c, 2, b"k");
    c.pass(3_000);
    assert_eq!(handled(&c, "back"), [1, 2]);
    c.start(2, 2);
    let back = c.shard(shard(1, 0));
    back.view += 1;
    back.era = back.view;
    c.promote(shard(1, 0), 2);
    c.shard(shard(1, 0)).backups.clear();
    publish_to_others(&mut c);
    publish(&mut c, 3, b"k");
    c.pass(3_000);
    assert_eq!(handled(&c, "back"), [3]);
    c.cut.clear();
    c.publish();
    c.pass(5_000);
    assert_eq!(handled(&c, "back"), [3]);
}
