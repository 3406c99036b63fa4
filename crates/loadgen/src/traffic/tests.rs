//! Traffic files: what is read from them, and which are refused.

use super::*;
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_packet::{Packet, PacketBuilder};
use e3_random::Random;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A capture, written byte by byte.
struct Capture {
    bytes: Vec<u8>,
    big: bool,
}

impl Capture {
    fn new(magic: u32, link: u32, big: bool) -> Capture {
        let mut capture = Capture { bytes: vec![], big };
        capture.u32(magic);
        let version: [u8; 4] = if big { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
        capture.bytes.extend(version);
        for field in [0, 0, 65535, link] {
            capture.u32(field);
        }
        capture
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend(if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
    }

    fn packet(mut self, seconds: u32, fraction: u32, length: u32, frame: &[u8]) -> Capture {
        for field in [seconds, fraction, frame.len() as u32, length] {
            self.u32(field);
        }
        self.bytes.extend(frame);
        self
    }

    fn whole(self, seconds: u32, fraction: u32, frame: &[u8]) -> Capture {
        self.packet(seconds, fraction, frame.len() as u32, frame)
    }
}

const MICROS: u32 = 0xa1b2_c3d4;
const NANOS: u32 = 0xa1b2_3c4d;

fn out() -> Vec<u8> {
    let (a, b) = (Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(8, 8, 8, 8));
    PacketBuilder::udp((a, 1000), (b, 53))
        .payload(b"query")
        .build()
}

fn back() -> Vec<u8> {
    let (a, b) = (Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(8, 8, 8, 8));
    PacketBuilder::udp((b, 53), (a, 1000)).build()
}

fn frame(tags: &[u8], ethertype: [u8; 2], packet: &[u8]) -> Vec<u8> {
    let addresses = [0x02; 12];
    // padded as a short frame is
    let mut all = [&addresses, tags, &ethertype, packet].concat();
    all.resize(all.len().max(80), 0);
    all
}

#[test]
fn packets_of_a_capture_keep_their_bytes_and_times() {
    for (magic, micros) in [(MICROS, 1), (NANOS, 1000)] {
        for big in [false, true] {
            let capture = Capture::new(magic, 101, big)
                .whole(100, 999_999 * micros, &out())
                .whole(101, 0, &back())
                .whole(100, 0, &out());
            let traffic = pcap::parse(&capture.bytes).unwrap();
            let payloads: Vec<_> = traffic.items.iter().map(|i| i.payload.clone()).collect();
            assert_eq!(payloads, [out(), back(), out()]);
            // the third lies before the second, and comes with it
            let times: Vec<u64> = traffic.items.iter().map(|i| i.at.0).collect();
            assert_eq!(times, [0, 1000, 1000]);
            // both directions of an inside host have one key
            assert!(traffic.items.iter().all(|i| i.key == [10, 1, 2, 3]));
        }
    }
}

#[test]
fn frames_are_taken_off_and_other_protocols_left_out() {
    let vlan = [0x81, 0, 0, 7];
    let provider = [0x88, 0xa8, 0, 9, 0x81, 0, 0, 7];
    let (arp, ipv6) = ([0x08, 0x06], [0x86, 0xdd]);
    let capture = Capture::new(MICROS, 1, false)
        .whole(1, 0, &frame(&[], [8, 0], &out()))
        .whole(2, 0, &frame(&vlan, [8, 0], &out()))
        .whole(3, 0, &frame(&[], arp, &[1; 28]))
        .whole(4, 0, &frame(&provider, [8, 0], &out()))
        .whole(5, 0, &frame(&[], ipv6, &[0x60; 40]))
        .whole(6, 0, &[1; 13]);
    let traffic = pcap::parse(&capture.bytes).unwrap();
    assert_eq!((traffic.items.len(), traffic.left_out), (3, 3));
    assert!(traffic.items.iter().all(|i| i.payload == out()));
    assert_eq!(traffic.items[2].at, Nanos::from_millis(3000));
}

#[test]
fn a_flow_without_a_private_end_has_one_key() {
    let (a, b) = (Ipv4Addr::new(9, 1, 2, 3), Ipv4Addr::new(8, 8, 8, 8));
    let there = PacketBuilder::tcp((a, 1000), (b, 80)).build();
    let back = PacketBuilder::tcp((b, 80), (a, 1000)).build();
    let capture = Capture::new(MICROS, 228, false)
        .whole(1, 0, &there)
        .whole(1, 0, &back);
    let items = pcap::parse(&capture.bytes).unwrap().items;
    assert_eq!(items[0].key, items[1].key);
    let flow = Packet::parse(&there).unwrap().flow().unwrap();
    assert_eq!(items[0].key, flow.canonical().to_bytes());
}

#[test]
fn what_is_wrong_with_a_capture_is_told_with_its_place() {
    let fault = |bytes: &[u8]| {
        let fault = pcap::parse(bytes).unwrap_err();
        format!("f{}: {}", fault.place, fault.reason)
    };
    let good = Capture::new(MICROS, 101, false).whole(1, 0, &out()).bytes;
    let second = good.len();
    assert!(fault(b"").starts_with("f: is empty"));
    assert_eq!(
        fault(b"a,b\n1,2\n"),
        "f: is not a pcap file: begins with 612c620a, must be d4c3b2a1 (libpcap)"
    );
    assert!(fault(&[0x0a, 0x0d, 0x0d, 0x0a, 0]).starts_with("f: is pcapng"));
    assert_eq!(fault(&good[..20]), "f: has 20 bytes, a header has 24");
    let wifi = Capture::new(MICROS, 105, false).bytes;
    assert!(fault(&wifi).starts_with("f: link type is 105, must be 1 (Ethernet)"));
    let cut = [&good[..], &good[24..30]].concat();
    let begin = format!("f: packet 2 (byte {second}): is cut off: ");
    assert_eq!(fault(&cut), format!("{begin}6 of 16 bytes of its header"));
    let cut = [&good[..], &good[24..second - 3]].concat();
    assert_eq!(fault(&cut), format!("{begin}30 of its 33 bytes"));
    let short = Capture::new(MICROS, 101, false)
        .packet(1, 0, 1500, &out())
        .bytes;
    let why = "f: packet 1 (byte 24): has 33 of 1500 bytes: the capture cut it short (snap length)";
    assert_eq!(fault(&short), why);
    let late = Capture::new(MICROS, 101, false)
        .whole(1, 1_000_000, &out())
        .bytes;
    assert!(fault(&late).starts_with(
        "f: packet 1 (byte 24): time has a fraction of 1000000, must be below 1000000"
    ));
    let mut wrong = out();
    wrong[3] = 200;
    let wrong = Capture::new(MICROS, 101, false).whole(1, 0, &wrong).bytes;
    assert!(
        fault(&wrong).starts_with("f: packet 1 (byte 24): packet: "),
        "{}",
        fault(&wrong)
    );
}

#[test]
fn any_bytes_are_a_capture_or_a_fault() {
    let good = Capture::new(MICROS, 1, false)
        .whole(1, 0, &frame(&[], [8, 0], &out()))
        .whole(2, 5, &frame(&[0x81, 0, 0, 7], [8, 0], &back()))
        .bytes;
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut bytes = good.clone();
        for _ in 0..random.below(6) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next_u64() as u8;
        }
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        if let Ok(traffic) = pcap::parse(&bytes) {
            assert!(traffic.items.len() <= 2, "seed {seed}");
        }
    }
}

fn columns(time: Option<&str>, key: Option<&str>) -> Columns {
    Columns {
        time: time.map(Into::into),
        key: key.map(Into::into),
    }
}

type Fields = BTreeMap<String, serde_json::Value>;

fn fields(item: &Item) -> Fields {
    ciborium::from_reader(&item.payload[..]).unwrap()
}

fn expected(json: &str) -> Fields {
    serde_json::from_str(json).unwrap()
}

#[test]
fn rows_become_records() {
    let table = "at,user,n,x,yes,code,note\n\
                 1.5,u1,-7,2.50,true,007,\"a, \"\"b\"\"\nc\"\n\
                 2,u2,0,1e3,false,-,\n";
    let by = columns(Some("at"), Some("x"));
    let traffic = rows::csv(table.as_bytes(), &by).unwrap();
    let first =
        r#"{"at":1.5,"user":"u1","n":-7,"x":2.5,"yes":true,"code":"007","note":"a, \"b\"\nc"}"#;
    let second = r#"{"at":2,"user":"u2","n":0,"x":1000.0,"yes":false,"code":"-"}"#;
    assert_eq!(fields(&traffic.items[0]), expected(first));
    assert_eq!(fields(&traffic.items[1]), expected(second));
    let keys: Vec<_> = traffic.items.iter().map(|i| &i.key[..]).collect();
    assert_eq!(keys, [&b"2.50"[..], b"1e3"]);
    assert_eq!(traffic.items[1].at, Nanos::from_millis(500));
    let plain = rows::csv(table.as_bytes(), &columns(None, None)).unwrap();
    // the second row begins on the line after the line break in the first
    assert_eq!(
        (&plain.items[0].key[..], &plain.items[1].key[..]),
        (&b"2"[..], &b"4"[..])
    );
    assert!(!plain.timed && traffic.timed);
}

#[test]
fn objects_become_records() {
    let lines = "{\"t\":\"2026-03-01T08:00:00Z\",\"id\":12,\"v\":[1,2.5],\"none\":null}\n\n\
                 {\"t\":\"2026-03-01T08:00:00.25Z\",\"id\":\"x\"}";
    let traffic = rows::json(lines.as_bytes(), &columns(Some("t"), Some("id"))).unwrap();
    let first = r#"{"t":"2026-03-01T08:00:00Z","id":12,"v":[1,2.5]}"#;
    assert_eq!(fields(&traffic.items[0]), expected(first));
    assert_eq!(
        (&traffic.items[0].key[..], &traffic.items[1].key[..]),
        (&b"12"[..], &b"x"[..])
    );
    assert_eq!(traffic.items[1].at, Nanos::from_millis(250));
}

#[test]
fn what_is_wrong_with_a_line_is_told_with_its_number() {
    let csv = |text: &[u8], by: &Columns| {
        let fault = rows::csv(text, by).unwrap_err();
        format!("f{}: {}", fault.place, fault.reason)
    };
    let none = columns(None, None);
    let timed = columns(Some("t"), Some("k"));
    assert_eq!(
        csv(b"a,b\n1,2\n3\n", &none),
        "f:3: has 1 values, must have 2 like the first line"
    );
    assert!(csv(b"a,b\n1,\xff\n", &none).starts_with("f:2: is not UTF-8"));
    assert_eq!(
        csv(b"a,a\n", &none),
        "f:1: column \"a\" is there twice, or has no name"
    );
    assert_eq!(csv(b"a,t\n", &timed), "f:1: has no column \"k\", but a, t");
    let why = "must be seconds or a date and time as 2026-03-01T08:30:00Z";
    assert_eq!(
        csv(b"t,k\n1,x\nnoon,x\n", &timed),
        format!("f:3: \"t\" is \"noon\", {why}")
    );
    assert_eq!(csv(b"t,k\n1,\n", &timed), "f:2: \"k\" is missing");
    assert_eq!(
        csv(b"a,b\n,\n", &none),
        "f:2: has 0 fields, must have 1..=64"
    );
    let long = format!("a\n1\n{}\n", "x".repeat(PAYLOAD_LEN_MAX));
    let why = csv(long.as_bytes(), &none);
    assert!(why.starts_with("f:3: takes 3277"), "{why}");
    let key = format!("k,t\n{},1\n", "x".repeat(KEY_LEN_MAX + 1));
    assert_eq!(
        csv(key.as_bytes(), &timed),
        "f:2: key has 1025 bytes, must have 1..=1024"
    );

    let json = |text: &str, by: &Columns| {
        let fault = rows::json(text.as_bytes(), by).unwrap_err();
        format!("f{}: {}", fault.place, fault.reason)
    };
    assert!(
        json("{\"a\":1}\n{\"a\":}\n", &none).starts_with("f:2: is not a JSON object: column 6: ")
    );
    let why = json("[1]", &none);
    assert!(
        why.contains("expected an object as {\"name\": value}"),
        "{why}"
    );
    assert!(json("{\"a\":{}}", &none).starts_with("f:1: \"a\" has an object, must be"));
    assert_eq!(json("\n{\"k\":1}", &timed), "f:2: \"t\" is missing");
    assert_eq!(
        json("{\"k\":true,\"t\":1}", &timed),
        "f:1: \"k\" is true or false"
    );
}

#[test]
fn what_a_lenient_reader_would_guess_at_is_refused() {
    let none = columns(None, None);
    let csv = |text: &[u8]| match rows::csv(text, &none) {
        Ok(traffic) => format!("{} rows", traffic.items.len()),
        Err(fault) => format!("f{}: {}", fault.place, fault.reason),
    };
    // an unclosed quote names the line that opens it, wherever the file ends
    let why = "opens a quote that is never closed";
    assert_eq!(csv(b"a,b\n1,\"x\n2,y\n3,z\n"), format!("f:2: {why}"));
    assert_eq!(csv(b"a,b\n1,x\n2,\"y"), format!("f:3: {why}"));
    assert_eq!(csv(b"\"a,b\n1,x\n"), format!("f:1: {why}"));
    assert_eq!(csv(b"a,b\n1,\"x\"\"\n2,y\n"), format!("f:2: {why}"));
    assert!(csv(b"a,b\n1,\"x\"y\n").starts_with("f:2: has text behind a closing quote"));
    assert!(csv(b"a,b\n1,x\0\n").starts_with("f:2: has a NUL byte"));
    assert!(csv(b"\xff\xfea\0\n\0").starts_with("f:1: is UTF-16"));
    assert!(csv(b"a,b\n1,2,3\n").starts_with("f:2: has 3 values, must have 2"));
    // what is right stays right
    assert_eq!(csv(b"a,b\r\n1,\"x\"\"\"\r\n2,5\" disk\r\n"), "2 rows");
    let marked = rows::csv(b"\xef\xbb\xbfa,b\n1,2\n", &columns(None, Some("a"))).unwrap();
    assert_eq!(fields(&marked.items[0]), expected(r#"{"a":1,"b":2}"#));

    let json = |text: &[u8]| match rows::json(text, &none) {
        Ok(traffic) => format!("{} objects", traffic.items.len()),
        Err(fault) => format!("f{}: {}", fault.place, fault.reason),
    };
    assert!(json(b"{\"a\":1}\n{\"a\":1} x\n").starts_with("f:2: is not a JSON object"));
    assert!(json(b"{\"a\":1}{\"a\":2}").starts_with("f:1: is not a JSON object"));
    assert!(json(b"{\"a\":1}\n{\"a\":").starts_with("f:2: is not a JSON object"));
    assert!(json(b"{\"a\":1,\"a\":2}").contains("\"a\" is there twice"));
    assert!(json(b"{\"a\":1}\n\0\n").starts_with("f:2: has a NUL byte"));
    assert!(json(b"\xff\xfe{\0").starts_with("f:1: is UTF-16"));
    assert_eq!(json(b"\xef\xbb\xbf{\"a\":1}\r\n"), "1 objects");
}

#[test]
fn a_file_is_read_by_the_end_of_its_name_and_paced() {
    let dir = std::env::temp_dir().join(format!("e3-traffic-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let none = Columns::default();
    let table = write("a.csv", b"t,v\n10,1\n12,2\n13,3\n");
    let timed = read(&table, &columns(Some("t"), None)).unwrap();
    let ms = |times: Vec<Nanos>| times.iter().map(|t| t.as_millis()).collect::<Vec<_>>();
    assert_eq!(ms(timed.times(Pace::Speed(1.0)).unwrap()), [0, 2000, 3000]);
    assert_eq!(ms(timed.times(Pace::Speed(4.0)).unwrap()), [0, 500, 750]);
    assert_eq!(ms(timed.times(Pace::Rate(100.0)).unwrap()), [0, 10, 20]);
    assert!(
        timed
            .times(Pace::Speed(1e-7))
            .unwrap_err()
            .starts_with("takes 30000000 s")
    );
    let plain = read(&table, &none).unwrap();
    assert!(
        plain
            .times(Pace::Speed(1.0))
            .unwrap_err()
            .contains("without times")
    );
    assert_eq!(ms(plain.times(Pace::Rate(1000.0)).unwrap()), [0, 1, 2]);

    let error = |path: &Path, by: &Columns| read(path, by).unwrap_err().to_string();
    let bad = write("b.jsonl", b"{\"a\":1}\nno\n");
    assert!(error(&bad, &none).starts_with(&format!("{}:2: is not a JSON", bad.display())));
    assert!(
        error(&write("c.txt", b""), &none)
            .ends_with("ends with \"txt\", must be pcap, cap, csv, jsonl, ndjson or json")
    );
    assert!(error(&dir.join("none.csv"), &none).contains("No such file"));
    let empty = write("d.pcap", &Capture::new(MICROS, 1, false).bytes);
    assert!(error(&empty, &none).ends_with("d.pcap: has no packets"));
    assert!(
        error(&empty, &columns(Some("t"), None)).ends_with("is a pcap file, which has no columns")
    );
    std::fs::remove_dir_all(&dir).unwrap();
}
