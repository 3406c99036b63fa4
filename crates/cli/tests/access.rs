//! Tokens, secrets and the audit log on real processes.

use crate::common::{E3, ended};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The files below a directory that hold these bytes.
fn files_with(dir: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if let Ok(content) = std::fs::read(&path)
            && content.windows(bytes.len()).any(|w| w == bytes)
        {
            found.push(path);
        }
    }
    found
}

/// Creates a token; the file that holds it.
fn token(e3: &E3, name: &str, role: &str) -> String {
    let text = e3.good(&["token", "create", name, "--role", role]);
    e3.file(&format!("{name}-token"), &text)
}

/// How many requests the nodes have admitted.
fn admitted(e3: &E3) -> u64 {
    let nodes = e3.json(&["get", "nodes"]);
    let nodes = nodes.as_array().unwrap().iter();
    nodes.map(|n| n["admitted"].as_u64().unwrap()).sum()
}

#[test]
fn a_secret_is_set_again_under_load_and_nothing_is_lost_or_readable() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let state = e3.dir.path().join("state");
    let values = [[0xa5_u8; 32], [0x5a; 32]].map(|v| (v, v.map(|b| format!("{b:02x}")).concat()));
    let file = e3.dir.path().join("value");
    let set = |at: usize| {
        std::fs::write(&file, values[at].0).unwrap();
        let file = file.to_str().unwrap();
        e3.good(&["secret", "set", "iot-ts", "token-key", "--file", file])
    };
    let check = |what: &str| {
        for (value, text) in &values {
            assert!(files_with(&state, value).is_empty(), "{what}");
            assert!(files_with(&state, text.as_bytes()).is_empty(), "{what}");
        }
    };
    e3.up();
    assert!(set(0).contains("no running service reads it"));
    e3.deploy_shipped("iot-ts");
    let load = e3.spawn("load iot-ts --rate 100 --duration 6s -o json");
    e3.until("the load has begun", |e3| admitted(e3) > 100);
    let said = set(1);
    assert!(said.contains("e3 secret retire iot-ts token-key"), "{said}");
    let ended = ended(load.wait_with_output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_ne!(report["verdict"], "failed", "{report}");
    let incarnations = e3.json(&["get", "nodes"]);
    let nodes = incarnations.as_array().unwrap();
    assert!(
        nodes.iter().all(|n| n["incarnation"] == 1),
        "no node restarted"
    );
    check("after the load");
    let backup = state.join("backup");
    e3.good(&["backup", "iot-ts", "--out", backup.to_str().unwrap()]);
    check("in the backup");
    e3.good(&["secret", "retire", "iot-ts", "token-key"]);
    e3.good(&["down", "--yes"]);
    e3.up();
    e3.good(&["load", "iot-ts", "--rate", "50", "--duration", "1s"]);
    check("after a restart");
    let listed = e3.json(&["secret", "list", "iot-ts"]);
    assert_eq!(listed[0]["version"], 3);
    assert_eq!(listed[0]["services"][0], "apigw");
    e3.good(&["delete", "iot-ts"]);
    assert_eq!(e3.run(&["secret", "list", "iot-ts"]).code, 3);
}

#[test]
fn a_service_that_could_not_start_with_its_secret_starts_when_the_secret_is_right() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let set = |value: &str| {
        let file = e3.file("value", value);
        e3.good(&["secret", "set", "nfv-fin", "master", "--file", &file])
    };
    e3.up();
    set("too short");
    let apps = concat!(env!("CARGO_MANIFEST_DIR"), "/../../apps/nfv-fin.yaml");
    e3.good(&["deploy", apps]);
    let why = "has 9 bytes, must be at least 16";
    e3.until("no shard of ipsec starts", |e3| {
        let app = e3.json(&["describe", "app", "nfv-fin"]);
        app.to_string().matches(why).count() >= 12
    });
    set("one that is long enough");
    e3.until("all have started", |e3| {
        let app = e3.json(&["describe", "app", "nfv-fin"]);
        !app.to_string().contains(why)
    });
    let report = e3.json(&["load", "nfv-fin", "--rate", "50", "--duration", "1s"]);
    assert_eq!(report["ledger"]["done"], 50, "{report}");
    let app = e3.json(&["describe", "app", "nfv-fin"]);
    assert_eq!(app["codeVersion"], 1);
}

#[test]
fn a_token_does_what_its_role_allows_until_it_is_revoked() {
    let e3 = E3::new();
    e3.up();
    let (eye, ci) = (token(&e3, "eye", "read"), token(&e3, "ci", "deploy"));
    let value = e3.file("value", "a password");
    let set = |token: &str| {
        let command = ["secret", "set", "shop", "key", "--file", &value];
        e3.run(&[&["--token-file", token], &command[..]].concat())
    };
    e3.good(&["--token-file", &eye, "get", "nodes"]);
    let refused = set(&eye);
    assert_eq!(refused.code, 2, "{refused:?}");
    let why = "needs role deploy; token \"eye\" has role read";
    assert!(refused.err.contains(why), "{}", refused.err);
    // The variable does not count less than the file.
    let mut create = e3.command(&["token", "create", "mine", "--role", "admin"]);
    create.env("E3_TOKEN", std::fs::read_to_string(&eye).unwrap().trim());
    let refused = ended(create.output().unwrap());
    assert!(refused.err.contains("needs role admin"), "{refused:?}");
    assert_eq!(set(&ci).code, 0);
    let refused = e3.run(&["--token-file", &ci, "token", "list"]);
    assert!(refused.err.contains("needs role admin"), "{}", refused.err);
    e3.good(&["token", "revoke", "ci"]);
    let refused = set(&ci);
    assert!(
        refused.err.contains("not one of this cluster"),
        "{}",
        refused.err
    );
    let names = e3.json(&["token", "list"]);
    let names: Vec<_> = names
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["name"])
        .collect();
    assert_eq!(names, ["owner", "eye"]);
    let audit = e3.json(&["get", "audit", "--since", "1h"]);
    let of = |r: &Value| {
        let text = |field: &str| r[field].as_str().unwrap().to_string();
        format!("{} {} {}", text("who"), text("operation"), r["status"])
    };
    let audit: Vec<String> = audit.as_array().unwrap().iter().map(of).collect();
    let expected = [
        "owner createToken 200",
        "owner createToken 200",
        "eye setSecret 403",
        "eye createToken 403",
        "ci setSecret 200",
        "owner revokeToken 200",
    ];
    assert_eq!(audit, expected);
    let table = e3.good(&["get", "audit"]);
    assert!(!table.contains("a password"), "{table}");
    let refused = e3.run(&["get", "nodes", "--watch"]);
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[test]
fn a_key_of_secrets_that_is_kept_elsewhere_is_needed_at_the_start() {
    let e3 = E3::new();
    let key = e3.file("key", &"0f".repeat(32));
    let up = |more: &[&str]| e3.run(&[&["up", "--detach", "--port", "0"], more].concat());
    let refused = up(&["--secret-key-file", &key]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("must be 0600"), "{}", refused.err);
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(up(&["--secret-key-file", &key]).code, 0);
    let value = e3.file("value", "a password");
    e3.good(&["secret", "set", "shop", "key", "--file", &value]);
    e3.good(&["down"]);
    assert!(!e3.dir.path().join("state/secret-key").exists());
    let away = format!("{key}-away");
    std::fs::rename(&key, &away).unwrap();
    let refused = up(&[]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let why = "the key of the secrets is missing";
    assert!(refused.err.contains(why), "{}", refused.err);
    std::fs::rename(&away, &key).unwrap();
    assert_eq!(up(&[]).code, 0);
    assert_eq!(e3.json(&["secret", "list", "shop"])[0]["version"], 1);
}
