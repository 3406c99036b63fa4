//! Two services of which the orchestrator moves one. Tests of other crates have them too.

use e3_model::Profile;
use e3_model::document::parse_profile;
use std::collections::BTreeMap;

/// `heavy` overloads the SmartNIC that it shares with `light`.
pub const APP: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: pair}
spec:
  objective: {latency: 50ms}
  ingress: light
  services:
    - {name: light, module: m, shards: 2, resources: {cpu: 0.1, memory: 1Mi}}
    - {name: heavy, module: m, stateful: true, shards: 2, replicas: 2, resources: {cpu: 0.1, memory: 8Mi},
       collections: [{name: c, kind: hash-map}]}
  channels:
    - {from: light, to: heavy}
";

/// `heavy` takes ten times as long on a SmartNIC.
pub fn profiles() -> BTreeMap<String, Profile> {
    BTreeMap::from([profile("light", 10, 10), profile("heavy", 100, 1_000)])
}

fn profile(name: &str, host_us: u32, nic_us: u32) -> (String, Profile) {
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {{name: {name}}}\nspec:\n  provenance: modelled\n  source: test\n  nodes:\n    host:\n      serviceTime: [{{bytes: 512, time: {host_us}us}}]\n      activePowerW: 20\n      activeCores: 12\n    smartnic:\n      serviceTime: [{{bytes: 512, time: {nic_us}us}}]\n      activePowerW: 20\n      activeCores: 12\n"
    );
    (name.to_string(), parse_profile("profile", &text).unwrap())
}
