//! A full disk: what was acknowledged stays, everything else is refused with a clear message, and the
//! controller continues when there is space again. Its directory is a small file system in memory,
//! mounted in a namespace of its own.

use crate::common::{APP, Controller, NODES, beat, free_port, owner_token};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use e3_model::api::*;
use std::path::Path;
use std::process::Command;

/// The test runs itself again in the namespace, with the directory in this variable.
const INSIDE: &str = "E3_TEST_FULL_DISK";

fn mount(dir: &Path, options: &str) -> bool {
    let mut command = Command::new("mount");
    command
        .args(["-t", "tmpfs", "-o", options, "none"])
        .arg(dir);
    command.status().is_ok_and(|s| s.success())
}

/// Deploys the application of this number, with `filler` bytes of padding in its modules.
fn deploy(controller: &Controller, number: usize, filler: usize) -> (u16, String) {
    let name = format!("app-{number}");
    let mut wasm = b"\0asm\x01\0\0\0".to_vec();
    wasm.resize(8 + filler, number as u8);
    let module = |path: &str| (path.to_string(), BASE64_STANDARD.encode(&wasm));
    let request = DeployRequest {
        file: format!("{name}.yaml"),
        manifest: APP.replace("two-services", &name),
        modules: [module("front.wasm"), module("back.wasm")].into(),
        ..DeployRequest::default()
    };
    controller.post("/v1/apps", &request)
}

/// Deploys applications until one is refused; returns the names of those that were acknowledged.
fn fill(controller: &Controller, acknowledged: &mut Vec<String>, filler: usize) {
    for number in acknowledged.len() + 1.. {
        assert!(number < 200, "the disk does not get full");
        let (status, body) = deploy(controller, number, filler);
        if status == 200 {
            acknowledged.push(format!("app-{number}"));
            continue;
        }
        assert_eq!(status, 507, "{body}");
        let error: ErrorView = serde_json::from_str(&body).unwrap();
        assert!(error.error.contains("no space left on the disk"), "{body}");
        return;
    }
}

fn apps(controller: &Controller) -> Vec<String> {
    let (status, body) = controller.get("/v1/apps");
    assert_eq!(status, 200, "{body}");
    let views: Vec<AppView> = serde_json::from_str(&body).unwrap();
    views.into_iter().map(|v| v.name).collect()
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    if let Some(dir) = std::env::var_os(INSIDE) {
        return inside(Path::new(&dir));
    }
    let tmp = tempfile::tempdir().unwrap();
    let unshare = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", program]);
        command.args(arguments).env(INSIDE, tmp.path());
        command.output()
    };
    let dir = tmp.path().to_str().unwrap();
    match unshare("mount", &["-t", "tmpfs", "none", dir]) {
        Ok(tried) if tried.status.success() => {}
        _ => {
            println!("SKIPPED: this user may not mount a file system in a namespace");
            return;
        }
    }
    let test = std::env::current_exe().unwrap();
    let name = "full_disk::a_full_disk_loses_nothing_that_was_acknowledged";
    let arguments = [name, "--exact", "--nocapture", "--test-threads=1"];
    let output = unshare(test.to_str().unwrap(), &arguments).unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

fn inside(dir: &Path) {
    // Eight modules fit, and then some decisions.
    assert!(mount(dir, "size=540k"));
    let address = free_port();
    let controller = Controller::start(dir, address);
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    let _beats = beat(address, nodes.clone());
    let mut acknowledged = Vec::new();

    // Modules are the first that no longer fit; smaller writes still succeed.
    fill(&controller, &mut acknowledged, 60_000);
    let with_modules = acknowledged.len();
    assert!(with_modules > 0);
    let blobs = || std::fs::read_dir(dir.join("blobs")).unwrap().count();
    assert_eq!(blobs(), with_modules, "a refused module leaves nothing");
    // What is left is for decisions.
    fill(&controller, &mut acknowledged, 8_000);
    assert!(acknowledged.len() > with_modules);
    assert_eq!(controller.get("/healthz").0, 200);
    // Then somebody else fills the disk, and not even decisions fit.
    let _ = std::fs::write(dir.join("rest"), vec![1; 1 << 20]);

    // The controller says so, and still answers reads.
    let (status, body) = controller.get("/healthz");
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("no space left on the disk"), "{body}");
    let plan = controller.plan(&nodes[0]);
    assert_eq!(plan.apps.len(), acknowledged.len());
    assert_eq!(apps(&controller), acknowledged);
    assert_eq!(controller.get("/v1/apps/app-1").0, 200);
    assert!(controller.get("/metrics").1.contains("e3_node_up"));

    // Killed and restarted while the disk is full.
    drop(controller);
    let controller = Controller::start(dir, address);
    assert_eq!(apps(&controller), acknowledged);
    assert_eq!(controller.plan(&nodes[0]), plan);
    assert_eq!(controller.get("/healthz").0, 503);
    drop(controller);

    // Killed and restarted when there is space again.
    assert!(mount(dir, "remount,size=8m"));
    let controller = Controller::start(dir, address);
    assert_eq!(controller.get("/healthz").0, 200);
    assert_eq!(apps(&controller), acknowledged);
    assert_eq!(controller.plan(&nodes[0]), plan);
    // Any of them might need what the log does not name.
    nodes.iter().for_each(|node| drop(controller.plan(node)));
    let next = acknowledged.len() + 1;
    let (status, body) = deploy(&controller, next, 60_000);
    assert_eq!(status, 200, "{body}");
    acknowledged.push(format!("app-{next}"));

    // The disk fills and is freed while the controller runs, without a restart.
    let filler = dir.join("filler");
    let _ = std::fs::write(&filler, vec![1; 16 << 20]);
    assert_eq!(deploy(&controller, next + 1, 60_000).0, 507);
    std::fs::remove_file(&filler).unwrap();
    assert_eq!(deploy(&controller, next + 1, 60_000).0, 200);
    acknowledged.push(format!("app-{}", next + 1));
    assert_eq!(apps(&controller), acknowledged);
    let before = blobs();
    let delete = Controller::agent().delete(format!("http://{address}/v1/apps/app-1"));
    let delete = delete.header("Authorization", owner_token().authorization());
    assert_eq!(delete.call().unwrap().status(), 200);
    assert_eq!(blobs(), before - 1, "a deleted application frees its space");
}
