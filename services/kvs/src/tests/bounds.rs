//! The bounds: each command at the longest data that the documentation allows, a byte below and above.

use super::*;
use crate::limits::{KEY_BYTES_MAX, LARGE_BYTES};
use e3_sdk::testing::Outcome as Called;

/// The longest key, and others.
const KEYS: [usize; 3] = [1, 200, KEY_BYTES_MAX];

fn around(bound: usize) -> [usize; 3] {
    [bound - 1, bound, bound + 1]
}

fn stored(host: &Host) -> usize {
    let Collection::Hash(items) = host.state().remove(0).1 else {
        panic!("kind")
    };
    items.len()
}

/// The commands of a request, on data of this length that is there.
fn commands(key: &str, data: &str, version: u64) -> Vec<(String, String)> {
    let len = data.len();
    let value = |more: &str| format!("VALUE {key} 5 {len}{more}\r\n{data}\r\nEND\r\n");
    let stores = |verb: &str, more: &str| format!("{verb} {key} 5 0 {len}{more}\r\n{data}\r\n");
    let answer = |text: &str| text.to_string();
    vec![
        (stores("set", ""), answer("STORED\r\n")),
        (stores("add", ""), answer("NOT_STORED\r\n")),
        (stores("replace", ""), answer("STORED\r\n")),
        (stores("cas", " 2"), answer("STORED\r\n")),
        (stores("set", " noreply"), answer("")),
        (format!("get {key}\r\n"), value("")),
        (format!("gets {key}\r\n"), value(&format!(" {version}"))),
        (format!("gat 100 {key}\r\n"), value("")),
        (format!("gats 200 {key}\r\n"), value(&format!(" {version}"))),
        (format!("gat 0 {key}\r\n"), value("")),
        (format!("touch {key} 100\r\n"), answer("TOUCHED\r\n")),
        (format!("append {key} 0 0 0\r\n\r\n"), answer("STORED\r\n")),
        (format!("prepend {key} 0 0 0\r\n\r\n"), answer("STORED\r\n")),
        (
            format!("gats 1 {key}\r\n"),
            value(&format!(" {}", version + 2)),
        ),
        (format!("delete {key}\r\n"), answer("DELETED\r\n")),
        (format!("get {key}\r\n"), answer("END\r\n")),
    ]
}

#[test]
fn every_command_handles_the_longest_data() {
    for key in KEYS.map(|len| "k".repeat(len)) {
        for len in [around(LARGE_BYTES), around(28_700), around(DATA_BYTES_MAX)].concat() {
            let host = host();
            let mut kvs = Kvs::init().unwrap();
            let data = "x".repeat(len);
            for (command, answer) in commands(&key, &data, 4) {
                let (status, reply) = at(&host, &mut kvs, "k", START_S, command.as_bytes());
                let command = &command[..command.len().min(300)];
                if len <= DATA_BYTES_MAX {
                    assert!(reply == answer.as_bytes(), "{len}: {command}");
                } else if command.starts_with("set") {
                    let quiet = command.contains("noreply");
                    let answer = "SERVER_ERROR object too large for cache\r\n";
                    let answer = if quiet { "" } else { answer };
                    assert_eq!((status, &*reply), (3, answer.as_bytes()), "{command}");
                }
            }
            assert_eq!(stored(&host), 0, "{len}");
        }
    }
}

/// A long item's expiry lies beside it; whatever comes after finds the last one.
#[test]
fn the_expiry_of_a_long_item_is_that_of_its_last_change() {
    let data = "x".repeat(DATA_BYTES_MAX - 1);
    let long = |exptime: i64| format!("set k 0 {exptime} {}\r\n{data}\r\n", data.len());
    let short = || "set k 0 0 1\r\n1\r\n".to_string();
    let (touch, append) = (
        "touch k 50\r\n".to_string(),
        "append k 0 0 1\r\nx\r\n".to_string(),
    );
    for (script, expires_s, entries) in [
        (vec![long(100), touch.clone()], Some(50), 2),
        (vec![long(0), "gat 50 k\r\n".into()], Some(50), 2),
        (vec![long(20), "gat 0 k\r\n".into()], None, 2),
        (
            vec![long(20), touch.clone(), "touch k 70\r\n".into()],
            Some(70),
            2,
        ),
        // stored again, it has one entry only
        (vec![long(20), touch.clone(), long(90)], Some(90), 1),
        (vec![long(20), touch.clone(), short()], None, 1),
        (vec![long(20), touch.clone(), append.clone()], Some(50), 1),
        (
            vec![long(20), touch.clone(), append, touch.clone()],
            Some(50),
            2,
        ),
        (
            vec![long(20), touch.clone(), "delete k\r\n".into()],
            Some(0),
            0,
        ),
        (
            vec![long(20), touch.clone(), "gat -1 k\r\n".into()],
            Some(0),
            0,
        ),
        (vec![long(20), touch.clone(), long(-1)], Some(0), 0),
        (
            vec![long(20), touch, format!("set k 0 0 32257\r\n{data}xx\r\n")],
            Some(0),
            0,
        ),
    ] {
        let host = host();
        let mut kvs = Kvs::init().unwrap();
        let shown: Vec<&str> = script.iter().map(|c| &c[..c.len().min(20)]).collect();
        for command in &script {
            at(&host, &mut kvs, "k", START_S, command.as_bytes());
        }
        assert_eq!(stored(&host), entries, "{shown:?}");
        let is_there = |kvs: &mut Kvs, after_s: i64| {
            at(&host, kvs, "k", START_S + after_s, b"get k\r\n").1 != b"END\r\n"
        };
        let end_s = expires_s.unwrap_or(10_000);
        if end_s > 0 {
            assert!(is_there(&mut kvs, end_s - 1), "{shown:?}");
        }
        assert_eq!(is_there(&mut kvs, end_s), expires_s.is_none(), "{shown:?}");
        // what has expired is dropped, both entries
        for i in 0..10 {
            let set = format!("set t 0 1 1\r\n{i}\r\n");
            at(
                &host,
                &mut kvs,
                "k",
                START_S + 20_000 + i * 5,
                set.as_bytes(),
            );
        }
        let left = if expires_s.is_none() { entries } else { 0 };
        assert_eq!(stored(&host), 1 + left, "{shown:?}");
    }
}

/// Whatever one request holds, its writes and its reply fit the platform's bounds.
#[test]
fn long_items_in_one_request_are_refused_one_by_one() {
    let mut random = Random::new(11);
    for round in 0..300 {
        let host = host();
        let mut kvs = Kvs::init().unwrap();
        let mut long = |key: &str| {
            let len = [1, 5_000, LARGE_BYTES, 28_000, DATA_BYTES_MAX][random.index(5)];
            format!("set {key} 0 100 {len}\r\n{}\r\n", "x".repeat(len))
        };
        for key in ["a", "b", "c"] {
            at(&host, &mut kvs, "k", START_S, long(key).as_bytes());
        }
        let mut request = String::new();
        for _ in 0..6 {
            let key = ["a", "b", "c"][random.index(3)];
            let command = match random.index(6) {
                0 => format!("set {key} 0 50 3000\r\n{}\r\n", "y".repeat(3000)),
                1 => format!("gat 70 {key}\r\n"),
                2 => format!("append {key} 0 0 1\r\nz\r\n"),
                3 => format!("touch {key} 60\r\n"),
                4 => format!("gets {key} b\r\n"),
                _ => format!("prepend {key} 0 0 1 noreply\r\nz\r\n"),
            };
            request += &command;
        }
        // `at` fails on an error of the handler
        let (_, reply) = at(&host, &mut kvs, "k", START_S, request.as_bytes());
        assert!(!reply.is_empty(), "round {round}");
    }
}

fn ask(host: &Host, kvs: &mut Kvs, fields: &[(&str, Value<'_>)]) -> Called {
    let mut b = Builder::new();
    for (name, value) in fields {
        b.field(name, *value);
    }
    let call = Call {
        key: vec![b'k'; e3_sdk::limits::KEY_BYTES_MAX],
        now: START_S * 1_000_000_000,
        payload: b.bytes().to_vec(),
        ..Call::default()
    };
    let outcome = host.call(kvs, &call);
    assert_eq!(outcome.result, Ok(()));
    outcome
}

#[test]
fn records_store_and_read_the_longest_data() {
    let key = "k".repeat(KEY_BYTES_MAX);
    for len in [around(LARGE_BYTES), around(28_700), around(DATA_BYTES_MAX)].concat() {
        let host = host();
        let mut kvs = Kvs::init().unwrap();
        let data = vec![b'x'; len];
        let value = Value::Text(str::from_utf8(&data).unwrap());
        let mut query = |op: &str, value: Option<Value<'_>>| {
            let mut fields = vec![("op", Value::Text(op)), ("key", Value::Text(&key))];
            fields.extend(value.map(|value| ("value", value)));
            ask(&host, &mut kvs, &fields).replies.remove(0)
        };
        let (status, reply) = query("set", Some(value));
        if len > DATA_BYTES_MAX {
            let why = format!("item: its data would exceed {DATA_BYTES_MAX} bytes");
            assert_eq!((status, &*reply), (3, why.as_bytes()));
            continue;
        }
        let record = Record::parse(&reply).unwrap();
        assert_eq!((status, record.bool("done")), (0, Ok(true)), "{len}");
        assert_eq!(record.has("value"), len <= LARGE_BYTES, "{len}");
        for op in ["replace", "append", "prepend", "touch", "get"] {
            let value = match op {
                "replace" => Some(value),
                _ => Some(Value::Text("")).filter(|_| op.ends_with("pend")),
            };
            let (status, reply) = query(op, value);
            assert_eq!(status, 0, "{op} {len}: {}", String::from_utf8_lossy(&reply));
            let record = Record::parse(&reply).unwrap();
            assert_eq!(record.bool("done"), Ok(true), "{op} {len}");
            if op == "get" {
                assert_eq!(record.bytes("value"), Ok(&*data), "{len}");
            }
        }
        // a swap reads one and stores one
        let (status, reply) = query("swap", Some(Value::Int(7)));
        let record = Record::parse(&reply).unwrap();
        assert_eq!((status, record.bytes("value")), (0, Ok(&*data)), "{len}");
        let (status, reply) = query("swap", Some(value));
        let record = Record::parse(&reply).unwrap();
        assert_eq!((status, record.text("value")), (0, Ok("7")), "{len}");
        let (status, reply) = query("swap", Some(value));
        let (version, fits) = (6, 2 * len + 1024 < EFFECTS_BYTES_MAX);
        assert_eq!(status, if fits { 0 } else { 3 }, "{len}");
        if !fits {
            let why = String::from_utf8(reply).unwrap();
            assert!(
                why.starts_with("record: what it stores and the result of "),
                "{why}"
            );
        }
        let (_, reply) = query("get", None);
        let record = Record::parse(&reply).unwrap();
        assert_eq!(
            record.int("version"),
            Ok(version + i64::from(fits)),
            "{len}"
        );
    }
}

#[test]
fn a_record_that_would_not_fit_is_refused_and_changes_nothing() {
    let data = "x".repeat(DATA_BYTES_MAX);
    for (to, len, fits) in [
        ("a", 26_000, true),
        ("a", 28_000, false),
        ("a, b", 17_000, true),
        ("a, b", 19_000, false),
        ("a, b, c", 13_000, true),
        ("a, b, c", 15_000, false),
    ] {
        let host = host()
            .channel("a")
            .channel("b")
            .channel("c")
            .config("to", to)
            .config("default-op", "set")
            .config("key-b", "key");
        let mut kvs = Kvs::init().unwrap();
        let before = host.state();
        let fields = [
            ("key", Value::Text("k")),
            ("value", Value::Text(&data[..len])),
        ];
        let outcome = ask(&host, &mut kvs, &fields);
        assert_eq!(outcome.sent.is_empty(), !fits, "{to} {len}");
        if fits {
            let sent = Record::parse(&outcome.sent[0].payload).unwrap();
            assert_eq!(sent.text("value"), Ok(&data[..len]));
        } else {
            assert_eq!(
                (outcome.replies[0].0, host.state()),
                (3, before),
                "{to} {len}"
            );
        }
    }
    // nor one that `done` makes too long, or what is read
    let host = host().config("default-op", "touch");
    let mut kvs = Kvs::init().unwrap();
    let more = "x".repeat(32_640 - 13);
    let fields = [("key", Value::Text("k")), ("more", Value::Text(&more))];
    let (status, why) = ask(&host, &mut kvs, &fields).replies.remove(0);
    let why = String::from_utf8(why).unwrap();
    assert!(
        status == 3 && why.starts_with("record: the result has "),
        "{why}"
    );
    let fields = [
        ("key", Value::Text("k")),
        ("value", Value::Text(&data)),
        ("op", Value::Text("set")),
    ];
    assert_eq!(ask(&host, &mut kvs, &fields).replies[0].0, 0);
    let get = [
        ("key", Value::Text("k")),
        ("op", Value::Text("get")),
        ("more", Value::Text(&data[..500])),
    ];
    let (status, why) = ask(&host, &mut kvs, &get).replies.remove(0);
    let why = String::from_utf8(why).unwrap();
    assert!(
        status == 3 && why.starts_with("record: the result has "),
        "{why}"
    );
}

#[test]
fn bounds_are_answered_not_met() {
    let host = host();
    let mut kvs = Kvs::init().unwrap();
    let set = |len: usize| format!("set big 0 100 {len}\r\n{}\r\n", "x".repeat(len));
    let text = |(status, reply): (u32, Vec<u8>)| (status, String::from_utf8(reply).unwrap());
    let (status, reply) = text(at(
        &host,
        &mut kvs,
        "k",
        0,
        set(DATA_BYTES_MAX + 1).as_bytes(),
    ));
    assert_eq!(
        (status, &*reply),
        (3, "SERVER_ERROR object too large for cache\r\n")
    );
    let (status, reply) = text(at(&host, &mut kvs, "k", 0, set(DATA_BYTES_MAX).as_bytes()));
    assert_eq!((status, &*reply), (0, "STORED\r\n"));
    let (status, reply) = text(at(&host, &mut kvs, "k", 0, b"get big\r\n"));
    assert_eq!((status, reply.len()), (0, DATA_BYTES_MAX + 26));
    let (_, reply) = text(at(&host, &mut kvs, "k", 0, b"get big big\r\n"));
    assert_eq!(reply, "SERVER_ERROR out of memory writing get response\r\n");
    let (_, reply) = text(at(&host, &mut kvs, "k", 0, b"append big 0 0 1\r\nx\r\n"));
    assert_eq!(reply, "SERVER_ERROR object too large for cache\r\n");
    let (_, reply) = text(at(
        &host,
        &mut kvs,
        "k",
        0,
        b"touch big 9\r\ntouch big 8\r\n",
    ));
    assert_eq!(reply, "TOUCHED\r\nTOUCHED\r\n");
    // more answers than a reply holds
    let (status, reply) = text(at(&host, &mut kvs, "k", 0, "x\n".repeat(16_000).as_bytes()));
    assert!(status == 1 && reply.len() < 32 * 1024 && reply.ends_with("not done\r\n"));
    // more writes than a request may have
    let sets: String = (0..600)
        .map(|i| format!("set k{i} 0 60 1\r\nx\r\n"))
        .collect();
    let (status, reply) = text(at(&host, &mut kvs, "k", 0, sets.as_bytes()));
    let stored = reply.matches("STORED").count();
    assert!(status == 0 && stored > 200 && reply.matches("SERVER_ERROR").count() == 600 - stored);
}
