//! Timers that a manifest declares: they are set once, fire once at each of their times, and follow the manifest.

use crate::common::manifests::ONE;
use crate::common::{Cluster, shard};
use e3_collections::Txn;
use e3_invocation::{Effects, HandlerError};
use e3_model::document::parse_application;
use e3_model::pending::{Pending, PendingAsked};
use e3_model::{Nanos, NodeId, Slot, Timestamp, Via};
use std::cell::RefCell;
use std::rc::Rc;

/// What handlers did: the second of the run since the test began, name, key and payload of the timer.
type Fired = Rc<RefCell<Vec<(u64, String, String, String)>>>;

const BEGIN_S: u64 = 1_000_000;

/// An application with these timers, on nodes 0 and 1, its primary on node 0.
fn cluster(timers: &str) -> (Cluster, Fired) {
    let mut c = Cluster::new(&manifest(timers), 3, |_| vec![0, 1]);
    let fired = Fired::default();
    let noted = fired.clone();
    c.handler = Box::new(move |_, invocation, state| {
        assert_eq!(invocation.id.via, Via::Timer);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let name = invocation.timer.clone().unwrap();
        let at = invocation.now.since(Timestamp::ZERO).as_secs() - BEGIN_S;
        let (key, payload) = (text(&invocation.key), text(&invocation.payload));
        noted.borrow_mut().push((at, name.clone(), key, payload));
        if name.starts_with("fail") {
            return Err(HandlerError::Code(1));
        }
        let mut txn = Txn::new();
        txn.begin(invocation.slot.0);
        txn.counter_add(state, 0, name.as_bytes(), 1).unwrap();
        let writes = txn.finish();
        state.apply(&writes).unwrap();
        Ok(Effects {
            writes,
            ..Effects::default()
        })
    });
    (c, fired)
}

fn manifest(timers: &str) -> String {
    ONE.replace(
        "      stateful",
        &format!("      timers: [{timers}]\n      stateful"),
    )
}

/// The next version of the application declares these timers, and has started.
fn redeploy(c: &mut Cluster, timers: &str) {
    c.plan.app = parse_application("test.yaml", &manifest(timers))
        .unwrap()
        .into();
    c.plan.code_version += 1;
    c.publish();
    c.pass(50);
}

fn times(fired: &Fired, name: &str) -> Vec<u64> {
    let fired = fired.borrow();
    let of = fired.iter().filter(|f| f.1 == name);
    of.map(|f| f.0).collect()
}

/// Name, how it repeats, and the second at which it is due.
fn pending(c: &mut Cluster, node: u32) -> Vec<(String, String, u64)> {
    let worker = &c.nodes[&node].worker;
    let asked = PendingAsked {
        number: 1,
        shards: vec![shard(0, 0)],
    };
    let all = worker.pending(&asked, |_| None).shards;
    let first = all.into_iter().flat_map(|shard| shard.first);
    let of = |p: Pending| {
        let due = p.due_unix_ms.unwrap() / 1_000 - BEGIN_S;
        (p.name, p.repeats.unwrap_or_default(), due)
    };
    first.map(of).collect()
}

fn op(c: &Cluster, node: u32) -> u64 {
    c.report(node, shard(0, 0)).op
}

#[test]
fn what_a_manifest_declares_fires_at_its_times_with_its_key_and_payload() {
    let (mut c, fired) = cluster(
        "{name: sweep, every: 7s, key: all, payload: old}, {name: minute, cron: '* * * * *'}",
    );
    assert_eq!(
        pending(&mut c, 0),
        [
            ("sweep".into(), "every 7s".into(), 6),
            ("minute".into(), "* * * * *".into(), 20)
        ]
    );
    c.pass(30_000);
    // 1,000,000 s is 40 s after a minute, and 1 s after a multiple of 7 s.
    assert_eq!(times(&fired, "sweep"), [6, 13, 20, 27]);
    assert_eq!(times(&fired, "minute"), [20]);
    let first = fired.borrow()[0].clone();
    assert_eq!(first, (6, "sweep".into(), "all".into(), "old".into()));
    let minute = fired.borrow().iter().find(|f| f.1 == "minute").cloned();
    let minute = minute.unwrap();
    assert_eq!((&*minute.2, &*minute.3), ("minute", ""));
}

#[test]
fn a_successor_fires_what_is_due_once_and_sets_nothing_again() {
    let (mut c, fired) = cluster("{name: sweep, every: 10s}, {name: minute, cron: '* * * * *'}");
    c.pass(5_000);
    let before = op(&c, 1);
    c.kill(0);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(3_000);
    assert_eq!(op(&c, 1), before, "what is set is as declared");
    c.pass(4_000);
    assert_eq!(times(&fired, "sweep"), [10]);
    // Nobody serves at the next two times.
    let plan = c.shard(shard(0, 0));
    (plan.view, plan.frozen) = (plan.view + 1, true);
    c.publish();
    c.pass(25_000);
    assert_eq!(times(&fired, "sweep"), [10]);
    let plan = c.shard(shard(0, 0));
    (plan.view, plan.frozen) = (plan.view + 1, false);
    c.publish();
    c.pass(10_000);
    assert_eq!(times(&fired, "sweep"), [10, 37, 40], "missed ones are one");
    assert_eq!(times(&fired, "minute"), [37]);
}

#[test]
fn the_entry_that_a_successor_has_fires_no_second_time() {
    let (mut c, fired) = cluster("{name: sweep, every: 10s}");
    c.pass(9_400);
    // The backup has the entry in which it fired; the primary dies before it sets the next time.
    c.cut.insert((1, 0));
    let handled = op(&c, 1);
    while op(&c, 1) == handled {
        c.pass(1);
    }
    assert_eq!((fired.borrow().len(), op(&c, 1)), (1, handled + 1));
    c.kill(0);
    c.cut.clear();
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(12_000);
    assert_eq!(times(&fired, "sweep"), [10, 20]);
}

#[test]
fn an_update_replaces_what_changed_cancels_what_is_gone_and_keeps_the_rest() {
    let (mut c, fired) = cluster(
        "{name: same, every: 10s, payload: p}, {name: other, every: 10s}, {name: gone, every: 10s}",
    );
    c.pass(1_000);
    let before = op(&c, 0);
    redeploy(
        &mut c,
        "{name: same, every: 10s, payload: p}, {name: other, every: 15s}, {name: new, every: 10s}",
    );
    let mut names = pending(&mut c, 0);
    names.sort();
    let expected = [
        ("new", "every 10s", 10),
        ("other", "every 15s", 5),
        ("same", "every 10s", 10),
    ];
    let expected = expected.map(|(name, repeats, due)| (name.into(), repeats.into(), due));
    assert_eq!(names, expected);
    assert_eq!(op(&c, 0), before + 3, "an entry for each slot that changes");
    c.pass(19_500);
    assert_eq!(times(&fired, "same"), [10, 20]);
    assert_eq!(times(&fired, "other"), [5, 20]);
    assert_eq!(times(&fired, "gone"), [0u64; 0]);
    redeploy(&mut c, "");
    assert_eq!(pending(&mut c, 0), []);
    assert_eq!(c.report(1, shard(0, 0)).timers, 0);
}

#[test]
fn a_version_that_has_not_started_everywhere_changes_no_timer() {
    let (mut c, fired) = cluster("{name: sweep, every: 10s}");
    c.plan.proven = Some(c.plan.wanted());
    redeploy(&mut c, "{name: sweep, every: 3s}");
    c.pass(10_000);
    assert_eq!(times(&fired, "sweep"), [10]);
    c.plan.proven = None;
    c.publish();
    c.pass(5_000);
    assert_eq!(times(&fired, "sweep"), [10, 11, 14]);
}

#[test]
fn a_timer_that_fails_goes_on_with_its_next_time() {
    let (mut c, fired) = cluster("{name: fails, every: 10s}");
    c.pass(21_000);
    assert_eq!(times(&fired, "fails"), [10, 10, 10, 20, 20, 20]);
    let letters = c.read_letters(0, shard(0, 0)).letters;
    let names: Vec<&str> = letters.iter().map(|(_, l)| l.timer.as_str()).collect();
    assert_eq!(names, ["fails", "fails"]);
}

#[test]
fn each_timer_is_set_at_the_shard_of_its_key() {
    let timers: Vec<String> = (0..8)
        .map(|n| format!("{{name: t{n}, every: 10s}}"))
        .collect();
    let text = manifest(&timers.join(", ")).replace("stateful", "shards: 3\n      stateful");
    let mut c = Cluster::new(&text, 2, |_| vec![0, 1]);
    c.pass(100);
    let mut all = 0;
    for number in 0..3 {
        let mine = (0..8).filter(|n| {
            let slot = Slot::of(format!("t{n}").as_bytes());
            slot.shard(3).0 == number
        });
        let set = c.report(0, shard(0, number)).timers;
        assert_eq!(set, mine.count() as u64);
        all += set;
    }
    assert_eq!(all, 8);
}

#[test]
fn a_clock_that_was_ahead_makes_no_time_fire_twice() {
    let (mut c, fired) = cluster("{name: sweep, every: 10s}");
    c.nodes.get_mut(&0).unwrap().ahead = Nanos::from_millis(450);
    c.pass(9_700);
    assert_eq!(fired.borrow().len(), 1, "early by what clocks may differ");
    c.kill(0);
    let plan = c.shard(shard(0, 0));
    plan.joining = vec![NodeId(2)];
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(15_000);
    assert_eq!(times(&fired, "sweep"), [10, 20]);
}
