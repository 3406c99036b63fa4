//! Snapshots that are made in pieces while the contents change.

use e3_collections::limits::{PART_LEN_MAX, PIECE_HEADER_LEN, RECORD_HEADER_LEN, RECORD_LEN_MAX};
use e3_collections::{CollectionSpec, Kind, PieceMax, Restore, State, Txn, Walk};
use e3_testkit::{Random, seeds};

const HASH: u16 = 0;
const ORDERED: u16 = 1;
const ARRAY: u16 = 2;
const COUNTER: u16 = 3;

fn specs() -> Vec<CollectionSpec> {
    [Kind::HashMap, Kind::OrderedMap, Kind::Array, Kind::Counter]
        .into_iter()
        .enumerate()
        .map(|(at, kind)| CollectionSpec {
            name: format!("c{at}"),
            kind,
            ttl: None,
        })
        .collect()
}

/// A state, whoever restores it, and how far that is.
struct Copying {
    random: Random,
    state: State,
    restore: Restore,
    walk: Walk,
    max: PieceMax,
    keys: u64,
}

impl Copying {
    fn new(seed: u64, keys: u64, max: PieceMax) -> Copying {
        Copying {
            random: Random::new(seed),
            state: State::new(&specs()),
            restore: Restore::new(&specs()),
            walk: Walk::default(),
            max,
            keys,
        }
    }

    /// A state after fewer than so many requests, with few, some or many keys; pieces are small.
    fn filled(seed: u64, requests: u64) -> Copying {
        let max = PieceMax {
            bytes: 1000,
            entries: 64,
        };
        let keys = [50, 3_000, 40_000][seed as usize % 3];
        let mut c = Copying::new(seed, keys, max);
        for _ in 0..c.random.below(requests) {
            c.write(true);
        }
        c
    }

    fn key(&mut self) -> Vec<u8> {
        let n = self.random.below(self.keys);
        n.to_be_bytes()[5..].to_vec()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = self.random.index(40);
        self.random.bytes(len)
    }

    /// A request with a few writes; `grows`: it mostly adds.
    fn write(&mut self, grows: bool) {
        let mut txn = Txn::new();
        txn.begin(self.random.below(4096) as u16);
        for _ in 0..1 + self.random.below(6) {
            let (key, value) = (self.key(), self.value());
            let state = &self.state;
            let few = [vec![1], vec![2], vec![3]];
            let long = &few[self.random.index(3)];
            match self.random.below(if grows { 6 } else { 14 }) {
                0 | 6 => txn.put(state, HASH, &key, &value).unwrap(),
                1 | 7 => txn.put(state, ORDERED, &key, &value).unwrap(),
                2 => txn.array_push(state, ARRAY, &key, &value).unwrap(),
                3 | 4 => txn.array_push(state, ARRAY, long, &value).unwrap(),
                5 | 8 => {
                    txn.counter_add(state, COUNTER, &key, 3).unwrap();
                }
                9 => {
                    txn.array_pop_front(state, ARRAY, long).unwrap();
                }
                10 => {
                    txn.array_pop_front(state, ARRAY, &key).unwrap();
                }
                11 => {
                    let len = txn.array_len(state, ARRAY, long).unwrap();
                    if len > 0 {
                        let at = self.random.below(len);
                        txn.array_put(state, ARRAY, long, at, &value).unwrap();
                    }
                }
                _ if self.random.below(300) == 0 => {
                    txn.delete(state, ARRAY, long).unwrap();
                }
                _ => {
                    let collection = self.random.below(4) as u16;
                    txn.delete(state, collection, &key).unwrap();
                }
            }
        }
        let batch = txn.finish();
        self.state.apply(&batch).unwrap();
        self.restore.apply(&batch).unwrap();
    }

    fn begin(&mut self) {
        self.restore = Restore::new(&specs());
        self.walk = Walk::default();
    }

    fn piece(&mut self) {
        let before = self.walk.entries();
        let piece = self.state.next_piece(&mut self.walk, self.max);
        let looked_at = self.walk.entries() - before;
        // The last part of a table may be full, and the piece too before it was looked at.
        let entries_max = self.max.entries + 2 * PART_LEN_MAX + self.max.bytes;
        assert!(looked_at <= entries_max as u64, "{looked_at} entries");
        if let Some(piece) = piece {
            let len_max = self.max.bytes.max(PIECE_HEADER_LEN + RECORD_LEN_MAX);
            assert!(piece.len() <= len_max, "{} bytes", piece.len());
            self.restore.accept(&piece).unwrap();
        }
    }

    fn check(self, seed: u64) {
        let copy = self.restore.finish();
        assert_eq!(copy.digest(), self.state.digest(), "seed {seed}");
        assert_eq!(
            copy.memory_bytes(),
            self.state.memory_bytes(),
            "seed {seed}"
        );
    }
}

#[test]
fn a_copy_made_under_writes_is_equal() {
    for seed in seeds(12) {
        let mut c = Copying::filled(seed, 3_000);
        c.begin();
        while !c.walk.is_done() {
            c.piece();
            for _ in 0..c.random.below(2) {
                let grows = c.random.below(2) == 0;
                c.write(grows);
            }
        }
        for _ in 0..100 {
            c.write(false);
        }
        c.check(seed);
    }
}

#[test]
fn a_walk_ends_however_much_is_added_behind_it() {
    let max = PieceMax {
        bytes: 16 << 10,
        entries: 4096,
    };
    let mut c = Copying::new(7, 1 << 22, max);
    for _ in 0..5_000 {
        c.write(true);
    }
    c.begin();
    let mut pieces = 0;
    while !c.walk.is_done() {
        c.piece();
        pieces += 1;
        for _ in 0..20 {
            c.write(true);
        }
        assert!(pieces < 5_000);
    }
    c.check(7);
}

#[test]
fn a_large_state_takes_bounded_work_a_piece() {
    let max = PieceMax {
        bytes: 16 << 10,
        entries: 4096,
    };
    let mut c = Copying::new(1, 1, max);
    let value = [7; 1000];
    for n in 0..30_000u32 {
        let mut txn = Txn::new();
        txn.begin(0);
        let key = n.to_le_bytes();
        let collection = [HASH, ORDERED][n as usize % 2];
        txn.put(&c.state, collection, &key, &value).unwrap();
        c.state.apply(&txn.finish()).unwrap();
    }
    assert!(c.state.memory_bytes() > 30 << 20);
    c.begin();
    while !c.walk.is_done() {
        c.piece();
    }
    c.check(1);
}

#[test]
fn what_is_divided_and_joined_again_is_the_same() {
    for seed in seeds(12) {
        let mut c = Copying::filled(seed, 6_000);
        let (keys, max) = (c.keys, c.max);
        let (digest, memory_bytes) = (c.state.digest(), c.state.memory_bytes());
        let count = 1 + c.random.index(4);
        let mut parts = State::reshard(vec![c.state], count, |slot| usize::from(slot) % count);
        let sum = parts.iter().map(State::memory_bytes).sum::<usize>();
        assert_eq!(sum, memory_bytes, "seed {seed}, {count} parts");
        for part in &mut parts {
            // A part grows, shrinks and is copied like any other state.
            let mut c = Copying::new(seed, keys, max);
            c.begin();
            c.state = std::mem::replace(part, State::new(&[]));
            while !c.walk.is_done() {
                c.piece();
            }
            let copy = std::mem::replace(&mut c.restore, Restore::new(&specs())).finish();
            assert_eq!(copy.digest(), c.state.digest(), "seed {seed}");
            *part = copy;
            c.begin();
            while !c.walk.is_done() {
                c.piece();
                c.write(true);
            }
            c.check(seed);
        }
        let joined = State::reshard(parts, 1, |_| 0).remove(0);
        assert_eq!(joined.digest(), digest, "seed {seed}, {count} parts");
        assert_eq!(joined.memory_bytes(), memory_bytes, "seed {seed}");
    }
}

#[test]
fn a_walk_tells_the_arrays_of_joined_states_apart() {
    let fill = |key: u8| {
        let mut state = State::new(&specs());
        let mut txn = Txn::new();
        txn.begin(u16::from(key));
        for number in 0..40 {
            let element = [key, number].repeat(500);
            txn.array_push(&state, ARRAY, &[key], &element).unwrap();
        }
        state.apply(&txn.finish()).unwrap();
        state
    };
    let max = PieceMax {
        bytes: 16 << 10,
        entries: 4096,
    };
    let mut c = Copying::new(1, 1, max);
    c.state = State::reshard(vec![fill(1), fill(2)], 1, |_| 0).remove(0);
    c.begin();
    let piece = c.state.next_piece(&mut c.walk, max).unwrap();
    c.restore.accept(&piece).unwrap();
    // The walk is within this array when it is deleted; the other one comes next.
    let within = piece[PIECE_HEADER_LEN + RECORD_HEADER_LEN];
    let mut txn = Txn::new();
    txn.begin(within.into());
    txn.delete(&c.state, ARRAY, &[within]).unwrap();
    let batch = txn.finish();
    c.state.apply(&batch).unwrap();
    c.restore.apply(&batch).unwrap();
    while !c.walk.is_done() {
        c.piece();
    }
    assert_eq!(c.state.array_len(ARRAY, &[3 - within]), 40);
    c.check(1);
}
