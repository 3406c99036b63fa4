//! The examples of requests over HTTP, executed as the documentation shows them.

use crate::common::E3;
use crate::common::http::Http;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

#[test]
fn the_documented_examples_work() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let examples = root.join("docs/examples");
    let script = std::fs::read_to_string(examples.join("request.sh")).unwrap();
    for page in ["README.md", "docs/http.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        assert!(
            text.contains(&script),
            "{page} shows docs/examples/request.sh"
        );
    }
    e3.up();
    e3.deploy_shipped("rta-ptc");
    let http = Http::new(&e3);
    let run = |command: &mut Command| match command.output() {
        Ok(output) => Some(crate::common::ended(output)),
        Err(e) => {
            println!("SKIPPED in part: {:?}: {e}", command.get_program());
            None
        }
    };
    let bin = Path::new(env!("CARGO_BIN_EXE_e3"))
        .parent()
        .unwrap()
        .display();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let state = e3.dir.path().join("state");
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    for _ in 0..2 {
        if !has_curl {
            println!("SKIPPED in part: curl is missing");
            break;
        }
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", &script]);
        shell.env("PATH", &path).env("E3_DIR", &state);
        let Some(ended) = run(&mut shell) else { break };
        let answer: Value =
            serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{ended:?}"));
        assert_eq!(
            (&answer["tag"], &answer["count"]),
            (&json!("rust"), &json!(1)),
            "{answer}"
        );
    }
    let record = r#"{"author": "bert", "tag": "python", "text": "hi", "features": [0, 0, 0, 0, 0, 0, 0, 0]}"#;
    let mut python = Command::new("python3");
    let token = state.join("token");
    python.arg(examples.join("client.py")).arg(&token);
    python.args(["rta-ptc", "bert", record, "http://127.0.0.1:9"]);
    python.args(http.nodes.iter().map(|(_, url)| url));
    if let Some(ended) = run(&mut python) {
        assert_eq!(ended.code, 0, "{ended:?}");
        let answer: Value = serde_json::from_str(ended.out.strip_prefix("0 ").unwrap()).unwrap();
        assert_eq!(
            (&answer["tag"], &answer["count"]),
            (&json!("python"), &json!(1)),
            "{answer}"
        );
    }
}
