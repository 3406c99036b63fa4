//! The number of shards of a service changes while it serves: nothing is lost, nothing is done twice.

use crate::common::topics::{audit, publication};
use crate::common::{APP, Cluster, Handler, count_and_forward};
use e3_invocation::Effects;
use e3_model::application::Subscription;
use e3_model::outbound::{Answer, Destination, HttpMethod, HttpRequest, Outbound};
use e3_model::plan::{NodeEvent, ShardPlan};
use e3_model::reshard::{Resharded, Split};
use e3_model::service_timer::ServiceTimer;
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{Nanos, ServiceId, ShardId, ShardKey, Slot};
use e3_wire::entry::Outcome;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

const SERVICE: ServiceId = ServiceId(1);

fn manifest(durability: &str) -> String {
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
fn cluster(durability: &str) -> Cluster {
    Cluster::new(&manifest(durability), 3, |key| match key.service {
        SERVICE => vec![1, 0],
        _ => vec![0, 1],
    })
}

fn request(c: &mut Cluster, seq: u64) {
    let deadline = c.now + Nanos::from_secs(60);
    c.request(2, seq, 0, &seq.to_le_bytes(), deadline);
}

/// The shards of the service stop.
fn freeze(c: &mut Cluster) {
    for shard in c.plan.shards.iter_mut().filter(|s| s.service == SERVICE) {
        shard.view += 1;
        (shard.frozen, shard.quiet) = (true, true);
    }
    c.publish();
}

/// Every primary of the service has confirmed that it stopped.
fn have_stopped(c: &mut Cluster) -> bool {
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

fn wait_until_stopped(c: &mut Cluster) {
    for _ in 0..500 {
        if have_stopped(c) {
            return;
        }
        c.pass(1);
    }
    panic!("a primary does not stop");
}

/// The plan has the shards after the change.
fn switch(c: &mut Cluster, after: u16) {
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

fn key_of(c: &Cluster, seq: u64) -> ShardKey {
    let shards = c.plan.app.spec.services[1].shards;
    ShardKey {
        app: APP,
        service: SERVICE,
        shard: Slot::of(&seq.to_le_bytes()).shard(shards),
    }
}

/// How often each request took effect in the service, on its primaries or their backups.
fn counts(c: &Cluster, requests: u64, at_backup: bool) -> BTreeMap<u64, i64> {
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
fn each_once(c: &Cluster, requests: u64) {
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

#[test]
fn a_backup_takes_over_a_shard_that_was_made_of_others() {
    let mut c = cluster("memory");
    for seq in 1..=40 {
        request(&mut c, seq);
    }
    c.pass(200);
    // Its node hears of the change only when it is to take over.
    freeze(&mut c);
    wait_until_stopped(&mut c);
    switch(&mut c, 4);
    c.version += 1;
    c.publish_to(1);
    c.kill(1);
    let keys: Vec<ShardKey> = c.plan.shards.iter().map(|s| c.plan.key(s)).collect();
    for key in keys {
        match key.service {
            SERVICE => c.promote(key, 0),
            _ => c.shard(key).backups.clear(),
        }
    }
    c.publish();
    c.pass(600);
    for seq in 1..=40 {
        let deadline = c.now + Nanos::from_secs(60);
        c.request(2, seq, 1, &seq.to_le_bytes(), deadline);
    }
    for seq in 41..=60 {
        request(&mut c, seq);
    }
    c.pass(300);
    let wrong = counts(&c, 60, false).into_iter().filter(|(_, n)| *n != 1);
    assert_eq!(wrong.collect::<Vec<_>>(), []);
}

/// Both nodes with copies lose power at a moment, and come back.
fn power_cut(c: &mut Cluster) {
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
            for seq in 1..=80 {
                let deadline = c.now + Nanos::from_secs(60);
                c.request(2, seq, 1, &seq.to_le_bytes(), deadline);
            }
            c.pass(500);
            let wrong = counts(&c, 80, false).into_iter().filter(|(_, n)| *n != 1);
            let wrong: Vec<_> = wrong.collect();
            assert_eq!(wrong, [], "to {after} shards, moment {moment}");
        }
    }
}

/// Who is asked for a request: an HTTP server, or the front.
fn asked(seq: u64) -> Destination {
    match seq % 2 {
        0 => Destination::Http(HttpRequest {
            method: HttpMethod::Get,
            url: "http://server.example/".into(),
            headers: Vec::new(),
        }),
        _ => Destination::Service {
            service: "front".into(),
            key: seq.to_le_bytes().to_vec(),
        },
    }
}

/// The back asks for each message; the payloads of the answers that it handled are noted.
fn handle_asks(c: &mut Cluster) -> Rc<RefCell<Vec<u64>>> {
    let answers = Rc::new(RefCell::new(Vec::new()));
    let noted = answers.clone();
    let deadline = c.now + Nanos::from_secs(60);
    c.handler = Box::new(move |service, invocation, state| {
        let seq = u64::from_le_bytes(invocation.key.as_slice().try_into().unwrap());
        if let Some(answer) = invocation.answer {
            assert_eq!(answer.outcome, Outcome::Done);
            noted.borrow_mut().push(seq);
            return count_and_forward(0, invocation, state);
        }
        let is_asked = invocation.payload == b"asked";
        let channels = u16::from(service != SERVICE && !is_asked);
        let mut effects = count_and_forward(channels, invocation, state)?;
        if service == SERVICE {
            let to = asked(seq);
            effects.timers.push(TimerChange {
                name: "ask".into(),
                key: invocation.key.clone(),
                set: Some(TimerSet {
                    when: When::Answered(Box::new(Outbound { to, deadline })),
                    payload: b"asked".to_vec(),
                }),
            });
        }
        Ok(effects)
    });
    answers
}

/// The HTTP server answers all that it was asked; gives the idempotency keys.
fn answer_http(c: &mut Cluster) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (node, ask) in std::mem::take(&mut c.http) {
        let now = c.clock(node);
        let answer = Answer {
            outcome: Outcome::Done,
            status: 200,
        };
        let worker = &mut c.nodes.get_mut(&node).unwrap().worker;
        worker.on_http_answer(now, ask.ticket, answer, Vec::new());
        assert!(keys.insert(ask.idempotency_key), "asked by two shards");
    }
    keys
}

#[test]
fn outbound_requests_follow_their_slots_and_are_answered_once() {
    for (durability, after) in [("memory", 6), ("disk", 6), ("memory", 1), ("disk", 1)] {
        let mut c = cluster(durability);
        let answers = handle_asks(&mut c);
        for seq in 1..=40 {
            request(&mut c, seq);
        }
        c.pass(100);
        assert_eq!(answers.borrow().len(), 20, "the front has answered");
        let asked: BTreeSet<String> = c.http.drain(..).map(|(_, a)| a.idempotency_key).collect();
        freeze(&mut c);
        // These reach the front, which goes on, and the back when it is another.
        for seq in 41..=60 {
            request(&mut c, seq);
        }
        wait_until_stopped(&mut c);
        switch(&mut c, after);
        c.publish();
        c.pass(300);
        let again = answer_http(&mut c);
        assert_eq!((asked.len(), again.len()), (20, 30), "{durability}");
        assert!(again.is_superset(&asked), "under the same identities");
        c.pass(1_000);
        each_once(&c, 60);
        let mut answered = answers.borrow().clone();
        answered.sort();
        assert_eq!(answered, Vec::from_iter(1..=60), "{durability}, {after}");
        assert_eq!(c.http.len(), 0);
    }
}

/// The back publishes each request's number; an application on node 2 notes what it gets.
fn handle_publications(c: &mut Cluster) -> Rc<RefCell<Vec<u64>>> {
    let handled = Rc::new(RefCell::new(Vec::new()));
    let noted = handled.clone();
    let subscriber: Handler = Box::new(move |_, invocation, _| {
        let seq = u64::from_le_bytes(invocation.payload[..].try_into().unwrap());
        noted.borrow_mut().push(seq);
        Ok(Effects::default())
    });
    c.other = Some((audit("chain", 3, &[2]), subscriber));
    c.handler = Box::new(|service, invocation, state| {
        let channels = u16::from(service != SERVICE);
        let mut effects = count_and_forward(channels, invocation, state)?;
        if service == SERVICE {
            let change = publication("orders", invocation, &invocation.key);
            effects.timers.push(change);
        }
        Ok(effects)
    });
    c.publish();
    c.pass(500);
    handled
}

#[test]
fn publications_follow_their_slots_and_arrive_once() {
    for (durability, after) in [("memory", 6), ("disk", 6), ("memory", 1), ("disk", 1)] {
        let mut c = cluster(durability);
        let handled = handle_publications(&mut c);
        c.nodes.get_mut(&2).unwrap().held = true;
        for seq in 1..=40 {
            request(&mut c, seq);
        }
        c.pass(100);
        freeze(&mut c);
        wait_until_stopped(&mut c);
        switch(&mut c, after);
        c.publish();
        for seq in 41..=60 {
            request(&mut c, seq);
        }
        c.pass(300);
        c.nodes.get_mut(&2).unwrap().held = false;
        c.pass(5_000);
        each_once(&c, 60);
        let mut handled = handled.borrow().clone();
        handled.sort();
        assert_eq!(handled, Vec::from_iter(1..=60), "{durability}, {after}");
        let open: u64 = [0, 1].map(|node| timers(&c, node)).iter().sum();
        assert_eq!(open, 0, "{durability}, {after}");
    }
}

/// The front is subscribed too; what it gets is noted.
fn subscribe_the_front(c: &mut Cluster) -> Rc<RefCell<Vec<u64>>> {
    let app = Arc::make_mut(&mut c.plan.app);
    app.spec.subscriptions.push(Subscription {
        topic: "orders".into(),
        service: "front".into(),
    });
    let handled = Rc::new(RefCell::new(Vec::new()));
    let noted = handled.clone();
    let mut inner = std::mem::replace(&mut c.handler, Box::new(|_, _, _| unreachable!()));
    c.handler = Box::new(move |service, invocation, state| {
        if invocation.topic.is_none() {
            return inner(service, invocation, state);
        }
        let seq = u64::from_le_bytes(invocation.payload[..].try_into().unwrap());
        noted.borrow_mut().push(seq);
        count_and_forward(0, invocation, state)
    });
    c.publish();
    handled
}

#[test]
fn who_has_confirmed_a_publication_follows_its_slot() {
    for (durability, after) in [("memory", 6), ("disk", 1)] {
        let mut c = cluster(durability);
        let late = handle_publications(&mut c);
        let early = subscribe_the_front(&mut c);
        c.nodes.get_mut(&2).unwrap().held = true;
        for seq in 1..=10 {
            request(&mut c, seq);
        }
        // The front forgets what it has confirmed, with the next that it handles.
        c.pass_coarsely(400);
        request(&mut c, 11);
        c.pass_coarsely(1);
        freeze(&mut c);
        wait_until_stopped(&mut c);
        switch(&mut c, after);
        c.publish();
        c.pass(3_000);
        c.nodes.get_mut(&2).unwrap().held = false;
        c.pass(10_000);
        for handled in [&early, &late] {
            let mut handled = handled.borrow().clone();
            handled.sort();
            assert_eq!(handled, Vec::from_iter(1..=11), "{durability}, {after}");
        }
        let open: u64 = [0, 1].map(|node| timers(&c, node)).iter().sum();
        assert_eq!(open, 0, "{durability}, {after}");
    }
}

fn timers(c: &Cluster, node: u32) -> u64 {
    let report = c.nodes[&node].worker.report();
    report.instances.iter().map(|i| i.timers).sum()
}

#[test]
fn timers_of_the_manifest_follow_their_keys_and_are_not_set_again() {
    let mut c = cluster("memory");
    let timer = |n: usize| ServiceTimer {
        name: format!("t{n}"),
        every: Some(Nanos::from_secs(10)),
        cron: None,
        key: None,
        payload: None,
    };
    Arc::make_mut(&mut c.plan.app).spec.services[1].timers = (0..8).map(timer).collect();
    c.publish();
    let fired = Rc::new(RefCell::new(Vec::new()));
    let noted = fired.clone();
    c.handler = Box::new(move |_, invocation, _| {
        noted.borrow_mut().extend(invocation.timer.clone());
        Ok(Effects::default())
    });
    c.pass(1_000);
    assert_eq!(timers(&c, 1), 8);
    for after in [6, 1, 2] {
        freeze(&mut c);
        wait_until_stopped(&mut c);
        switch(&mut c, after);
        let entries = op(&c);
        c.publish();
        c.pass(500);
        assert_eq!((timers(&c, 1), timers(&c, 0)), (8, 8));
        assert!(op(&c) <= entries, "{after} shards: nothing is set again");
    }
    // The test begins half a second after a multiple of ten seconds.
    c.pass(12_000);
    let mut names = fired.borrow().clone();
    names.sort();
    let expected: Vec<String> = (0..8).map(|n| format!("t{n}")).collect();
    assert_eq!(names, expected, "each once");
}

/// The last entry of the shards of the service.
fn op(c: &Cluster) -> u64 {
    let report = c.nodes[&1].worker.report();
    let all = report.instances.iter();
    let service = all.filter(|i| i.key.service == SERVICE);
    service.map(|i| i.op).max().unwrap()
}
