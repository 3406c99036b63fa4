//! The topology and the applications of a scenario, as manifests.

use super::{AppShape, Scenario};
use e3_model::document::{parse_application, parse_topology};
use e3_model::topology::Rack;
use e3_model::{Application, Topology};
use std::fmt::Write;

const TOPOLOGY: &str =
    "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: sim}\nspec:\n  racks:\n";

fn rack_text(rack: usize) -> String {
    format!("    - name: rack{rack}\n      servers:\n")
}

fn server_text(server: usize, nics: u8) -> String {
    let mut text = format!(
        "        - name: s{server}\n          system: Type1-SmartNIC\n          nodes:\n            - {{name: s{server}-host, kind: host, cores: 64, memory: 512Gi}}\n"
    );
    for nic in 0..nics {
        let _ = writeln!(
            text,
            "            - {{name: s{server}-nic{nic}, kind: smartnic, cores: 64, memory: 512Gi}}"
        );
    }
    text
}

impl Scenario {
    /// The topology.
    pub fn topology(&self) -> Topology {
        let mut text = TOPOLOGY.to_string();
        for (rack, servers) in self.racks().into_iter().enumerate() {
            text += &rack_text(rack);
            for server in servers {
                text += &server_text(server, self.servers[server]);
            }
        }
        parse_topology("scenario", &text).expect("a scenario has a valid topology")
    }

    /// What adds a server to the cluster, to one of its racks or to another one.
    pub(crate) fn new_server(&self, server: u32, nics: u8) -> Vec<Rack> {
        let server = server as usize;
        let rack = match self.racks.len() {
            0 => 0,
            racks => server % (racks + 1),
        };
        let text = TOPOLOGY.to_string() + &rack_text(rack) + &server_text(server, nics);
        let topology = parse_topology("scenario", &text);
        topology
            .expect("the document of a server is valid")
            .spec
            .racks
    }
}

impl Scenario {
    /// The manifest of the application at this index.
    pub fn application(&self, at: usize, latency_ms: u64) -> Application {
        let AppShape {
            admitted_max,
            attempts,
            services,
            channels,
        } = &self.apps[at];
        let mut text = format!(
            "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: app{at}}}\nspec:\n  objective: {{latency: {latency_ms}ms}}\n  deadline: 1h\n  attempts: {attempts}\n  admittedMax: {admitted_max}\n  ingress: svc0\n{}  services:\n",
            self.topics_of(at)
        );
        for (n, s) in services.iter().enumerate() {
            let _ = writeln!(
                text,
                "    - name: svc{n}\n      module: m.wasm\n      stateful: {}\n      shards: {}\n      replicas: {}\n      resources: {{cpu: 0.01, memory: 1Gi}}",
                s.stateful, s.shards, s.replicas
            );
            if s.stateful {
                let marks = match s.ttl_ms {
                    0 => String::new(),
                    ttl => format!(
                        ", {{name: marks, kind: ordered-map, ttl: {ttl}ms}}, {{name: made, kind: hash-map}}"
                    ),
                };
                let ticks = if s.ticks {
                    ", {name: ticks, kind: ordered-map}"
                } else {
                    ""
                };
                let _ = writeln!(
                    text,
                    "      collections: [{{name: effects, kind: counter}}, {{name: fill, kind: hash-map}}, {{name: fired, kind: counter}}{marks}{ticks}]"
                );
            }
            text += &self.publishes(at, n);
            if let Some(called) = s.calls {
                let _ = writeln!(text, "      calls: [svc{called}]");
            }
            if s.on_disk {
                let _ = writeln!(text, "      durability: disk");
            }
            if s.refuses_alone {
                let _ = writeln!(text, "      whenAlone: refuse");
            }
        }
        if !channels.is_empty() {
            let _ = writeln!(text, "  channels:");
        }
        for (n, c) in channels.iter().enumerate() {
            let _ = writeln!(
                text,
                "    - {{name: c{n}, from: svc{}, to: svc{}, outputs: {}}}",
                c.from, c.to, c.messages
            );
        }
        parse_application("scenario", &text).expect("a scenario has valid applications")
    }
}
