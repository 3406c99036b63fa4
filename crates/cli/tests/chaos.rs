//! `e3 chaos` on real processes: nothing is lost or repeated, whatever is killed and moved; what it
//! paused goes on, also after Ctrl-C; and a failure names the command that repeats it.

mod common;

use common::running::{Down, pid, run_file};
use common::{E3, are_services_built, ended};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::process::Stdio;

/// Seed of the schedule; another one by `E3_CHAOS_SEED`.
const SEED: &str = "20190711";
/// The faults that everything must survive.
const FAULTS: &str = "kill,restart,kill-controller,pause-supervisor,move,update";

fn start(e3: &E3) {
    e3.good(&["up", "--detach", "--port", "0"]);
    e3.good(&["deploy", "kvs", "--wait"]);
}

/// State of a process, as proc_pid_stat(5) has it.
fn state(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

#[test]
fn nothing_is_lost_or_repeated_under_faults() {
    if !are_services_built() {
        return;
    }
    let e3 = E3::new();
    let _down = Down(&e3);
    start(&e3);
    let seed = std::env::var("E3_CHAOS_SEED").unwrap_or(SEED.into());
    let arguments = [
        "chaos",
        "kvs",
        "--minutes",
        "0.75",
        "--seed",
        &seed,
        "--faults",
        FAULTS,
    ];
    let planned = e3.good(&[&arguments[..], &["--dry-run"]].concat());
    println!("{planned}");
    // The seed decides.
    assert_eq!(planned, e3.good(&[&arguments[..], &["--dry-run"]].concat()));
    let run = e3.run(&[&arguments[..], &["-o", "json"]].concat());
    println!("{}", run.err);
    assert_eq!(run.code, 0, "{}", run.out);
    let report: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(report["passed"], true);
    assert_eq!(report["load"]["verdict"], "proved", "{report}");
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), planned.lines().count());
    let done = faults.iter().filter(|f| !f["beganMs"].is_null());
    assert!(done.count() >= faults.len() / 2, "{faults:?}");
    // What it names makes the same schedule.
    let again = report["replay"].as_str().unwrap();
    let again: Vec<&str> = again.split(' ').skip(1).chain(["--dry-run"]).collect();
    assert_eq!(planned, e3.good(&again));
}

#[test]
fn what_is_paused_goes_on_after_an_interruption() {
    if !are_services_built() {
        return;
    }
    let e3 = E3::new();
    let _down = Down(&e3);
    start(&e3);
    let supervisor = pid(&run_file(&e3, "cluster.json")["supervisor"]);
    let number = supervisor.as_raw_nonzero().get();
    let mut chaos = e3.command(&[
        "chaos",
        "kvs",
        "--minutes",
        "2",
        "--seed",
        "1",
        "--faults",
        "pause-supervisor",
        "-o",
        "json",
    ]);
    let chaos = chaos
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    e3.until("the supervisor is paused", |_| state(number) == 'T');
    let this = rustix::process::Pid::from_raw(chaos.id().cast_signed()).unwrap();
    kill_process(this, Signal::INT).unwrap();
    let ended = ended(chaos.wait_with_output().unwrap());
    assert_ne!(state(number), 'T');
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["load"]["stopped_early"], true, "{report}");
    assert_eq!(report["load"]["verdict"], "proved", "{report}");
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
    ] {
        let refused = e3.run(&[&["chaos", "kvs"], bad].concat());
        assert_eq!(refused.code, 2, "{refused:?}");
    }
}
