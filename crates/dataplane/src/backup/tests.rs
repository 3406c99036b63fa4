//! What comes from a primary is checked; what the node wrote down itself was.

use super::*;
use crate::check::tests::{CONFIG, NOW, app, place};
use crate::dedup::tests::entry;
use crate::limits::CLOCK_AHEAD_MAX;
use crate::limits::DEAD_LETTERS_MAX;
use crate::reach::ClockCheck;
use crate::shard::World;
use crate::transfer::Transfer;
use e3_model::timer::When;
use e3_model::{AppId, Format, MessageId, Nanos, RequestId, Slot, Via};
use e3_random::Random;
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::Outcome;
use e3_wire::timer::TimerName;
use std::collections::BTreeMap;

#[test]
fn only_what_a_primary_sends_is_checked() {
    let app = app();
    let (key, own) = place(&app, 1);
    let memory = app.service(key).resources.memory.0;
    let world = World {
        config: CONFIG,
        now: NOW,
        plan: Default::default(),
        apps: BTreeMap::from([(AppId(1), app)]),
        subscribers: Default::default(),
        leases: Default::default(),
        memory_full: None,
        recovered_at: Timestamp::ZERO,
        clock: ClockCheck::Right,
    };
    let context = world.context(AppId(1)).unwrap();
    let is_other = |of: &Vec<u8>| Slot::of(of).shard(3) != key.shard;
    let other = (0..99u8).map(|n| vec![n]).find(is_other).unwrap();
    let timer = |key: Vec<u8>| Timer {
        name: TimerName {
            key,
            name: "t".into(),
        },
        next: NOW,
        set_at: NOW,
        seq: 1,
        when: When::At(NOW),
        payload: Vec::new(),
    };
    let (own, other) = (timer(own), timer(other));
    let latest = NOW + CLOCK_AHEAD_MAX;
    let late = latest + Nanos(1);

    let primary = Checks::Primary(&context, key);
    assert!(primary.time(latest).is_ok() && primary.time(late).is_err());
    assert!(primary.timer(&own).is_ok() && primary.timer(&other).is_err());
    assert_eq!(primary.memory_max(), memory);
    for own_record in [Checks::Disk, Checks::Checkpoint] {
        assert!(own_record.time(late).is_ok() && own_record.timer(&other).is_ok());
        assert_eq!(own_record.memory_max(), u64::MAX);
    }
}

/// The entry of request `seq`, which becomes a dead letter, or replays the letter of another one.
fn letter_entry(op: u64, seq: u64, outcome: Option<Outcome>, replays: Option<MessageId>) -> Entry {
    let letter = |outcome| DeadLetter {
        at: NOW,
        outcome,
        reason: String::new(),
        key: Vec::new(),
        payload: vec![0; 1_000],
        timer: String::new(),
        answer: None,
        topic: None,
    };
    Entry {
        op,
        dead: outcome.map(letter),
        replays,
        ..Rc::unwrap_or_clone(entry(seq, Via::Ingress, NOW.0, 0))
    }
}

/// What a copy has of the dead letters that the primary has at the end: those come and go while the snapshot
/// is on its way.
fn letters_of_copy(seed: u64, format: Format) -> [Vec<(u64, Outcome)>; 2] {
    let mut random = Random::new(seed);
    let (mut primary, mut copy) = (Log::new(&[]), Log::new(&[]));
    let record = |log: &mut Log, entry: Entry| {
        log.record(entry);
        while log.trim(u64::MAX).is_some() {}
    };
    let count = DEAD_LETTERS_MAX as u64 - random.below(3);
    for seq in 1..=count {
        let entry = letter_entry(seq, seq, Some(Outcome::Failed), None);
        record(&mut primary, entry);
    }
    let mut backup = Backup::default();
    let mut take = |copy: &mut Log, item: &[u8]| {
        backup.take(&Checks::Disk, copy, item).unwrap();
    };
    let (mut transfer, begin) = Transfer::new(&primary, format, None);
    take(&mut copy, &begin.encode());
    let mut next = count + 1;
    while !transfer.is_done() {
        for _ in 0..random.below(4) {
            let op = primary.op + 1;
            let known = 1 + random.below(next - 1);
            let id = |seq| MessageId::ingress(RequestId { client: 1, seq });
            let entry = match random.below(4) {
                0 => letter_entry(op, next, None, Some(id(known))),
                1 => letter_entry(op, known, Some(Outcome::Unknown), None),
                2 => letter_entry(op, known, Some(Outcome::Expired), None),
                _ => letter_entry(op, next, Some(Outcome::Failed), None),
            };
            next += 1;
            take(&mut copy, &Replicated::encode_entry(&entry));
            record(&mut primary, entry);
        }
        transfer.make(&primary, |item| take(&mut copy, &item));
    }
    [primary, copy].map(|log| {
        let letters = log.dead_letters.iter();
        letters.map(|(id, l)| (id.request.seq, l.outcome)).collect()
    })
}

#[test]
fn dead_letters_that_come_and_go_during_a_snapshot_are_the_same_in_the_copy() {
    for seed in 0..50 {
        let [primary, copy] = letters_of_copy(seed, Format::LETTERS_OF_BEGINNING);
        assert!(primary.len() > 900, "seed {seed}");
        assert_eq!(primary, copy, "seed {seed}");
    }
    // Older releases cannot read a letter that has gone.
    let older = Format(Format::LETTERS_OF_BEGINNING.0 - 1);
    let differs = |seed: &u64| {
        let [primary, copy] = letters_of_copy(*seed, older);
        primary != copy
    };
    assert!((0..50).any(|seed| differs(&seed)));
}
