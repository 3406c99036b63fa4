//! Against a naive list of flows; checksums summed in full.

use super::*;
use alloc::vec;
use e3_packet::{PacketBuilder, checksum};
use e3_sdk::testing::{Call, Host, Kind, Outcome, slot_of};
use e3_testkit::{Random, fuzz_calls, key_of, seeds};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

const ROUTES: &str = "0.0.0.0/0 198.51.100.1\n198.18.0.0/15 198.51.100.2 # tests\n\n\
                      198.18.7.0/24 198.51.100.3\n198.18.7.128/25 198.51.100.4\n";
const NOW: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;

fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| e3_packet::routes::compile(ROUTES).unwrap())
}

fn host() -> Host {
    Host::new()
        .collection("mappings", Kind::Hash)
        .collection("ports", Kind::Hash)
        .asset("routes", table())
        .config("public", "203.0.113.8/30")
}

fn call(payload: &[u8], key: &[u8], now: i64) -> Call {
    Call {
        payload: payload.to_vec(),
        key: key.to_vec(),
        now,
        ..Call::default()
    }
}

fn refused(done: &Outcome) -> (u32, String) {
    let [(status, reason)] = &done.replies[..] else {
        panic!("{done:?}");
    };
    (*status, String::from_utf8(reason.clone()).unwrap())
}

/// The packet of an answer, whose checksums must be right, with the whole answer.
fn answered(done: &Outcome) -> Result<(Vec<u8>, Flow, Option<String>), String> {
    let (status, answer) = &done.replies[0];
    if *status != status::OK {
        return Err(refused(done).1);
    }
    let record = Record::parse(answer).unwrap();
    let bytes = record.bytes("packet").unwrap().to_vec();
    let packet = Packet::parse(&bytes).unwrap();
    packet.check_header().unwrap();
    let at = match packet.protocol() {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => 2,
    };
    let sum = checksum::of_transport(&packet).unwrap().to_be_bytes();
    assert_eq!(packet.payload()[at..at + 2], sum);
    let flow = packet.flow().unwrap();
    assert_eq!(record.text("source"), Ok(&*flow.source.to_string()));
    let hop = record.text("next-hop").ok().map(String::from);
    Ok((bytes, flow, hop))
}

fn ask(host: &Host, nat: &mut Natv4, key: &[u8], fields: &[(&str, Value<'_>)]) -> Outcome {
    let mut b = Builder::new();
    for (name, value) in fields {
        b.field(name, *value);
    }
    host.call(nat, &call(b.bytes(), key, NOW))
}

fn random_flow(random: &mut Random) -> Flow {
    let flow = Flow {
        source: Ipv4Addr::new(10, 0, 0, random.below(12) as u8),
        destination: Ipv4Addr::from_bits(0xc612_0000 + random.below(1 << 17) as u32),
        protocol: [protocol::TCP, protocol::UDP, protocol::ICMP][random.below(3) as usize],
        source_port: 1024 + random.below(4) as u16,
        destination_port: 80,
    };
    match flow.protocol {
        protocol::ICMP => Flow {
            destination_port: flow.source_port,
            ..flow
        },
        _ => flow,
    }
}

#[test]
fn init_takes_no_other_asset_and_no_wrong_configuration() {
    let refuse = |host: Host| {
        let _host = host;
        Natv4::init().unwrap_err().to_string()
    };
    let open = || {
        Host::new()
            .collection("mappings", Kind::Hash)
            .collection("ports", Kind::Hash)
    };
    let text = refuse(
        open()
            .asset("routes", ROUTES.as_bytes())
            .config("public", "203.0.113.8"),
    );
    assert!(text.contains("is not a compiled route table"), "{text}");
    let cut = &table()[..table().len() - 1];
    let text = refuse(open().asset("routes", cut).config("public", "203.0.113.8"));
    assert!(text.contains("must be 33686080 bytes"), "{text}");
    let text = refuse(open());
    assert_eq!(text, "asset \"routes\": is not in the manifest");
    for (name, value) in [
        ("public", ""),
        ("public", "203.0.113.8/16"),
        ("public", "nowhere"),
        ("ports", "0-65535"),
        ("ports", "5000-4000"),
        ("ports", "+1024-65535"),
        ("ports", "01024-65535"),
        ("public", "203.0.113.8/+30"),
        ("inside", "10.0.0.0/+8"),
        ("inside", "10.0.0.0/08"),
        ("idle-udp-s", "+100"),
        ("ports", "1024-2000"), // fewer than slots
        ("inside", "10.0.0.0/8,"),
        ("idle-udp-s", "0"),
    ] {
        let text = refuse(host().config(name, value));
        assert!(text.starts_with(&format!("config {name:?}")), "{text}");
    }
}

/// Slot, protocol, inside address and port.
type From = (u16, u8, Ipv4Addr, u16);
/// Public address and port.
type To = (Ipv4Addr, u16);

/// Every packet, in and out, against a list of the mappings that there should be.
#[test]
fn translates_as_a_naive_table_does() {
    for seed in seeds(2) {
        let mut random = Random::new(seed);
        let host = host().config("idle-tcp-s", "60").config("idle-udp-s", "60");
        let mut nat = Natv4::init().unwrap();
        let mut naive: BTreeMap<From, (To, i64)> = BTreeMap::new();
        let mut now = NOW;
        for step in 0..3_000 {
            now += random.below(100) as i64 * SECOND / 10;
            if step % 1_000 == 500 {
                nat = Natv4::init().unwrap(); // an instance's memory may vanish
            }
            let payload: Vec<u8> = (0..random.below(50)).map(|_| random.byte()).collect();
            let flow = random_flow(&mut random);
            let key = flow.source.octets();
            let inside = (slot_of(&key), flow.protocol, flow.source, flow.source_port);
            let at = format!("seed {seed}, step {step}, {flow}");
            let packet = PacketBuilder::new(flow).payload(&payload).build();
            let Ok((_, out, hop)) = answered(&host.call(&mut nat, &call(&packet, &key, now)))
            else {
                panic!("{at}");
            };
            let public = (out.source, out.source_port);
            let expected_hop = match flow.destination.octets() {
                [_, 18, 7, 128..=255] => "198.51.100.4",
                [_, 18, 7, _] => "198.51.100.3",
                _ => "198.51.100.2",
            };
            assert_eq!(hop.as_deref(), Some(expected_hop), "{at}");
            assert_eq!(out.destination, flow.destination, "{at}");
            match naive.get(&inside) {
                Some((before, used)) if now - used <= 60 * SECOND => {
                    assert_eq!(public, *before, "{at}");
                }
                _ => {
                    // a port of an idle mapping may go to another one
                    naive.retain(|i, (other, used)| {
                        let clash = i.1 == flow.protocol && *other == public;
                        assert!(!clash || now - *used > 60 * SECOND, "{at}");
                        !clash
                    });
                }
            }
            naive.insert(inside, (public, now));
            // the answer
            let back = match flow.protocol {
                protocol::ICMP => Flow {
                    source_port: public.1,
                    ..out.reversed()
                },
                _ => out.reversed(),
            };
            let answer = PacketBuilder::new(back)
                .icmp_kind(0)
                .payload(&payload)
                .build();
            let later = now + random.below(80) as i64 * SECOND;
            let number = nat.pool.number_of(public.0, public.1).unwrap();
            let owner = key_of(Pool::owner(number).0);
            assert_eq!(slot_of(&owner), slot_of(&key), "{at}");
            let before = host.state();
            let done = host.call(&mut nat, &call(&answer, &owner, later));
            assert_eq!(host.state(), before, "{at}");
            match answered(&done) {
                Ok((_, home, hop)) => {
                    assert_eq!((home.destination, hop), (flow.source, None), "{at}");
                    assert_eq!(home.destination_port, flow.source_port, "{at}");
                    assert!(later - now <= 68 * SECOND, "{at}");
                }
                Err(reason) => {
                    assert!(reason.starts_with("packet: no mapping"), "{at}: {reason}");
                    assert!(later - now > 60 * SECOND || flow.protocol == 1, "{at}");
                }
            }
        }
    }
}

#[test]
fn ports_are_unique_and_come_back_when_idle() {
    let host = host()
        .config("public", "203.0.113.9")
        .config("idle-udp-s", "100");
    let mut nat = Natv4::init().unwrap();
    let key = b"subscriber";
    let share = nat.pool.share(slot_of(key));
    assert!((15..=16).contains(&share));
    let send = |nat: &mut Natv4, port: u16, now: i64| {
        let packet = PacketBuilder::udp(
            (Ipv4Addr::new(10, 0, 0, 1), port),
            (Ipv4Addr::new(8, 8, 8, 8), 53),
        );
        let done = host.call(nat, &call(&packet.build(), key, now));
        answered(&done).map(|(_, flow, _)| flow.source_port)
    };
    let mut ports = BTreeSet::new();
    for port in 0..share as u16 {
        ports.insert(send(&mut nat, port, NOW + i64::from(port)).unwrap());
    }
    assert_eq!(ports.len(), share as usize);
    let before = host.state();
    for later in [0, 99, 112] {
        let full = send(&mut nat, 999, NOW + later * SECOND).unwrap_err();
        assert!(full.contains("ports of slot"), "{full}");
    }
    assert_eq!(host.state(), before);
    // another slot has ports of its own
    let packet = PacketBuilder::udp(
        (Ipv4Addr::new(10, 0, 0, 1), 5),
        (Ipv4Addr::new(8, 8, 8, 8), 53),
    );
    let done = host.call(&mut nat, &call(&packet.build(), b"other", NOW));
    assert!(!ports.contains(&answered(&done).unwrap().1.source_port));
    // an eighth later than the idle time all are free again, but for the one that was used
    assert_eq!(
        send(&mut nat, 3, NOW + 90 * SECOND),
        send(&mut nat, 3, NOW + 91 * SECOND)
    );
    let report = |nat: &mut Natv4| {
        let done = ask(&host, nat, key, &[("op", Value::Text("report"))]);
        let record = Record::parse(&done.replies[0].1).unwrap();
        (record.int("udp").unwrap(), record.int("share").unwrap())
    };
    assert_eq!(report(&mut nat), (i64::from(share), i64::from(share)));
    assert!(send(&mut nat, 1000, NOW + 113 * SECOND).is_ok());
    assert_eq!(report(&mut nat), (2, i64::from(share)));
}

#[test]
fn what_cannot_be_translated_is_refused_by_name() {
    let host = host();
    let mut nat = Natv4::init().unwrap();
    let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(8, 8, 8, 8));
    let public = Ipv4Addr::new(203, 0, 113, 8);
    let mut refuse = |payload: &[u8]| refused(&host.call(&mut nat, &call(payload, b"k", NOW)));
    let udp = |a, b| PacketBuilder::udp((a, 1), (b, 2)).build();
    let starts = |got: (u32, String), status, text: &str| {
        assert_eq!(got.0, status, "{}", got.1);
        assert!(got.1.starts_with(text), "{}", got.1);
    };
    starts(refuse(b""), 1, "packet: has 0 bytes");
    starts(refuse(&[0x60; 40]), 1, "packet: version is 6");
    starts(
        refuse(&[0xa1; 40]),
        1,
        "record: expected a field name at byte 2",
    );
    starts(refuse(&[0xa0]), 1, "field \"op\": is missing");
    starts(
        refuse(&udp(b, a)),
        3,
        "packet: udp 8.8.8.8:1 > 10.0.0.1:2 is neither",
    );
    starts(
        refuse(&udp(a, public)),
        3,
        "packet: udp 10.0.0.1:1 > 203.0.113.8:2 goes from",
    );
    starts(refuse(&udp(b, public)), 2, "packet: no mapping for udp");
    let to_port = PacketBuilder::udp((b, 1), (public, 5000)).build();
    starts(
        refuse(&to_port),
        3,
        "packet: udp 8.8.8.8:1 > 203.0.113.8:5000: key has slot",
    );
    let mut wrong = udp(a, b);
    wrong[10] ^= 1;
    starts(refuse(&wrong), 1, "packet: checksum is");
    let error = PacketBuilder::echo(a, b, 7).icmp_kind(3).build();
    starts(
        refuse(&error),
        1,
        "packet: protocol 1 to 8.8.8.8 has no ports",
    );
    assert!(host.state().iter().all(|(_, c)| match c {
        e3_sdk::testing::Collection::Hash(map) => map.is_empty(),
        _ => false,
    }));
}

#[test]
fn forwarding_takes_one_off_the_time_to_live() {
    let host = host();
    let mut nat = Natv4::init().unwrap();
    let ends = (
        (Ipv4Addr::new(10, 0, 0, 1), 5),
        (Ipv4Addr::new(8, 8, 8, 8), 53),
    );
    let untouched = host.state();
    for ttl in [0, 1] {
        let packet = PacketBuilder::udp(ends.0, ends.1).ttl(ttl).build();
        let got = refused(&host.call(&mut nat, &call(&packet, b"k", NOW)));
        let why = "must be at least 2, udp 10.0.0.1:5 > 8.8.8.8:53";
        let why = format!("packet: time to live is {ttl}, {why}");
        assert_eq!(
            (got, host.state()),
            ((status::REFUSED, why), untouched.clone())
        );
    }
    for ttl in 2..=255 {
        let payload = [ttl];
        let packet = PacketBuilder::udp(ends.0, ends.1)
            .ttl(ttl)
            .payload(&payload);
        let done = host.call(&mut nat, &call(&packet.build(), b"k", NOW));
        let (bytes, out, _) = answered(&done).unwrap();
        let flow = Flow {
            protocol: protocol::UDP,
            ..out
        };
        assert_eq!(
            bytes,
            PacketBuilder::new(flow)
                .ttl(ttl - 1)
                .payload(&payload)
                .build()
        );
        let number = nat.pool.number_of(out.source, out.source_port).unwrap();
        let owner = key_of(Pool::owner(number).0);
        let back = |ttl| PacketBuilder::new(out.reversed()).ttl(ttl).build();
        let (bytes, home, _) =
            answered(&host.call(&mut nat, &call(&back(ttl), &owner, NOW))).unwrap();
        assert_eq!(bytes, PacketBuilder::new(home).ttl(ttl - 1).build());
        let got = refused(&host.call(&mut nat, &call(&back(1), &owner, NOW)));
        assert_eq!(got.0, status::REFUSED, "{}", got.1);
    }
}

#[test]
fn two_halves_of_the_slots_hold_what_one_whole_holds() {
    let run = |part: &dyn Fn(u16) -> bool| {
        let host = host();
        let mut nat = Natv4::init().unwrap();
        let mut random = Random::new(99);
        let mut answers = vec![];
        for step in 0..2_000 {
            let flow = random_flow(&mut random);
            let key = flow.source.octets();
            if part(slot_of(&key)) {
                let packet = PacketBuilder::new(flow).build();
                let now = NOW + step * SECOND;
                answers.push((step, host.call(&mut nat, &call(&packet, &key, now)).replies));
            }
        }
        let entries = host.state().into_iter().flat_map(|(name, c)| match c {
            e3_sdk::testing::Collection::Hash(map) => map
                .into_iter()
                .map(move |(k, v)| (name.clone(), k, v))
                .collect::<Vec<_>>(),
            _ => vec![],
        });
        (entries.collect::<BTreeSet<_>>(), answers)
    };
    let whole = run(&|_| true);
    let (mut state, mut answers) = run(&|slot| slot < 2048);
    let (more, later) = run(&|slot| slot >= 2048);
    assert!(!state.is_empty() && !more.is_empty() && state.is_disjoint(&more));
    state.extend(more);
    answers.extend(later);
    answers.sort_by_key(|(step, _)| *step);
    assert!(whole.0 == state && whole.1 == answers);
}

#[test]
fn passes_the_packet_on_and_answers_queries() {
    let host = host().channel("next").config("to", "next");
    let mut nat = Natv4::init().unwrap();
    let packet = PacketBuilder::udp(
        (Ipv4Addr::new(10, 0, 0, 1), 5),
        (Ipv4Addr::new(8, 8, 8, 8), 53),
    );
    let done = host.call(&mut nat, &call(&packet.build(), b"k", NOW));
    assert!(done.replies.is_empty());
    let sent = Packet::parse(&done.sent[0].payload)
        .unwrap()
        .flow()
        .unwrap();
    let query = [
        ("op", Value::Text("get")),
        ("protocol", Value::Int(17)),
        ("address", Value::Text("10.0.0.1")),
        ("port", Value::Int(5)),
    ];
    let done = ask(&host, &mut nat, b"k", &query);
    let record = Record::parse(&done.replies[0].1).unwrap();
    assert_eq!(record.text("public"), Ok(&*sent.source.to_string()));
    assert_eq!(record.int("public-port"), Ok(i64::from(sent.source_port)));
    assert_eq!(record.int("used-ns"), Ok(NOW));
    let route = [
        ("op", Value::Text("route")),
        ("address", Value::Text("198.18.7.200")),
    ];
    let done = ask(&host, &mut nat, b"k", &route);
    let record = Record::parse(&done.replies[0].1).unwrap();
    assert_eq!(record.text("next-hop"), Ok("198.51.100.4"));
    let done = ask(&host, &mut nat, b"other", &query);
    assert_eq!(done.replies[0].0, status::NOT_FOUND);
}

#[test]
fn any_bytes_are_handled_or_refused_without_a_trace() {
    let query = |op| {
        let mut b = Builder::new();
        b.field("op", Value::Text(op))
            .field("address", Value::Text("10.0.0.1"))
            .field("port", Value::Int(5))
            .field("protocol", Value::Int(17));
        b.bytes().to_vec()
    };
    let good = |random: &mut Random, _| {
        let mut flow = random_flow(random);
        if random.one_in(3) {
            flow = flow.reversed();
            flow.destination = Ipv4Addr::new(203, 0, 113, 8 + random.below(4) as u8);
        }
        let payload = if random.one_in(4) {
            query(["get", "report", "route"][random.index(3)])
        } else {
            PacketBuilder::new(flow).size(random.index(90)).build()
        };
        call(&payload, &flow.source.octets(), NOW)
    };
    // most damage should get past the header's checksum
    let repair = |bytes: &mut [u8]| {
        if bytes.len() >= 20 && bytes[0] >> 4 == 4 {
            let end = (usize::from(bytes[0] & 15) * 4).clamp(20, bytes.len());
            let sum = checksum::of_header(&bytes[..end]).to_be_bytes();
            bytes[10..12].copy_from_slice(&sum);
        }
    };
    let mut counts = [0; 2];
    // many short runs: what is kept is copied for every comparison
    for seed in seeds(80) {
        let (host, mut nat) = (host(), Natv4::init().unwrap());
        let [accepted, refused] = fuzz_calls(&host, &mut nat, seed, 250, good, repair);
        counts = [counts[0] + accepted, counts[1] + refused];
    }
    assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
}
