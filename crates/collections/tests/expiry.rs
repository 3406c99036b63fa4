//! Keys that expire, and the quota: random requests against a model of ordered maps with times, while
//! copies follow by batches, by snapshots under writes, and by whole snapshots.

use e3_collections::limits::EXPIRED_KEYS_MAX;
use e3_collections::{
    CollectionSpec, CommitError, Kind, PieceMax, Restore, State, Txn, TxnError, Walk, WriteBatch,
};
use e3_model::{Nanos, Timestamp};
use e3_testkit::{Random, seeds};
use std::collections::BTreeMap;

/// Two of each kind, the second with a time to live.
const KINDS: [Kind; 8] = [
    Kind::HashMap,
    Kind::HashMap,
    Kind::OrderedMap,
    Kind::OrderedMap,
    Kind::Array,
    Kind::Array,
    Kind::Counter,
    Kind::Counter,
];
const TTL: Nanos = Nanos(50);
const ALL: u64 = u64::MAX;
const ROOM: usize = usize::MAX;

fn specs() -> Vec<CollectionSpec> {
    let spec = |(at, kind): (usize, &Kind)| CollectionSpec {
        name: format!("c{at}"),
        kind: *kind,
        ttl: (at % 2 == 1).then_some(TTL),
    };
    KINDS.iter().enumerate().map(spec).collect()
}

#[derive(Clone, PartialEq, Debug)]
enum Content {
    Value(Vec<u8>),
    Items(Vec<Vec<u8>>),
    Count(i64),
}

/// What a handler must see.
#[derive(Clone, Default)]
struct Model {
    now: Timestamp,
    keys: BTreeMap<(u16, Vec<u8>), (Content, Timestamp)>,
}

impl Model {
    fn begin(&mut self, now: Timestamp) {
        self.now = now;
        self.keys.retain(|_, (_, expires)| *expires > now);
    }

    fn content(&self, at: &(u16, Vec<u8>)) -> Option<&Content> {
        self.keys.get(at).map(|(content, _)| content)
    }

    fn items(&self, at: &(u16, Vec<u8>)) -> Vec<Vec<u8>> {
        match self.content(at) {
            Some(Content::Items(items)) => items.clone(),
            _ => Vec::new(),
        }
    }

    /// A write by default.
    fn set(&mut self, at: (u16, Vec<u8>), content: Content) {
        let expires = match at.0 % 2 {
            0 => Timestamp::MAX,
            _ => self.now + TTL,
        };
        self.keys.insert(at, (content, expires));
    }

    fn set_items(&mut self, at: (u16, Vec<u8>), items: Vec<Vec<u8>>) {
        if items.is_empty() {
            drop(self.keys.remove(&at))
        } else {
            self.set(at, Content::Items(items))
        }
    }
}

fn step(random: &mut Random, txn: &mut Txn, state: &State, model: &mut Model) {
    let collection = random.below(8) as u16;
    let key = vec![random.below(12) as u8; 1 + random.index(3)];
    let len = random.index(20);
    let value = random.bytes(len);
    let at = (collection, key.clone());
    let there = model.content(&at).is_some();
    if random.below(8) == 0 {
        assert_eq!(txn.delete(state, collection, &key), Ok(there));
        model.keys.remove(&at);
        return;
    }
    match KINDS[usize::from(collection)] {
        Kind::HashMap | Kind::OrderedMap => match random.below(4) {
            0 => {
                txn.put(state, collection, &key, &value).unwrap();
                model.set(at, Content::Value(value));
            }
            1 => {
                let ttl = Nanos(1 + random.below(100));
                txn.put_for(state, collection, &key, &value, ttl).unwrap();
                let expires = model.now + ttl;
                model.keys.insert(at, (Content::Value(value), expires));
            }
            _ => {
                let got = txn.get(state, collection, &key).unwrap();
                let got = got.map(|v| Content::Value(v.to_vec()));
                assert_eq!(got.as_ref(), model.content(&at));
            }
        },
        Kind::Array => {
            let mut items = model.items(&at);
            assert_eq!(
                txn.array_len(state, collection, &key),
                Ok(items.len() as u64)
            );
            match random.below(4) {
                0 | 1 => {
                    txn.array_push(state, collection, &key, &value).unwrap();
                    items.push(value);
                    model.set_items(at, items);
                }
                2 => {
                    let popped = txn.array_pop_front(state, collection, &key);
                    assert_eq!(popped, Ok(!items.is_empty()));
                    if !items.is_empty() {
                        items.remove(0);
                        model.set_items(at, items);
                    }
                }
                _ => {
                    let index = random.below(3);
                    let put = txn.array_put(state, collection, &key, index, &value);
                    match items.get_mut(index as usize) {
                        None => {
                            let len = items.len() as u64;
                            assert_eq!(put, Err(TxnError::Index { index, len }));
                        }
                        Some(item) => {
                            *item = value;
                            model.set_items(at, items);
                        }
                    }
                }
            }
        }
        Kind::Counter => {
            let before = match model.content(&at) {
                Some(Content::Count(count)) => *count,
                _ => 0,
            };
            assert_eq!(txn.counter_get(state, collection, &key), Ok(before));
            if random.below(2) == 0 {
                assert_eq!(txn.counter_add(state, collection, &key, 3), Ok(before));
                model.set(at, Content::Count(before + 3));
            }
        }
    }
}

/// All that the state shows, beside what the model has.
fn check(state: &State, model: &Model, seed: u64) {
    for ((collection, key), (content, _)) in &model.keys {
        let (c, shown) = (*collection, content);
        match shown {
            Content::Value(value) => assert_eq!(state.get(c, key), Some(&**value), "seed {seed}"),
            Content::Items(items) => {
                assert_eq!(state.array_len(c, key), items.len() as u64, "seed {seed}");
                for (index, item) in (0..).zip(items) {
                    assert_eq!(state.array_get(c, key, index), Some(&**item), "seed {seed}");
                }
            }
            Content::Count(count) => assert_eq!(state.counter_get(c, key), *count, "seed {seed}"),
        }
    }
    for map in [0, 1, 2, 3u16] {
        let expected = model.keys.keys().filter(|(c, _)| *c == map).count();
        let shown = match map {
            0 | 1 => state.entries(map).count(),
            _ => state.range(map, b"", b"").count(),
        };
        assert_eq!(shown, expected, "seed {seed}: keys of collection {map}");
    }
}

/// A scan shows exactly what lives, the request's own writes included.
fn check_scan(txn: &mut Txn, state: &State, model: &Model, seed: u64) {
    for map in [2, 3u16] {
        let mut scanned = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            scanned.push((key.to_vec(), Content::Value(value.to_vec())));
            true
        };
        txn.scan(state, map, b"", b"", false, visit).unwrap();
        let living = model.keys.iter().filter(|((c, _), _)| *c == map);
        let living: Vec<_> = living
            .map(|((_, key), (content, _))| (key.clone(), content.clone()))
            .collect();
        assert_eq!(scanned, living, "seed {seed}");
    }
}

/// A copy by a snapshot that is made while requests go on.
struct Copying {
    restore: Restore,
    walk: Walk,
}

impl Copying {
    fn new() -> Copying {
        Copying {
            restore: Restore::new(&specs()),
            walk: Walk::default(),
        }
    }

    fn piece(&mut self, state: &State) {
        let max = PieceMax {
            bytes: 80,
            entries: 1,
        };
        if let Some(piece) = state.next_piece(&mut self.walk, max) {
            self.restore.accept(&piece).unwrap();
        }
    }
}

#[test]
fn random_requests_agree_with_a_model_with_times() {
    for seed in seeds(150) {
        let mut random = Random::new(seed);
        let (mut state, mut backup) = (State::new(&specs()), State::new(&specs()));
        let (mut model, mut txn) = (Model::default(), Txn::new());
        let mut copying = Copying::new();
        let mut now = Timestamp(1_000);
        for _ in 0..60 {
            now += Nanos(random.below(30));
            state.advance(now);
            model.begin(now);
            check(&state, &model, seed);
            let mut attempt = model.clone();
            let slot = random.below(4096) as u16;
            txn.begin(slot);
            for _ in 0..random.below(15) {
                step(&mut random, &mut txn, &state, &mut attempt);
            }
            check_scan(&mut txn, &state, &attempt, seed);
            let mut batch = txn.finish();
            if random.below(6) == 0 {
                continue; // aborted
            }
            let (before, growth) = (state.memory_bytes() as i64, state.growth_bytes(&batch));
            let mut written = State::new(&specs());
            copy_of(&state, &mut written);
            written.apply(&batch).unwrap();
            assert_eq!(
                written.memory_bytes() as i64 - before,
                growth,
                "seed {seed}"
            );
            let quota = before as u64 + random.below(300);
            let room = [0, 30, ROOM][random.index(3)];
            match state.commit(&mut batch, slot, quota, room) {
                Ok(()) => model = attempt,
                Err(CommitError::Full { .. }) => {
                    assert!(before as u64 + growth as u64 > quota, "seed {seed}");
                    continue;
                }
                Err(e) => panic!("seed {seed}: {e}"),
            }
            assert!(
                growth <= 0 || before as u64 + growth as u64 <= quota,
                "seed {seed}"
            );
            let sent = WriteBatch::from_bytes(batch.into_bytes()).unwrap();
            backup.apply(&sent).unwrap();
            copying.restore.apply(&sent).unwrap();
            if random.below(3) == 0 {
                copying.piece(&state);
            }
            if copying.walk.is_done() {
                let done = std::mem::replace(&mut copying, Copying::new());
                let mut copy = done.restore.finish();
                equal(&copy, &state, seed);
                copy.advance(now);
                check(&copy, &model, seed);
            }
        }
        equal(&backup, &state, seed);
        let mut whole = State::new(&specs());
        copy_of(&state, &mut whole);
        equal(&whole, &state, seed);
        whole.advance(now);
        check(&whole, &model, seed);
    }
}

fn copy_of(state: &State, copy: &mut State) {
    let mut copying = Copying::new();
    while !copying.walk.is_done() {
        copying.piece(state);
    }
    *copy = copying.restore.finish();
}

fn equal(copy: &State, state: &State, seed: u64) {
    assert_eq!(copy.digest(), state.digest(), "seed {seed}");
    assert_eq!(copy.memory_bytes(), state.memory_bytes(), "seed {seed}");
    assert_eq!(copy.next_expiry(), state.next_expiry(), "seed {seed}");
    assert_eq!(copy.expiring(), state.expiring(), "seed {seed}");
}

#[test]
fn what_has_expired_is_freed_in_bounded_steps() {
    let mut state = State::new(&specs());
    let mut txn = Txn::new();
    state.advance(Timestamp(5));
    for n in 0..1_000u32 {
        txn.begin(1);
        let key = n.to_be_bytes();
        txn.put_for(&state, 0, &key, b"value", Nanos(10)).unwrap();
        state.apply(&txn.finish()).unwrap();
    }
    state.advance(Timestamp(14));
    assert!(!state.has_expired());
    state.advance(Timestamp(15));
    assert_eq!(state.get(0, &7u32.to_be_bytes()), None, "absent at once");
    let mut left = 1_000;
    while state.has_expired() {
        let mut batch = WriteBatch::default();
        state.commit(&mut batch, 9, ALL, ROOM).unwrap();
        assert_eq!(batch.slot(), 9);
        let removed = left - state.expiring();
        assert!((1..=EXPIRED_KEYS_MAX).contains(&removed));
        left = state.expiring();
    }
    assert_eq!((left, state.memory_bytes(), state.len(0)), (0, 0, 0));
}

#[test]
fn deletes_and_overwrites_pass_beyond_the_quota_and_growth_does_not() {
    let mut state = State::new(&specs());
    let mut txn = Txn::new();
    let fill = |txn: &mut Txn, state: &State, value: &[u8]| {
        txn.begin(0);
        txn.put(state, 0, b"k", value).unwrap();
        txn.finish()
    };
    let mut batch = fill(&mut txn, &state, &[1; 100]);
    state.commit(&mut batch, 0, ALL, ROOM).unwrap();
    let used = state.memory_bytes() as u64;
    let quota = used / 2;
    let mut grows = fill(&mut txn, &state, &[1; 101]);
    let refused = state.commit(&mut grows, 0, quota, ROOM);
    let (growth, max) = (1, quota);
    assert_eq!(refused, Err(CommitError::Full { used, growth, max }));
    assert_eq!(
        state.get(0, b"k"),
        Some(&[1; 100][..]),
        "nothing was written"
    );
    let mut same = fill(&mut txn, &state, &[2; 100]);
    state.commit(&mut same, 0, quota, ROOM).unwrap();
    txn.begin(0);
    // Also a new key, if an old one makes room for it in the same request.
    txn.delete(&state, 0, b"k").unwrap();
    txn.put(&state, 0, b"l", &[3; 100]).unwrap();
    state.commit(&mut txn.finish(), 0, quota, ROOM).unwrap();
    txn.begin(0);
    txn.delete(&state, 0, b"l").unwrap();
    state.commit(&mut txn.finish(), 0, quota, ROOM).unwrap();
    assert_eq!(state.memory_bytes(), 0);
}

#[test]
fn a_changed_ttl_applies_to_later_writes() {
    let mut state = State::new(&specs());
    let mut txn = Txn::new();
    let mut put = |state: &mut State, key: &[u8]| {
        txn.begin(0);
        txn.put(state, 1, key, b"v").unwrap();
        state.apply(&txn.finish()).unwrap();
    };
    put(&mut state, b"before");
    let mut changed = specs();
    changed[1].ttl = None;
    state.set_ttls(&changed);
    put(&mut state, b"after");
    state.advance(Timestamp(TTL.0));
    assert_eq!(state.get(1, b"before"), None);
    assert_eq!(state.get(1, b"after"), Some(&b"v"[..]));
}

#[test]
fn a_time_to_live_of_nothing_is_an_error() {
    let state = State::new(&specs());
    let mut txn = Txn::new();
    txn.begin(0);
    let put = txn.put_for(&state, 0, b"k", b"v", Nanos::ZERO);
    assert_eq!(put, Err(TxnError::Ttl));
    // Beyond the end of time is never.
    txn.put_for(&state, 0, b"k", b"v", Nanos::MAX).unwrap();
    let mut state = state;
    state.apply(&txn.finish()).unwrap();
    assert_eq!(state.next_expiry(), None);
}
