//! The record form.

use super::*;

#[test]
fn records_do_the_same() {
    let host = host().config("key", "user").config("default-op", "incr");
    let mut kvs = Kvs::init().unwrap();
    let mut b = Builder::new();
    let mut ask = |b: &mut Builder| {
        let (status, reply) = at(
            &host,
            &mut kvs,
            "k",
            START_S,
            b.field("x", Value::Int(1)).bytes(),
        );
        (status, reply)
    };
    b.clear()
        .field("op", Value::Text("set"))
        .field("user", Value::Int(-7));
    let (status, reply) = ask(b
        .field("value", Value::Text("41"))
        .field("ttl_s", Value::Int(5)));
    let record = Record::parse(&reply).unwrap();
    assert_eq!(
        (status, record.bool("done"), record.int("x")),
        (0, Ok(true), Ok(1))
    );
    let (_, reply) = ask(b.clear().field("user", Value::Text("-7")));
    let record = Record::parse(&reply).unwrap();
    assert_eq!(
        (record.int("value"), record.bool("done")),
        (Ok(42), Ok(true))
    );
    b.clear()
        .field("op", Value::Text("get"))
        .field("user", Value::Bytes(b"-7"));
    let (_, reply) = ask(&mut b);
    let record = Record::parse(&reply).unwrap();
    assert_eq!(
        (record.text("value"), record.int("version")),
        (Ok("42"), Ok(2))
    );
    b.clear()
        .field("op", Value::Text("get"))
        .field("user", Value::Text("none"));
    let (status, reply) = ask(&mut b);
    let record = Record::parse(&reply).unwrap();
    assert_eq!(
        (status, record.bool("done"), record.has("value")),
        (0, Ok(false), false)
    );
    b.clear()
        .field("op", Value::Text("cas"))
        .field("user", Value::Text("-7"));
    b.field("value", Value::Text("z"))
        .field("version", Value::Int(2));
    let (_, reply) = ask(&mut b);
    assert_eq!(Record::parse(&reply).unwrap().bool("done"), Ok(true));
    let (status, reply) = ask(b.clear().field("user", Value::Text("-7")));
    let why = "item: is not a 64-bit number";
    assert_eq!((status, &*reply), (status::REFUSED, why.as_bytes()));
    b.clear()
        .field("op", Value::Text("drop"))
        .field("user", Value::Text("a"));
    let (status, reply) = ask(&mut b);
    assert!(status == 1 && reply.starts_with(b"field \"op\": is \"drop\", must be one of get"));
    let (status, reply) = ask(b.clear().field("user", Value::Text("")));
    let why = "field \"user\": has 0 bytes, must be 1..=250";
    assert_eq!((status, &*reply), (1, why.as_bytes()));
}

#[test]
fn an_item_may_be_a_record() {
    let host = host()
        .config("key", "sender")
        .config("fields", "verdict, score")
        .config("default-op", "swap");
    let mut kvs = Kvs::init().unwrap();
    let ask = |kvs: &mut Kvs, fields: &[(&str, Value<'_>)]| {
        let mut b = Builder::new();
        b.field("sender", Value::Text("s1"));
        fields.iter().for_each(|(name, value)| {
            b.field(name, *value);
        });
        at(&host, kvs, "k", START_S, b.bytes())
    };
    let (verdict, score) = (Value::Text("spam"), Value::Float(0.5));
    let (_, reply) = ask(
        &mut kvs,
        &[("verdict", verdict), ("score", score), ("x", Value::Int(1))],
    );
    let r = Record::parse(&reply).unwrap();
    assert_eq!((r.bool("done"), r.has("last_verdict")), (Ok(false), false));
    // what is there comes back under its name, whatever the request says of it
    let forged = ("last_score", Value::Text("forged"));
    let (_, reply) = ask(&mut kvs, &[("verdict", Value::Int(7)), forged]);
    let r = Record::parse(&reply).unwrap();
    assert_eq!((r.bool("done"), r.int("version")), (Ok(true), Ok(1)));
    assert_eq!(
        (
            r.text("last_verdict"),
            r.number("last_score"),
            r.int("verdict")
        ),
        (Ok("spam"), Ok(0.5), Ok(7))
    );
    // the second had no score, and only what it had was kept
    let (_, reply) = ask(&mut kvs, &[("op", Value::Text("get"))]);
    let r = Record::parse(&reply).unwrap();
    assert_eq!((r.int("last_verdict"), r.has("last_score")), (Ok(7), false));
    let (status, reply) = ask(&mut kvs, &[("op", Value::Text("set"))]);
    let why = "field \"verdict\": is missing";
    assert_eq!((status, &*reply), (1, why.as_bytes()));
    let (status, reply) = ask(&mut kvs, &[("op", Value::Text("incr"))]);
    let why = "field \"op\": is \"incr\", not supported for items that are records";
    assert_eq!((status, &*reply), (1, why.as_bytes()));
    let (_, reply) = ask(&mut kvs, &[("op", Value::Text("delete"))]);
    assert_eq!(Record::parse(&reply).unwrap().bool("done"), Ok(true));
    // an item that the text protocol stored is none of its own
    at(&host, &mut kvs, "k", START_S, b"set s1 0 0 1\r\nx\r\n");
    let (status, reply) = ask(&mut kvs, &[("op", Value::Text("get"))]);
    let why = "item: is a value, not a record of fields";
    assert_eq!((status, &*reply), (status::REFUSED, why.as_bytes()));
}

#[test]
fn swapped_items_follow_each_other_whoever_serves() {
    let host = host()
        .config("key", "sender")
        .config("fields", "n")
        .config("default-op", "swap");
    let mut last = BTreeMap::new();
    let mut random = Random::new(9);
    for n in 0..2000 {
        // a fresh instance now and then knows as much
        let mut kvs = Kvs::init().unwrap();
        for _ in 0..1 + random.index(4) {
            let sender = format!("s{}", random.index(50));
            let mut b = Builder::new();
            b.field("sender", Value::Text(&sender));
            b.field("n", Value::Int(n));
            let (_, reply) = at(&host, &mut kvs, &sender, START_S, b.bytes());
            let found = Record::parse(&reply).unwrap().int("last_n").ok();
            assert_eq!(found, last.insert(sender, n));
        }
    }
}

#[test]
fn a_swap_of_values_reads_before_it_sets() {
    let host = host().config("default-op", "swap").config("result", "old");
    let mut kvs = Kvs::init().unwrap();
    for (value, old) in [("a", None), ("b", Some("a")), ("c", Some("b"))] {
        let mut b = Builder::new();
        b.field("key", Value::Text("k"))
            .field("value", Value::Text(value));
        let (_, reply) = at(&host, &mut kvs, "k", START_S, b.bytes());
        let r = Record::parse(&reply).unwrap();
        assert_eq!(
            (r.text("old").ok(), r.bool("done")),
            (old, Ok(old.is_some()))
        );
    }
}

#[test]
fn any_payload_is_answered_where_items_are_records() {
    let host = host()
        .config("fields", "value, more")
        .config("default-op", "swap");
    let mut kvs = Kvs::init().unwrap();
    let good = ["get", "set", "swap", "cas", "delete", "touch"].map(|op| {
        let mut b = Builder::new();
        b.field("op", Value::Text(op))
            .field("key", Value::Text("k"));
        b.field("value", Value::Int(3))
            .field("version", Value::Int(3));
        b.bytes().to_vec()
    });
    let [accepted, refused] = fuzz(&host, &mut kvs, 7, 20_000, &good);
    assert!(accepted > 1000 && refused > 2000, "{accepted} {refused}");
}
