//! The tutorial, executed as it is written.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The page's shell commands, in order.
fn blocks(page: &str) -> Vec<&str> {
    let parts = page.split("```sh\n").skip(1);
    parts.map(|p| p.split("```").next().unwrap()).collect()
}

#[test]
fn the_tutorial_works_as_it_is_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/first-service.md")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_e3"));
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let shell = |script: &str| {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(dir.path())
            .env("PATH", &path)
            .env("E3_DIR", dir.path().join("state"))
            .env("E3_PORT", "0")
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), out, err)
    };
    let blocks = blocks(&page);
    assert_eq!(blocks.len(), 6);
    // As somebody would paste it: in one shell, in order.
    let (good, printed, err) = shell(&blocks.concat());
    if !good {
        shell("e3 down");
        panic!("{printed}{err}");
    }
    for expected in [
        "created visits/",
        "\"text\":\"1\"",
        "visits is ready",
        "not checked: every request has one outcome, but no state was read back",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }

    // In C it is the same service, and what it keeps in a second collection is kept too.
    let second = r#"
        sed -i 's/visits = e3_collection("visits", 6);/visits = e3_collection("visits", 6);\n    int32_t last = e3_collection("last", 4);\n    if (last != 1) return 2;/' visits-c/visits-c.c
        sed -i 's/    int64_t count =/    if (e3_put(1, key, (size_t)key_len, e3_request, (size_t)len)) return 3;\n    int64_t count =/' visits-c/visits-c.c
        e3 build visits-c
        printf '{"key": "anna", "text": "hello"}\n{"key": "anna", "text": "hello"}\n' \
            | e3 run visits-c/visits-c.wasm --collection visits:counter --collection last:hash-map
        "#;
    let (good, out, err) = shell(second);
    if err.contains("clang is missing") {
        println!("SKIPPED in part: clang is missing");
        return;
    }
    assert!(good && out.contains("\"text\":\"2\""), "{out}{err}");
    let sizes: Vec<u64> = out.lines().filter_map(state_bytes).collect();
    assert!(sizes[0] > 32 && sizes[0] == sizes[1], "{out}");
}

fn state_bytes(line: &str) -> Option<u64> {
    let answer: serde_json::Value = serde_json::from_str(line).ok()?;
    answer["stateBytes"].as_u64()
}
