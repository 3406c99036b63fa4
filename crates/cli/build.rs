//! Puts the services' modules into the program, so that it needs no other file.
//!
//! They are taken from `target/services`, where `cargo xtask build-services` leaves them. What is
//! not there is left out: the program then says that it was built without it.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The services that the program ships; those for tests of the platform are not among them.
const SERVICES: [&str; 19] = [
    "apigw",
    "bayes",
    "bm25",
    "chain",
    "count",
    "ddos",
    "echo",
    "ema",
    "flowmon",
    "getput",
    "ipsec",
    "knn",
    "kvs",
    "natv4",
    "nids",
    "recommend",
    "spike",
    "sql",
    "topranker",
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let modules = target_dir(&out).join("services");
    println!("cargo::rerun-if-changed=build.rs");
    // Without the directory cargo runs this script at each build, until there is one.
    println!("cargo::rerun-if-changed={}", modules.display());
    let mut table = String::from("&[\n");
    for name in SERVICES {
        let Ok(wasm) = fs::read(modules.join(format!("{name}.wasm"))) else {
            continue;
        };
        // A copy, so that the program is built from one state of the directory.
        let copy = out.join(format!("{name}.wasm"));
        fs::write(&copy, wasm).expect("OUT_DIR can be written");
        writeln!(
            table,
            "    ({name:?}, include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.wasm\"))),"
        )
        .expect("a String takes everything");
    }
    table.push_str("]\n");
    fs::write(out.join("services.rs"), table).expect("OUT_DIR can be written");
}

/// `OUT_DIR` is `TARGET/[TRIPLE/]PROFILE/build/PACKAGE/out`.
fn target_dir(out: &Path) -> &Path {
    let above = out.ancestors().nth(4).expect("cargo's layout");
    let triple = env::var_os("TARGET");
    if above.file_name() == triple.as_deref() {
        above.parent().expect("cargo's layout")
    } else {
        above
    }
}
