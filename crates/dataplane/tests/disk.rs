//! Services with `durability: disk`: what is acknowledged is on disk, and comes back.

use crate::common::{Cluster, Handler, count_and_forward, shard};
use e3_collections::Txn;
use e3_invocation::Effects;
use e3_model::outbound::{Answer, Destination, HttpMethod, HttpRequest, Outbound};
use e3_model::plan::NodeEvent;
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{Formats, Nanos, NodeId, ShardKey};
use e3_wire::entry::Outcome;
use e3_wire::journal::{Record, Step};
use std::cell::RefCell;
use std::rc::Rc;

pub(crate) const KEY: ShardKey = shard_key();

const fn shard_key() -> ShardKey {
    use e3_model::{AppId, ServiceId, ShardId};
    ShardKey {
        app: AppId(1),
        service: ServiceId(0),
        shard: ShardId(0),
    }
}

pub(crate) fn manifest(replicas: u16) -> String {
    format!(
        "apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {{name: counter}}
spec:
  objective: {{latency: 50ms}}
  deadline: 60s
  ingress: count
  services:
    - name: count
      module: count.wasm
      stateful: true
      replicas: {replicas}
      durability: disk
      resources: {{cpu: 0.1, memory: 64Mi}}
      collections: [{{name: requests, kind: counter}}]
"
    )
}

/// A shard on nodes 0.., with its primary on the first.
pub(crate) fn cluster(replicas: u16) -> Cluster {
    assert_eq!(KEY, shard(0, 0));
    Cluster::new(&manifest(replicas), replicas.into(), |_| {
        (0..replicas.into()).collect()
    })
}

fn request(c: &mut Cluster, node: u32, seq: u64) {
    let deadline = c.now + Nanos::from_secs(60);
    c.request(node, seq, 0, &seq.to_le_bytes(), deadline);
}

/// A shard that has handled thirty requests. The disk of its primary has lost what it had confirmed after so
/// many records.
fn with_lost_writes(kept: u64) -> Cluster {
    let mut c = cluster(2);
    for seq in 1..=30 {
        request(&mut c, 0, seq);
    }
    c.pass(200);
    assert_eq!(c.outcomes(30), [Outcome::Done]);
    let disk = c.disks.get_mut(&0).unwrap();
    disk.records.retain(|number, _| *number <= kept);
    c
}

/// Node 0 is killed and goes on as the primary.
pub(crate) fn restart_primary(c: &mut Cluster) {
    c.restart(0);
    c.promote(KEY, 0);
    c.publish();
    c.pass(600);
}

fn counts(c: &Cluster, node: u32, requests: u64) -> Vec<i64> {
    (1..=requests)
        .map(|seq| c.count(node, KEY, 1, seq))
        .collect()
}

/// A handler that counts all requests, and keeps so many long keys for each of sixty.
pub(crate) fn count_all(keys: u8) -> Handler {
    Box::new(move |_, invocation, state| {
        let (mut txn, mut effects) = (Txn::new(), Effects::default());
        txn.begin(invocation.slot.0);
        txn.counter_add(state, 0, b"all", 1).unwrap();
        for number in 0..keys {
            let seq = (invocation.id.request.seq % 60).to_le_bytes();
            let key = [&seq[..], &[number; 800]].concat();
            txn.counter_add(state, 0, &key, 1).unwrap();
        }
        effects.writes = txn.finish();
        state.apply(&effects.writes).unwrap();
        Ok(effects)
    })
}

#[test]
fn nothing_is_answered_before_it_is_on_every_disk() {
    for held in [0, 1] {
        let mut c = cluster(2);
        c.disks.get_mut(&held).unwrap().held = true;
        request(&mut c, 0, 1);
        c.pass(200);
        assert_eq!(c.outcomes(1), [], "disk of node {held}");
        c.disks.get_mut(&held).unwrap().held = false;
        c.pass(200);
        assert_eq!(c.outcomes(1), [Outcome::Done], "disk of node {held}");
    }
}

#[test]
fn the_only_copy_comes_back_with_everything_that_was_answered() {
    let mut c = cluster(1);
    for seq in 1..=50 {
        request(&mut c, 0, seq);
        c.pass(1);
    }
    c.pass(20);
    // These are handled and not durable.
    c.disks.get_mut(&0).unwrap().held = true;
    for seq in 51..=60 {
        request(&mut c, 0, seq);
    }
    c.pass(20);
    c.disks.get_mut(&0).unwrap().held = false;
    restart_primary(&mut c);
    assert_eq!(counts(&c, 0, 60), [vec![1; 50], vec![0; 10]].concat());
    // A client that does not know asks again: what was answered is not done twice.
    for seq in 1..=60 {
        request(&mut c, 0, seq);
    }
    c.pass(200);
    assert_eq!(counts(&c, 0, 60), [1; 60]);
    assert_eq!(c.outcomes(60), [Outcome::Done]);
}

#[test]
fn copies_that_stop_together_go_on_together() {
    let mut c = cluster(2);
    for seq in 1..=30 {
        request(&mut c, 0, seq);
    }
    c.pass(200);
    c.restart(1);
    restart_primary(&mut c);
    for seq in 31..=40 {
        request(&mut c, 0, seq);
    }
    c.pass(500);
    for node in [0, 1] {
        assert_eq!(counts(&c, node, 40), [1; 40], "node {node}");
    }
    // The backup has what the primary has, so it can take over.
    c.kill(0);
    c.promote(KEY, 1);
    c.publish();
    c.pass(600);
    request(&mut c, 1, 41);
    c.pass(100);
    assert_eq!(c.outcomes(41), [Outcome::Done]);
}

#[test]
fn a_backup_gives_nothing_up_that_the_disk_of_its_primary_has_lost() {
    for kept in [1, 10] {
        let mut c = with_lost_writes(kept);
        restart_primary(&mut c);
        request(&mut c, 0, 31);
        c.pass(300);
        assert_eq!(c.outcomes(31), [], "{kept} records kept");
        assert!(!c.report(0, KEY).serving);
        let (key, view) = (KEY, c.shard(KEY).view);
        let backup = NodeId(1);
        let events = c.nodes[&1].worker.events();
        assert_eq!(events, [NodeEvent::Ahead { key, view, backup }]);
        // The controller has it take over.
        c.promote(KEY, 1);
        c.shard(KEY).backups.push(NodeId(0));
        c.publish();
        c.pass(600);
        request(&mut c, 1, 32);
        c.pass(200);
        assert_eq!(c.outcomes(32), [Outcome::Done]);
        for node in [0, 1] {
            assert_eq!(counts(&c, node, 30), [1; 30], "node {node}, {kept} kept");
        }
        let events = c.nodes[&1].worker.events();
        let is_ahead = |event: &NodeEvent| matches!(event, NodeEvent::Ahead { .. });
        assert!(!events.iter().any(is_ahead), "{events:?}");
    }
}

#[test]
fn a_backup_that_restarts_after_its_primary_gives_nothing_up_either() {
    let mut c = with_lost_writes(10);
    // Both have lost their power. The primary is back first, and sends to the backup's process of before.
    c.cut.extend([(0, 1), (1, 0)]);
    restart_primary(&mut c);
    c.cut.clear();
    c.restart(1);
    c.publish();
    c.pass(300);
    let (key, view) = (KEY, c.shard(KEY).view);
    let backup = NodeId(1);
    let events = c.nodes[&1].worker.events();
    assert_eq!(events, [NodeEvent::Ahead { key, view, backup }]);
    assert!(!c.report(0, KEY).serving);
    c.promote(KEY, 1);
    c.shard(KEY).backups.push(NodeId(0));
    c.publish();
    c.pass(600);
    for node in [0, 1] {
        assert_eq!(counts(&c, node, 30), [1; 30], "node {node}");
    }
}

#[test]
fn a_copy_that_leaves_has_until_its_primary_serves_to_say_that_it_has_more() {
    let mut c = with_lost_writes(10);
    c.restart(0);
    c.promote(KEY, 0);
    c.shard(KEY).leaving.push(NodeId(1));
    c.publish();
    for _ in 0..100 {
        c.pass(1);
        let events = [0, 1].map(|node| c.nodes[&node].worker.events());
        if let [NodeEvent::Ahead { .. }] = events[1][..] {
            return;
        }
        assert_eq!(events[0], [], "nothing is confirmed before");
    }
    panic!("the backup has not said that it has more");
}

#[test]
fn a_backup_with_more_than_its_primary_that_has_left_the_view_joins_with_a_snapshot() {
    let mut c = cluster(2);
    for seq in 1..=10 {
        request(&mut c, 0, seq);
    }
    c.pass(200);
    // The next entry reaches the backup, and the primary ends before its own disk has it.
    let last = *c.disks[&0].records.keys().next_back().unwrap();
    c.cut.insert((1, 0));
    request(&mut c, 0, 11);
    c.pass(20);
    assert_eq!(c.outcomes(11), []);
    c.cut.clear();
    let disk = c.disks.get_mut(&0).unwrap();
    disk.records.retain(|number, _| *number <= last);
    restart_primary(&mut c);
    c.pass(300);
    let events = c.nodes[&1].worker.events();
    assert!(
        matches!(events[..], [NodeEvent::Ahead { .. }]),
        "{events:?}"
    );
    // The controller does not hear that from the backup, takes it out, and has it join again.
    let shard = c.shard(KEY);
    shard.view += 2;
    shard.joining = std::mem::take(&mut shard.backups);
    c.publish();
    c.discarded.clear();
    c.pass(1_000);
    // What the snapshot replaces is not freed by the loop.
    assert!(matches!(c.discarded[..], [(1, 1..)]), "{:?}", c.discarded);
    let (key, view, backup) = (KEY, c.shard(KEY).view, NodeId(1));
    let synced = NodeEvent::Synced { key, view, backup };
    let events = c.nodes[&0].worker.events();
    assert!(events.contains(&synced), "{events:?}");
    request(&mut c, 0, 12);
    c.pass(200);
    assert_eq!(c.outcomes(12), [Outcome::Done]);
    assert_eq!(counts(&c, 1, 12), counts(&c, 0, 12));
}

#[test]
fn a_new_process_waits_for_the_leases_that_the_one_before_granted() {
    // Node 2 tells the new process the time.
    let mut c = Cluster::new(&manifest(2), 3, |_| vec![0, 1]);
    request(&mut c, 0, 1);
    c.pass(100);
    // Node 0 is cut off from the controller only and goes on; node 1 restarts and takes over.
    c.restart(1);
    c.promote(KEY, 1);
    c.version += 1;
    c.publish_to(1);
    c.publish_to(2);
    c.pass(230);
    assert!(!c.report(1, KEY).serving, "a lease is longer");
    c.pass(20);
    assert!(c.report(1, KEY).serving);
}

#[test]
fn checkpoints_keep_the_journal_short_while_the_shard_serves() {
    let mut c = cluster(1);
    c.journal_len_min = 20_000;
    c.handler = count_all(0);
    restart_primary(&mut c);
    let mut longest = 0;
    for seq in 1..=2_000 {
        let deadline = c.now + Nanos::from_secs(1);
        c.request(0, seq, 0, b"k", deadline);
        c.pass(10);
        longest = longest.max(c.disks[&0].len());
    }
    let first = *c.disks[&0].records.keys().next().unwrap();
    assert!(first > 1_000, "the journal begins with record {first}");
    // What is remembered of requests is in every checkpoint: 6 s of them, 100 a second.
    assert!(longest < 400_000, "{longest} bytes");
    restart_primary(&mut c);
    let state = c.nodes[&0].worker.state(KEY).unwrap();
    assert_eq!(state.borrow().counter_get(0, b"all"), 2_000);
}

#[test]
fn whatever_record_is_the_last_the_state_is_that_of_its_entry() {
    let mut c = cluster(1);
    c.journal_len_min = 3_000;
    restart_primary(&mut c);
    for seq in 1..=60 {
        request(&mut c, 0, seq);
        c.pass(1);
    }
    c.pass(50);
    let whole = c.disks[&0].records.clone();
    let mut before = 0;
    for last in whole.keys() {
        let mut one = cluster(1);
        one.disks.get_mut(&0).unwrap().records =
            whole.range(..=last).map(|(n, r)| (*n, r.clone())).collect();
        one.nodes.remove(&0);
        one.start(0, 2);
        one.promote(KEY, 0);
        one.publish();
        let done = counts(&one, 0, 60);
        let known = done.iter().take_while(|n| **n == 1).count();
        assert!(
            done[known..].iter().all(|n| *n == 0),
            "record {last}: {done:?}"
        );
        assert!(known >= before, "record {last}: {known} after {before}");
        before = known;
    }
    assert_eq!(before, 60);
}

#[test]
fn another_primary_goes_on_while_a_backup_makes_a_checkpoint() {
    let mut c = cluster(3);
    c.journal_len_min = 500_000;
    // The checkpoint takes several steps.
    c.handler = count_all(12);
    // A new process takes up the length.
    c.restart(2);
    c.publish();
    c.pass(600);
    let all = |c: &Cluster, node: u32| {
        let state = c.nodes[&node].worker.state(KEY).unwrap();
        state.borrow().counter_get(0, b"all")
    };
    let has_checkpoint = |c: &Cluster| {
        let records = c.disks[&2].records.values();
        let mut steps = records.map(|r| Record::decode(Formats::PROGRAM, r).unwrap().step);
        steps.any(|step| matches!(step, Step::Checkpoint(_)))
    };
    let mut seq = 0;
    let mut load = |c: &mut Cluster, node: u32| {
        seq += 1;
        let deadline = c.now + Nanos::from_secs(60);
        c.request(node, seq, 0, &seq.to_le_bytes(), deadline);
        c.pass(1);
    };
    for _ in 0..400 {
        if !has_checkpoint(&c) {
            load(&mut c, 0);
        }
    }
    assert!(has_checkpoint(&c));
    // The rest of the checkpoint is made after the primary has changed.
    c.disks.get_mut(&2).unwrap().held = true;
    c.kill(0);
    c.shard(KEY).backups.retain(|n| *n != NodeId(0));
    c.promote(KEY, 1);
    c.publish();
    c.pass(300);
    c.disks.get_mut(&2).unwrap().held = false;
    for _ in 0..40 {
        load(&mut c, 1);
    }
    c.pass(100);
    let before = all(&c, 1);
    // Its journal is read.
    c.restart(2);
    c.publish();
    c.pass(600);
    assert_eq!((all(&c, 1), all(&c, 2)), (before, before));
}

#[test]
fn what_was_asked_before_a_restart_is_asked_again_and_answered_once() {
    let mut c = cluster(1);
    let deadline = c.now + Nanos::from_secs(60);
    let answers = Rc::new(RefCell::new(Vec::new()));
    let noted = answers.clone();
    let ask = move |name: &str, key: &[u8], to| TimerChange {
        name: name.into(),
        key: key.to_vec(),
        set: Some(TimerSet {
            when: When::Answered(Box::new(Outbound { to, deadline })),
            payload: b"asked".to_vec(),
        }),
    };
    c.handler = Box::new(move |_, invocation, state| {
        let mut effects = count_and_forward(0, invocation, state)?;
        if invocation.answer.is_some() {
            noted.borrow_mut().push(invocation.timer.clone().unwrap());
        } else if invocation.payload != b"asked" {
            let key = &invocation.key;
            let itself = Destination::Service {
                service: "count".into(),
                key: key.clone(),
            };
            let http = Destination::Http(HttpRequest {
                method: HttpMethod::Get,
                url: "http://server.example/".into(),
                headers: Vec::new(),
            });
            effects.timers = vec![ask("itself", key, itself), ask("http", key, http)];
        }
        Ok(effects)
    });
    request(&mut c, 0, 1);
    c.pass(200);
    let (_, first) = c.http.pop().unwrap();
    restart_primary(&mut c);
    let (_, again) = c.http.pop().unwrap();
    assert_eq!(first.idempotency_key, again.idempotency_key);
    let answer = Answer {
        outcome: Outcome::Done,
        status: 200,
    };
    let now = c.now;
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.on_http_answer(now, again.ticket, answer, Vec::new());
    c.pass(200);
    assert_eq!(*answers.borrow(), ["itself", "http"]);
    restart_primary(&mut c);
    c.pass(1_000);
    assert_eq!((answers.borrow().len(), c.http.len()), (2, 0));
    assert_eq!(c.report(0, KEY).timers, 0);
}

/// As of a node whose shards have all gone elsewhere. The driver checks the numbers.
#[test]
fn a_journal_whose_records_are_all_deleted_goes_on_with_the_next_number() {
    let mut c = cluster(1);
    request(&mut c, 0, 1);
    c.pass(20);
    let last = *c.disks[&0].records.keys().next_back().unwrap();
    c.kill(0);
    let plan = c.shard(KEY);
    plan.view += 1;
    plan.era = plan.view;
    c.start(0, 2);
    c.promote(KEY, 0);
    c.shard(KEY).fenced = true;
    c.disks.get_mut(&0).unwrap().records.clear();
    c.start(0, 3);
    c.publish();
    c.pass(600);
    request(&mut c, 0, 2);
    c.pass(20);
    assert_eq!(c.outcomes(2), [Outcome::Done]);
    assert!(c.disks[&0].records.keys().all(|number| *number > last));
}
