//! `e3 chaos` on real processes: nothing is lost or repeated, whatever is killed and moved, and the
//! histories of a key-value store are linearizable, says Porcupine; what was paused goes on, also after
//! Ctrl-C.

use crate::common::running::{is_alive, pid, run_file};
use crate::common::{E3, Ended, ended};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Seed of the schedule; another one by `E3_CHAOS_SEED`.
const SEED: &str = "20190711";
/// The faults of processes, and those of the network.
const FAULTS: &str = "kill,restart,pause,kill-controller,pause-controller,restart-controller,\
    pause-supervisor,pause-nodes,pause-all,move,update";
const NETWORK_FAULTS: &str = "cut,cut-peers,cut-controller,one-way,drop,delay";
/// How much longer than the faults of a round a request may take. A controller that restarts beside a node that is
/// down waits 3 s before it decides, and clients wait for 3 s at most before they retry. It is less than the 10 s after
/// which a stalled channel begins again.
const LATENCY_MS_MAX: f64 = 8_000.0;

/// The faults of a report for which there was time, and why each was not injected, if it was not.
fn tried(report: &Value) -> Vec<(String, Option<String>)> {
    let faults = report["faults"].as_array().unwrap().iter();
    let tried = faults.map(|f| {
        let refused = f["refused"].as_str().map(String::from);
        (f["fault"].as_str().unwrap().to_string(), refused)
    });
    let had_time = |why: &Option<String>| why.as_deref() != Some("no time left");
    tried.filter(|(_, why)| had_time(why)).collect()
}

fn start(e3: &E3) {
    e3.up();
    e3.good(&["deploy", "kvs", "--wait"]);
}

fn seed() -> String {
    std::env::var("E3_CHAOS_SEED").unwrap_or(SEED.into())
}

/// State of a process, as proc_pid_stat(5) has it.
fn state(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

/// Whether the environment says that this machine has none of something that tests need.
fn is_without(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Whether faults of the network can be injected here; says so if not.
fn has_nftables() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let has = is_root && !is_without("E3_WITHOUT_NFTABLES");
    if !has {
        println!("SKIPPED: faults of the network need root and nftables");
    }
    has
}

/// What the independent checker says of a history: its exit code; None if the machine has none and says so.
fn check(history: &str) -> Option<i32> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let checker = target.join("linearizability");
    if !checker.is_file() {
        assert!(
            is_without("E3_WITHOUT_CHECKER"),
            "{} does not exist; build it with scripts/setup --checks, or set E3_WITHOUT_CHECKER=1 to go without",
            checker.display()
        );
        println!("SKIPPED in part: histories are not checked (scripts/setup --checks)");
        return None;
    }
    let ended = ended(Command::new(checker).arg(history).output().unwrap());
    println!("{}{}", ended.out, ended.err);
    Some(ended.code)
}

/// A load under faults, with a history: nothing is lost or repeated, and the history is linearizable.
#[track_caller]
fn survives(e3: &E3, arguments: &[&str]) -> Value {
    let history = e3.file("history.jsonl", "");
    let more = ["--history", &history, "-o", "json"];
    has_survived(&e3.run(&[arguments, &more].concat()), &history)
}

/// What a run with a history must have shown.
#[track_caller]
fn has_survived(run: &Ended, history: &str) -> Value {
    let report = has_passed(run);
    let text = std::fs::read_to_string(history).unwrap();
    assert!(
        text.lines().count() > 100,
        "{} requests",
        text.lines().count()
    );
    assert!(check(history).unwrap_or(0) == 0, "{text}");
    report
}

/// What any run must have shown.
#[track_caller]
fn has_passed(run: &Ended) -> Value {
    println!("{}", run.err);
    let report: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(run.code, 0, "{} {}", report["reasons"], report["faults"]);
    assert_eq!(report["passed"], true);
    assert_eq!(report["load"]["verdict"], "proved", "{}", report["reasons"]);
    let faults = report["faults"].as_array().unwrap();
    for fault in faults.iter().filter(|f| !f["endedMs"].is_null()) {
        let of_round = faults.iter().filter(|f| f["round"] == fault["round"]);
        let ends = of_round.filter_map(|f| f["endedMs"].as_f64());
        let length_ms = ends.fold(0.0, f64::max) - fault["beganMs"].as_f64().unwrap();
        assert!(
            fault["latencyMs"].as_f64().unwrap() <= length_ms + LATENCY_MS_MAX,
            "a request took too long: {fault}"
        );
    }
    report
}

#[test]
fn the_checker_of_histories_refuses_what_no_store_says() {
    let e3 = E3::new();
    let line = |op: &str, call: u64, end: u64, rest: &str| {
        format!(r#"{{"client":1,"key":"k","op":"{op}","call":{call},"return":{end},{rest}}}"#)
    };
    let set = |value: &str, call, end| {
        line(
            "set",
            call,
            end,
            &format!(r#""value":"{value}","result":"STORED""#),
        )
    };
    let get = |value: &str, call, end| line("get", call, end, &format!(r#""result":"{value}""#));
    let cas = |expected: &str, value: &str, call, end| {
        let rest = format!(r#""expected":"{expected}","value":"{value}","result":"STORED""#);
        line("cas", call, end, &rest)
    };
    let vanished =
        r#"{"client":2,"key":"k","op":"set","value":"c","call":3,"return":null,"result":null}"#;
    for (name, good, lines) in [
        ("in order", true, vec![set("a", 1, 2), get("a", 3, 4)]),
        (
            "side by side",
            true,
            vec![
                set("a", 1, 2),
                set("b", 3, 9),
                get("a", 4, 5),
                get("b", 6, 7),
            ],
        ),
        (
            "stale read",
            false,
            vec![set("a", 1, 2), set("b", 3, 4), get("a", 5, 6)],
        ),
        (
            "lost write",
            false,
            vec![set("a", 1, 2), line("get", 3, 4, r#""result":null"#)],
        ),
        (
            "both of two swaps",
            false,
            vec![set("a", 1, 2), cas("a", "b", 3, 5), cas("a", "c", 4, 6)],
        ),
        (
            "late",
            true,
            vec![
                set("a", 1, 2),
                vanished.into(),
                get("a", 5, 6),
                get("c", 7, 8),
            ],
        ),
        (
            "never",
            true,
            vec![set("a", 1, 2), vanished.into(), get("a", 5, 6)],
        ),
        (
            "late and undone",
            false,
            vec![
                set("a", 1, 2),
                vanished.into(),
                get("c", 5, 6),
                get("a", 7, 8),
            ],
        ),
    ] {
        let Some(code) = check(&e3.file("history.jsonl", &lines.join("\n"))) else {
            return;
        };
        assert_eq!(code, i32::from(!good), "{name}");
    }
    assert_eq!(check(&e3.file("history.jsonl", "no history")), Some(2));
}

#[test]
fn nothing_is_lost_or_repeated_under_faults() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    start(&e3);
    let seed = seed();
    let arguments = [
        "chaos",
        "kvs",
        "--minutes",
        "1.2",
        "--seed",
        &seed,
        "--faults",
        FAULTS,
    ];
    let planned = e3.good(&[&arguments[..], &["--dry-run"]].concat());
    println!("{planned}");
    // The seed decides.
    assert_eq!(planned, e3.good(&[&arguments[..], &["--dry-run"]].concat()));
    let other = "chaos kvs --minutes 1 --faults update --manifest hello";
    let refused = e3.run(&other.split(' ').collect::<Vec<_>>());
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.err.contains("must be that of \"kvs\""),
        "{refused:?}"
    );
    let report = survives(&e3, &arguments);
    assert_eq!(
        (&report["lost"], &report["repeated"]),
        (&0.into(), &0.into())
    );
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), planned.lines().count());
    let done = faults.iter().filter(|f| !f["beganMs"].is_null());
    assert!(done.count() >= faults.len() / 2, "{faults:?}");
    let mut updates = faults.iter().filter(|f| f["fault"] == "update");
    assert!(updates.any(|f| !f["endedMs"].is_null()), "{faults:?}");
    // The controller refuses some changes, and a process may have ended by another fault.
    let is_explained =
        |fault: &str, why: &str| matches!(fault, "move" | "update") || why.contains("not running");
    for (fault, why) in tried(&report) {
        assert!(
            why.is_none_or(|why| is_explained(&fault, &why)),
            "{faults:?}"
        );
    }
    // What it names makes the same schedule.
    let again = report["replay"].as_str().unwrap();
    let again: Vec<&str> = again.split(' ').skip(1).chain(["--dry-run"]).collect();
    assert_eq!(planned, e3.good(&again));
}

#[test]
fn nothing_is_lost_or_repeated_when_the_network_fails() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    if !has_nftables() {
        return;
    }
    let seed = seed();
    let report = survives(
        &e3,
        &[
            "chaos",
            "kvs",
            "--network",
            "--minutes",
            "0.8",
            "--seed",
            &seed,
            "--faults",
            NETWORK_FAULTS,
        ],
    );
    let tried = tried(&report);
    assert!(
        tried.len() > 1 && tried.iter().all(|(_, why)| why.is_none()),
        "{tried:?}"
    );
}

/// A load of some seconds under a few kinds of faults, each of which takes place.
#[track_caller]
fn survives_each(e3: &E3, minutes: &str, faults: &str) {
    let seed = seed();
    let arguments = ["chaos", "kvs", "--minutes", minutes, "--seed", &seed];
    let report = survives(e3, &[&arguments[..], &["--faults", faults]].concat());
    for kind in faults.split(',') {
        let mut all = report["faults"].as_array().unwrap().iter();
        let took_place = all.any(|f| f["fault"] == kind && !f["endedMs"].is_null());
        assert!(took_place, "{kind}: {}", report["faults"]);
    }
}

/// Once a shard was silent for 11 s in such a storm, and requests expired.
#[test]
fn no_shard_falls_silent_in_a_storm_of_moves_and_kills() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    start(&e3);
    let history = e3.file("history.jsonl", "");
    let mut chaos = e3.spawn(&format!(
        "chaos kvs --minutes 0.5 --seed {} --faults kill,restart --history {history} -o json",
        seed()
    ));
    let nodes = e3.json(&["get", "nodes"]);
    let nodes = nodes.as_array().unwrap().iter().map(|n| n["name"].as_str());
    let nodes: Vec<&str> = nodes.map(Option::unwrap).collect();
    let mut moved = 0;
    for at in 0.. {
        if chaos.try_wait().unwrap().is_some() {
            break;
        }
        // A move may be refused, or meet the end of its node.
        let (shard, node) = (format!("kvs/kvs/{}", at % 4), nodes[at / 4 % nodes.len()]);
        let moves = ["migrate", &shard, "--to", node, "--timeout", "5s"];
        moved += usize::from(e3.run(&moves).code == 0);
    }
    has_survived(&ended(chaos.wait_with_output().unwrap()), &history);
    assert!(moved > 10, "{moved} moves");
}

#[test]
fn nodes_with_wrong_clocks_lose_and_repeat_nothing() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    start(&e3);
    survives_each(&e3, "0.6", "clock-ahead,clock-behind");
}

#[test]
fn the_end_of_all_processes_loses_nothing_that_is_on_disk() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    start(&e3);
    survives_each(&e3, "0.4", "kill-supervisor");
}

/// Every stateful service of an application agrees with the ledger.
#[test]
fn an_application_of_many_services_survives_faults() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    e3.deploy_shipped("rta-ptc");
    let line = "chaos rta-ptc --minutes 0.5 --seed 3 --faults kill,pause,restart,move,kill-controller -o json";
    let report = has_passed(&e3.run(&line.split(' ').collect::<Vec<_>>()));
    let checks = report["load"]["checks"].as_array().unwrap();
    let read = checks.iter().filter(|c| c["right"].as_u64() > Some(0));
    assert!(read.count() > 1, "{checks:?}");
}

#[test]
fn a_run_without_a_fault_or_without_a_look_at_the_state_says_so() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    start(&e3);
    for node in e3.json(&["get", "nodes"]).as_array().unwrap() {
        e3.good(&["node", "cordon", node["name"].as_str().unwrap()]);
    }
    let chaos = |app: &str, fault: &str| {
        let line = format!("chaos {app} --minutes 0.3 --seed 1 --faults {fault} -o json");
        let run = e3.run(&line.split(' ').collect::<Vec<_>>());
        let report: Value = serde_json::from_str(&run.out).unwrap();
        (run.code, report)
    };
    // No node takes a shard.
    let (code, report) = chaos("kvs", "move");
    assert_eq!(code, 5, "{report}");
    assert_eq!(
        report["reasons"],
        serde_json::json!(["no fault was injected"])
    );
    for node in e3.json(&["get", "nodes"]).as_array().unwrap() {
        e3.good(&["node", "resume", node["name"].as_str().unwrap()]);
    }
    e3.good(&["deploy", "hello", "--wait"]);
    let (code, report) = chaos("hello", "pause-controller");
    assert_eq!(code, 0, "{report}");
    assert!(
        report["lost"].is_null() && report["repeated"].is_null(),
        "{report}"
    );
}

#[test]
fn what_is_paused_goes_on_after_an_interruption() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    start(&e3);
    let supervisor = pid(&run_file(&e3, "cluster.json")["supervisor"]);
    let number = supervisor.as_raw_nonzero().get();
    let chaos = e3.spawn("chaos kvs --minutes 2 --seed 1 --faults pause-supervisor -o json");
    e3.until("the supervisor is paused", |_| state(number) == 'T');
    let this = Pid::from_raw(chaos.id().cast_signed()).unwrap();
    kill_process(this, Signal::INT).unwrap();
    let ended = ended(chaos.wait_with_output().unwrap());
    assert_ne!(state(number), 'T');
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["load"]["stopped_early"], true, "{report}");
    assert_eq!(report["load"]["verdict"], "proved", "{report}");
}

/// Starts a run whose cluster is the only thing in a directory.
fn with_its_own_cluster(e3: &E3, line: &str) -> (PathBuf, Child) {
    let made = e3.dir.path().join("made");
    std::fs::create_dir(&made).unwrap();
    let mut command = e3.command(&line.split(' ').collect::<Vec<_>>());
    command.env("TMPDIR", &made);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let chaos = command.spawn().unwrap();
    (made, chaos)
}

#[test]
fn its_own_cluster_ends_with_it_even_while_it_starts() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    if !has_nftables() {
        return;
    }
    let (made, mut chaos) = with_its_own_cluster(&e3, "chaos kvs --network");
    let mut said = BufReader::new(chaos.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().starts_with("starting a cluster")));
    kill_process(Pid::from_child(&chaos), Signal::INT).unwrap();
    assert!(said.any(|line| line.unwrap().contains("interrupted while starting")));
    assert_eq!(chaos.wait().unwrap().code(), Some(1));
    assert_eq!(std::fs::read_dir(&made).unwrap().count(), 0);
}

#[test]
fn its_own_cluster_ends_with_it_even_if_it_was_restarted() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    if !has_nftables() {
        return;
    }
    let line = "chaos kvs --network --minutes 2 --seed 1 --faults kill-supervisor -o json";
    let (made, mut chaos) = with_its_own_cluster(&e3, line);
    let supervisor = || {
        let state = std::fs::read_dir(&made).unwrap().next()?.unwrap().path();
        let cluster = std::fs::read(state.join("run/cluster.json")).ok()?;
        let cluster: Value = serde_json::from_slice(&cluster).ok()?;
        Some(cluster["supervisor"].clone())
    };
    e3.until("a cluster is up", |_| supervisor().is_some());
    let first = supervisor();
    let is_new = |now: Option<Value>| now.is_some() && now != first;
    e3.until("it is restarted", |_| is_new(supervisor()));
    let second = supervisor().unwrap();
    let this = Pid::from_raw(chaos.id().cast_signed()).unwrap();
    kill_process(this, Signal::INT).unwrap();
    let mut said = BufReader::new(chaos.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().starts_with("stopping")));
    let _ = kill_process(this, Signal::INT);
    assert_eq!(chaos.wait().unwrap().code(), Some(130));
    assert!(!is_alive(&second));
    assert_eq!(std::fs::read_dir(&made).unwrap().count(), 0);
}

#[test]
fn it_needs_a_cluster_and_an_application() {
    let e3 = E3::new();
    let alone = e3.run(&["chaos", "kvs"]);
    assert_eq!(alone.code, 6, "{alone:?}");
    assert!(alone.err.contains("e3 up"), "{alone:?}");
    for bad in [
        &["--minutes", "0"][..],
        &["--faults", "wish"],
        &["--rate", "0"],
        &["--faults", "cut"],
    ] {
        let refused = e3.run(&[&["chaos", "kvs"], bad].concat());
        assert_eq!(refused.code, 2, "{refused:?}");
    }
}
