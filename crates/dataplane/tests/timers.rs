//! Timers: a service's requests to itself are handled once, at their time, wherever its shard is.

use crate::common::manifests::{ONE, PAIR};
use crate::common::{Cluster, count_and_forward, shard};
use e3_collections::{State, Txn};
use e3_invocation::{Effects, HandlerError, Invocation};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{Nanos, NodeId, ServiceId, Timestamp, Via};
use e3_wire::entry::Outcome;
use std::cell::RefCell;
use std::rc::Rc;

/// What handlers did: the time by their clock, name and payload of the timer.
type Fired = Rc<RefCell<Vec<(Timestamp, String, Vec<u8>)>>>;

fn set(name: &str, key: &[u8], when: When, payload: &[u8]) -> TimerChange {
    TimerChange {
        name: name.into(),
        key: key.to_vec(),
        set: Some(TimerSet {
            when,
            payload: payload.to_vec(),
        }),
    }
}

fn cancel(name: &str, key: &[u8]) -> TimerChange {
    TimerChange {
        name: name.into(),
        key: key.to_vec(),
        set: None,
    }
}

fn at(c: &Cluster, ms: u64) -> When {
    When::At(c.now + Nanos::from_millis(ms))
}

/// Counts a timer's request under its name, in collection 0.
fn count_timer(invocation: &Invocation, state: &mut State) -> Effects {
    let mut txn = Txn::new();
    txn.begin(invocation.slot.0);
    let name = invocation.timer.clone().unwrap_or_default();
    txn.counter_add(state, 0, name.as_bytes(), 1).unwrap();
    let writes = txn.finish();
    state.apply(&writes).unwrap();
    Effects {
        writes,
        ..Effects::default()
    }
}

/// Timers are counted and noted. Each request changes timers as `changes` says of its number.
fn handle(c: &mut Cluster, changes: impl Fn(u64) -> Vec<TimerChange> + 'static) -> Fired {
    let fired = Fired::default();
    let noted = fired.clone();
    c.handler = Box::new(move |_, invocation, state| match invocation.id.via {
        Via::Timer => {
            let name = invocation.timer.clone().unwrap();
            let payload = invocation.payload.clone();
            noted.borrow_mut().push((invocation.now, name, payload));
            Ok(count_timer(invocation, state))
        }
        _ => {
            let mut effects = count_and_forward(0, invocation, state)?;
            effects.timers = changes(invocation.id.request.seq);
            Ok(effects)
        }
    });
    fired
}

fn request(c: &mut Cluster, node: u32, seq: u64) {
    let deadline = c.now + Nanos::from_secs(50);
    c.request(node, seq, 0, b"k", deadline);
}

fn counted(c: &Cluster, node: u32, name: &str) -> i64 {
    let state = c.nodes[&node].worker.state(shard(0, 0)).unwrap();
    state.borrow().counter_get(0, name.as_bytes())
}

fn timers(c: &Cluster, node: u32) -> u64 {
    c.report(node, shard(0, 0)).timers
}

#[test]
fn a_timer_fires_once_at_its_time() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let due = c.now + Nanos::from_millis(300);
    let fired = handle(&mut c, move |_| {
        vec![set("t", b"k", When::At(due), b"later")]
    });
    request(&mut c, 0, 1);
    c.pass(250);
    assert_eq!((timers(&c, 0), timers(&c, 1)), (1, 1));
    assert_eq!(fired.borrow().len(), 0, "not before its time");
    c.pass(2_000);
    let expected = [(due, "t".to_string(), b"later".to_vec())];
    assert_eq!(*fired.borrow(), expected);
    for node in [0, 1] {
        assert_eq!((counted(&c, node, "t"), timers(&c, node)), (1, 0));
    }
    assert_eq!(c.report(0, shard(0, 0)).commit, 2);
}

#[test]
fn a_timer_of_the_past_fires_at_once_and_one_of_a_year_ahead_is_kept() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let (past, year) = (at(&c, 0), at(&c, 365 * 24 * 3_600_000));
    let fired = handle(&mut c, move |_| {
        vec![
            set("past", b"k", past.clone(), b""),
            set("year", b"k", year.clone(), b""),
        ]
    });
    request(&mut c, 0, 1);
    c.pass(50);
    assert_eq!(fired.borrow().len(), 1);
    c.pass(1_000);
    assert_eq!((fired.borrow().len(), timers(&c, 0)), (1, 1));
}

#[test]
fn what_is_set_again_is_replaced_and_what_is_cancelled_does_not_fire() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let (soon, later) = (at(&c, 200), at(&c, 400));
    let fired = handle(&mut c, move |seq| match seq {
        1 => vec![
            set("a", b"k", soon.clone(), b"1"),
            set("b", b"k", soon.clone(), b"1"),
        ],
        2 => vec![set("a", b"k", later.clone(), b"2"), cancel("b", b"k")],
        _ => vec![cancel("of nothing", b"k")],
    });
    for seq in 1..=3 {
        request(&mut c, 0, seq);
    }
    c.pass(300);
    assert_eq!(
        (fired.borrow().len(), timers(&c, 0), timers(&c, 1)),
        (0, 1, 1)
    );
    c.pass(300);
    let names: Vec<_> = fired
        .borrow()
        .iter()
        .map(|f| (f.1.clone(), f.2.clone()))
        .collect();
    assert_eq!(names, [("a".to_string(), b"2".to_vec())]);
}

#[test]
fn what_a_handler_before_it_cancels_does_not_fire() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let due = at(&c, 100);
    let fired = handle(&mut c, move |seq| match seq {
        1 => vec![set("t", b"k", due.clone(), b"")],
        _ => vec![cancel("t", b"k")],
    });
    request(&mut c, 0, 1);
    c.pass(50);
    // The timer becomes due while the executor has the request that cancels it.
    c.nodes.get_mut(&0).unwrap().held = true;
    request(&mut c, 0, 2);
    c.pass(200);
    c.nodes.get_mut(&0).unwrap().held = false;
    c.pass(200);
    assert_eq!((fired.borrow().len(), timers(&c, 0)), (0, 0));
}

#[test]
fn who_takes_over_fires_what_is_due_once() {
    for due_ms in [50, 2_000] {
        let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
        let due = at(&c, due_ms);
        let fired = handle(&mut c, move |_| vec![set("t", b"k", due.clone(), b"")]);
        request(&mut c, 0, 1);
        c.pass(20);
        // It is due while nobody serves the shard, or later.
        c.kill(0);
        c.pass(500);
        c.promote(shard(0, 0), 1);
        c.publish();
        c.pass(3_000);
        assert_eq!(fired.borrow().len(), 1, "due after {due_ms} ms");
        assert_eq!((counted(&c, 1, "t"), timers(&c, 1)), (1, 0));
    }
}

#[test]
fn an_entry_that_the_successor_has_fires_no_second_time() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let due = at(&c, 100);
    let fired = handle(&mut c, move |_| vec![set("t", b"k", due.clone(), b"")]);
    request(&mut c, 0, 1);
    // The backup has the entry in which the timer fired; its primary dies before it hears of it.
    c.pass(50);
    c.cut.insert((1, 0));
    c.pass(60);
    assert_eq!((fired.borrow().len(), timers(&c, 1)), (1, 0));
    c.kill(0);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(2_000);
    assert_eq!((fired.borrow().len(), counted(&c, 1, "t")), (1, 1));
}

#[test]
fn who_joins_gets_the_timers_as_they_are_while_they_change() {
    const TIMERS: u64 = 600;
    let mut c = Cluster::new(ONE, 3, |_| vec![0]);
    let (base, name) = (c.now, |n: u64| format!("t{n:04}"));
    let payload = vec![1; 500];
    let when = move |ms| When::At(base + Nanos::from_millis(ms));
    let fired = handle(&mut c, move |seq| match seq {
        n if n <= TIMERS => vec![set(&name(n), b"k", when(8_000), &payload)],
        // While the snapshot is sent: some are cancelled, some are set again, one at each end.
        n if n % 3 == 0 => vec![cancel(&name(n - TIMERS), b"k"), cancel(&name(1), b"k")],
        n if n % 3 == 1 => vec![set(&name(n - TIMERS), b"k", when(8_500), b"new")],
        n => vec![set(&format!("n{n}"), b"k", when(8_500), b"more")],
    });
    for seq in 1..=TIMERS {
        request(&mut c, 0, seq);
    }
    c.pass(300);
    assert_eq!(timers(&c, 0), TIMERS);
    c.narrow = Some((1, 4_000));
    let plan = c.shard(shard(0, 0));
    plan.view += 1;
    plan.joining = vec![NodeId(1)];
    c.publish();
    for seq in TIMERS + 1..=2 * TIMERS {
        request(&mut c, 0, seq);
        c.pass(1);
    }
    c.narrow = None;
    c.pass(1_500);
    let expected = timers(&c, 0);
    assert_eq!(timers(&c, 1), expected);
    c.promote(shard(0, 0), 1);
    c.shard(shard(0, 0)).joining.clear();
    c.kill(0);
    c.publish();
    c.pass(8_000);
    assert_eq!((fired.borrow().len() as u64, timers(&c, 1)), (expected, 0));
    let mut names: Vec<String> = fired.borrow().iter().map(|f| f.1.clone()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len() as u64, expected, "each once");
}

#[test]
fn a_timer_that_fails_is_a_dead_letter_and_can_be_replayed() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let due = at(&c, 100);
    handle(&mut c, move |_| vec![set("t", b"k", due.clone(), b"p")]);
    request(&mut c, 0, 1);
    c.pass(50);
    let attempts = Rc::new(RefCell::new(0));
    let counted_attempts = attempts.clone();
    c.handler = Box::new(move |_, _, _| {
        *counted_attempts.borrow_mut() += 1;
        Err(HandlerError::Code(1))
    });
    c.pass(500);
    assert_eq!(*attempts.borrow(), c.plan.app.spec.attempts);
    assert_eq!(timers(&c, 0), 0);
    let letters = c.read_letters(0, shard(0, 0)).letters;
    let (id, letter) = &letters[0];
    assert_eq!((id.via, letter.timer.as_str()), (Via::Timer, "t"));
    assert_eq!(
        (letter.outcome, letter.payload.as_slice()),
        (Outcome::Failed, &b"p"[..])
    );
    let fired = handle(&mut c, |_| Vec::new());
    c.replay_first(0, shard(0, 0), 7);
    assert_eq!(c.outcomes(7), [Outcome::Done]);
    assert_eq!(fired.borrow()[0].1, "t");
    assert_eq!(c.report(1, shard(0, 0)).dead_letters, 0);
}

#[test]
fn a_cron_expression_repeats_after_failures_and_leaves_out_what_was_missed() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let fired = handle(&mut c, |_| {
        let every_minute = When::Cron("* * * * *".parse().unwrap());
        vec![set("t", b"k", every_minute, b"")]
    });
    request(&mut c, 0, 1);
    c.pass(125_000);
    let minutes = |fired: &Fired| -> Vec<u64> {
        let fired = fired.borrow();
        fired
            .iter()
            .map(|f| f.0.0 % 60_000_000_000 / 1_000_000)
            .collect()
    };
    assert_eq!(minutes(&fired), [0, 0], "each on its minute");
    // Nobody serves for five minutes.
    c.kill(0);
    c.pass(300_000);
    assert_eq!(fired.borrow().len(), 2);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(1_000);
    assert_eq!(fired.borrow().len(), 3, "once for all that were missed");
    c.handler = Box::new(|_, _, _| Err(HandlerError::Code(1)));
    c.pass(60_000);
    assert_eq!(c.report(1, shard(0, 0)).dead_letters, 1);
    assert_eq!(timers(&c, 1), 1);
    let fired = handle(&mut c, |_| Vec::new());
    c.pass(60_000);
    assert_eq!(minutes(&fired), [0]);
}

#[test]
fn a_handler_may_cancel_and_set_its_own_timer() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let runs = Rc::new(RefCell::new(0));
    let counted_runs = runs.clone();
    c.handler = Box::new(move |_, invocation, state| {
        let mut effects = Effects::default();
        if invocation.id.via == Via::Timer {
            effects = count_timer(invocation, state);
            *counted_runs.borrow_mut() += 1;
        }
        let again = invocation.now + Nanos::from_millis(100);
        effects.timers = match *counted_runs.borrow() {
            3 => vec![cancel("t", b"k")],
            _ => vec![set("t", b"k", When::At(again), b"")],
        };
        Ok(effects)
    });
    request(&mut c, 0, 1);
    c.pass(2_000);
    assert_eq!((*runs.borrow(), timers(&c, 0), timers(&c, 1)), (3, 0, 0));
    assert_eq!(counted(&c, 1, "t"), 3);
}

#[test]
fn what_a_timer_sends_takes_effect_once_and_its_replies_go_nowhere() {
    let mut c = Cluster::new(PAIR, 4, |key| match key.service.0 {
        0 => vec![0, 1],
        _ => vec![2],
    });
    let due = at(&c, 100);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let noted = seen.clone();
    c.handler = Box::new(move |service, invocation, state| {
        let is_front = service == ServiceId(0);
        let mut effects = count_and_forward(u16::from(is_front), invocation, state)?;
        if is_front && invocation.id.via == Via::Ingress {
            effects.timers = vec![set("t", b"k", due.clone(), b"")];
            effects.outputs.clear();
        }
        if !is_front {
            noted.borrow_mut().push(invocation.id);
        }
        Ok(effects)
    });
    request(&mut c, 0, 1);
    c.pass(50);
    // The message is lost with the node that sent it; its successor sends it again.
    c.cut.extend([(0, 2), (2, 0)]);
    c.pass(200);
    assert_eq!(seen.borrow().len(), 0);
    c.kill(0);
    c.pass(300);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(1_000);
    assert_eq!(seen.borrow().len(), 1);
    let request = seen.borrow()[0].request;
    assert_eq!(c.count(2, shard(1, 0), request.client, request.seq), 1);
    let report = c.report(1, shard(0, 0));
    assert_eq!((report.op, report.commit, report.queue), (2, 2, 0));
    assert_eq!(c.nodes[&1].worker.kept().open, 0, "nothing is kept of it");
    assert_eq!(c.replies.len(), 1, "of the request that set the timer");
}

#[test]
fn a_clock_that_was_ahead_lets_nothing_fire_early() {
    let mut c = Cluster::new(ONE, 3, |_| vec![0, 1]);
    // As far as leases allow.
    let ahead = Nanos::from_millis(450);
    c.nodes.get_mut(&0).unwrap().ahead = ahead;
    c.pass(500);
    let due = c.now + Nanos::from_millis(2_050);
    let fired = handle(&mut c, move |seq| match seq {
        1 => vec![set("t", b"k", When::At(due + ahead), b"")],
        _ => Vec::new(),
    });
    request(&mut c, 0, 1);
    c.pass(100);
    c.kill(0);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(2_300);
    assert_eq!(
        fired.borrow().len(),
        0,
        "by the clock of the new primary it is not due"
    );
    c.pass(200);
    let (now, ..) = fired.borrow()[0].clone();
    assert!(now >= due + ahead);
}

#[test]
fn due_timers_and_messages_take_turns() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let due = at(&c, 300);
    let fired = handle(&mut c, move |seq| match seq {
        n if n <= 200 => vec![set(&format!("t{n}"), b"k", due.clone(), b"")],
        _ => Vec::new(),
    });
    for seq in 1..=200 {
        request(&mut c, 0, seq);
    }
    c.pass(200);
    assert_eq!(timers(&c, 0), 200);
    // The executor is slow; there is more of both than it can do.
    c.nodes.get_mut(&0).unwrap().per_ms = 1;
    for seq in 201..=600 {
        request(&mut c, 0, seq);
    }
    c.pass(300);
    let (timers_done, requests_done) = (
        fired.borrow().len(),
        (201..=600)
            .filter(|seq| !c.outcomes(*seq).is_empty())
            .count(),
    );
    assert!(timers_done > 3, "{timers_done} timers");
    assert!(requests_done > 50, "{requests_done} requests");
    c.nodes.get_mut(&0).unwrap().per_ms = 1_000;
    c.pass(500);
    assert_eq!((fired.borrow().len(), timers(&c, 0)), (200, 0));
}

#[test]
fn timers_count_as_memory_of_the_service() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let later = at(&c, 3_600_000);
    handle(&mut c, move |seq| {
        let name = format!("t{seq}");
        vec![set(&name, b"k", later.clone(), &[0; 10_000])]
    });
    let before = c.report(0, shard(0, 0)).memory_bytes;
    for seq in 1..=100 {
        request(&mut c, 0, seq);
    }
    c.pass(300);
    for node in [0, 1] {
        let taken = c.report(node, shard(0, 0)).memory_bytes - before;
        assert!((1_000_000..1_200_000).contains(&taken), "{taken} bytes");
    }
}
