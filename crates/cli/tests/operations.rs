//! What may go wrong around a running cluster: logs that cannot be written, a state directory that
//! is gone, starts that fail, state that is lost.

use crate::common::running::{CHAIN, handled, is_alive, kill, run_file, signal};
use crate::common::{E3, Ended, are_services_built, ended};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ONE_SERVER: [&str; 4] = ["--topology", "1x-type1", "--port", "0"];

fn up<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["up"], &ONE_SERVER[..], more].concat()
}

fn state(e3: &E3) -> PathBuf {
    e3.dir.path().join("state")
}

/// Kills a process and waits until the supervisor has restarted it.
fn restarted(e3: &E3, name: &str) {
    let file = format!("process-{name}.json");
    let before = run_file(e3, &file);
    kill(e3, name);
    e3.until("the process is restarted", |e3| {
        run_file(e3, &file) != before
    });
    e3.until("all nodes are up", |e3| {
        let ended = e3.run(&["get", "nodes", "-o", "json"]);
        let nodes: Value = serde_json::from_str(&ended.out).unwrap_or_default();
        let all = nodes.as_array().map(Vec::as_slice).unwrap_or_default();
        all.len() == 2 && all.iter().all(|n| n["up"] == true)
    });
}

#[test]
fn a_cluster_goes_on_when_no_process_can_log() {
    let e3 = E3::new();
    let logs = state(&e3).join("logs");
    std::fs::create_dir_all(&logs).unwrap();
    for name in ["supervisor", "controller", "s1-host", "s1-nic0"] {
        symlink("/dev/full", logs.join(format!("{name}.log"))).unwrap();
    }
    e3.good(&up(&["--detach"]));
    let supervisor = run_file(&e3, "cluster.json");
    restarted(&e3, "s1-host");
    restarted(&e3, "controller");
    restarted(&e3, "s1-nic0");
    assert_eq!(run_file(&e3, "cluster.json"), supervisor);
    assert!(e3.good(&["down"]).contains("stopped the cluster"));
}

#[test]
fn a_cluster_goes_on_when_nobody_reads_standard_error() {
    let e3 = E3::new();
    let mut command = e3.command(&up(&[]));
    let mut cluster = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    let mut reader = BufReader::new(cluster.stderr.take().unwrap());
    reader.read_line(&mut first).unwrap();
    assert!(first.contains("1x-type1 is up"), "{first}");
    drop(reader);
    restarted(&e3, "s1-host");
    restarted(&e3, "controller");
    e3.good(&["down"]);
    assert_eq!(cluster.wait().unwrap().code(), Some(0));
}

#[test]
fn log_lines_have_time_level_and_process() {
    let e3 = E3::new();
    e3.good(&up(&["--detach"]));
    restarted(&e3, "s1-host");
    // Another program's text commands no terminal.
    let mut log = OpenOptions::new();
    let mut log = log
        .append(true)
        .open(state(&e3).join("logs/s1-nic0.log"))
        .unwrap();
    log.write_all(b"\x1b[2Jforeign\x07\n").unwrap();
    let text = e3.good(&["logs"]);
    assert!(
        text.contains(r"s1-nic0    | \u{1b}[2Jforeign\u{7}"),
        "{text}"
    );
    // Who follows the logs ends with its reader.
    let mut follow = e3.command(&["logs", "--follow"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    drop(follow.stdout.take());
    e3.good(&["down"]);
    e3.until("the follower ends", |_| {
        follow.try_wait().unwrap().is_some()
    });
    assert_eq!(follow.wait().unwrap().code(), Some(0));
    let mut named = 0;
    for line in e3
        .good(&["logs"])
        .lines()
        .filter(|l| !l.contains("foreign"))
    {
        let (name, rest) = line.split_once(" | ").unwrap();
        let mut words = rest.split_ascii_whitespace();
        let time = words.next().unwrap();
        assert!(time.contains('T') && time.ends_with('Z'), "{line}");
        assert!(["INFO", "WARN"].contains(&words.next().unwrap()), "{line}");
        assert_eq!(words.next(), Some(&*format!("{}:", name.trim())), "{line}");
        named += 1;
    }
    assert!(named >= 6, "{named} lines");
    let ended = e3.good(&["logs", "supervisor"]);
    assert!(
        ended.contains("s1-host exited (signal 9): restarting it"),
        "{ended}"
    );
}

#[test]
fn a_node_that_starts_slowly_keeps_nobody_from_using_the_others() {
    let e3 = E3::new();
    e3.good(&up(&["--detach"]));
    e3.good(&["down"]);
    // Whose journal it is: nobody says so for long.
    let journal = state(&e3).join("nodes/s1-nic0/journal");
    std::fs::create_dir_all(&journal).unwrap();
    let name = journal.join("node");
    let _ = std::fs::remove_file(&name);
    mknodat(CWD, &name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let started = e3.run(&up(&["--detach"]));
    assert_eq!(started.code, 0, "{started:?}");
    let late = "s1-nic0 is still starting after 60 s";
    assert!(started.err.contains(late), "{started:?}");
    let is_up = |e3: &E3, name: &str| {
        let nodes = e3.json(&["get", "nodes"]);
        let mut nodes = nodes.as_array().unwrap().iter();
        nodes.any(|n| n["name"] == name && n["up"] == true)
    };
    assert!(is_up(&e3, "s1-host") && !is_up(&e3, "s1-nic0"));
    let mut reader = OpenOptions::new().write(true).open(&name).unwrap();
    std::fs::remove_file(&name).unwrap();
    reader.write_all(b"s1-nic0\n").unwrap();
    drop(reader);
    e3.until("the node is up", |e3| is_up(e3, "s1-nic0"));
}

/// Runs a cluster, does something to its directory, and expects it to stop for `reason`.
fn stops_when(reason: &str, happens: impl FnOnce(&Path)) {
    let e3 = E3::new();
    let log = e3.dir.path().join("stderr");
    let mut command = e3.command(&up(&[]));
    let mut cluster = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
    e3.until("the cluster is up", |_| {
        std::fs::read_to_string(&log).unwrap().contains("is up")
    });
    let names = ["controller", "s1-host", "s1-nic0"];
    let all = names.map(|name| run_file(&e3, &format!("process-{name}.json")));
    assert!(all.iter().all(is_alive));
    happens(&state(&e3));
    e3.until("the supervisor has ended", |_| {
        cluster.try_wait().unwrap().is_some()
    });
    assert_eq!(cluster.wait().unwrap().code(), Some(1));
    assert!(!all.iter().any(is_alive), "a process is left");
    let text = std::fs::read_to_string(&log).unwrap();
    let last = text.lines().last().unwrap();
    let expected = format!("the state directory {} {reason}", state(&e3).display());
    assert!(last.contains(&expected), "{text}");
}

#[test]
fn a_cluster_stops_when_its_state_directory_is_removed() {
    stops_when("is gone", |dir| std::fs::remove_dir_all(dir).unwrap());
}

#[test]
fn a_cluster_stops_when_its_state_directory_is_replaced() {
    stops_when("was replaced", |dir| {
        let new = dir.with_extension("new");
        std::fs::create_dir_all(new.join("run")).unwrap();
        std::fs::write(new.join("run/lock"), "").unwrap();
        // In one step: between two, the directory would be gone.
        renameat_with(CWD, dir, CWD, &new, RenameFlags::EXCHANGE).unwrap();
    });
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let e3 = E3::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for arguments in [
        vec!["up", "--port", &port],
        vec!["up", "--detach", "--port", &port],
        vec!["up", "--topology", "missing.yaml"],
    ] {
        let ended = e3.run(&arguments);
        assert!([3, 4].contains(&ended.code), "{ended:?}");
        assert!(!state(&e3).exists(), "{arguments:?}");
    }
    // Nor does a start that is interrupted.
    for arguments in ["up --port 0", "up --port 0 --detach"] {
        let starting = e3.spawn(arguments);
        e3.until("it starts", |e3| {
            state(e3).join("run/process-controller.json").exists()
        });
        let id = rustix::process::Pid::from_child(&starting);
        let _ = kill_process(id, Signal::INT);
        let ended = ended(starting.wait_with_output().unwrap());
        println!("{arguments}: {ended:?}");
        if ended.code == 1 {
            assert!(!state(&e3).exists());
        } else {
            // It was up already.
            assert_eq!(ended.code, 0);
            e3.run(&["down", "--purge", "--yes"]);
        }
    }
}

#[test]
fn the_doctor_looks_at_the_right_port_and_fails_if_something_is_missing() {
    let e3 = E3::new();
    let doctor = |arguments: &[&str], port: &str| {
        let mut command = e3.command(&[&["doctor"], arguments].concat());
        ended(command.env("E3_PORT", port).output().unwrap())
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let found = doctor(&[], &port);
    assert_eq!(found.code, 5, "{found:?}");
    assert!(
        found
            .out
            .contains(&format!("port {port} of 127.0.0.1 is in use"))
    );
    assert!(found.err.contains("not ready for E3: port"), "{found:?}");
    let empty = tempfile::tempdir().unwrap();
    let found = doctor(&["--services", empty.path().to_str().unwrap()], "0");
    assert_eq!(found.code, 5, "{found:?}");
    assert!(
        found
            .out
            .contains("modules not found: apigw.wasm, bayes.wasm")
    );
    assert!(
        found.err.contains("not ready for E3: services"),
        "{found:?}"
    );
    assert_eq!(doctor(&[], "many").code, 2);
    if are_services_built() {
        let found = doctor(&[], "0");
        assert_eq!(found.code, 0, "{found:?}");
    }
}

/// `e3 down` on a terminal (util-linux's `script` makes one), where somebody answers.
fn down_answered(e3: &E3, answer: &str) -> Ended {
    let down = e3.command(&["down"]);
    let program = down.get_program().to_str().unwrap();
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{program} down"), "/dev/null"]);
    for (name, value) in down.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(answer.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    ended(output)
}

#[test]
fn lost_state_is_announced() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let up = ["up", "--detach", "--port", "0", "--durability", "memory"];
    let first = e3.run(&up);
    assert!(!first.err.contains("start empty"), "{first:?}");
    let warning = "warning: state is in memory only; these applications lose theirs: chain";
    e3.good(&["deploy", "hello"]);
    let file = e3.file("chain.yaml", CHAIN);
    e3.good(&["deploy", &file, "--wait"]);
    let down = down_answered(&e3, "\n");
    assert_eq!(down.code, 1, "{down:?}");
    assert!(
        down.out.contains(warning) && down.out.contains("[y/N]"),
        "{down:?}"
    );
    assert_eq!(e3.run(&["get", "nodes"]).code, 0);
    let down = down_answered(&e3, "y\n");
    assert_eq!(down.code, 0, "{down:?}");
    let again = e3.run(&up);
    let lost =
        "state was lost when the cluster was stopped; these applications start empty: chain\n";
    assert!(again.code == 0 && again.err.contains(lost), "{again:?}");
    // Off a terminal nobody is asked.
    let down = e3.run(&["down"]);
    assert!(down.code == 0 && down.err.contains(warning), "{down:?}");
    e3.good(&up);
    let down = e3.run(&["down", "--yes"]);
    assert!(down.code == 0 && down.err.is_empty(), "{down:?}");
}

/// The first Ctrl-C stops the sending and awaits outcomes, which stopped nodes do not give; the second
/// one ends the program.
#[test]
fn a_second_interrupt_ends_a_load_at_once() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.good(&up(&["--detach"]));
    e3.good(&["deploy", "hello", "--wait"]);
    let mut load = e3.spawn("load hello --rate 200 --duration 600s");
    e3.until("the load has begun", |e3| handled(e3, "hello") > 100);
    // Beside it neither this load nor another one could be checked.
    let file = e3.file("one.csv", "text\nhello\n");
    for words in [&["--rate", "1"][..], &["--from", &file, "--rate", "1"]] {
        let second = e3.run(&[&["load", "hello"], words].concat());
        assert_eq!(second.code, 4, "{second:?}");
        let says = "another load of application \"hello\" is running";
        assert!(second.err.contains(says), "{second:?}");
    }
    let nodes = ["s1-host", "s1-nic0"];
    for node in nodes {
        signal(&e3, node, Signal::STOP);
    }
    // By then requests are in flight.
    e3.until("the nodes are lost", |e3| {
        let all = e3.json(&["get", "nodes"]);
        all.as_array().unwrap().iter().all(|n| n["up"] == false)
    });
    let program = Pid::from_raw(load.id() as i32).unwrap();
    e3.until("the load has ended", |_| {
        kill_process(program, Signal::INT).unwrap();
        load.try_wait().unwrap().is_some()
    });
    for node in nodes {
        signal(&e3, node, Signal::CONT);
    }
    let ended = ended(load.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.out.as_str()), (130, ""), "{ended:?}");
}

#[test]
fn a_purge_removes_a_cluster_and_nothing_that_only_looks_like_one() {
    let e3 = E3::new();
    let dir = state(&e3);
    let purge = || e3.run(&["down", "--purge"]);
    let ended = purge();
    assert!(
        ended.code == 0 && ended.out.contains("nothing to remove"),
        "{ended:?}"
    );
    std::fs::create_dir_all(dir.join("logs")).unwrap();
    let ended = purge();
    assert!(
        ended.code == 2 && ended.err.contains("holds no cluster; nothing is removed"),
        "{ended:?}"
    );
    assert!(dir.join("logs").exists());
    std::fs::remove_dir_all(&dir).unwrap();
    e3.good(&up(&["--detach"]));
    e3.good(&["down"]);
    let elsewhere = ["down", "--purge", "--controller", "http://127.0.0.1:1"];
    let ended = e3.run(&elsewhere);
    assert!(
        ended.code == 2
            && ended
                .err
                .contains("http://127.0.0.1:1 is not the cluster in"),
        "{ended:?}"
    );
    assert!(dir.join("secret-key").exists());
    let ended = purge();
    assert!(
        ended.code == 0 && ended.err.contains("the tokens and secret-key in"),
        "{ended:?}"
    );
    assert!(!dir.exists());
}

#[test]
fn a_state_directory_may_have_any_name() {
    let e3 = E3::new();
    let dir = e3.dir.path().join(OsStr::from_bytes(b"two words \xff"));
    let all = [
        &up(&["--detach"])[..],
        &["get", "nodes"],
        &["down", "--purge"],
    ]
    .map(|words| {
        let output = e3.command(words).env("E3_DIR", &dir).output();
        ended(output.unwrap())
    });
    assert!(all.iter().all(|ended| ended.code == 0), "{all:?}");
    assert!(!dir.exists());
}

#[test]
fn a_copied_program_needs_nothing_else() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let program = e3.program("bin/e3", env!("CARGO_BIN_EXE_e3"));
    let empty = e3.dir.path().join("empty");
    std::fs::create_dir_all(&empty).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).current_dir(&empty).env_clear();
        command.env("HOME", &empty).env("E3_DIR", state(&e3));
        command.stdin(Stdio::null());
        let ended = ended(command.output().unwrap());
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended.out
    };
    let apps = [
        "hello", "iot-dh", "iot-ts", "nfv-din", "nfv-fin", "nfv-ifid", "rta-ptc", "rta-sf",
        "rta-shm",
    ];
    for app in apps {
        let text = run(&["deploy", app, "--dry-run", "--topology", "3x-type1"]);
        assert!(text.contains("would be deployed"), "{text}");
    }
    let found = run(&["doctor", "--port", "0"]);
    assert!(
        found.contains("all modules are built into this program"),
        "{found}"
    );
    run(&up(&["--detach"]));
    run(&["deploy", "hello", "--wait"]);
    let answer = run(&["call", "hello", "--text", "hello, world"]);
    assert!(answer.contains("hello, world"), "{answer}");
    run(&["down"]);
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
}
