//! Random clusters and applications.

pub mod paper;

use e3_model::document::{parse_application, parse_topology};
use e3_model::{Application, Topology};
use e3_testkit::Random;
use std::fmt::Write;

/// Up to four racks of up to five servers with at most two SmartNICs each.
pub fn topology(random: &mut Random) -> Topology {
    let mut text =
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: any}\nspec:\n  racks:\n"
            .to_string();
    for rack in 0..=random.below(3) {
        writeln!(text, "    - name: r{rack}\n      servers:").unwrap();
        for server in 0..=random.below(4) {
            let name = format!("r{rack}s{server}");
            writeln!(
                text,
                "        - name: {name}\n          system: any\n          nodes:"
            )
            .unwrap();
            let memory = 128 << random.below(4);
            writeln!(
                text,
                "            - {{name: {name}h, kind: host, cores: 8, memory: {memory}Mi{}}}",
                equipment(random)
            )
            .unwrap();
            for nic in 0..random.below(3) {
                let memory = 64 << random.below(3);
                writeln!(text, "            - {{name: {name}n{nic}, kind: smartnic, cores: 4, memory: {memory}Mi{}}}", equipment(random)).unwrap();
            }
        }
    }
    parse_topology("any", &text).unwrap()
}

/// Some nodes have a limited disk, some lack accelerators.
fn equipment(random: &mut Random) -> String {
    let disk = match random.below(3) {
        0 => format!(", disk: {}Mi", 128 << random.below(4)),
        _ => String::new(),
    };
    let accelerators = match random.below(6) {
        0 => ", accelerators: []",
        1 => ", accelerators: [match, aes-gcm]",
        _ => "",
    };
    disk + accelerators
}

/// Up to five services with up to eight shards and three replicas. The last may be reached by calls alone.
pub fn application(random: &mut Random) -> Application {
    let mut text = "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {name: any}\nspec:\n  objective: {latency: 5ms}\n  ingress: s0\n  services:\n".to_string();
    let services = 1 + random.below(5);
    let sent_to = services - u64::from(services > 1 && random.below(3) == 0);
    for s in 0..services {
        let (mut shards, mut replicas) = (1 + random.below(8), 1 + random.below(3));
        let (cpu, memory) = (1 + random.below(20), 8 << random.below(4));
        let pin = match random.below(7) {
            0 => ", pin: {kind: host}",
            1 => ", pin: {kind: smartnic}",
            // Only one instance can be pinned to a node. Every topology has this one.
            2 => {
                (shards, replicas) = (1, 1);
                ", pin: {node: r0s0h}"
            }
            _ => "",
        };
        let disk = match random.below(3) {
            0 => format!(", disk: {}Mi", 8 << random.below(5)),
            _ => String::new(),
        };
        let accelerators = match random.below(8) {
            0 => ", accelerators: [match], acceleratorsRequired: [match]",
            1 => ", accelerators: [aes-cbc, match], acceleratorsRequired: [aes-cbc]",
            2 => ", accelerators: [crc32]",
            _ => "",
        };
        let calls = match s {
            0 if sent_to < services => format!(", calls: [s{sent_to}]"),
            _ => String::new(),
        };
        writeln!(text, "    - {{name: s{s}, module: m, stateful: true, shards: {shards}, replicas: {replicas}, resources: {{cpu: 0.{cpu}, memory: {memory}Mi{disk}}}{accelerators}{pin}{calls}}}").unwrap();
    }
    text.push_str("  channels:");
    text.push_str(if sent_to == 1 { " []\n" } else { "\n" });
    for to in 1..sent_to {
        writeln!(text, "    - {{from: s{}, to: s{to}}}", random.below(to)).unwrap();
    }
    parse_application("any", &text).unwrap()
}
