//! Traffic from files: a faulty one is refused before anything is sent, and a good one arrives
//! whole, once, at its pace.

use crate::common::E3;
use crate::common::running::handled;
use e3_packet::PacketBuilder;
use std::net::Ipv4Addr;

/// A capture in the classic format, Ethernet, of one host's packets 100 ms from each other.
fn capture(packets: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect::<Vec<_>>()
    };
    bytes.extend(words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]));
    for n in 0..packets {
        let (inside, outside) = (Ipv4Addr::new(10, 1, 0, 9), Ipv4Addr::new(9, 9, 9, 9));
        let packet = PacketBuilder::udp((inside, 5000), (outside, 53)).payload(b"query");
        let frame = [&[2; 12], &[8, 0][..], &packet.build()].concat();
        let len = frame.len() as u32;
        bytes.extend(words(&[n / 10, n % 10 * 100_000, len, len]));
        bytes.extend(frame);
    }
    bytes
}

#[test]
fn a_bad_file_is_refused_without_a_cluster() {
    let e3 = E3::new();
    let refused = |arguments: &[&str], words: &str| {
        let ended = e3.run(&[&["load", "any"], arguments].concat());
        assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(words), "{words:?} is not in {ended:?}");
    };
    let table = e3.file("t.csv", "t,v\n1,1\n2\n");
    refused(
        &["--from", &table, "--rate", "9"],
        &format!("{table}:3: has 1 values, must have 2"),
    );
    let untimed = e3.file("u.csv", "v\n1\n");
    refused(&["--from", &untimed], "has rows without times");
    refused(
        &["--from", &untimed, "--key-column", "k"],
        "has no column \"k\", but v",
    );
    let objects = e3.file("o.jsonl", "{\"v\":1}\n{\"v\"}\n");
    refused(
        &["--from", &objects],
        &format!("{objects}:2: is not a JSON object"),
    );
    let quoted = e3.file("q.csv", "v,w\n1,\"a\n2,b\n");
    refused(
        &["--from", &quoted, "--rate", "9"],
        &format!("{quoted}:2: opens a quote that is never closed"),
    );
    let path = e3.dir.path().join("c.pcap");
    std::fs::write(&path, &capture(2)[..100]).unwrap();
    let cut = path.to_str().unwrap();
    refused(&["--from", cut], &format!("{cut}: packet 2 (byte "));
    refused(&["--from", cut, "--speed", "0"], "is not a factor above 0");
    refused(
        &["--from", cut, "--speed", "2", "--rate", "2"],
        "cannot be used with",
    );
    refused(&["--time-column", "t", "--rate", "2"], "--from");
    refused(&[], "--rate");
    let missing = e3.run(&["load", "any", "--from", "missing.csv"]);
    assert_eq!(missing.code, 3, "{missing:?}");
}

#[test]
fn a_file_is_sent_whole_at_its_pace() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    let all_accepted = |report: &serde_json::Value, count: u64| {
        let l = &report["ledger"];
        assert_eq!(report["verdict"], "not checked", "{report}");
        assert_eq!(l["sent"], count, "{report}");
        assert_eq!(l["accepted"], count, "{report}");
    };

    e3.deploy_shipped("nfv-fin");
    let path = e3.dir.path().join("c.pcap");
    std::fs::write(&path, capture(21)).unwrap();
    let file = path.to_str().unwrap();
    let words = ["load", "nfv-fin", "--from", file, "--speed", "4"];
    let report = e3.json(&words);
    all_accepted(&report, 21);
    // 20 steps of 100 ms, four times as fast
    assert_eq!(report["duration_s"], 0.5);
    let sent: Vec<_> = report["timeline"].as_array().unwrap().iter().collect();
    let at = |ms: u64| sent.iter().filter(move |s| s["at_ms"].as_u64() <= Some(ms));
    let until = |ms| at(ms).map(|s| s["sent"].as_u64().unwrap()).sum::<u64>();
    assert!((1..=8).contains(&until(0)) && until(200) < 21, "{sent:?}");
    // each packet passed three services
    let before = handled(&e3, "nfv-fin");
    let words = [
        "load",
        "nfv-fin",
        "--from",
        file,
        "--rate",
        "500",
        "--duration",
        "20ms",
    ];
    all_accepted(&e3.json(&words), 11);
    e3.until("all are counted", |e3| {
        handled(e3, "nfv-fin") >= before + 33
    });
    let text = e3.good(&["load", "nfv-fin", "--from", file, "--rate", "500"]);
    assert!(text.contains("file by 21 packets of "), "{text}");
    e3.good(&["delete", "nfv-fin"]);

    e3.deploy_shipped("rta-ptc");
    let rows: String = (0..50)
        .map(|n| format!("{},tag{},text {n}\n", 100.0 + f64::from(n) / 100.0, n % 5))
        .collect();
    let table = e3.file("t.csv", &format!("at,tag,text\n{rows}"));
    let words = [
        "--from",
        &table,
        "--time-column",
        "at",
        "--key-column",
        "tag",
    ];
    let words = [&["load", "rta-ptc"], &words[..], &["-o", "json"]].concat();
    let ended = e3.run(&words);
    // knn finds no features in them: each is refused once, by the application
    assert_eq!(ended.code, 5, "{ended:?}");
    assert!(ended.err.contains("50 of 50 requests refused"), "{ended:?}");
    let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let l = &report["ledger"];
    assert_eq!(report["verdict"], "failed", "{report}");
    assert_eq!((&l["sent"], &l["refused"]), (&50.into(), &50.into()));
    let features: String = (0..50)
        .map(|n| {
            format!(
                "{{\"tag\":\"tag{}\",\"features\":[1,2,3,4,5,6,7,8],\"text\":\"x\"}}\n",
                n % 5
            )
        })
        .collect();
    let lines = e3.file("l.jsonl", &features);
    let words = ["--from", &lines, "--rate", "200", "--key-column", "tag"];
    all_accepted(&e3.json(&[&["load", "rta-ptc"], &words[..]].concat()), 50);
}
