//! The scale of an emulated node, and the capacity that follows from it.

use crate::topology::Node;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a process stands for a node.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Emulation {
    /// Speed of the emulated cores and of the emulated port, as a part of the node's: more than 0, at
    /// most 1, which is the default. At 0.1 a request occupies its core ten times as long, and the port
    /// carries a tenth.
    #[serde(default = "full_speed")]
    pub speed: f64,
}

fn full_speed() -> f64 {
    1.0
}

impl Node {
    /// Speed of its cores and its port as a part of what the hardware has; 1 unless it is emulated at
    /// a smaller scale.
    pub fn speed(&self) -> f64 {
        self.emulation.map_or(1.0, |e| e.speed)
    }

    /// Work that its cores do, in cores at full speed. Every computation of capacity uses this, none
    /// uses `cores`.
    pub fn core_capacity(&self) -> f64 {
        f64::from(self.cores) * self.speed()
    }

    /// What its port carries in each direction.
    pub fn port_capacity_gbps(&self) -> f64 {
        self.bandwidth_gbps * self.speed()
    }
}

#[cfg(test)]
mod tests {
    use crate::document::parse_topology;
    use crate::topology::Topology;

    const HOST: &str = "{name: h, kind: host, cores: 12, memory: 64Gi}";

    fn topology(nodes: &[&str]) -> Result<Topology, String> {
        let nodes: String = nodes.iter().map(|n| format!("        - {n}\n")).collect();
        let text = format!(
            "\
apiVersion: e3.dev/v1alpha1
kind: Topology
metadata: {{name: one}}
spec:
  racks:
    - name: r
      servers:
      - name: s
        system: Type1-SmartNIC
        nodes:
{nodes}"
        );
        parse_topology("t.yaml", &text).map_err(|e| e.to_string())
    }

    fn nic(more: &str) -> String {
        format!("{{name: n, kind: smartnic, cores: 12, memory: 4Gi, bandwidthGbps: 10{more}}}")
    }

    #[test]
    fn a_node_has_the_capacity_of_its_scale() {
        for (more, cores, gbps) in [
            ("", 12.0, 10.0),
            (", emulated: true", 12.0, 10.0),
            (", emulated: true, emulation: {}", 12.0, 10.0),
            (", emulated: true, emulation: {speed: 0.25}", 3.0, 2.5),
        ] {
            let t = topology(&[HOST, &nic(more)]).unwrap();
            let node = t.node_named("n").unwrap().node;
            assert_eq!(node.core_capacity(), cores, "{more}");
            assert_eq!(node.port_capacity_gbps(), gbps, "{more}");
            assert_eq!(node.cores, 12);
        }
    }

    #[test]
    fn a_speed_that_is_no_scale_is_refused() {
        for (more, wanted) in [
            (", emulation: {speed: 0.5}", "set emulated: true"),
            (", emulated: true, emulation: {speed: 0}", "speed is 0,"),
            (", emulated: true, emulation: {speed: -1}", "speed is -1,"),
            (", emulated: true, emulation: {speed: 1.5}", "speed is 1.5,"),
            (
                ", emulated: true, emulation: {speed: .nan}",
                "speed is NaN,",
            ),
            (
                ", emulated: true, emulation: {speed: .inf}",
                "speed is inf,",
            ),
            (", emulated: true, emulation: {speed: fast}", "speed"),
            (", emulated: true, emulation: {rate: 1}", "rate"),
        ] {
            let error = topology(&[HOST, &nic(more)]).unwrap_err();
            assert!(error.contains(wanted), "{more}: {error}");
        }
    }

    #[test]
    fn smartnics_relay_for_the_host_of_their_server() {
        let relay = nic(", relay: true");
        let second = relay.replace("name: n", "name: m");
        topology(&[HOST, &relay, &second]).unwrap();
        let error = topology(&[&relay]).unwrap_err();
        assert!(error.contains("server \"s\" has none"), "{error}");
        let error = topology(&[&HOST.replace('}', ", relay: true}")]).unwrap_err();
        assert!(error.contains("relay is for SmartNICs"), "{error}");
    }
}
