//! The shipped applications on a real cluster: deployed as their manifests stand, loaded while every
//! stateful service loses a primary with its node and then has one moved; the ledger must hold and the
//! results be right.

mod common;

use common::running::{Down, handled, kill, primary};
use common::{E3, are_services_built, ended};
use serde_json::Value;
use std::process::Stdio;

/// What an application is held to.
struct Expected {
    name: &'static str,
    instances: u64,
    /// Its stateful services: each loses a primary, and has one moved.
    stateful: &'static [&'static str],
    /// Findings that must be right to the last one.
    exact: &'static [&'static str],
    /// Findings of which at least so many of 100 must be right.
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
        exact: &["heavy flows", "alerts"],
        good: &[],
    },
    Expected {
        name: "rta-sf",
        instances: 96,
        stateful: &["spike", "count", "kvs", "bayes"],
        exact: &["learned once", "verdicts remembered", "verdicts read back"],
        good: &[
            ("spam found", 90),
            ("spam rightly so", 90),
            ("alarms right", 80),
        ],
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
    if !are_services_built() {
        return;
    }
    let e3 = E3::new();
    let _down = Down(&e3);
    e3.good(&["up", "--detach", "--port", "0"]);
    for app in APPS {
        e3.deploy_shipped(app.name);
        let view = e3.json(&["get", "apps", "--app", app.name]);
        assert_eq!(view[0]["instances"], app.instances);

        let load = e3
            .command(&[
                "load",
                app.name,
                "--rate",
                "200",
                "--duration",
                "12s",
                "--seed",
                "5",
                "-o",
                "json",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        e3.until("the load has begun", |e3| handled(e3, app.name) > 100);
        lose_every_service(&e3, app);
        for service in app.stateful {
            move_away(&e3, &format!("{}/{service}/0", app.name));
        }

        let ended = ended(load.wait_with_output().unwrap());
        assert_eq!(ended.code, 0, "{}: {ended:?}", app.name);
        let report: Value = serde_json::from_str(&ended.out).unwrap();
        let ledger = &report["ledger"];
        assert_eq!(ledger["proved"], true, "{}: {ledger}", app.name);
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

/// Kills nodes until every stateful service has lost a primary.
fn lose_every_service(e3: &E3, app: &Expected) {
    let mut whole: Vec<String> = app
        .stateful
        .iter()
        .map(|service| format!("{}/{service}/0", app.name))
        .collect();
    while let Some(shard) = whole.last() {
        let node = primary(e3, shard);
        let lost: Vec<String> = whole
            .extract_if(.., |shard| primary(e3, shard) == node)
            .collect();
        kill(e3, &node);
        e3.until("other nodes serve", |e3| {
            lost.iter().all(|shard| primary(e3, shard) != node)
        });
        e3.until("all replicas are there again", |e3| {
            e3.json(&["get", "apps", "--app", app.name])[0]["ready"] == true
        });
    }
}

/// Moves a shard's primary to a host of another server.
fn move_away(e3: &E3, shard: &str) {
    let from = primary(e3, shard);
    let nodes = ["s1-host", "s2-host", "s3-host"];
    let mut others = nodes.into_iter().filter(|n| *n != from);
    let mut tried = Vec::new();
    let moved = others.any(|to| {
        tried.push(e3.run(&["migrate", shard, "--to", to]));
        tried.last().is_some_and(|t| t.code == 0)
    });
    assert!(moved, "{shard} did not move from {from}: {tried:?}");
}

/// Windows with a flood and alarms need a load without a pause: packets that wait for a new primary are
/// counted later than they were sent.
#[test]
fn floods_raise_alarms_and_nothing_else_does() {
    if !are_services_built() {
        return;
    }
    let e3 = E3::new();
    let _down = Down(&e3);
    e3.good(&["up", "--detach", "--port", "0"]);
    for app in ["nfv-din", "nfv-ifid"] {
        e3.deploy_shipped(app);
        let words = ["--rate", "600", "--duration", "20s", "--seed", "3"];
        let report = e3.json(&[&["load", app], &words[..]].concat());
        assert_eq!(report["ledger"]["proved"], true, "{app}: {report}");
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
