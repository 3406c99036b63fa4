//! Shards move while they serve between nodes of x86 and of 64-bit ARM, and back: `make test-aarch64`, which builds the
//! program for ARM; QEMU's user mode runs it as one node of the cluster.

use crate::common::running::{backup, pid, primary, run_file};
use crate::common::{E3, ended};
use serde_json::Value;

const ARM_NODE: &str = "s3-host";
/// Shards that move; the service has more.
const SHARDS: [&str; 2] = ["kvs/kvs/0", "kvs/kvs/1"];
const ROUNDS: usize = 3;

/// A program whose process of one node is that for ARM.
fn mixed(e3: &E3, arm: &str) -> String {
    let qemu = "qemu-aarch64-static -L /usr/aarch64-linux-gnu";
    let own = env!("CARGO_BIN_EXE_e3");
    let text = format!(
        "#!/bin/sh\ncase \" $* \" in *\" --name {ARM_NODE} \"*) exec {qemu} {arm} \"$@\";; esac\nexec {own} \"$@\"\n"
    );
    let script = e3.file("mixed.sh", &text);
    e3.program("mixed", &script)
}

#[test]
fn state_moves_between_x86_and_arm_while_it_serves() {
    let arm = std::env::var("E3_AARCH64").ok();
    let (Some(arm), Some(e3)) = (arm, E3::with_services()) else {
        println!("SKIPPED: needs make test-aarch64");
        return;
    };
    e3.good(&["up", "--detach", "--port", "0", "--topology", "4x-beefy"]);
    e3.deploy_shipped("kvs");
    e3.good(&["upgrade", "--program", &mixed(&e3, &arm)]);
    let process = pid(&run_file(&e3, &format!("process-{ARM_NODE}.json")));
    let program = std::fs::read_link(format!("/proc/{}/exe", process.as_raw_nonzero())).unwrap();
    assert!(program.ends_with("qemu-aarch64-static"), "{program:?}");

    let load = e3.spawn("load kvs --rate 50 --duration 60s -o json");
    for _ in 0..ROUNDS {
        for shard in SHARDS {
            let copy = format!("{shard}/backup");
            if backup(&e3, shard) == ARM_NODE {
                move_to(&e3, &copy, &x86_without(&e3, shard));
            }
            move_to(&e3, shard, ARM_NODE);
            assert_eq!(primary(&e3, shard), ARM_NODE);
            move_to(&e3, shard, &x86_without(&e3, shard));
            // And what is written on x86 reaches a copy on ARM.
            move_to(&e3, &copy, ARM_NODE);
            assert_eq!(backup(&e3, shard), ARM_NODE);
        }
    }
    let ended = ended(load.wait_with_output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["verdict"], "proved", "{report}");
}

fn move_to(e3: &E3, instance: &str, node: &str) {
    e3.good(&["migrate", instance, "--to", node]);
}

/// A node of x86 that has no copy of a shard.
fn x86_without(e3: &E3, shard: &str) -> String {
    let taken = [primary(e3, shard), backup(e3, shard)];
    let mut nodes = ["s1-host", "s2-host", "s4-host"].into_iter();
    nodes
        .find(|n| !taken.iter().any(|t| t == n))
        .unwrap()
        .into()
}
