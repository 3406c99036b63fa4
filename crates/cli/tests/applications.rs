//! The shipped applications on a real cluster: deployed as their manifests stand, loaded while a node
//! with primaries is killed and one of their shards moves; the ledger must hold and the results be
//! right.

mod common;

use common::running::{Down, handled, kill, primary};
use common::{E3, ended, services};
use serde_json::Value;
use std::process::Stdio;

/// What an application is held to.
struct Expected {
    name: &'static str,
    instances: u64,
    /// A stateful service, to be moved.
    moved: &'static str,
    /// Findings that must be right to the last one.
    exact: &'static [&'static str],
}

const APPS: &[Expected] = &[
    Expected {
        name: "rta-ptc",
        instances: 60,
        moved: "count",
        exact: &["ranked right"],
    },
    Expected {
        name: "nfv-fin",
        instances: 72,
        moved: "ipsec",
        exact: &["heavy flows", "alerts"],
    },
    Expected {
        name: "nfv-din",
        instances: 60,
        moved: "natv4",
        exact: &[
            "attacks found",
            "alerts right",
            "translations",
            "packets",
            "next hops",
            "refused",
        ],
    },
    Expected {
        name: "nfv-ifid",
        instances: 84,
        moved: "ddos",
        exact: &[
            "translations",
            "next hops",
            "flow counts",
            "ESP packets",
            "sequence numbers",
        ],
    },
    Expected {
        name: "iot-dh",
        instances: 108,
        moved: "sql",
        exact: &[
            "rows stored",
            "latest values",
            "topics counted",
            "classified as the points say",
        ],
    },
];

#[test]
fn every_application_keeps_its_promises_through_a_kill_and_a_move() {
    if services().is_none() {
        println!("SKIPPED: target/services is not built (cargo xtask build-services)");
        return;
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let e3 = E3::new();
    let _down = Down(&e3);
    e3.good(&["up", "--detach", "--port", "0"]);
    for app in APPS {
        let manifest = root.join(format!("apps/{}.yaml", app.name));
        e3.good(&["deploy", manifest.to_str().unwrap(), "--wait"]);
        let view = e3.json(&["get", "apps", "--app", app.name]);
        assert_eq!(view[0]["instances"], app.instances);

        let load = e3
            .command(&[
                "load",
                app.name,
                "--rate",
                "200",
                "--duration",
                "6s",
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
        let shard = format!("{}/{}/0", app.name, app.moved);
        kill(&e3, &primary(&e3, &shard));
        e3.until("all replicas are there again", |e3| {
            e3.json(&["get", "apps", "--app", app.name])[0]["ready"] == true
        });
        let from = primary(&e3, &shard);
        let nodes = ["s1-host", "s2-host", "s3-host"];
        let mut others = nodes.into_iter().filter(|n| *n != from);
        let moved = others.any(|to| e3.run(&["migrate", &shard, "--to", to]).code == 0);
        assert!(moved, "{shard} did not move from {from}");

        let ended = ended(load.wait_with_output().unwrap());
        assert_eq!(ended.code, 0, "{}: {ended:?}", app.name);
        let report: Value = serde_json::from_str(&ended.out).unwrap();
        let ledger = &report["ledger"];
        assert_eq!(ledger["proved"], true, "{}: {ledger}", app.name);
        assert_eq!(ledger["done"], ledger["sent"], "{}: {ledger}", app.name);
        for what in app.exact {
            let findings = report["findings"].as_array().unwrap();
            let finding = findings.iter().find(|f| f["what"] == *what).unwrap();
            assert_eq!(finding["right"], finding["of"], "{}: {finding}", app.name);
            assert!(finding["of"].as_u64() > Some(0), "{}: {finding}", app.name);
        }
        e3.good(&["delete", app.name]);
    }
}

/// Windows with a flood and alarms need a load without a pause: packets that wait for a new primary are
/// counted later than they were sent.
#[test]
fn floods_raise_alarms_and_nothing_else_does() {
    if services().is_none() {
        println!("SKIPPED: target/services is not built (cargo xtask build-services)");
        return;
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let e3 = E3::new();
    let _down = Down(&e3);
    e3.good(&["up", "--detach", "--port", "0"]);
    for app in ["nfv-din", "nfv-ifid"] {
        let manifest = root.join(format!("apps/{app}.yaml"));
        e3.good(&["deploy", manifest.to_str().unwrap(), "--wait"]);
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
