//! What lacks is named within two seconds, and counts never fall: real processes, stopped, cut off,
//! moved and killed.

use crate::common::E3;
use crate::common::running::{
    CHAIN, all_handled, backup, heartbeat, heartbeat_key, kill, pid, primary, run_file, start_load,
};
use e3_model::api::{AppView, ClusterView, NodeView};
use e3_model::timing::HEARTBEAT_INTERVAL;
use rustix::process::{Signal, kill_process};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Within this time from its cause a fault must be named.
const BOUND: Duration = Duration::from_secs(2);

/// Status and body of a path of the controller.
fn ask(e3: &E3, path: &str) -> (u16, String) {
    let port = &run_file(e3, "cluster.json")["port"];
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .into();
    let mut request = agent.get(format!("http://127.0.0.1:{port}{path}"));
    if let Ok(token) = std::fs::read_to_string(e3.dir.path().join("state/token")) {
        request = request.header("Authorization", format!("Bearer {}", token.trim()));
    }
    let mut answer = request.call().unwrap();
    let body = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), body)
}

fn get<T: DeserializeOwned>(e3: &E3, path: &str) -> T {
    let (status, body) = ask(e3, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// Waits until `/readyz` says this; it must not take longer than the bound.
#[track_caller]
fn named(e3: &E3, since: Instant, says: &str) {
    loop {
        let (status, body) = ask(e3, "/readyz");
        let took = since.elapsed();
        if status == 503 && body.contains(says) {
            assert!(took <= BOUND, "{says:?} was named after {took:?}");
            println!("{says:?} was named after {took:?}");
            return;
        }
        assert!(took <= BOUND, "after {took:?} {says:?} is not in {body}");
    }
}

fn all_ready(e3: &E3) -> bool {
    ask(e3, "/readyz").0 == 200
}

fn signal(e3: &E3, node: &str, signal: Signal) -> Instant {
    let process = run_file(e3, &format!("process-{node}.json"));
    kill_process(pid(&process), signal).unwrap();
    Instant::now()
}

/// Heartbeats in a node's name, until the value is dropped. `since` is before the node's start: by then the
/// node has sent fewer than one in each interval and one for each plan. It sends more often than this
/// voice, so that it soon counts again.
fn speak_for(e3: &E3, node: &str, since: Instant) -> Arc<()> {
    let view: ClusterView = get(e3, "/v1/cluster");
    let cluster = u64::from_str_radix(&view.cluster, 16).unwrap();
    let periods = since.elapsed().as_nanos() as u64 / HEARTBEAT_INTERVAL.0;
    let first = (periods + view.plan_version) as u32 + 1;
    let view: NodeView = get(e3, &format!("/v1/nodes/{node}"));
    let port = run_file(e3, "cluster.json")["port"].as_u64().unwrap() as u16;
    let key = heartbeat_key(e3, &view);
    let alive = Arc::new(());
    let watch = Arc::downgrade(&alive);
    std::thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for sequence in first.. {
            if watch.upgrade().is_none() {
                return;
            }
            let bytes = heartbeat(cluster, &view, &key, sequence);
            let _ = socket.send_to(&bytes, ("127.0.0.1", port));
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    alive
}

#[test]
fn what_lacks_is_named_within_two_seconds() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let start = Instant::now();
    e3.good(&["up", "--detach", "--port", "0", "--no-restart"]);
    let file = e3.file("chain.yaml", CHAIN);
    e3.good(&["deploy", &file, "--wait"]);
    all_handled(start_load(&e3, "1s"));
    e3.until("all is ready", all_ready);

    // A backup answers its primary no more, while the controller goes on hearing of it.
    let (cut, of) = (backup(&e3, "chain/front/0"), primary(&e3, "chain/front/0"));
    let voice = speak_for(&e3, &cut, start);
    let since = signal(&e3, &cut, Signal::STOP);
    let says = format!("chain/front/0: 1 of 2 replicas run (blocked on {of}: no lease from {cut}");
    named(&e3, since, &says);
    let app: AppView = get(&e3, "/v1/apps/chain");
    assert!(!app.ready, "{app:?}");
    signal(&e3, &cut, Signal::CONT);
    e3.until("all is ready again", all_ready);
    drop(voice);

    // A node stands still, and goes on.
    let since = signal(&e3, &cut, Signal::STOP);
    named(&e3, since, &format!("node {cut} is not up"));
    signal(&e3, &cut, Signal::CONT);
    e3.until("all is ready again", all_ready);
    let app: AppView = get(&e3, "/v1/apps/chain");
    assert_eq!((app.state_lost, app.losses.len()), (0, 0));

    // A node is killed.
    let since = signal(&e3, &primary(&e3, "chain/back/0"), Signal::KILL);
    named(&e3, since, "is not up");
}

#[test]
fn counts_never_fall_while_shards_move_and_nodes_die() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    let file = e3.file("chain.yaml", CHAIN);
    e3.good(&["deploy", &file, "--wait"]);
    let load = start_load(&e3, "8s");
    let mut before = [0.0, 0.0];
    let mut look = |e3: &E3| {
        let (_, text) = ask(e3, "/metrics");
        let now = ["back", "front"].map(|service| {
            let of = format!(
                "e3_service_handled_requests_total{{app=\"chain\",service=\"{service}\"}} "
            );
            let line = text.lines().find_map(|l| l.strip_prefix(&*of));
            line.unwrap().parse::<f64>().unwrap()
        });
        assert!(
            now[0] >= before[0] && now[1] >= before[1],
            "{now:?} after {before:?}"
        );
        before = now;
        now[1]
    };
    e3.until("the load has begun", |e3| look(e3) > 50.0);
    let from = primary(&e3, "chain/front/0");
    let to = ["s1-host", "s2-host", "s3-host"]
        .into_iter()
        .filter(|n| *n != from)
        .find(|n| e3.run(&["migrate", "chain/front/0", "--to", n]).code == 0)
        .expect("one of them takes it");
    assert_eq!(primary(&e3, "chain/front/0"), to);
    let moved = look(&e3);
    e3.until("it goes on there", |e3| look(e3) > moved + 50.0);
    kill(&e3, to);
    let killed = look(&e3);
    e3.until("it goes on elsewhere", |e3| look(e3) > killed + 50.0);
    all_handled(load);
    e3.until("all is ready again", |e3| {
        look(e3);
        all_ready(e3)
    });
    for i in get::<Vec<Value>>(&e3, "/v1/instances") {
        let is_backup = i["role"] != "primary";
        assert!(!is_backup || i["handled"] == 0, "{i}");
    }
}
