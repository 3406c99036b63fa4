//! Timers on real processes: each fires once, also if the node that is to fire it is killed, if all nodes
//! are stopped when it is due, and if its service is updated meanwhile.

use crate::common::E3;
use crate::common::http::Http;
use crate::common::running::{kill, primary};
use e3_clock::Clock;
use e3_model::Timestamp;
use serde_json::Value;

const BYTES: [(&str, &str); 1] = [("content-type", "application/octet-stream")];

fn manifest(durability: &str) -> String {
    format!(
        "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: alarm
spec:
  objective: {{latency: 100ms}}
  ingress: alarm
  attempts: 2
  services:
    - name: alarm
      module: alarm.wasm
      stateful: true
      replicas: 2
      durability: {durability}
      resources: {{cpu: 0.1, memory: 16Mi}}
      collections:
        - {{name: fired, kind: counter}}
"
    )
}

fn deploy(e3: &E3, durability: &str) {
    e3.good(&[
        "deploy",
        &e3.file("alarm.yaml", &manifest(durability)),
        "--wait",
    ]);
}

/// What the service answers to a command, for one of many keys.
#[track_caller]
fn told(http: &Http, key: usize, command: &str) -> String {
    let path = format!("/v1/apps/alarm?key=k{key}");
    let mut answers = http.answers(&path, &BYTES, command.as_bytes());
    let answer = answers.next().expect("a node answers");
    assert_eq!(answer.status, 200, "{command}: {answer:?}");
    String::from_utf8(answer.body).unwrap()
}

fn timers(e3: &E3) -> Value {
    e3.json(&["describe", "app", "alarm"])["services"][0]["timers"].clone()
}

/// How often the timers `t` of all keys have fired.
fn fired(http: &Http, keys: usize) -> Vec<String> {
    (0..keys).map(|key| told(http, key, "fired t")).collect()
}

#[test]
fn each_timer_fires_once_though_its_primary_is_killed() {
    const KEYS: usize = 100;
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy(&e3, "memory");
    let http = Http::new(&e3);
    assert!(told(&http, 0, "cron t * * *").contains("cron expression"));
    assert!(told(&http, 0, "set t 99999999999").contains("more than a year ahead"));
    assert_eq!(told(&http, 0, "set gone 1000"), "ok");
    assert_eq!(told(&http, 0, "cancel gone"), "ok");
    assert_eq!(told(&http, 0, "set fails 1"), "ok");
    for key in 0..KEYS {
        // Due while the primary is alive, while nobody serves, and later.
        let ms = 1_000 + 20 * key;
        assert_eq!(told(&http, key, &format!("set t {ms}")), "ok");
    }
    e3.until("the first has fired", |_| told(&http, 0, "fired t") == "1");
    kill(&e3, &primary(&e3, "alarm/alarm/0"));
    e3.until("all have fired", |e3| {
        timers(e3) == 0 && fired(&http, KEYS).iter().all(|count| count != "0")
    });
    assert!(fired(&http, KEYS).iter().all(|count| count == "1"));
    assert_eq!(told(&http, 0, "fired gone"), "0");
    let letters = e3.json(&["get", "dead-letters"]);
    assert_eq!(letters.as_array().unwrap().len(), 1, "{letters}");
}

#[test]
fn timers_on_disk_survive_a_stop_and_an_update() {
    const KEYS: usize = 20;
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy(&e3, "disk");
    let http = Http::new(&e3);
    for key in 0..KEYS {
        assert_eq!(told(&http, key, "set t 5000"), "ok");
    }
    assert_eq!(told(&http, 0, "set later 3600000"), "ok");
    assert_eq!(told(&http, 0, "cron often * * * * *"), "ok");
    e3.until("they are reported", |e3| timers(e3) == KEYS + 2);
    let text = e3.good(&["describe", "instance", "alarm/alarm/0"]);
    assert!(text.contains("Timers set"), "{text}");
    // Another version of the application.
    let changed = manifest("disk").replace("attempts: 2", "attempts: 3");
    e3.good(&["deploy", &e3.file("alarm.yaml", &changed), "--wait"]);
    e3.good(&["down"]);
    e3.good(&["up", "--detach", "--port", "0"]);
    let http = Http::new(&e3);
    e3.until("all have fired", |e3| {
        let app = e3.json(&["describe", "app", "alarm"]);
        app["ready"] == true && fired(&http, KEYS).iter().all(|count| count == "1")
    });
    e3.until("the others are left", |e3| timers(e3) == 2);
    assert_eq!(told(&http, 0, "fired later"), "0");
}

#[test]
fn timers_of_a_manifest_fire_once_through_a_kill_and_follow_an_update() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    let with = |timers: &str| {
        let timers = format!("      timers: [{timers}]\n      stateful");
        manifest("memory").replace("      stateful", &timers)
    };
    let refused = e3.run(&[
        "deploy",
        &e3.file("bad.yaml", &with("{name: t, every: 1ms}")),
    ]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let why = "bad.yaml:12: spec.services[0].timers[0].every: service \"alarm\": timer \"t\": every is 1ms, must \
               be at least 1s and at most 8784h";
    assert!(refused.err.contains(why), "{refused:?}");
    let timers = "{name: t, every: 4s, key: k0}, {name: gone, every: 100h, key: k0}";
    e3.good(&["deploy", &e3.file("alarm.yaml", &with(timers)), "--wait"]);
    let http = Http::new(&e3);
    let fired = || told(&http, 0, "fired t").parse::<u64>().unwrap();
    // By the clock: at most once for each multiple of its period.
    let periods = || Clock::new().now().since(Timestamp::ZERO).as_secs() / 4;
    let (first, before) = (periods(), fired());
    e3.until("it fires", |_| fired() > before);
    kill(&e3, &primary(&e3, "alarm/alarm/0"));
    let at_kill = fired();
    e3.until("it fires at the successor", |_| fired() > at_kill + 1);
    assert!(fired() - before <= periods() - first, "once at each time");
    let row = |e3: &E3, name: &str| {
        let shards = e3.json(&["get", "timers", "alarm"]);
        let pending = shards[0]["pending"].as_array().cloned().unwrap_or_default();
        let found = pending.into_iter().find(|p| p["name"] == name);
        found.map(|p| (p["repeats"].clone(), p["dueUnixMs"].clone()))
    };
    let (repeats, due) = row(&e3, "gone").expect("it is set");
    assert_eq!(repeats, "every 100h");
    // What did not change keeps its time; the rest follows the manifest.
    let kept = "{name: gone, every: 100h, key: k0}, {name: daily, cron: '0 3 * * *', key: k0}";
    e3.good(&["deploy", &e3.file("alarm.yaml", &with(kept)), "--wait"]);
    e3.until("the new one is set", |e3| row(e3, "daily").is_some());
    assert_eq!(row(&e3, "gone").unwrap().1, due);
    assert_eq!(row(&e3, "daily").unwrap().0, "0 3 * * *");
    assert_eq!(row(&e3, "t"), None);
}

#[test]
fn an_owner_sees_what_is_pending_at_each_shard() {
    const KEYS: usize = 150;
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy(&e3, "memory");
    let http = Http::new(&e3);
    for key in 0..KEYS {
        assert_eq!(told(&http, key, "set later 3600000"), "ok");
    }
    assert_eq!(told(&http, 7, "cron often */5 * * * *"), "ok");
    let shards = e3.json(&["get", "timers", "alarm"]);
    let shard = &shards[0];
    assert_eq!(shard["instance"], "alarm/alarm/0", "{shards}");
    assert_eq!(shard["node"], primary(&e3, "alarm/alarm/0"));
    assert_eq!(shard["count"], KEYS + 1, "{shards}");
    let pending = shard["pending"].as_array().unwrap();
    assert_eq!(pending.len(), 100, "the list is bounded");
    assert_eq!(shard["leftOut"], KEYS + 1 - 100);
    let first = &pending[0];
    let expected = ("often", "k7", "*/5 * * * *", "timer");
    let found = ["name", "key", "repeats", "kind"].map(|field| first[field].as_str().unwrap());
    assert_eq!(
        found,
        <[&str; 4]>::from(expected),
        "what is due first is listed first"
    );
    let text = e3.good(&["get", "timers", "alarm", "alarm"]);
    for part in [
        "*/5 * * * *",
        "alarm/alarm/0: 51 more",
        "151 pending at 1 shard",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let refused = [
        (
            "alarm clock",
            r#"application "alarm" has no service "clock"; it has alarm"#,
        ),
        ("clock", r#"there is no application "clock""#),
    ];
    for (of, why) in refused {
        let words: Vec<&str> = "get timers".split(' ').chain(of.split(' ')).collect();
        let ended = e3.run(&words);
        assert!(ended.code == 3 && ended.err.contains(why), "{ended:?}");
    }
    // The successor of the primary says the same.
    kill(&e3, &primary(&e3, "alarm/alarm/0"));
    e3.until("the successor knows them", |e3| {
        e3.json(&["get", "timers", "alarm"])[0]["count"] == KEYS + 1
    });
}
