//! Tests of the service against the in-memory host of the SDK.

use super::*;
use crate::rule::{Action, Rule, parse_all};
use core::net::Ipv4Addr;
use e3_packet::PacketBuilder;
use e3_sdk::testing::{Call, Collection, Host, Kind, Outcome, slot_of};
use e3_testkit::{Random, fuzz_calls, seeds};
use model::{model_packet, text};

mod model;

fn host(rules: &str) -> Host {
    Host::new()
        .asset("rules", rules.as_bytes())
        .collection("alerts", Kind::Ordered)
}

fn call(host: &Host, service: &mut Nids, key: &[u8], payload: &[u8]) -> Outcome {
    let call = Call {
        key: key.to_vec(),
        payload: payload.to_vec(),
        ..Call::default()
    };
    host.call(service, &call)
}

/// The answer's `alerts`, `sids` and `dropped`.
fn verdict(outcome: &Outcome) -> (i64, Vec<u32>, bool) {
    assert_eq!(outcome.result, Ok(()));
    let (status, answer) = &outcome.replies[0];
    assert_eq!(*status, status::OK, "{answer:?}");
    let record = Record::parse(answer).unwrap();
    let sids = record.numbers("sids", SIDS_MAX).unwrap();
    let sids = sids.into_iter().map(|sid| sid as u32).collect();
    (
        record.int("alerts").unwrap(),
        sids,
        record.bool("dropped").unwrap(),
    )
}

const RULES: &str = r#"
# shells
alert tcp any any -> 10.0.0.0/8 [80,8000:8080] (msg:"shell"; content:"/BIN/|73 68|"; nocase; offset:2; depth:20; sid:7; rev:1;)
drop udp !10.0.0.9 any -> any ![53,5353] (msg:"quoted \"; text"; content:"a\;b|00 ff|"; content:!"good"; sid:8; classtype:x;)
alert icmp any any <> any any (msg:"ping"; sid:9;)
"#;

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let ends = (
        (Ipv4Addr::new(10, 0, 0, 1), 1000),
        (Ipv4Addr::new(10, 0, 0, 2), port),
    );
    PacketBuilder::udp(ends.0, ends.1).payload(payload).build()
}

#[test]
fn rules_mean_what_they_say() {
    let rules = parse_all(RULES, RULES_MAX).unwrap();
    assert_eq!(rules[0].contents[0].bytes, b"/BIN/sh");
    assert_eq!(
        (&*rules[1].msg, rules[1].action),
        ("quoted \"; text", Action::Drop)
    );
    assert_eq!(rules[1].contents[0].bytes, b"a;b\x00\xff");
    let host = host(RULES).channel("next").config("to", "next");
    let mut service = Nids::init().unwrap();
    let bad = b"xx a;b\x00\xff xx";
    let outcome = call(&host, &mut service, b"k", &udp(99, bad));
    assert_eq!(
        (verdict(&outcome), outcome.sent.len()),
        ((1, vec![8], true), 0)
    );
    // forwarded as they came, without an answer
    for payload in [udp(53, bad), udp(99, b"a;b\x00\xff good")] {
        let outcome = call(&host, &mut service, b"k", &payload);
        assert_eq!(outcome.replies.len(), 0);
        assert_eq!(
            (&outcome.sent[0].payload, &*outcome.sent[0].key),
            (&payload, &b"k"[..])
        );
    }
}

/// What Snort's manual allows in a content.
#[test]
fn contents_are_bytes_however_they_are_written() {
    for (text, bytes) in [
        ("|90C8 C0FF|", &b"\x90\xc8\xc0\xff"[..]),
        ("|90c8c0ff|", b"\x90\xc8\xc0\xff"),
        ("|90 C8 c0 Ff|", b"\x90\xc8\xc0\xff"),
        ("| 9 0 C8  C0FF |", b"\x90\xc8\xc0\xff"),
        ("a|41|b|4243|c", b"aAbBCc"),
        ("|41||42|", b"AB"),
        ("||x", b"x"),
        ("a\\\"b\\;c\\:d\\|e\\\\f", b"a\"b;c:d|e\\f"),
        ("|22|;|3b|:", b"\";;:"),
        ("GeT /|5C|", b"GeT /\\"),
    ] {
        for (not, negated) in [("", false), ("!", true), ("! ", true)] {
            let line = format!("alert tcp any any -> any any (content:{not}\"{text}\"; sid:1;)");
            let rule = Rule::parse(&line).unwrap().unwrap();
            let content = &rule.contents[0];
            assert_eq!(
                (&*content.bytes, content.negated),
                (bytes, negated),
                "{line}"
            );
        }
    }
    let line = r#"alert tcp any any -> any any (msg:"a\\b\;\"c\\"; sid:1;)"#;
    assert_eq!(Rule::parse(line).unwrap().unwrap().msg, r#"a\b;"c\"#);
}

#[test]
fn a_bad_line_is_named_with_its_reason() {
    let good = "alert tcp any any -> any any (content:\"x\"; sid:1;)";
    let with = |line: &str| format!("# first\n\n{good}\n{line}\n");
    for (line, why) in [
        ("alert tcp any any -> any any", "must have options in ( )"),
        ("alert tcp any any -> any any (sid:2;", "must end with )"),
        (
            "alert tcp any -> any any (sid:2;)",
            "has 6 words before (, must be 7: action, protocol, addresses, ports, direction, \
             addresses, ports",
        ),
        (
            "log tcp any any -> any any (sid:2;)",
            "action is \"log\", must be alert or drop",
        ),
        (
            "alert http any any -> any any (sid:2;)",
            "protocol is \"http\", must be tcp, udp, icmp or ip",
        ),
        (
            "alert tcp 10.0.0 any -> any any (sid:2;)",
            "address \"10.0.0\": cannot be read",
        ),
        (
            "alert tcp 1.2.3.4/33 any -> any any (sid:2;)",
            "address \"1.2.3.4/33\": cannot be read",
        ),
        (
            "alert tcp any 9:1 -> any any (sid:2;)",
            "port \"9:1\": cannot be read",
        ),
        (
            "alert tcp any [1,2 -> any any (sid:2;)",
            "port \"[1,2\": a ] is missing",
        ),
        (
            "alert tcp any any <- any any (sid:2;)",
            "direction is \"<-\", must be -> or <>",
        ),
        (
            "alert tcp any any -> any any (sid:2)",
            "option \"sid:2\": must end with ;",
        ),
        (
            "alert tcp any any -> any any (sid:0;)",
            "sid is \"0\", must be 1..=4294967295",
        ),
        (
            "alert tcp any any -> any any (msg:\"x\";)",
            "option \"sid\": is missing",
        ),
        (
            "alert tcp any any -> any any (nocase; sid:2;)",
            "option \"nocase\": must follow a content",
        ),
        (
            "alert tcp any any -> any any (pcre:\"/x/\"; sid:2;)",
            "option \"pcre\": is not supported",
        ),
        (
            "alert tcp any any -> any any (content:x; sid:2;)",
            "content is x, must be quoted",
        ),
        (
            "alert tcp any any -> any any (content:\"\"; sid:2;)",
            "content has 0 bytes, must be 1..=1024",
        ),
        (
            "alert tcp any any -> any any (content:\"|4|\"; sid:2;)",
            "content: |4| at column 40: the number of hexadecimal digits is 1, must be even",
        ),
        (
            "alert tcp any any -> any any (content:\"a|90C8 C|\"; sid:2;)",
            "content: |90C8 C| at column 41: the number of hexadecimal digits is 5, must be even",
        ),
        (
            "  alert tcp any any -> any any (msg:\"\u{fc}\"; content:\"x|41 4g|\"; sid:2;)",
            "content: 'g' at column 57 is not a hexadecimal digit",
        ),
        (
            "alert tcp any any -> any any (content:\"|41\"; sid:2;)",
            "content: the | at column 40 has no other | after it",
        ),
        (
            "alert tcp any any -> any any (content:\"a\\x\"; sid:2;)",
            "content: \\ must be before one of \" ; : | \\",
        ),
        (
            "alert tcp 10.0.0.0/+8 any -> any any (sid:2;)",
            "address \"10.0.0.0/+8\": cannot be read",
        ),
        (
            "alert tcp 10.0.0.010 any -> any any (sid:2;)",
            "address \"10.0.0.010\": cannot be read",
        ),
        (
            "alert tcp any +80 -> any any (sid:2;)",
            "port \"+80\": cannot be read",
        ),
        (
            "alert tcp any 1:080 -> any any (sid:2;)",
            "port \"1:080\": cannot be read",
        ),
        (
            "alert tcp any any -> any any (sid:+2;)",
            "sid is \"+2\", must be 1..=4294967295",
        ),
        (
            "alert tcp any any -> any any (content:\"|+4|\"; sid:2;)",
            "content: '+' at column 41 is not a hexadecimal digit",
        ),
        (
            "alert tcp any any -> any any (content:\"abc\"; depth:2; sid:2;)",
            "depth is 2, must be at least 3, the content's length",
        ),
        (good, "sid 1 is already used on line 3"),
    ] {
        let _host = host(&with(line));
        let error = Nids::init().err().unwrap().to_string();
        assert_eq!(error, format!("asset \"rules\": line 4: {why}"), "{line}");
    }
    let _host = Host::new();
    let error = Nids::init().err().unwrap().to_string();
    assert_eq!(error, "asset \"rules\": is not in the manifest");
    let _host = Host::new().asset("rules", b"# x\n\xff");
    let error = Nids::init().err().unwrap().to_string();
    assert_eq!(error, "asset \"rules\": line 2: is not UTF-8");
}

fn report(host: &Host, service: &mut Nids) -> Outcome {
    let mut query = Builder::new();
    query.field("op", Value::Text("report"));
    call(host, service, b"any", query.bytes())
}

/// What two hosts count that got the keys of half the slots each, is what one host counts.
#[test]
fn counts_split_with_their_shard_and_add_up() {
    let rules = "alert udp any any -> any any (msg:\"one\"; content:\"a\"; sid:5;)\n\
                 alert udp any any -> any any (msg:\"two\"; content:\"ab\"; sid:4;)";
    let run = |part: &dyn Fn(u16) -> bool| {
        let host = host(rules);
        let mut service = Nids::init().unwrap();
        let mut random = Random::new(3);
        for step in 0..1000 {
            if step == 500 {
                service = Nids::init().unwrap();
            }
            let (key, text) = (random.index(200).to_le_bytes(), text(&mut random, 4));
            if part(slot_of(&key)) {
                call(&host, &mut service, &key, &udp(9, &text));
            }
        }
        let before = host.state();
        let answer = report(&host, &mut service);
        assert_eq!(host.state(), before);
        match &before[0].1 {
            Collection::Ordered(counts) => (counts.clone(), answer),
            other => panic!("{other:?}"),
        }
    };
    let (all, answer) = run(&|_| true);
    let mut halves = run(&|slot| slot < 2000).0;
    halves.append(&mut run(&|slot| slot >= 2000).0);
    assert_eq!(halves, all);
    let counted = |sid: u32| -> u64 {
        let of = all
            .iter()
            .filter(|(key, _)| key.ends_with(&sid.to_be_bytes()));
        of.map(|(_, v)| u64::from_le_bytes(v[..].try_into().unwrap()))
            .sum()
    };
    let (one, two) = (counted(5), counted(4));
    assert!(one > two && two > 0);
    let mut expected = Builder::new();
    expected
        .field("total", Value::Int((one + two) as i64))
        .array("rules", 2, |array| {
            for (sid, count, msg) in [(5, one, "one"), (4, two, "two")] {
                array.array(3, |row| {
                    row.push(Value::Int(sid));
                    row.push(Value::Int(count as i64));
                    row.push(Value::Text(msg));
                });
            }
        });
    assert_eq!(answer.replies, [(0, expected.bytes().to_vec())]);
}

#[test]
fn without_the_collection_it_keeps_no_state() {
    let host = Host::new().asset("rules", RULES.as_bytes());
    let mut service = Nids::init().unwrap();
    let ping = PacketBuilder::echo(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 1).build();
    assert_eq!(verdict(&call(&host, &mut service, b"k", &ping)).1, [9]);
    assert_eq!(report(&host, &mut service).replies[0].0, status::NOT_FOUND);
}

#[test]
fn any_bytes_are_handled_or_refused() {
    let mut query = Builder::new();
    query
        .field("op", Value::Text("report"))
        .field("limit", Value::Int(5));
    let query = query.bytes().to_vec();
    let mut counts = [0; 2];
    for seed in seeds(20) {
        let host = host(RULES);
        let mut service = Nids::init().unwrap();
        let good = |random: &mut Random, _| Call {
            key: b"k".to_vec(),
            payload: match random.below(3) {
                0 => query.clone(),
                1 => udp(99, b"xx a;b\x00\xff xx"),
                _ => model_packet(random).bytes(),
            },
            ..Call::default()
        };
        let [accepted, refused] = fuzz_calls(&host, &mut service, seed, 1000, good, |_| {});
        counts = [counts[0] + accepted, counts[1] + refused];
    }
    assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
}

/// No text makes the parser panic.
#[test]
fn any_text_is_rules_or_a_reason() {
    let mut random = Random::new(23);
    for _ in 0..20_000 {
        let mut text = RULES.as_bytes().to_vec();
        for _ in 0..1 + random.index(6) {
            let at = random.index(text.len());
            text[at] = *random.pick(b"\"\\|;:()![],x0 \n\xc3");
        }
        let text = String::from_utf8_lossy(&text);
        let _ = parse_all(&text, RULES_MAX);
    }
}
