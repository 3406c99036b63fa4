//! The shipped applications on a real cluster: deployed as their manifests stand, loaded while every
//! stateful service loses a primary with its node and then has one moved; the ledger must hold, what
//! every service keeps must be what the ledger says, and the results be right. Loads can be repeated.
//! Where all holders of a shard are killed at once, the verdict is "failed".

use crate::common::running::{handled, kill, primaries, primary};
use crate::common::{E3, ended};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;

/// What an application is held to.
struct Expected {
    name: &'static str,
    instances: u64,
    /// Its stateful services: each loses a primary, and has one moved.
    stateful: &'static [&'static str],
    /// Findings that must be right to the last one.
    exact: &'static [&'static str],
    /// Findings that must be right at least so many times in 100.
    good: &'static [(&'static str, u64)],
}

const APPS: &[Expected] = &[
    Expected {
        name: "rta-ptc",
        instances: 60,
        stateful: &["count", "topranker"],
        exact: &["ranked right"],
        good: &[("classified right", 80)],
    },
    Expected {
        name: "nfv-fin",
        instances: 72,
        stateful: &["flowmon", "nids", "ipsec"],
        exact: &["heavy flows", "attacks found", "alerts right"],
        good: &[],
    },
    Expected {
        name: "rta-sf",
        instances: 96,
        stateful: &["spike", "count", "kvs", "bayes"],
        exact: &["learned once", "verdicts remembered", "verdicts read back"],
        good: &[("spam found", 90), ("spam right", 90), ("alarms right", 80)],
    },
    Expected {
        name: "rta-shm",
        instances: 84,
        stateful: &["count", "ema", "sql"],
        exact: &[
            "rows right",
            "averages right",
            "averages read back",
            "ranks right",
        ],
        good: &[("runbooks found", 90)],
    },
    // its ledger is held against the rows of every thermostat
    Expected {
        name: "iot-ts",
        instances: 108,
        stateful: &["apigw", "sql", "ema", "spike", "recommend"],
        exact: &[],
        good: &[],
    },
    Expected {
        name: "nfv-din",
        instances: 60,
        stateful: &["ddos", "natv4", "nids"],
        exact: &[
            "attacks found",
            "alerts right",
            "translations",
            "packets",
            "next hops",
            "refused",
        ],
        good: &[],
    },
    Expected {
        name: "nfv-ifid",
        instances: 84,
        stateful: &["ddos", "flowmon", "natv4", "ipsec"],
        exact: &[
            "translations",
            "next hops",
            "flow counts",
            "ESP packets",
            "sequence numbers",
        ],
        good: &[],
    },
    Expected {
        name: "iot-dh",
        instances: 108,
        stateful: &["apigw", "count", "kvs", "sql"],
        exact: &[
            "rows stored",
            "latest values",
            "topics counted",
            "classified as the points say",
        ],
        good: &[],
    },
];

#[test]
fn every_application_keeps_its_promises_through_a_kill_and_a_move() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    for app in APPS {
        e3.deploy_shipped(app.name);
        let view = e3.json(&["get", "apps", "--app", app.name]);
        assert_eq!(view[0]["instances"], app.instances);

        let name = app.name;
        let load = e3.spawn(&format!(
            "load {name} --rate 200 --duration 12s --seed 5 -o json"
        ));
        e3.until("the load has begun", |e3| handled(e3, app.name) > 100);
        lose_every_service(&e3, app);
        for service in app.stateful {
            move_away(&e3, &format!("{}/{service}/0", app.name));
        }

        let ended = ended(load.wait_with_output().unwrap());
        assert_eq!(ended.code, 0, "{}: {ended:?}", app.name);
        let report: Value = serde_json::from_str(&ended.out).unwrap();
        assert_checked(&report, app);
        let ledger = &report["ledger"];
        assert_eq!(ledger["done"], ledger["sent"], "{}: {ledger}", app.name);
        let exact = app.exact.iter().map(|what| (*what, 100));
        for (what, percent) in exact.chain(app.good.iter().copied()) {
            let findings = report["findings"].as_array().unwrap();
            let finding = findings.iter().find(|f| f["what"] == what).unwrap();
            let [right, of] = ["right", "of"].map(|n| finding[n].as_u64().unwrap());
            let enough = of > 0 && 100 * right >= percent * of;
            assert!(enough, "{}: {finding}, at least {percent} %", app.name);
        }
        e3.good(&["delete", app.name]);
    }
}

/// Every stateful service was read back and is right, but for the gate, which has no read operation.
#[track_caller]
fn assert_checked(report: &Value, app: &Expected) {
    let has_gate = app.stateful.contains(&"apigw");
    let verdict = if has_gate { "partly checked" } else { "proved" };
    assert_eq!(
        report["verdict"], verdict,
        "{}: {}",
        app.name, report["reasons"]
    );
    let checks = report["checks"].as_array().unwrap();
    let services: BTreeSet<_> = checks
        .iter()
        .map(|c| c["service"].as_str().unwrap())
        .collect();
    assert_eq!(
        services,
        app.stateful.iter().copied().collect(),
        "{}",
        app.name
    );
    for check in checks.iter().filter(|c| c["service"] != "apigw") {
        assert!(check["right"].as_u64() > Some(0), "{}: {check}", app.name);
        for none in ["wrong", "unread", "unsure"] {
            assert_eq!(check[none], 0, "{}: {check}", app.name);
        }
    }
}

/// Kills nodes until every stateful service has lost a primary.
fn lose_every_service(e3: &E3, app: &Expected) {
    let mut whole: Vec<String> = app
        .stateful
        .iter()
        .map(|service| format!("{}/{service}/0", app.name))
        .collect();
    while !whole.is_empty() {
        let before = primaries(e3, &whole);
        let node = before[0].0.clone();
        let (lost, left): (Vec<_>, Vec<_>) = whole
            .into_iter()
            .zip(before)
            .partition(|(_, (at, _))| *at == node);
        whole = left.into_iter().map(|(shard, _)| shard).collect();
        let (lost, before): (Vec<String>, Vec<(String, u64)>) = lost.into_iter().unzip();
        kill(e3, &node);
        // By the views: a shard may have come back to the node meanwhile.
        e3.until("other nodes have taken over", |e3| {
            let now = primaries(e3, &lost);
            let mut views = now.iter().zip(&before);
            views.all(|((_, now), (_, before))| now > before)
        });
        e3.until("all replicas are there again", |e3| {
            e3.json(&["get", "apps", "--app", app.name])[0]["ready"] == true
        });
    }
}

/// Moves a shard's primary to a host of another server. Placement may move it meanwhile, back to a node
/// that has returned.
fn move_away(e3: &E3, shard: &str) {
    e3.until(&format!("{shard} moves"), |e3| {
        let from = primary(e3, shard);
        let nodes = ["s1-host", "s2-host", "s3-host"];
        let mut others = nodes.into_iter().filter(|n| *n != from);
        others.any(|to| e3.run(&["migrate", shard, "--to", to]).code == 0)
    });
}

/// Windows with a flood and alarms need a load without a pause: packets that wait for a new primary are
/// counted later than they were sent.
#[test]
fn floods_raise_alarms_and_nothing_else_does() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    for app in ["nfv-din", "nfv-ifid"] {
        e3.deploy_shipped(app);
        let words = ["--rate", "200", "--duration", "20s", "--seed", "3"];
        let report = e3.json(&[&["load", app], &words[..]].concat());
        assert_eq!(report["verdict"], "proved", "{app}: {}", report["reasons"]);
        for what in ["floods found", "alarms right"] {
            let findings = report["findings"].as_array().unwrap();
            let finding = findings.iter().find(|f| f["what"] == what).unwrap();
            let (right, of) = (finding["right"].as_u64(), finding["of"].as_u64());
            // one flood of five seconds: one whole window at least, and parts of others
            assert!(right > Some(0), "{app}: {finding}");
            assert!(right.unwrap() * 2 >= of.unwrap(), "{app}: {finding}");
        }
        e3.good(&["delete", app]);
    }
}

/// Messages per request of each service, as the page of flows states them.
fn stated_flows(app: &str) -> Vec<(String, f64)> {
    let page = include_str!("../../../docs/applications/flows.md");
    let rows = page
        .lines()
        .map(|l| l.split('|').map(str::trim).collect::<Vec<_>>());
    let of_app = rows.filter(|cells| cells.len() > 4 && cells[1] == app);
    let flows = of_app.filter_map(|cells| Some((cells[2].to_string(), cells[3].parse().ok()?)));
    flows.collect()
}

/// The second and third loads find what the earlier ones have left, with the same seed and with
/// another; messages go where the page of flows says.
#[test]
fn loads_can_be_repeated_and_flow_as_stated() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    for app in APPS {
        e3.deploy_shipped(app.name);
        for seed in ["3", "3", "4"] {
            let mut words = vec!["load", app.name, "--rate", "400", "--seed", seed];
            // The first reading of a thermostat always goes to ema, and its weather is that of a
            // season: 40 thermostats send 150 readings each.
            words.extend(match app.name {
                "iot-ts" => ["--duration", "15s", "--senders", "40"].as_slice(),
                _ => &["--duration", "5s"],
            });
            let report = e3.json(&words);
            assert_checked(&report, app);
            let flows = stated_flows(app.name);
            let measured = report["messages_per_request"].as_object().unwrap();
            assert_eq!(flows.len(), measured.len(), "{}: {measured:?}", app.name);
            for (service, stated) in flows {
                let measured = measured[&service].as_f64().unwrap();
                let near = (measured - stated).abs() <= 0.04;
                assert!(near, "{}: {service} {measured}, stated {stated}", app.name);
            }
        }
        e3.good(&["delete", app.name]);
    }
}

/// Primary and backup of a shard die at once: whatever comes of it, it is not proved.
#[test]
fn state_that_is_lost_is_never_proved() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up_in_memory();
    e3.deploy_shipped("iot-ts");
    let load = e3.spawn("load iot-ts --rate 200 --duration 10s -o json");
    e3.until("the load has begun", |e3| handled(e3, "iot-ts") > 300);
    let instances = e3.json(&["get", "instances"]);
    let holders = instances.as_array().unwrap().iter();
    let holders = holders.filter(|i| i["instance"] == "iot-ts/ema/0");
    let nodes: Vec<&str> = holders.map(|i| i["node"].as_str().unwrap()).collect();
    assert_eq!(nodes.len(), 2, "{instances}");
    // The one that dies last must not copy the state to a third meanwhile.
    for signal in [Signal::STOP, Signal::KILL] {
        for node in &nodes {
            crate::common::running::signal(&e3, node, signal);
        }
    }
    let ended = ended(load.wait_with_output().unwrap());
    assert_eq!(ended.code, 5, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["verdict"], "failed", "{}", report["reasons"]);
    assert!(
        report["cluster"]["state_lost"].as_u64() > Some(0),
        "{}",
        report["cluster"]
    );
}

/// Ctrl-C ends the sending, not the report.
#[test]
fn a_load_that_is_interrupted_is_reported() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    e3.deploy_shipped("rta-ptc");
    let load = e3.spawn("load rta-ptc --rate 100 --duration 600s -o json");
    // the counts before the load are 2,000 questions to two services each
    e3.until("the load has begun", |e3| handled(e3, "rta-ptc") > 4_500);
    let pid = Pid::from_raw(load.id() as i32).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = ended(load.wait_with_output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["verdict"], "proved", "{}", report["reasons"]);
    assert_eq!(report["stopped_early"], true);
    assert!(report["duration_s"].as_f64() < Some(300.0));
}
