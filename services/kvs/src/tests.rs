//! Tests of the service against the in-memory host of the SDK.

use super::*;
use crate::limits::DATA_BYTES_MAX;
use e3_pipeline::Value;
use e3_sdk::testing::{Call, Collection, Host, Kind, slot_of};
use e3_testkit::{Random, fuzz, reply_to, seeds};
use std::collections::BTreeMap;

mod bounds;
mod records;

const DAY_S: i64 = 86_400;
const START_S: i64 = 1_700_000_000;

fn host() -> Host {
    Host::new()
        .collection("items", Kind::Hash)
        .collection("expiries", Kind::Ordered)
        .collection("versions", Kind::Counter)
}

fn at(host: &Host, kvs: &mut Kvs, key: &str, now_s: i64, payload: &[u8]) -> (u32, Vec<u8>) {
    let call = Call {
        key: key.as_bytes().to_vec(),
        now: now_s * 1_000_000_000,
        payload: payload.to_vec(),
        ..Call::default()
    };
    reply_to(host, kvs, &call)
}

/// Commands and the answers that protocol.txt gives.
#[track_caller]
fn talk(host: &Host, kvs: &mut Kvs, script: &[(&str, &str)]) {
    for (command, answer) in script {
        let (_, reply) = at(host, kvs, "k", START_S, command.as_bytes());
        assert_eq!(String::from_utf8_lossy(&reply), *answer, "{command:?}");
    }
}

#[test]
fn answers_as_the_protocol_says() {
    let host = host();
    let mut kvs = Kvs::init().unwrap();
    talk(
        &host,
        &mut kvs,
        &[
            ("get k\r\n", "END\r\n"),
            ("set k 5 0 5\r\nhello\r\n", "STORED\r\n"),
            ("get k\r\n", "VALUE k 5 5\r\nhello\r\nEND\r\n"),
            ("gets k\r\n", "VALUE k 5 5 1\r\nhello\r\nEND\r\n"),
            ("add k 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("add n 0 0 0\r\n\r\n", "STORED\r\n"),
            ("replace q 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("replace k 1 0 2\r\nab\r\n", "STORED\r\n"),
            ("append k 9 0 1\r\nc\r\n", "STORED\r\n"),
            ("prepend k 9 0 2\r\n\r\n\r\n", "STORED\r\n"),
            (
                "get k n q\r\n",
                "VALUE k 1 5\r\n\r\nabc\r\nVALUE n 0 0\r\n\r\nEND\r\n",
            ),
            ("append q 0 0 1\r\nc\r\n", "NOT_STORED\r\n"),
            ("cas k 2 0 1 4\r\nx\r\n", "EXISTS\r\n"),
            ("cas k 2 0 1 5\r\nx\r\n", "STORED\r\n"),
            ("cas q 2 0 1 5\r\nx\r\n", "NOT_FOUND\r\n"),
            ("gets k\r\n", "VALUE k 2 1 6\r\nx\r\nEND\r\n"),
            (
                "incr k 1\r\n",
                "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
            ("incr q 1\r\n", "NOT_FOUND\r\n"),
            ("set c 7 0 2\r\n10\r\n", "STORED\r\n"),
            ("incr c 5\r\n", "15\r\n"),
            ("decr c 9\r\n", "6\r\n"),
            ("decr c 9\r\n", "0\r\n"),
            (
                "incr c 18446744073709551615\r\n",
                "18446744073709551615\r\n",
            ),
            ("incr c 3\r\n", "2\r\n"),
            (
                "incr c x\r\n",
                "CLIENT_ERROR invalid numeric delta argument\r\n",
            ),
            (
                "incr c -1\r\n",
                "CLIENT_ERROR invalid numeric delta argument\r\n",
            ),
            (
                "get c\r\n",
                "VALUE c 7 20\r\n2                   \r\nEND\r\n",
            ),
            ("delete c\r\n", "DELETED\r\n"),
            ("delete c 0\r\n", "NOT_FOUND\r\n"),
            (
                "delete c 5\r\n",
                "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
            ),
            ("touch c 5\r\n", "NOT_FOUND\r\n"),
            ("touch k 5\r\n", "TOUCHED\r\n"),
            ("touch k x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
            ("verbosity 1\r\n", "OK\r\n"),
            ("verbosity\r\nverbosity noreply\r\n", "ERROR\r\n"),
            (
                "verbosity x\r\n",
                "CLIENT_ERROR bad command line format\r\n",
            ),
            ("quit\r\nget k\r\n", ""),
            (
                "gat 0\r\ngat x y\r\n",
                "END\r\nCLIENT_ERROR invalid exptime argument\r\n",
            ),
            (
                "flush_all\r\n",
                "SERVER_ERROR flush_all: a shard holds only some of the keys\r\n",
            ),
            ("nonsense\r\n", "ERROR\r\n"),
            ("", "ERROR\r\n"),
            ("get\r\n", "ERROR\r\n"),
            ("get k", "ERROR\r\n"),
            ("set k 0 0\r\n", "ERROR\r\n"),
            (
                "set k 0 0 -1\r\n",
                "CLIENT_ERROR bad command line format\r\n",
            ),
            (
                "set k 4294967296 0 1\r\n",
                "CLIENT_ERROR bad command line format\r\n",
            ),
            ("set k 0 0 3\r\nab\r\n", "CLIENT_ERROR bad data chunk\r\n"),
            // as memcached: what was announced and two bytes are skipped, the rest is a line
            (
                "set k 0 0 5\r\nhelloworld\r\n",
                "CLIENT_ERROR bad data chunk\r\nERROR\r\n",
            ),
            ("get k\r\n", "VALUE k 2 1\r\nx\r\nEND\r\n"),
            // a word too many in the place of `noreply` is ignored, a further one is not
            ("set k 0 0 1 quiet\r\ny\r\n", "STORED\r\n"),
            ("set k 0 0 1 noreply x\r\nxx\r\n", "ERROR\r\nERROR\r\n"),
            (
                "incr k 1 2 3\r\nget k\r\n",
                "ERROR\r\nVALUE k 0 1\r\ny\r\nEND\r\n",
            ),
            // with `noreply`, errors are quiet too
            (
                "incr k x noreply\r\nset k a 0 1 noreply\r\nget k\r\n",
                "VALUE k 0 1\r\ny\r\nEND\r\n",
            ),
            // many in one request, some quiet; a line end without its return is one
            (
                "set a 0 0 1 noreply\r\n1\r\nincr a 2\nget a\r\ndelete a noreply\r\nget a\r\n",
                "3\r\nVALUE a 0 1\r\n3\r\nEND\r\nEND\r\n",
            ),
        ],
    );
    let long = "x".repeat(251);
    let line = "CLIENT_ERROR bad command line format\r\n";
    talk(&host, &mut kvs, &[(&format!("get {long}\r\n"), line)]);
    let (status, reply) = at(&host, &mut kvs, "k", 0, b"version\r\n");
    assert!(status == 0 && reply.starts_with(b"VERSION "));
    for (command, expected) in [
        ("get nothing\r\n", status::OK),
        ("x\r\n", status::MALFORMED),
        ("flush_all\r\n", status::REFUSED),
        ("x\r\nget k\r\n", status::OK),
    ] {
        let (status, _) = at(&host, &mut kvs, "k", START_S, command.as_bytes());
        assert_eq!(status, expected, "{command:?}");
    }
}

#[test]
fn items_expire() {
    let host = host();
    let mut kvs = Kvs::init().unwrap();
    let absolute = START_S + 100;
    let script = [
        (0, "set a 0 10 1\r\n1\r\n".to_string(), "STORED\r\n"),
        (0, format!("set b 0 {absolute} 1\r\n2\r\n"), "STORED\r\n"),
        (0, "set c 0 -1 1\r\n3\r\n".into(), "STORED\r\n"),
        (
            0,
            format!("set d 0 {} 1\r\n4\r\n", 30 * DAY_S),
            "STORED\r\n",
        ),
        (0, "get c\r\n".into(), "END\r\n"),
        (
            9,
            "get a b\r\n".into(),
            "VALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n2\r\nEND\r\n",
        ),
        (9, "append a 0 0 1\r\n5\r\n".into(), "STORED\r\n"),
        (9, "incr a 1\r\n".into(), "16\r\n"),
        (10, "get a b\r\n".into(), "VALUE b 0 1\r\n2\r\nEND\r\n"),
        (10, "incr a 1\r\n".into(), "NOT_FOUND\r\n"),
        (10, "delete a\r\n".into(), "NOT_FOUND\r\n"),
        (10, "add a 0 0 1\r\n6\r\n".into(), "STORED\r\n"),
        (99, "touch b 50\r\n".into(), "TOUCHED\r\n"),
        (148, "gat 7 b\r\n".into(), "VALUE b 0 1\r\n2\r\nEND\r\n"),
        (154, "get b\r\n".into(), "VALUE b 0 1\r\n2\r\nEND\r\n"),
        (155, "get a b\r\n".into(), "VALUE a 0 1\r\n6\r\nEND\r\n"),
        (
            30 * DAY_S - 1,
            "gat -1 d\r\n".into(),
            "VALUE d 0 1\r\n4\r\nEND\r\n",
        ),
        (30 * DAY_S - 1, "get d\r\n".into(), "END\r\n"),
    ];
    for (after_s, command, answer) in &script {
        let (_, reply) = at(&host, &mut kvs, "k", START_S + after_s, command.as_bytes());
        assert_eq!(String::from_utf8_lossy(&reply), *answer, "{command:?}");
    }
    // storing goes on: what expired is dropped, items and index
    for i in 0..100 {
        let set = format!("set t{i} 0 1 1\r\nx\r\n");
        at(
            &host,
            &mut kvs,
            "k",
            START_S + 100 * DAY_S + i * 5,
            set.as_bytes(),
        );
    }
    let state = host.state();
    let (Collection::Hash(items), Collection::Ordered(index)) = (&state[0].1, &state[1].1) else {
        panic!("kinds")
    };
    assert_eq!((items.len(), index.len()), (2, 1), "{items:?}");
}

/// Random commands against a map of texts, over fresh instances; two shards of half of the slots hold
/// together what one of all holds.
#[test]
fn equals_a_map_and_shards_can_be_split() {
    let run = |seed: u64, accepts: &dyn Fn(u16) -> bool| {
        let host = host();
        let mut kvs = Kvs::init().unwrap();
        let mut random = Random::new(seed);
        let mut model: BTreeMap<String, (String, u64)> = BTreeMap::new();
        let mut version = BTreeMap::new();
        for round in 0..1000 {
            if round % 97 == 0 {
                kvs = Kvs::init().unwrap();
            }
            let key = format!("key{}", random.index(12));
            let data = random.index(300).to_string();
            let (verb, number) = (random.index(8), random.index(5) as u64);
            let slot = slot_of(key.as_bytes());
            if !accepts(slot) {
                continue;
            }
            let there = model.get(&key).cloned();
            let mut next = || {
                let v = version.entry(slot).or_insert(0);
                *v += 1;
                *v
            };
            let len = data.len();
            let (name, verb) = [
                ("set", 0),
                ("add", 1),
                ("replace", 2),
                ("append", 3),
                ("cas", 4),
                ("delete", 5),
                ("incr", 6),
                ("gets", 7),
            ][verb];
            let seen = there.as_ref().map_or(number, |t| t.1 - number % t.1.min(2));
            let (command, expected) = match verb {
                0..=3 => {
                    let fits = verb == 0 || (verb == 1) == there.is_none();
                    if fits {
                        let old = there.filter(|_| verb == 3).map_or(String::new(), |t| t.0);
                        model.insert(key.clone(), (old + &data, next()));
                    }
                    (
                        format!("{name} {key} 0 0 {len}\r\n{data}\r\n"),
                        if fits { "STORED" } else { "NOT_STORED" }.to_string(),
                    )
                }
                4 => {
                    let expected = match there {
                        None => "NOT_FOUND",
                        Some((_, v)) if v == seen => {
                            model.insert(key.clone(), (data.clone(), next()));
                            "STORED"
                        }
                        Some(_) => "EXISTS",
                    };
                    (
                        format!("cas {key} 0 0 {len} {seen}\r\n{data}\r\n"),
                        expected.into(),
                    )
                }
                5 => {
                    let expected = model.remove(&key).map_or("NOT_FOUND", |_| "DELETED");
                    (format!("delete {key}\r\n"), expected.into())
                }
                6 => {
                    let expected = match there {
                        None => "NOT_FOUND".into(),
                        Some((text, _)) => match text.trim_ascii_end().parse::<u64>() {
                            Ok(value) => {
                                let value = (value + number).to_string();
                                let padded = std::format!("{value:0$}", text.len());
                                model.insert(key.clone(), (padded, next()));
                                value
                            }
                            Err(_) => {
                                "CLIENT_ERROR cannot increment or decrement non-numeric value"
                                    .into()
                            }
                        },
                    };
                    (format!("incr {key} {number}\r\n"), expected)
                }
                _ => {
                    let expected = there.map_or("END".into(), |(text, v)| {
                        format!("VALUE {key} 0 {} {v}\r\n{text}\r\nEND", text.len())
                    });
                    (format!("gets {key}\r\n"), expected)
                }
            };
            let (_, reply) = at(&host, &mut kvs, &key, START_S, command.as_bytes());
            let reply = String::from_utf8_lossy(&reply).into_owned();
            assert_eq!(reply, expected + "\r\n", "seed {seed} {round}: {command:?}");
        }
        host.state()
    };
    let entries = |state: Vec<(String, Collection)>| {
        let mut all = BTreeMap::new();
        for (name, collection) in state {
            match collection {
                Collection::Hash(map) | Collection::Ordered(map) => {
                    all.extend(map.into_iter().map(|(k, v)| ((name.clone(), k), v)));
                }
                Collection::Counter(map) => {
                    let bytes = |(k, v): (_, i64)| ((name.clone(), k), v.to_le_bytes().to_vec());
                    all.extend(map.into_iter().map(bytes));
                }
                Collection::Array(_) => panic!("kind"),
            }
        }
        all
    };
    for seed in seeds(5) {
        let mut both = entries(run(seed, &|s| s < 2048));
        both.extend(entries(run(seed, &|s| s >= 2048)));
        assert_eq!(both, entries(run(seed, &|_| true)), "seed {seed}");
    }
}

#[test]
fn any_payload_is_answered() {
    let host = host();
    let mut kvs = Kvs::init().unwrap();
    let record = |op: &str| {
        let mut b = Builder::new();
        b.field("op", Value::Text(op))
            .field("key", Value::Text("k"));
        b.field("value", Value::Int(3))
            .field("version", Value::Int(3));
        b.bytes().to_vec()
    };
    let mut good: Vec<Vec<u8>> = [
        "set k 0 0 5\r\nhello\r\n",
        "set k 0 9 1\r\n7\r\nget k\r\n",
        "append k 0 0 1\r\n7\r\ncas k 0 0 1 3\r\n8\r\n",
        "incr k 1\r\ndecr k 1 noreply\r\n",
        "gats 100 k l\r\ntouch k -1\r\ndelete k\r\n",
        "flush_all\r\n",
    ]
    .map(|t| t.as_bytes().to_vec())
    .to_vec();
    good.extend(["get", "set", "incr", "cas", "delete", "touch", "prepend"].map(record));
    let [accepted, refused] = fuzz(&host, &mut kvs, 6, 20_000, &good);
    assert!(accepted > 2000 && refused > 2000, "{accepted} {refused}");
}

#[test]
fn a_touched_item_expires_at_its_last_time() {
    let host = host();
    let mut kvs = Kvs::init().unwrap();
    for (after_s, command, answer) in [
        (0, "set a 0 10 1\r\n1\r\n", "STORED\r\n"),
        (0, "set b 0 1700000100 1\r\n2\r\n", "STORED\r\n"),
        (9, "touch a 10\r\n", "TOUCHED\r\n"),
        (18, "touch a 60\r\n", "TOUCHED\r\n"),
        (
            77,
            "get a b\r\n",
            "VALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n2\r\nEND\r\n",
        ),
        (78, "get a b\r\n", "VALUE b 0 1\r\n2\r\nEND\r\n"),
        (100, "get a b\r\n", "END\r\n"),
    ] {
        let (_, reply) = at(&host, &mut kvs, "k", START_S + after_s, command.as_bytes());
        assert_eq!(String::from_utf8_lossy(&reply), answer, "{command:?}");
    }
}
