//! Backups of real applications: taken under load, restored, and refused if they are damaged.

use crate::common::http::Http;
use crate::common::running::{CHAIN, all_handled, handled, kill, primary, signal, start_load};
use crate::common::{E3, Ended, ended};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

const KEYS: usize = 4;

/// A request and its answer: how often its key was counted at the second service.
#[derive(Clone, Copy, Debug)]
struct Counted {
    number: usize,
    begun: Instant,
    ended: Instant,
    count: i64,
}

/// Has a request counted, under an idempotency key of its number.
fn count(http: &Http, app: &str, number: usize) -> Counted {
    let begun = Instant::now();
    let path = format!("/v1/apps/{app}?key=k{}", number % KEYS);
    let name = format!("r-{number}");
    let headers = [
        ("content-type", "application/octet-stream"),
        ("idempotency-key", &name),
    ];
    let answer = http.ask(&path, &headers, b"x");
    assert_eq!(answer.status, 200, "{number}: {answer:?}");
    let count = i64::from_le_bytes(answer.body.as_slice().try_into().unwrap());
    Counted {
        number,
        begun,
        ended: Instant::now(),
        count,
    }
}

/// Clients that send one request after the other until they are told to stop.
struct Clients {
    threads: Vec<JoinHandle<Vec<Counted>>>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
}

impl Clients {
    fn start(http: &Http) -> Clients {
        let (stop, next) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let done = Arc::new(AtomicUsize::new(0));
        let client = |_| {
            let (http, stop) = (http.clone(), stop.clone());
            let (next, done) = (next.clone(), done.clone());
            thread::spawn(move || {
                let mut all = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    all.push(count(&http, "chain", next.fetch_add(1, Ordering::Relaxed)));
                    done.fetch_add(1, Ordering::Relaxed);
                }
                all
            })
        };
        let threads = (0..KEYS).map(client).collect();
        Clients {
            threads,
            stop,
            done,
        }
    }

    fn wait_for_more(&self, e3: &E3, requests: usize) {
        let goal = self.done.load(Ordering::Relaxed) + requests;
        e3.until("clients go on", |_| {
            self.done.load(Ordering::Relaxed) >= goal
        });
    }

    fn stop(self) -> Vec<Counted> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    }
}

fn path(e3: &E3, name: &str) -> (PathBuf, String) {
    let path = e3.dir.path().join(name);
    let text = path.to_str().unwrap().to_string();
    (path, text)
}

fn deploy(e3: &E3) {
    e3.good(&["deploy", &e3.file("chain.yaml", CHAIN), "--wait"]);
}

#[track_caller]
fn refused(ended: &Ended, code: i32, says: &str) {
    assert_eq!(ended.code, code, "{ended:?}");
    assert!(ended.err.contains(says), "{ended:?}");
}

/// How often each key was counted: what the next requests say, less themselves.
fn counts(http: &Http, app: &str, first: usize) -> Vec<i64> {
    let all = first..first + KEYS;
    all.map(|number| count(http, app, number).count - 1)
        .collect()
}

/// Of the processes of all nodes.
fn incarnations(nodes: &Value) -> Vec<u64> {
    let nodes = nodes.as_array().into_iter().flatten();
    nodes.filter_map(|n| n["incarnation"].as_u64()).collect()
}

#[test]
fn a_restored_application_has_what_was_acknowledged_before_and_nothing_that_came_after() {
    for durability in ["disk", "memory"] {
        let Some(e3) = E3::with_services() else {
            return;
        };
        e3.good(&["up", "--detach", "--port", "0", "--durability", durability]);
        deploy(&e3);
        let http = Http::new(&e3);
        let clients = Clients::start(&http);
        clients.wait_for_more(&e3, 100);
        let (_, file) = path(&e3, "chain.e3b");
        let begun = Instant::now();
        let said = e3.good(&["backup", "chain", "-o", &file, "--json"]);
        let ended = Instant::now();
        clients.wait_for_more(&e3, 100);
        let all = clients.stop();
        let summary: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(summary["shards"], 4, "{summary}");
        println!("{durability}: {summary}");

        refused(
            &e3.run(&["restore", &file]),
            4,
            "there is an application \"chain\" already",
        );
        e3.good(&["delete", "chain"]);
        e3.good(&["restore", &file]);
        let before: Vec<Counted> = all.iter().filter(|c| c.ended < begun).copied().collect();
        assert!(before.len() >= 100, "{}", before.len());
        for first in &before {
            let again = count(&http, "chain", first.number);
            assert_eq!(
                again.count, first.count,
                "{durability}: request {}",
                first.number
            );
        }
        let restored = counts(&http, "chain", 1 << 40);
        for (key, count) in restored.iter().enumerate() {
            let of_key = |c: &&Counted| c.number % KEYS == key;
            let least = before.iter().filter(of_key).count() as i64;
            let most = all
                .iter()
                .filter(of_key)
                .filter(|c| c.begun < ended)
                .count() as i64;
            assert!(
                (least..=most).contains(count),
                "{durability}: {least} {count} {most}"
            );
        }
        if durability == "disk" {
            // All processes end at once.
            let before = incarnations(&e3.json(&["get", "nodes"]));
            for node in http
                .nodes
                .iter()
                .map(|(name, _)| name.as_str())
                .chain(["controller"])
            {
                kill(&e3, node);
            }
            e3.until("all nodes have joined again", |e3| {
                let got = e3.run(&["get", "nodes", "--output", "json"]);
                let nodes = serde_json::from_str(&got.out).unwrap_or_default();
                let now = incarnations(&nodes);
                now.len() == before.len() && now.iter().zip(&before).all(|(now, old)| now > old)
            });
            let http = Http::new(&e3);
            e3.until("it serves again", |e3| {
                e3.json(&["describe", "app", "chain"])["ready"] == true
            });
            let now = counts(&http, "chain", 1 << 41);
            let expected: Vec<i64> = restored.iter().map(|count| count + 1).collect();
            assert_eq!(now, expected, "what was restored is on disk");
        }
    }
}

#[test]
fn a_backup_under_load_loses_nothing_and_is_restored_beside_the_original() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy(&e3);
    let http = Http::new(&e3);
    let first = count(&http, "chain", 0);
    let load = start_load(&e3, "6s");
    e3.until("the load has begun", |e3| handled(e3, "chain") > 200);
    let (_, file) = path(&e3, "chain.e3b");
    for force in [false, true, true] {
        let arguments = ["backup", "chain", "-o", &file, "--force"];
        e3.good(&arguments[..4 + usize::from(force)]);
    }
    refused(&e3.run(&["backup", "chain", "-o", &file]), 4, "exists");
    e3.good(&["restore", &file, "--as", "copy", "--overcommit"]);
    all_handled(load);
    // The copy answers as the original did, and counts by itself.
    assert_eq!(count(&http, "copy", 0).count, first.count);
    let (original, copy) = (count(&http, "chain", KEYS), count(&http, "copy", KEYS));
    assert_eq!((original.count, copy.count), (2, 2));
    assert_eq!(count(&http, "copy", 2 * KEYS).count, 3);
    assert_eq!(count(&http, "chain", 2 * KEYS).count, 3);
    // It can be split and backed up like any other.
    e3.good(&["scale", "copy/back", "--shards", "4"]);
    assert_eq!(count(&http, "copy", 3 * KEYS).count, 4);
    let (_, again) = path(&e3, "copy.e3b");
    e3.good(&["backup", "copy", "-o", &again]);
    e3.good(&["delete", "copy"]);
    e3.good(&["restore", &again]);
    assert_eq!(count(&http, "copy", 0).count, first.count);
    assert_eq!(count(&http, "copy", 4 * KEYS).count, 5);
}

#[test]
fn damaged_files_are_refused_with_the_offset_and_nothing_is_changed() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy(&e3);
    let http = Http::new(&e3);
    for number in 0..20 {
        count(&http, "chain", number);
    }
    let (path_of, file) = path(&e3, "chain.e3b");
    refused(
        &e3.run(&["backup", "none", "-o", &file]),
        3,
        "no application \"none\"",
    );
    assert!(!path_of.exists());
    e3.good(&["backup", "chain", "-o", &file]);
    e3.good(&["delete", "chain"]);
    let whole = std::fs::read(&path_of).unwrap();
    let (damaged_path, damaged) = path(&e3, "damaged.e3b");
    let restore = |bytes: &[u8]| {
        std::fs::write(&damaged_path, bytes).unwrap();
        e3.run(&["restore", &damaged])
    };
    for len in [0, 5, 12, 14, 200, whole.len() / 2, whole.len() - 1] {
        let ended = restore(&whole[..len]);
        refused(&ended, 2, "cut short");
        assert!(ended.err.contains("damaged.e3b: byte "), "{ended:?}");
    }
    for part in 0..12 {
        let mut changed = whole.clone();
        let at = part * (whole.len() - 1) / 11;
        changed[at] ^= 1;
        refused(&restore(&changed), 2, "damaged.e3b: byte ");
    }
    let mut newer = whole.clone();
    newer[8] += 1;
    refused(&restore(&newer), 2, "the format has version 2");
    refused(&restore(CHAIN.as_bytes()), 2, "this is no backup");
    refused(
        &restore(&[&whole[..], b"more"].concat()),
        2,
        "behind the end",
    );
    refused(&e3.run(&["restore", "/nowhere.e3b"]), 3, "/nowhere.e3b");
    refused(&e3.run(&["restore", &file, "--as", "No Name"]), 2, "name");
    assert_eq!(e3.json(&["get", "apps"]), Value::Array(Vec::new()));
    e3.good(&["restore", &file, "--dry-run"]);
    assert_eq!(e3.json(&["get", "apps"]), Value::Array(Vec::new()));
    e3.good(&["restore", &file]);
    assert_eq!(counts(&http, "chain", 100), [5; KEYS]);
}

#[test]
fn a_backup_without_a_primary_is_given_up_and_the_application_serves_on() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy(&e3);
    let http = Http::new(&e3);
    let node = primary(&e3, "chain/front/0");
    signal(&e3, &node, Signal::STOP);
    let (path_of, file) = path(&e3, "chain.e3b");
    let given_up = e3.run(&["backup", "chain", "-o", &file]);
    signal(&e3, &node, Signal::CONT);
    // The controller may know already that the node is silent.
    assert!([1, 4].contains(&given_up.code), "{given_up:?}");
    assert!(given_up.err.contains("primary"), "{given_up:?}");
    assert!(!path_of.exists());
    e3.until("it serves again", |e3| {
        e3.json(&["describe", "app", "chain"])["ready"] == true
    });
    let at = |name: &str| http.nodes.iter().position(|(n, _)| n != name).unwrap();
    let mut other = http.clone();
    other.nodes.swap(0, at(&node));
    for number in 0..2 * KEYS {
        assert!(count(&other, "chain", number).count > 0);
    }
    e3.good(&["backup", "chain", "-o", &file]);
    e3.good(&["delete", "chain"]);
    e3.good(&["restore", &file]);
    assert_eq!(counts(&other, "chain", 100), [2; KEYS]);
}

#[test]
fn nothing_is_left_of_a_backup_that_is_interrupted() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy(&e3);
    let node = primary(&e3, "chain/front/0");
    // So that the backup takes long enough.
    signal(&e3, &node, Signal::STOP);
    let dir = e3.dir.path().join("backups");
    fs::create_dir(&dir).unwrap();
    let file = dir.join("chain.e3b");
    let backup = e3.spawn(&format!("backup chain -o {}", file.display()));
    let is_empty = || fs::read_dir(&dir).unwrap().next().is_none();
    e3.until("it writes a file", |_| !is_empty());
    let pid = Pid::from_child(&backup);
    kill_process(pid, Signal::INT).unwrap();
    let interrupted = ended(backup.wait_with_output().unwrap());
    signal(&e3, &node, Signal::CONT);
    refused(&interrupted, 1, "interrupted");
    assert!(is_empty());
}
