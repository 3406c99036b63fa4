//! Differential test: collections against plain ordered maps, with random requests.

use e3_collections::{
    CollectionSpec, Kind, PieceMax, Restore, State, Txn, TxnError, Walk, WriteBatch,
};
use e3_testkit::{Random, seeds};
use std::collections::BTreeMap;

fn key_from(random: &mut Random) -> Vec<u8> {
    let n = random.below(40);
    match n % 3 {
        0 => vec![n as u8],
        1 => n.to_be_bytes().to_vec(),
        _ => format!("key-{n}").into_bytes(),
    }
}

fn value_from(random: &mut Random) -> Vec<u8> {
    let len = random.index(24);
    random.bytes(len)
}

const HASH: u16 = 0;
const ORDERED: u16 = 1;
const ARRAY: u16 = 2;
const COUNTER: u16 = 3;

fn specs() -> Vec<CollectionSpec> {
    [
        ("hash", Kind::HashMap),
        ("ordered", Kind::OrderedMap),
        ("array", Kind::Array),
        ("counter", Kind::Counter),
    ]
    .map(|(name, kind)| CollectionSpec {
        name: name.into(),
        kind,
        ttl: None,
    })
    .to_vec()
}

#[derive(Clone, Default)]
struct Model {
    maps: [BTreeMap<Vec<u8>, Vec<u8>>; 2],
    arrays: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    counters: BTreeMap<Vec<u8>, i64>,
}

/// One random operation on both; their answers must agree.
fn step(random: &mut Random, txn: &mut Txn, state: &State, model: &mut Model) {
    let key = key_from(random);
    let map = random.below(2) as u16;
    match random.below(14) {
        0 | 1 => {
            let value = value_from(random);
            txn.put(state, map, &key, &value).unwrap();
            model.maps[usize::from(map)].insert(key, value);
        }
        2 => {
            let there = model.maps[usize::from(map)].remove(&key).is_some();
            assert_eq!(txn.delete(state, map, &key), Ok(there));
        }
        3 | 4 => {
            let expected = model.maps[usize::from(map)].get(&key).map(|v| &**v);
            assert_eq!(txn.get(state, map, &key), Ok(expected));
        }
        5 => scan(random, txn, state, &model.maps[1]),
        6 | 7 => {
            let value = value_from(random);
            txn.array_push(state, ARRAY, &key, &value).unwrap();
            model.arrays.entry(key).or_default().push(value);
        }
        8 => {
            let items = model.arrays.entry(key.clone()).or_default();
            let (index, value) = (random.below(6), value_from(random));
            let expected = match items.get_mut(index as usize) {
                Some(item) => {
                    *item = value.clone();
                    Ok(())
                }
                None => Err(TxnError::Index {
                    index,
                    len: items.len() as u64,
                }),
            };
            assert_eq!(txn.array_put(state, ARRAY, &key, index, &value), expected);
        }
        9 => {
            let items = model.arrays.entry(key.clone()).or_default();
            let expected = !items.is_empty();
            if expected {
                items.remove(0);
            }
            assert_eq!(txn.array_pop_front(state, ARRAY, &key), Ok(expected));
        }
        10 => {
            let empty = Vec::new();
            let items = model.arrays.get(&key).unwrap_or(&empty);
            assert_eq!(txn.array_len(state, ARRAY, &key), Ok(items.len() as u64));
            for index in 0..items.len() + 1 {
                let expected = items.get(index).map(|v| &**v);
                assert_eq!(
                    txn.array_get(state, ARRAY, &key, index as u64),
                    Ok(expected)
                );
                let (from, most) = (random.below(4), random.index(4));
                let mut visited = Vec::new();
                let visit = |element: &[u8]| {
                    visited.push(element.to_vec());
                    visited.len() <= most
                };
                txn.array_scan(state, ARRAY, &key, from, visit).unwrap();
                let expected: Vec<_> = items
                    .iter()
                    .skip(from as usize)
                    .take(most + 1)
                    .cloned()
                    .collect();
                assert_eq!(visited, expected);
            }
        }
        11 => {
            let there = model.arrays.remove(&key).is_some_and(|a| !a.is_empty());
            assert_eq!(txn.delete(state, ARRAY, &key), Ok(there));
        }
        12 => {
            let delta = random.next_u64() as i64;
            let value = model.counters.entry(key.clone()).or_default();
            assert_eq!(txn.counter_add(state, COUNTER, &key, delta), Ok(*value));
            *value = value.wrapping_add(delta);
            let value = *value;
            assert_eq!(txn.counter_get(state, COUNTER, &key), Ok(value));
        }
        _ => {
            let there = model.counters.remove(&key).is_some();
            assert_eq!(txn.delete(state, COUNTER, &key), Ok(there));
        }
    }
}

fn scan(random: &mut Random, txn: &mut Txn, state: &State, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let (from, mut to) = (key_from(random), key_from(random));
    if random.below(3) == 0 {
        to.clear();
    }
    let reverse = random.below(2) == 0;
    let limit = random.index(8);
    let mut expected: Vec<_> = model
        .iter()
        .filter(|(k, _)| **k >= from && (to.is_empty() || **k < to))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    if reverse {
        expected.reverse();
    }
    expected.truncate(limit + 1);
    let mut got = Vec::new();
    txn.scan(state, ORDERED, &from, &to, reverse, |k, v| {
        got.push((k.to_vec(), v.to_vec()));
        got.len() <= limit
    })
    .unwrap();
    assert_eq!(got, expected);
}

fn check(state: &State, model: &Model) {
    for (c, map) in model.maps.iter().enumerate() {
        assert_eq!(state.len(c as u16), map.len());
        for (key, value) in map {
            assert_eq!(state.get(c as u16, key), Some(&**value));
        }
    }
    for (key, items) in &model.arrays {
        assert_eq!(state.array_len(ARRAY, key), items.len() as u64);
        for (i, item) in items.iter().enumerate() {
            assert_eq!(state.array_get(ARRAY, key, i as u64), Some(&**item));
        }
    }
    let arrays = model.arrays.values().filter(|a| !a.is_empty()).count();
    assert_eq!(state.len(ARRAY), arrays);
    for (key, value) in &model.counters {
        assert_eq!(state.counter_get(COUNTER, key), *value);
    }
    assert_eq!(state.len(COUNTER), model.counters.len());
}

fn pieces(state: &State, bytes: usize) -> Vec<Vec<u8>> {
    let (mut walk, mut pieces) = (Walk::default(), Vec::new());
    let max = PieceMax { bytes, entries: 1 };
    while !walk.is_done() {
        pieces.extend(state.next_piece(&mut walk, max));
    }
    pieces
}

fn restored(state: &State, piece_len_max: usize) -> State {
    let mut restore = Restore::new(state.specs());
    for piece in pieces(state, piece_len_max) {
        restore.accept(&piece).unwrap();
    }
    restore.finish()
}

#[test]
fn random_requests_agree_with_ordered_maps() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let (mut primary, mut backup) = (State::new(&specs()), State::new(&specs()));
        let mut model = Model::default();
        let mut txn = Txn::new();
        for request in 0..60 {
            txn.begin(request as u16);
            let mut attempt = model.clone();
            // some requests touch enough to need the overlay's index
            let steps = match random.below(4) {
                0 => 120,
                _ => random.below(8),
            };
            for _ in 0..steps {
                step(&mut random, &mut txn, &primary, &mut attempt);
            }
            let batch = txn.finish();
            if random.below(5) == 0 {
                continue; // aborted
            }
            model = attempt;
            primary.apply(&batch).unwrap();
            let sent = WriteBatch::from_bytes(batch.as_bytes().to_vec()).unwrap();
            assert_eq!(sent, batch);
            backup.apply(&sent).unwrap();
            check(&primary, &model);
        }
        assert_eq!(primary.digest(), backup.digest());
        let copy = restored(&primary, 300);
        check(&copy, &model);
        assert_eq!(copy.memory_bytes(), primary.memory_bytes());
        assert!(pieces(&primary, 300).iter().all(|c| c.len() <= 300));
        assert_eq!(pieces(&primary, 300), pieces(&copy, 300));
        assert_eq!(copy.digest(), primary.digest());
    }
}

#[test]
fn emptied_collections_account_for_nothing() {
    let mut state = State::new(&specs());
    let mut txn = Txn::new();
    txn.begin(1);
    txn.put(&state, HASH, b"a", b"1").unwrap();
    txn.put(&state, ORDERED, b"a", b"22").unwrap();
    txn.array_push(&state, ARRAY, b"a", b"333").unwrap();
    txn.counter_add(&state, COUNTER, b"a", 4).unwrap();
    state.apply(&txn.finish()).unwrap();
    assert!(state.memory_bytes() > 0);
    assert_ne!(state.digest(), State::new(&specs()).digest());
    txn.begin(1);
    for collection in 0..4 {
        assert_eq!(txn.delete(&state, collection, b"a"), Ok(true));
        assert_eq!(txn.delete(&state, collection, b"a"), Ok(false));
    }
    state.apply(&txn.finish()).unwrap();
    assert!(state.is_empty());
    assert_eq!(state.memory_bytes(), 0);
}

#[test]
fn bounds_and_kinds_are_errors() {
    let state = State::new(&specs());
    let mut txn = Txn::new();
    txn.begin(0);
    let big = vec![0; 32 * 1024];
    assert_eq!(txn.put(&state, 4, b"a", b""), Err(TxnError::NoCollection));
    assert_eq!(txn.refused(), Some((4, TxnError::NoCollection)));
    let wrong = TxnError::WrongKind;
    assert_eq!(txn.put(&state, ARRAY, b"a", b""), Err(wrong(Kind::Array)));
    assert_eq!(txn.get(&state, COUNTER, b"a"), Err(wrong(Kind::Counter)));
    for key in [&b""[..], &big[..1025]] {
        let error = TxnError::KeyLen(key.len());
        assert_eq!(txn.put(&state, HASH, key, b""), Err(error));
        assert!(!txn.is_write_lost());
        assert_eq!(txn.counter_add(&state, COUNTER, key, 1), Err(error));
        assert!(txn.is_write_lost());
        txn.begin(0);
        assert_eq!((txn.refused(), txn.is_write_lost()), (None, false));
    }
    let long = [&big[..], b"1"].concat();
    let error = TxnError::ValueLen(long.len());
    assert_eq!(txn.array_push(&state, ARRAY, b"a", &long), Err(error));
    txn.put(&state, HASH, b"a", &big).unwrap();
    let second = txn.put(&state, HASH, b"b", &big);
    assert!(matches!(second, Err(TxnError::WritesLen(_))), "{second:?}");
    txn.delete(&state, HASH, b"a").unwrap();
    let again = txn.array_put(&state, ARRAY, b"a", 3, b"");
    assert_eq!(again, Err(TxnError::Index { index: 3, len: 0 }));
    txn.begin(0);
    for n in 0..4096u32 {
        txn.counter_add(&state, COUNTER, &[1], n.into()).ok();
    }
    // 4096 writes of one byte's key are too long together.
    assert!(matches!(txn.refused(), Some((_, TxnError::WritesLen(_)))));
    txn.begin(0);
    txn.put(&state, HASH, b"a", &big).unwrap();
    assert_eq!(txn.get(&state, HASH, b"a"), Ok(Some(&*big)));
    assert_eq!(txn.get(&state, HASH, b"b"), Ok(None));
}

#[test]
fn any_bytes_are_a_batch_or_an_error() {
    let state = State::new(&specs());
    let mut txn = Txn::new();
    txn.begin(7);
    txn.put(&state, HASH, b"key", b"value").unwrap();
    txn.array_push(&state, ARRAY, b"key", b"value").unwrap();
    txn.counter_add(&state, COUNTER, b"key", 1).unwrap();
    let good = txn.finish().into_bytes();
    let mut random = Random::new(1);
    for len in 0..good.len() {
        // a prefix may end between operations; whatever it gives must apply or be refused
        if let Ok(batch) = WriteBatch::from_bytes(good[..len].to_vec()) {
            State::new(&specs()).apply(&batch).unwrap();
        }
    }
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.index(bytes.len());
            bytes[at] = random.byte();
        }
        if let Ok(batch) = WriteBatch::from_bytes(bytes.clone()) {
            let _ = State::new(&specs()).apply(&batch);
        }
        let _ = Restore::new(&specs()).accept(&bytes);
    }
    assert!(WriteBatch::from_bytes(Vec::new()).unwrap().is_empty());
}

#[test]
fn a_repeated_swapped_or_cut_piece_is_refused() {
    let mut state = State::new(&specs());
    let mut txn = Txn::new();
    txn.begin(0);
    for i in 0..10u8 {
        txn.put(&state, HASH, &[i], &[0; 50]).unwrap();
    }
    state.apply(&txn.finish()).unwrap();
    let pieces = pieces(&state, 100);
    let mut restore = Restore::new(&specs());
    restore.accept(&pieces[0]).unwrap();
    assert!(restore.accept(&pieces[0]).is_err());
    let mut restore = Restore::new(&specs());
    assert!(restore.accept(&pieces[1]).is_err());
    let mut restore = Restore::new(&specs());
    let cut = &pieces[0][..pieces[0].len() - 1];
    assert!(restore.accept(cut).is_err());
}
