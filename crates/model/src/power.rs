//! Power caps of servers and racks, which operators set at run time, and what servers and racks draw.
//! Design: docs/design/022.

use crate::profile::Provenance;
use crate::topology::Topology;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Most that a power cap may be, in watts.
pub const CAP_W_MAX: u32 = 10_000_000;

/// What a power cap bounds.
#[derive(
    Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum PowerDomain {
    /// The server of that name.
    Server(String),
    /// The servers of the rack of that name together.
    Rack(String),
}

impl PowerDomain {
    /// `server` or `rack`.
    pub fn kind(&self) -> &'static str {
        match self {
            PowerDomain::Server(_) => "server",
            PowerDomain::Rack(_) => "rack",
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            PowerDomain::Server(name) | PowerDomain::Rack(name) => name,
        }
    }
}

impl fmt::Display for PowerDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

/// The power caps of a cluster, in whole watts, as management controllers have them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PowerCaps {
    /// By name of the server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    servers: BTreeMap<String, u32>,
    /// By name of the rack.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    racks: BTreeMap<String, u32>,
}

impl PowerCaps {
    /// Whether nothing is capped.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.racks.is_empty()
    }

    /// The cap of a server.
    pub fn of_server(&self, name: &str) -> Option<u32> {
        self.servers.get(name).copied()
    }

    /// The cap of a rack.
    pub fn of_rack(&self, name: &str) -> Option<u32> {
        self.racks.get(name).copied()
    }

    /// The cap of a server or a rack.
    pub fn of(&self, domain: &PowerDomain) -> Option<u32> {
        match domain {
            PowerDomain::Server(name) => self.of_server(name),
            PowerDomain::Rack(name) => self.of_rack(name),
        }
    }

    /// Sets a cap, or removes it.
    pub fn set(&mut self, domain: &PowerDomain, cap_w: Option<u32>) {
        let caps = match domain {
            PowerDomain::Server(_) => &mut self.servers,
            PowerDomain::Rack(_) => &mut self.racks,
        };
        match cap_w {
            Some(cap_w) => caps.insert(domain.name().to_string(), cap_w),
            None => caps.remove(domain.name()),
        };
    }

    /// All caps: those of servers, then those of racks.
    pub fn iter(&self) -> impl Iterator<Item = (PowerDomain, u32)> {
        let servers = self.servers.iter();
        let servers = servers.map(|(name, cap_w)| (PowerDomain::Server(name.clone()), *cap_w));
        let racks = self.racks.iter();
        servers.chain(racks.map(|(name, cap_w)| (PowerDomain::Rack(name.clone()), *cap_w)))
    }

    /// Forgets the caps of servers and racks that the topology no longer has.
    pub fn keep_known(&mut self, topology: &Topology) {
        let racks = &topology.spec.racks;
        self.racks
            .retain(|name, _| racks.iter().any(|r| r.name == *name));
        let servers = || racks.iter().flat_map(|rack| &rack.servers);
        self.servers
            .retain(|name, _| servers().any(|s| s.name == *name));
    }
}

/// `POST /v1/power`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PowerCapRequest {
    /// What is capped.
    pub domain: PowerDomain,
    /// The cap in whole watts; none removes it.
    #[serde(default)]
    pub cap_w: Option<u32>,
}

/// What a server or a rack draws; an element of `GET /v1/power`, and the answer to `POST /v1/power`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PowerView {
    /// The server or rack.
    pub domain: PowerDomain,
    /// What it draws in watts; none if the load of one of its nodes is not known.
    pub watts: Option<f64>,
    /// `measured` if meters say so of all its servers; otherwise `modelled`, at least in part.
    pub provenance: Provenance,
    /// Servers whose meters were read.
    pub servers_measured: u32,
    /// Its servers; 1 of a server.
    pub servers: u32,
    /// What it draws when idle (modelled).
    pub idle_w: f64,
    /// The power budget of the topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_w: Option<f64>,
    /// The power cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_w: Option<u32>,
    /// Rounds in a row in which it drew more than its cap.
    pub rounds_above: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_written_as_its_kind_and_its_name() {
        let domain = PowerDomain::Rack("r1".into());
        assert_eq!(domain.to_string(), "rack r1");
        let json = serde_json::to_string(&domain).unwrap();
        assert_eq!(json, r#"{"rack":"r1"}"#);
    }

    #[test]
    fn a_server_and_a_rack_of_the_same_name_have_caps_of_their_own() {
        let mut caps = PowerCaps::default();
        caps.set(&PowerDomain::Server("a".into()), Some(120));
        assert_eq!((caps.of_server("a"), caps.of_rack("a")), (Some(120), None));
        caps.set(&PowerDomain::Rack("a".into()), Some(300));
        caps.set(&PowerDomain::Server("a".into()), None);
        assert_eq!((caps.of_server("a"), caps.of_rack("a")), (None, Some(300)));
        assert_eq!(caps.iter().count(), 1);
    }
}
