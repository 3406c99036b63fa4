//! Tests of the service against the in-memory host of the SDK.

use super::*;
use e3_sdk::accel::{AesCbc, HmacSha1, HmacSha256};
use e3_sdk::testing::{Call, Collection, Host, Kind, Outcome, slot_of};
use e3_testkit::{Random, fuzz_calls, seeds};
use std::collections::{BTreeMap, BTreeSet};

mod epochs;
mod rotation;

const MASTER: &[u8] = b"0123456789abcdef0123456789abcdef";

fn host(direction: &str) -> Host {
    Host::new()
        .channel("next")
        .collection("sequences", Kind::Hash)
        .collection("windows", Kind::Hash)
        .config("direction", direction)
        .config("source", "192.0.2.1")
        .config("destination", "198.51.100.2")
        .config("to", "next")
        .secret("master", MASTER)
}

fn call(host: &Host, service: &mut Ipsec, key: &[u8], payload: &[u8]) -> Outcome {
    let call = Call {
        key: key.to_vec(),
        payload: payload.to_vec(),
        ..Call::default()
    };
    host.call(service, &call)
}

/// What was forwarded.
fn passed(outcome: &Outcome) -> &[u8] {
    assert_eq!((&outcome.result, outcome.replies.len()), (&Ok(()), 0));
    assert_eq!(outcome.sent.len(), 1);
    &outcome.sent[0].payload
}

/// Status and text of a refusal.
fn refusal(outcome: &Outcome) -> (u32, String) {
    assert_eq!((&outcome.result, outcome.sent.len()), (&Ok(()), 0));
    let (status, text) = &outcome.replies[0];
    (*status, String::from_utf8(text.clone()).unwrap())
}

/// The header's checksum, the slow way.
fn sum(header: &mut [u8]) {
    header[10..12].fill(0);
    let words = header
        .chunks(2)
        .map(|w| u64::from(w[0]) * 256 + u64::from(w[1]));
    let sum = (words.sum::<u64>() % 0xffff) as u16;
    // one's complement has two zeros; a header is not all zeros, so this is the other one
    let sum = if sum == 0 { 0 } else { !sum };
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn packet(len: usize, fill: u8) -> Vec<u8> {
    let mut packet = vec![fill; len];
    packet[..20].copy_from_slice(&[
        0x45, 0xb8, 0, 0, 1, 2, 0x40, 0, 63, 17, 0, 0, 10, 0, 0, 1, 10, 0, 9, fill,
    ]);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    sum(&mut packet[..20]);
    packet
}

/// HMAC-based key derivation, RFC 5869, in two blocks.
fn derive(epoch: &[u8], label: &[u8], spi: u32) -> Vec<u8> {
    let tag = |key: &[u8], data: &[u8]| HmacSha256::new(key).unwrap().tag(data).unwrap();
    let ends = [192, 0, 2, 1, 198, 51, 100, 2];
    let info = [label, &spi.to_be_bytes(), &ends].concat();
    let secret = tag(epoch, MASTER);
    let first = tag(&secret, &[&info[..], &[1]].concat());
    let second = tag(&secret, &[&first[..], &info, &[2]].concat());
    [first, second].concat()
}

/// Asks, without a trace in the numbers.
fn ask(host: &Host, service: &mut Ipsec, key: &[u8], fields: &[(&str, Value<'_>)]) -> Outcome {
    let mut query = Builder::new();
    for (name, value) in fields {
        query.field(name, *value);
    }
    call(host, service, key, query.bytes())
}

/// The epoch that a report says, and its proof.
fn report(host: &Host, service: &mut Ipsec, key: &[u8]) -> (Epoch, [u8; 16]) {
    let outcome = ask(host, service, key, &[("op", Value::Text("report"))]);
    let (status, answer) = &outcome.replies[0];
    let record = Record::parse(answer).unwrap();
    assert_eq!(*status, status::OK);
    let field = |name| from_text(record.text(name).unwrap()).unwrap();
    (field("epoch"), field("proof"))
}

fn accept(
    host: &Host,
    service: &mut Ipsec,
    key: &[u8],
    (epoch, proof): &(Epoch, [u8; 16]),
) -> (u32, String) {
    let fields = [
        ("op", Value::Text("accept")),
        ("epoch", Value::Text(&to_text(epoch))),
        ("proof", Value::Text(&to_text(proof))),
    ];
    said(&ask(host, service, key, &fields))
}

fn said(outcome: &Outcome) -> (u32, String) {
    let (status, text) = &outcome.replies[0];
    (*status, String::from_utf8_lossy(text).into_owned())
}

/// Opens by the letter of the RFCs, with nothing of the service's code.
fn open_by_the_letter(sealed: &[u8], epoch: &[u8]) -> (u32, u32, Vec<u8>) {
    let spi = u32::from_be_bytes(sealed[20..24].try_into().unwrap());
    let sequence = u32::from_be_bytes(sealed[24..28].try_into().unwrap());
    let keys = derive(epoch, b"e3 ipsec keys", spi);
    let (cipher, tag) = (&keys[..16], &keys[16..36]);
    let (covered, icv) = sealed[20..].split_at(sealed.len() - 32);
    assert_eq!(
        HmacSha1::new(tag).unwrap().tag(covered).unwrap()[..12],
        *icv
    );
    let mut text = sealed[44..sealed.len() - 12].to_vec();
    let iv: [u8; 16] = sealed[28..44].try_into().unwrap();
    AesCbc::new(cipher)
        .unwrap()
        .decrypt(&iv, &mut text)
        .unwrap();
    let pad = text[text.len() - 2] as usize;
    assert!(pad < 16 && text[text.len() - 1] == 4);
    let len = text.len() - 2 - pad;
    assert!(
        text[len..len + pad]
            .iter()
            .enumerate()
            .all(|(i, b)| i + 1 == *b as usize)
    );
    (spi, sequence, text[..len].to_vec())
}

#[test]
fn packets_of_every_length_come_out_as_they_went_in() {
    let out = host("out");
    let mut service = Ipsec::init().unwrap();
    let key = b"flow";
    let spi = 256 + u32::from(slot_of(key));
    let mut sealed = Vec::new();
    let announced = report(&out, &mut service, key);
    assert_eq!(
        announced.1,
        derive(&announced.0, b"e3 ipsec epoch", spi)[..16]
    );
    for (number, len) in (20..1600).enumerate() {
        if number == 700 {
            service = Ipsec::init().unwrap();
        }
        let plain = packet(len, len as u8);
        let outcome = call(&out, &mut service, key, &plain);
        let esp = passed(&outcome);
        assert_eq!(esp[..2], [0x45, 0xb8]);
        assert_eq!(usize::from(esp[2]) * 256 + usize::from(esp[3]), esp.len());
        assert_eq!(esp[12..20], [192, 0, 2, 1, 198, 51, 100, 2]);
        let mut header = esp[..20].to_vec();
        sum(&mut header);
        assert_eq!(esp[..20], header);
        let expected = (spi, number as u32 + 1, plain);
        assert_eq!(open_by_the_letter(esp, &announced.0), expected, "{len}");
        sealed.push(esp.to_vec());
    }
    let mut ivs: Vec<_> = sealed.iter().map(|esp| esp[28..44].to_vec()).collect();
    ivs.sort();
    ivs.dedup();
    assert_eq!(ivs.len(), sealed.len());

    let end = host("in");
    let mut service = Ipsec::init().unwrap();
    assert_eq!(accept(&end, &mut service, key, &announced).0, status::OK);
    for (number, esp) in sealed.iter().enumerate() {
        if number == 700 {
            service = Ipsec::init().unwrap();
        }
        let outcome = call(&end, &mut service, key, esp);
        let len = number + 20;
        assert_eq!(passed(&outcome), packet(len, len as u8), "{len}");
    }
    // all of them again
    let before = end.state();
    for esp in &sealed {
        let (status, text) = refusal(&call(&end, &mut service, key, esp));
        assert_eq!(status, status::REFUSED);
        assert!(text.contains("repeated or too old, after 1580"), "{text}");
    }
    assert_eq!(end.state(), before);
}

#[test]
fn any_changed_bit_is_refused_and_changes_nothing() {
    let out = host("out");
    let mut service = Ipsec::init().unwrap();
    let outcome = call(&out, &mut service, b"k", &packet(100, 1));
    let good = passed(&outcome).to_vec();
    let announced = report(&out, &mut service, b"k");
    let end = host("in");
    let mut service = Ipsec::init().unwrap();
    assert_eq!(accept(&end, &mut service, b"k", &announced).0, status::OK);
    let before = end.state();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let outcome = call(&end, &mut service, b"k", &bad);
        let (status, text) = refusal(&outcome);
        assert_ne!(status, status::OK, "bit {bit}");
        match bit / 160 {
            0 => assert_eq!(status, status::MALFORMED, "bit {bit}: {text}"),
            _ => assert_eq!(status, status::REFUSED, "bit {bit}: {text}"),
        }
    }
    for len in 0..good.len() {
        let outcome = call(&end, &mut service, b"k", &good[..len]);
        assert_eq!(refusal(&outcome).0, status::MALFORMED, "{len} bytes");
    }
    assert_eq!(end.state(), before);
    // under a key of another SA
    let (status, text) = refusal(&call(&end, &mut service, b"another", &good));
    assert_eq!(status, status::REFUSED);
    assert!(text.contains("the request's key belongs to"), "{text}");
    assert_eq!(
        passed(&call(&end, &mut service, b"k", &good)),
        packet(100, 1)
    );
}

#[test]
fn late_packets_pass_within_the_window_once() {
    let out = host("out");
    let mut service = Ipsec::init().unwrap();
    let sealed: Vec<Vec<u8>> = (0..100)
        .map(|_| passed(&call(&out, &mut service, b"k", &packet(60, 9))).to_vec())
        .collect();
    let announced = report(&out, &mut service, b"k");
    let end = host("in");
    let mut service = Ipsec::init().unwrap();
    assert_eq!(accept(&end, &mut service, b"k", &announced).0, status::OK);
    let mut number = |n: usize| {
        call(&end, &mut service, b"k", &sealed[n - 1])
            .replies
            .is_empty()
    };
    // (sequence number, whether it passes)
    for (n, passes) in [
        (1, true),
        (1, false),
        (70, true),
        (6, false),
        (7, true),
        (7, false),
        (69, true),
        (100, true),
        (36, false),
        (37, true),
        (70, false),
        (69, false),
        (99, true),
    ] {
        assert_eq!(number(n), passes, "{n}");
    }
}

#[test]
fn a_used_up_association_refuses() {
    let out = host("out");
    let mut service = Ipsec::init().unwrap();
    let spi = (256 + u32::from(slot_of(b"k"))).to_be_bytes();
    let epoch = [7; 16];
    let sequence = u32::MAX - 1;
    let used = HashMap::open("sequences").unwrap();
    used.put(&spi, &Sender { epoch, sequence }.to_bytes())
        .unwrap();
    let outcome = call(&out, &mut service, b"k", &packet(60, 9));
    assert_eq!(open_by_the_letter(passed(&outcome), &epoch).1, u32::MAX);
    let before = out.state();
    let (status, text) = refusal(&call(&out, &mut service, b"k", &packet(60, 9)));
    assert_eq!(status, status::REFUSED);
    assert!(text.ends_with("sequence numbers are used"), "{text}");
    assert_eq!(out.state(), before);
}

/// What two hosts hold that got the keys of half the slots each, is what one host holds.
#[test]
fn shards_split_anywhere() {
    let run = |part: &dyn Fn(u16) -> bool| {
        let host = host("out");
        let mut service = Ipsec::init().unwrap();
        let mut random = Random::new(7);
        for _ in 0..2000 {
            let key = random.index(300).to_le_bytes();
            if part(slot_of(&key)) {
                passed(&call(&host, &mut service, &key, &packet(40, 1)));
            }
        }
        match &host.state()[0].1 {
            // epochs are random: what counts are the numbers
            Collection::Hash(senders) => senders
                .iter()
                .map(|(spi, bytes)| (spi.clone(), Sender::stored(Some(bytes)).unwrap().sequence))
                .collect::<BTreeMap<_, _>>(),
            other => panic!("{other:?}"),
        }
    };
    let all = run(&|_| true);
    let mut halves = run(&|slot| slot < 1777);
    halves.append(&mut run(&|slot| slot >= 1777));
    assert_eq!(halves, all);
    assert!(all.len() > 200);
}

#[test]
fn one_association_with_given_keys_answers_with_a_record() {
    let given: Vec<u8> = (0..36).collect();
    let host = |direction| {
        host(direction)
            .config("to", "")
            .config("sas", "1")
            .config("spi", "4321")
            .secret("keys", &given)
    };
    let out = host("out");
    let mut service = Ipsec::init().unwrap();
    for n in 1..=3 {
        let outcome = call(&out, &mut service, &[n], &packet(60, 9));
        let (status, answer) = &outcome.replies[0];
        let record = Record::parse(answer).unwrap();
        assert_eq!((*status, outcome.sent.len()), (status::OK, 0));
        assert_eq!(record.int("spi"), Ok(4321));
        assert_eq!(record.int("sequence"), Ok(n.into()));
        assert_eq!(record.int("bytes"), Ok(120));
    }
    let mut query = Builder::new();
    query.field("op", Value::Text("report"));
    let before = out.state();
    let outcome = call(&out, &mut service, b"any", query.bytes());
    let record = Record::parse(&outcome.replies[0].1).unwrap();
    assert_eq!(
        (record.int("spi"), record.int("sequence")),
        (Ok(4321), Ok(3))
    );
    assert_eq!(out.state(), before);
    query.clear().field("op", Value::Text("drop"));
    let outcome = call(&out, &mut service, b"any", query.bytes());
    assert_eq!(
        refusal(&outcome),
        (1, "field \"op\": is \"drop\", must be \"report\"".into())
    );
}

#[test]
fn settings_that_cannot_be_are_named() {
    for (name, value, error) in [
        (
            "direction",
            "up",
            "config \"direction\": invalid value \"up\"",
        ),
        ("sas", "3", "config \"sas\": invalid value \"3\""),
        ("spi", "255", "config \"spi\": invalid value \"255\""),
        (
            "source",
            "10.0.0",
            "config \"source\": invalid value \"10.0.0\"",
        ),
        ("to", "nowhere", "config \"to\": invalid value \"nowhere\""),
    ] {
        let _host = host("out").config(name, value);
        assert_eq!(Ipsec::init().err().unwrap().to_string(), error);
    }
    let _host = host("in").secret("master", b"short");
    let error = "secret \"master\": has 5 bytes, must be at least 16";
    assert_eq!(Ipsec::init().err().unwrap().to_string(), error);
}

/// No payload makes it panic, and none that is refused leaves a trace.
#[test]
fn any_bytes_are_handled_or_refused() {
    let mut query = Builder::new();
    query.field("op", Value::Text("report"));
    let query = query.bytes().to_vec();
    for direction in ["out", "in"] {
        let mut counts = [0; 2];
        for seed in seeds(20) {
            let plain: Vec<Vec<u8>> = (20..120).map(|len| packet(len, 3)).collect();
            let mut announced = Default::default();
            let packets = if direction == "out" {
                plain
            } else {
                let out = host("out");
                let mut service = Ipsec::init().unwrap();
                announced = report(&out, &mut service, b"k");
                let mut seal = |plain| {
                    let outcome = call(&out, &mut service, b"k", plain);
                    passed(&outcome).to_vec()
                };
                plain.iter().map(|plain| seal(plain)).collect()
            };
            let host = host(direction);
            let mut service = Ipsec::init().unwrap();
            if direction == "in" {
                assert_eq!(accept(&host, &mut service, b"k", &announced).0, status::OK);
            }
            let good = |random: &mut Random, _| Call {
                key: b"k".to_vec(),
                payload: if random.one_in(3) {
                    query.clone()
                } else {
                    random.pick(&packets).clone()
                },
                ..Call::default()
            };
            let [accepted, refused] = fuzz_calls(&host, &mut service, seed, 1000, good, |_| {});
            counts = [counts[0] + accepted, counts[1] + refused];
        }
        assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
    }
}
