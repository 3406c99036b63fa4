//! Secrets: encrypted wherever they are stored, given to the nodes that need them only, and set again
//! while the application runs.

use crate::common;
use crate::common::{
    APP, Answer, Controller, NODES, beat, config, files_with, free_port, owner_token,
};
use e3_control::Genesis;
use e3_model::Format;
use e3_model::api::{FormatRequest, SecretValue, SecretView};
use e3_model::plan::{NodePlan, NodeWelcome};
use e3_store::Store;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The sample, whose service `back` reads a secret that is set and one that is generated.
fn app() -> String {
    let app = APP.replace(
        "  services:\n",
        "  secrets: [{name: given}, {name: made, generate: true}]\n  services:\n",
    );
    let (front, back) = app.split_once("    - name: back\n").unwrap();
    format!("{front}    - name: back\n      secrets: [given, made]\n{back}")
}

fn set(c: &Controller, name: &str, value: &[u8]) -> Answer {
    let path = format!("/v1/apps/two-services/secrets/{name}");
    c.send("post", &path, Some(owner_token().expose()), value)
}

fn delete(c: &Controller, path: &str) -> Answer {
    c.send("delete", path, Some(owner_token().expose()), b"")
}

/// The secret as a node gets it.
fn fetch(c: &Controller, node: &NodeWelcome, name: &str) -> (u16, String) {
    let NodeWelcome {
        node, incarnation, ..
    } = *node;
    let node = node.0;
    c.get(&format!(
        "/v1/nodes/{node}/secrets/two-services/{name}?incarnation={incarnation}"
    ))
}

fn value(c: &Controller, node: &NodeWelcome, name: &str) -> SecretValue {
    let (status, body) = fetch(c, node, name);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2);
    pairs
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

/// Whether a node has shards of the service that reads the secrets.
fn reads(plan: &NodePlan) -> bool {
    let mut shards = plan.apps[0].shards.iter();
    shards.any(|s| s.service.0 == 1 && s.role(plan.node).is_some())
}

#[test]
fn no_file_holds_a_secret_in_the_clear() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let c = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| c.join(n, 1)).collect();
    let beats = beat(address, nodes.clone());
    let given = b"a password that nobody may read";
    let (status, body) = c.deploy(&app());
    assert!(
        status == 422 && body.contains("secret \\\"given\\\" has no value"),
        "{body}"
    );
    assert!(
        body.contains("e3 secret set two-services given --file FILE"),
        "{body}"
    );
    assert_eq!(set(&c, "given", given).status, 200);
    assert_eq!(c.deploy(&app()).0, 200);
    let reader = nodes.iter().find(|n| reads(&c.plan(n))).unwrap();
    let made = unhex(&value(&c, reader, "made").value);
    assert_eq!(made.len(), 32);
    let check = |when: &str| {
        for secret in [&given[..], &made] {
            for form in [secret.to_vec(), hex(secret).into_bytes()] {
                assert!(files_with(tmp.path(), &form).is_empty(), "{when}");
            }
        }
    };
    check("after the deployment");
    // Until a snapshot takes the place of the log.
    let mut long = vec![b'x'; 8 << 10];
    let snapshot = || {
        let files = std::fs::read_dir(tmp.path().join("log")).unwrap();
        let mut names = files.map(|f| f.unwrap().file_name().into_string().unwrap());
        names.any(|n| n.contains("snapshot"))
    };
    let path = "/v1/apps/another/secrets/long";
    for number in 0..1_000_u16 {
        long[8_000..8_002].copy_from_slice(&number.to_le_bytes());
        let answer = c.send("post", path, Some(owner_token().expose()), &long);
        assert_eq!(answer.status, 200, "{answer:?}");
        if snapshot() {
            break;
        }
    }
    assert!(snapshot());
    check("after a snapshot");
    assert!(files_with(tmp.path(), &long[..100]).is_empty());
    let audit = c.get("/v1/audit").1;
    let shown = [
        "/v1/apps/two-services",
        "/v1/apps/two-services/secrets",
        "/v1/apps",
    ];
    for text in shown.map(|path| c.get(path).1).iter().chain([&audit]) {
        assert!(
            !text.contains(&hex(given)) && !text.contains("a password"),
            "{text}"
        );
    }
    drop((c, beats));
    let c = Controller::start(tmp.path(), address);
    let _beats = beat(address, nodes.clone());
    assert_eq!(unhex(&value(&c, reader, "given").value), given);
    assert_eq!(unhex(&value(&c, reader, "made").value), made);
    check("after a restart");
}

#[test]
fn a_secret_reaches_the_nodes_only_that_run_a_service_that_may_read_it() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let c = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| c.join(n, 1)).collect();
    let _beats = beat(address, nodes.clone());
    set(&c, "given", b"value");
    assert_eq!(fetch(&c, &nodes[0], "given").0, 403, "it is not deployed");
    assert_eq!(c.deploy(&app()).0, 200);
    let mut readers = 0;
    for node in &nodes {
        let plan = c.plan(node);
        let (status, body) = fetch(&c, node, "given");
        assert_eq!(status, if reads(&plan) { 200 } else { 403 }, "{body}");
        readers += usize::from(reads(&plan));
    }
    assert!((1..nodes.len()).contains(&readers), "{readers}");
    let mut old = nodes[0];
    old.incarnation += 1;
    assert_eq!(fetch(&c, &old, "given").0, 409);
    // What nodes of the release before ask for is answered in clusters of that release only.
    let node_token = common::node_token();
    let path = "/v1/apps/two-services/secrets/given";
    c.send("get", path, Some(node_token.expose()), b"")
        .refused(409, "a node fetches secrets as itself");
    for (path, status) in [
        (path.to_string(), 403),
        (format!("{path}/sealed"), 200),
        (
            "/v1/nodes/0/secrets/two-services/given?incarnation=1".into(),
            403,
        ),
    ] {
        let answer = c.send("get", &path, Some(owner_token().expose()), b"");
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(!answer.body.contains(&hex(b"value")), "{answer:?}");
    }
}

#[test]
fn a_secret_that_is_set_again_has_another_version_and_keeps_the_value_before_until_it_is_retired() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let c = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| c.join(n, 1)).collect();
    let _beats = beat(address, nodes.clone());
    set(&c, "given", b"one");
    assert_eq!(c.deploy(&app()).0, 200);
    let reader = nodes.iter().find(|n| reads(&c.plan(n))).unwrap();
    let seen = |c: &Controller| {
        let s = value(c, reader, "given");
        let version = c.plan(reader).apps[0].secrets["given"];
        assert_eq!(s.version, version);
        let text = |hex: &str| String::from_utf8(unhex(hex)).unwrap();
        (version, text(&s.value), s.previous.as_deref().map(text))
    };
    assert_eq!(seen(&c), (1, "one".into(), None));
    let answer = set(&c, "given", b"two");
    let view: SecretView = serde_json::from_str(&answer.body).unwrap();
    assert!(view.has_previous);
    assert_eq!((view.version, view.services), (2, vec!["back".into()]));
    assert_eq!(seen(&c), (2, "two".into(), Some("one".into())));
    assert_eq!(c.plan(reader).apps[0].code_version, 1);
    // A repeat does not take the place of the value before.
    for _ in 0..2 {
        assert_eq!(set(&c, "given", b"three").status, 200);
        assert_eq!(seen(&c), (3, "three".into(), Some("two".into())));
    }
    let previous = "/v1/apps/two-services/secrets/given/previous";
    for _ in 0..2 {
        assert_eq!(delete(&c, previous).status, 200);
        assert_eq!(seen(&c), (4, "three".into(), None));
    }
    let path = "/v1/apps/two-services/secrets/given";
    delete(&c, path).refused(409, "runs and names secret \"given\"");
    assert_eq!(delete(&c, "/v1/apps/two-services").status, 200);
    delete(&c, path).refused(404, "has no secret \"given\"");
    delete(&c, previous).refused(404, "has no secret \"given\"");
    set(&c, "given", b"four");
    assert_eq!(delete(&c, path).status, 200);
}

#[test]
fn what_is_no_good_secret_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Controller::start(tmp.path(), free_port());
    set(&c, "given", b"").refused(422, "has 0 bytes, must be 1..=8192");
    set(&c, "given", &[1; 8193]).refused(413, "has 8193 bytes, must be at most 8192");
    set(&c, "Given", b"v").refused(404, "lower-case letters");
    assert_eq!(set(&c, "given", &[0xff; 8192]).status, 200);
    let all: Vec<SecretView> = c.view("/v1/apps/two-services/secrets");
    assert_eq!((all.len(), all[0].version), (1, 1));
    let none = c.get("/v1/apps/none/secrets");
    assert_eq!(none.0, 404, "{none:?}");
}

#[test]
fn a_wrong_or_missing_key_is_named_at_the_start_and_nothing_is_overwritten() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let c = Controller::start(tmp.path(), address);
    set(&c, "given", b"value");
    drop(c);
    let key = tmp.path().join("secret-key");
    let right = std::fs::read(&key).unwrap();
    let all = || {
        let log = std::fs::read(tmp.path().join("log/log")).unwrap();
        (log, std::fs::read(&key).ok())
    };
    let write = |bytes: &[u8], mode: u32| {
        std::fs::write(&key, bytes).unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
    };
    let refused = |why: &str| {
        let before = all();
        let error = e3_controller::run(config(tmp.path(), address)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains(why) && error.contains("secret-key"),
            "{error}"
        );
        assert!(all() == before, "{why}");
    };
    std::fs::remove_file(&key).unwrap();
    refused("the key of the secrets is missing");
    write("12".repeat(32).as_bytes(), 0o600);
    refused("secret \"given\" of application \"two-services\" is encrypted under key");
    write(b"no key", 0o600);
    refused("holds no key: it must be 64 hexadecimal digits");
    write(&right, 0o644);
    refused("has mode 0644, must be 0600");
    write(&right, 0o600);
    let c = Controller::start(tmp.path(), address);
    assert_eq!(
        c.view::<Vec<SecretView>>("/v1/apps/two-services/secrets")
            .len(),
        1
    );
}

/// Writes the log of a cluster of the release before.
fn older_log(dir: &Path) {
    let genesis = Genesis::Init {
        cluster: 9,
        topology: config(dir, free_port()).topology,
        format: Format(7),
        release: "0.0.9".into(),
    };
    let (mut store, _) = Store::open(&dir.join("log")).unwrap();
    store
        .append(&serde_json::to_vec(&genesis).unwrap())
        .unwrap();
    store.sync().unwrap();
}

#[test]
fn secrets_in_files_move_into_the_log_when_the_cluster_has_the_format() {
    let tmp = tempfile::tempdir().unwrap();
    older_log(tmp.path());
    let address = free_port();
    let c = Controller::start(tmp.path(), address);
    let nodes: Vec<_> = NODES.iter().map(|n| c.join(n, 1)).collect();
    let _beats = beat(address, nodes.clone());
    set(&c, "given", b"value").refused(409, "raise it first (e3 upgrade --finish)");
    let token = serde_json::json!({"name": "ci", "role": "read"});
    assert_eq!(c.post("/v1/tokens", &token).0, 409);
    let dir = tmp.path().join("secrets/two-services");
    std::fs::create_dir_all(&dir).unwrap();
    let given = b"a value in a file";
    std::fs::write(dir.join("given"), given).unwrap();
    assert_eq!(c.deploy(&app()).0, 200);
    let made = std::fs::read(dir.join("made")).unwrap();
    let node_token = common::node_token();
    let older = "/v1/apps/two-services/secrets/given";
    let answer = c.send("get", older, Some(node_token.expose()), b"");
    assert_eq!((answer.status, answer.body.as_bytes()), (200, &given[..]));
    assert!(c.plan(&nodes[0]).apps[0].secrets.is_empty());

    let raise = FormatRequest { format: Format(8) };
    std::fs::write(dir.join("long"), [1; 8193]).unwrap();
    let (status, body) = c.post("/v1/format", &raise);
    assert!(status == 409 && body.contains("has 8193 bytes"), "{body}");
    std::fs::remove_file(dir.join("long")).unwrap();
    let (status, body) = c.post("/v1/format", &raise);
    assert_eq!(status, 200, "{body}");
    let until = Instant::now() + Duration::from_secs(20);
    while dir.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!dir.exists());
    assert!(files_with(tmp.path(), given).is_empty());
    let reader = nodes.iter().find(|n| reads(&c.plan(n))).unwrap();
    assert_eq!(unhex(&value(&c, reader, "given").value), given);
    assert_eq!(unhex(&value(&c, reader, "made").value), made);
    assert_eq!(c.plan(reader).apps[0].secrets.len(), 2);
}
