//! The number of shards of a service changes while it serves: nothing is lost, nothing is done twice.

use crate::common::{APP, Cluster, count_and_forward};
use e3_model::plan::{NodeEvent, ShardPlan};
use e3_model::reshard::{Resharded, Split};
use e3_model::{Nanos, ServiceId, ShardId, ShardKey, Slot};
use e3_wire::entry::Outcome;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) const SERVICE: ServiceId = ServiceId(1);

pub(crate) fn manifest(durability: &str) -> String {
    format!(
        "apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {{name: chain}}
spec:
  objective: {{latency: 50ms}}
  deadline: 60s
  ingress: front
  services:
    - name: front
      module: s.wasm
      stateful: true
      replicas: 2
      durability: {durability}
      resources: {{cpu: 0.1, memory: 64Mi}}
      collections: [{{name: requests, kind: counter}}]
    - name: back
      module: s.wasm
      stateful: true
      shards: 2
      replicas: 2
      durability: {durability}
      resources: {{cpu: 0.1, memory: 64Mi}}
      collections: [{{name: requests, kind: counter}}]
  channels:
    - {{from: front, to: back}}
"
    )
}

/// Both services on nodes 0 and 1, the primaries on different ones.
pub(crate) fn cluster(durability: &str) -> Cluster {
    Cluster::new(&manifest(durability), 3, |key| match key.service {
        SERVICE => vec![1, 0],
        _ => vec![0, 1],
    })
}

pub(crate) fn request(c: &mut Cluster, seq: u64) {
    let deadline = c.now + Nanos::from_secs(60);
    c.request(2, seq, 0, &seq.to_le_bytes(), deadline);
}

/// The shards of the service stop.
pub(crate) fn freeze(c: &mut Cluster) {
    for shard in c.plan.shards.iter_mut().filter(|s| s.service == SERVICE) {
        shard.view += 1;
        (shard.frozen, shard.quiet) = (true, true);
    }
    c.publish();
}

/// Every primary of the service has confirmed that it stopped.
pub(crate) fn have_stopped(c: &mut Cluster) -> bool {
    let plan = c.plan.clone();
    let mut shards = plan.shards.iter().filter(|s| s.service == SERVICE);
    shards.all(|s| {
        let node = c.nodes.get_mut(&s.primary.0).expect("it runs");
        let stopped = NodeEvent::Frozen {
            key: plan.key(s),
            view: s.view,
        };
        node.worker.report().events.contains(&stopped)
    })
}

pub(crate) fn wait_until_stopped(c: &mut Cluster) {
    for _ in 0..500 {
        if have_stopped(c) {
            return;
        }
        c.pass(1);
    }
    panic!("a primary does not stop");
}

/// The plan has the shards after the change.
pub(crate) fn switch(c: &mut Cluster, after: u16) {
    let all = std::mem::take(&mut c.plan.shards);
    let (before, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|s| s.service == SERVICE);
    let split = Split::new(before.len() as u16, after).unwrap();
    let view = 1 + before.iter().map(|s| s.view).max().unwrap();
    let shards = (0..after).map(|shard| {
        let parent = &before[usize::from(split.parents(ShardId(shard)).start)];
        ShardPlan {
            shard: ShardId(shard),
            view,
            incarnation: view,
            era: view,
            predecessor: Some(parent.primary),
            fenced: true,
            frozen: false,
            quiet: false,
            ..parent.clone()
        }
    });
    c.plan.shards = others.into_iter().chain(shards).collect();
    c.plan.resharded = vec![Resharded {
        service: SERVICE,
        split,
        eras: before.iter().map(|s| s.era).collect(),
        era: view,
    }];
    Arc::make_mut(&mut c.plan.app).spec.services[1].shards = after;
}

pub(crate) fn key_of(c: &Cluster, seq: u64) -> ShardKey {
    let shards = c.plan.app.spec.services[1].shards;
    ShardKey {
        app: APP,
        service: SERVICE,
        shard: Slot::of(&seq.to_le_bytes()).shard(shards),
    }
}

/// How often each request took effect in the service, on its primaries or their backups.
pub(crate) fn counts(c: &Cluster, requests: u64, at_backup: bool) -> BTreeMap<u64, i64> {
    let count = |seq: u64| {
        let key = key_of(c, seq);
        let shard = c.plan.shards.iter().find(|s| c.plan.key(s) == key).unwrap();
        let node = if at_backup {
            shard.backups[0]
        } else {
            shard.primary
        };
        c.count(node.0, key, 1, seq)
    };
    (1..=requests).map(|seq| (seq, count(seq))).collect()
}

#[track_caller]
pub(crate) fn each_once(c: &Cluster, requests: u64) {
    for at_backup in [false, true] {
        let wrong: Vec<_> = counts(c, requests, at_backup)
            .into_iter()
            .filter(|(_, count)| *count != 1)
            .collect();
        assert_eq!(wrong, [], "at backups: {at_backup}");
    }
    for seq in 1..=requests {
        assert_eq!(
            c.outcomes(seq).first(),
            Some(&Outcome::Done),
            "request {seq}"
        );
    }
}

#[test]
fn splits_and_merges_under_load_do_everything_once() {
    for durability in ["memory", "disk"] {
        let mut c = cluster(durability);
        let mut seq = 0;
        let mut load = |c: &mut Cluster, ms: u64| {
            for _ in 0..ms {
                seq += 1;
                request(c, seq);
                c.pass(1);
            }
            seq
        };
        load(&mut c, 100);
        for after in [6, 2, 4, 1, 2] {
            freeze(&mut c);
            // Clients go on; their requests wait at the senders.
            load(&mut c, 20);
            wait_until_stopped(&mut c);
            switch(&mut c, after);
            c.publish();
            load(&mut c, 60);
        }
        let sent = load(&mut c, 1);
        c.pass(500);
        each_once(&c, sent);
        // A client that asks again gets its answer; nothing is done again.
        let answers = c.replies.len();
        for again in 1..=sent {
            let deadline = c.now + Nanos::from_secs(60);
            c.request(2, again, 1, &again.to_le_bytes(), deadline);
        }
        c.pass(500);
        each_once(&c, sent);
        assert!(c.replies.len() >= answers + sent as usize, "{durability}");
    }
}

#[test]
fn a_shard_does_not_stop_before_its_outputs_have_arrived() {
    let mut c = cluster("memory");
    // What `front` sends does not arrive.
    c.cut.extend([(0, 1)]);
    request(&mut c, 1);
    c.pass(3);
    let front = ShardKey {
        service: ServiceId(0),
        shard: ShardId(0),
        app: APP,
    };
    c.cut.clear();
    c.nodes.get_mut(&1).unwrap().held = true;
    c.pass(50);
    let shard = c.shard(front);
    shard.view += 1;
    (shard.frozen, shard.quiet) = (true, true);
    let stopped = NodeEvent::Frozen {
        key: front,
        view: shard.view,
    };
    c.publish();
    c.pass(100);
    let events = |c: &mut Cluster| c.nodes.get_mut(&0).unwrap().worker.report().events;
    assert!(
        !events(&mut c).contains(&stopped),
        "its message is not handled"
    );
    c.nodes.get_mut(&1).unwrap().held = false;
    c.pass(100);
    assert!(events(&mut c).contains(&stopped));
}

/// The service whose number of shards changes is stateless.
const STATELESS: &str = "apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: chain}
spec:
  objective: {latency: 50ms}
  deadline: 60s
  ingress: front
  services:
    - name: back
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: requests, kind: counter}]
    - name: front
      module: s.wasm
      shards: 2
      resources: {cpu: 0.1, memory: 64Mi}
  channels:
    - {from: front, to: back}
";

/// The stateless service is on node 1, the one behind it on node 0.
fn stateless() -> Cluster {
    Cluster::new(STATELESS, 3, |key| match key.service {
        SERVICE => vec![1],
        _ => vec![0],
    })
}

#[test]
fn what_a_stateless_shard_has_not_sent_for_good_is_handled_again() {
    for after in [1, 4] {
        let mut c = stateless();
        // Requests reach the service, and what it sends does not arrive.
        c.cut.extend([(1, 0)]);
        let requests = 20;
        for seq in 1..=requests {
            request(&mut c, seq);
            c.pass(1);
        }
        switch(&mut c, after);
        c.publish();
        c.cut.clear();
        c.pass(1_000);
        let back = crate::common::shard(0, 0);
        for seq in 1..=requests {
            assert_eq!(c.outcomes(seq).first(), Some(&Outcome::Done));
            assert_eq!(c.count(0, back, 1, seq), 1, "request {seq}, {after} shards");
        }
    }
}

/// What it has sent for good is not, though its sender still has it: what came before is open.
#[test]
fn what_a_stateless_shard_has_sent_for_good_is_not_handled_again() {
    let manifest = STATELESS.replacen("stateful: true\n", "stateful: true\n      shards: 2\n", 1);
    let mut c = Cluster::new(&manifest, 4, |key| match key.service {
        SERVICE => vec![1],
        _ => vec![if key.shard.0 == 0 { 0 } else { 2 }],
    });
    let runs = Rc::new(RefCell::new(Vec::new()));
    let noted = runs.clone();
    c.handler = Box::new(move |service, invocation, state| {
        let is_front = service == SERVICE;
        if is_front {
            noted.borrow_mut().push(invocation.id.request.seq);
        }
        count_and_forward(u16::from(is_front), invocation, state)
    });
    // What goes to node 0 does not arrive. Both keys are of one shard of the stateless service.
    c.cut.insert((1, 0));
    let deadline = c.now + Nanos::from_secs(30);
    switch(&mut c, 1);
    c.publish();
    c.pass(50);
    c.request(3, 1, 0, &crate::common::key_of(0, 2), deadline);
    c.pass(20);
    c.request(3, 2, 0, &crate::common::key_of(1, 2), deadline);
    c.pass(20);
    assert_eq!(*runs.borrow(), [1, 2]);
    switch(&mut c, 4);
    c.publish();
    c.cut.clear();
    c.pass(1_000);
    assert_eq!(*runs.borrow(), [1, 2, 1]);
    for seq in [1, 2] {
        assert_eq!(c.outcomes(seq).first(), Some(&Outcome::Done));
    }
}

#[test]
fn what_a_stateless_shard_may_have_handled_is_not_called_expired() {
    for after in [1, 4] {
        let mut c = stateless();
        // What the service sends takes effect, and nobody tells it so.
        c.cut.extend([(0, 1)]);
        let deadline = c.now + Nanos::from_secs(2);
        c.request(2, 1, 0, b"key", deadline);
        c.pass(2_100);
        let back = crate::common::shard(0, 0);
        assert_eq!(c.count(0, back, 1, 1), 1);
        switch(&mut c, after);
        c.publish();
        c.cut.clear();
        c.pass(1_000);
        let keys: Vec<ShardKey> = (0..after).map(|s| crate::common::shard(1, s)).collect();
        let letters = keys.iter().flat_map(|key| c.read_letters(1, *key).letters);
        let outcomes: Vec<Outcome> = letters.map(|(_, letter)| letter.outcome).collect();
        assert_eq!(outcomes, [Outcome::Unknown], "{after} shards");
    }
}

/// The client sends all its requests once more.
pub(crate) fn ask_again(c: &mut Cluster, requests: u64) {
    for seq in 1..=requests {
        let deadline = c.now + Nanos::from_secs(60);
        c.request(2, seq, 1, &seq.to_le_bytes(), deadline);
    }
}

/// Both nodes with copies lose power at a moment, and come back.
pub(crate) fn power_cut(c: &mut Cluster) {
    for node in [0, 1] {
        c.restart(node);
    }
    for shard in &mut c.plan.shards {
        shard.view += 1;
        shard.incarnation = shard.view;
        shard.predecessor = Some(shard.primary);
        (shard.frozen, shard.quiet, shard.fenced) = (false, false, false);
    }
    c.publish();
    c.pass(600);
}

#[test]
fn a_power_cut_around_the_change_loses_nothing() {
    for after in [1, 4] {
        for moment in 0..4 {
            let mut c = cluster("disk");
            for seq in 1..=40 {
                request(&mut c, seq);
            }
            c.pass(200);
            freeze(&mut c);
            wait_until_stopped(&mut c);
            switch(&mut c, after);
            match moment {
                // Nobody has heard of the change, one node has, both have, or have gone on.
                0 => {}
                1 => {
                    c.version += 1;
                    c.publish_to(1);
                    c.pass(5);
                }
                2 => c.publish(),
                _ => {
                    c.publish();
                    c.pass(50);
                    for seq in 41..=60 {
                        request(&mut c, seq);
                    }
                    c.pass(200);
                }
            }
            power_cut(&mut c);
            // Twice, so that what was recovered is on disk as well.
            power_cut(&mut c);
            ask_again(&mut c, 80);
            c.pass(500);
            let wrong = counts(&c, 80, false).into_iter().filter(|(_, n)| *n != 1);
            let wrong: Vec<_> = wrong.collect();
            assert_eq!(wrong, [], "to {after} shards, moment {moment}");
        }
    }
}

/// The last entry of the shards of the service.
pub(crate) fn op(c: &Cluster) -> u64 {
    let report = c.nodes[&1].worker.report();
    let all = report.instances.iter();
    let service = all.filter(|i| i.key.service == SERVICE);
    service.map(|i| i.op).max().unwrap()
}
