//! The services, as WebAssembly in the real engine, against independent implementations in Python:
//! runs `checks/` with pytest. One alone: `target/checks/bin/python -m pytest checks/test_echo.py`.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn services_agree_with_independent_implementations() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let python = target.join("checks/bin/python");
    let services = std::env::var_os("E3_SERVICES").map_or(target.join("services"), PathBuf::from);
    if !python.is_file() || !services.join("echo.wasm").is_file() {
        println!("SKIPPED: needs scripts/setup --checks and cargo xtask build-services");
        return;
    }
    let status = Command::new(python)
        .args([
            "-m",
            "pytest",
            "--quiet",
            "-p",
            "no:cacheprovider",
            "checks",
        ])
        .current_dir(root)
        .env("E3_PROGRAM", env!("CARGO_BIN_EXE_e3"))
        .env("E3_SERVICES", services)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .status()
        .expect("python runs");
    assert!(status.success(), "pytest: {status}");
}
