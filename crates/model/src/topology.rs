//! The cluster as hardware: racks, servers, nodes. A server is one fault domain (E3, ATC 2019, 3.5).

use crate::accelerator::Accelerators;
use crate::emulation::Emulation;
use crate::ids::NodeId;
use crate::units::{Bytes, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of node.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// A server's own processors.
    Host,
    /// A SmartNIC (DPU) with processors of its own.
    SmartNic,
}

impl NodeKind {
    /// As written in manifests.
    pub fn name(self) -> &'static str {
        match self {
            NodeKind::Host => "host",
            NodeKind::SmartNic => "smartnic",
        }
    }
}

/// `spec` of a document of kind `Topology`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopologySpec {
    /// Racks, each with a switch of its own.
    pub racks: Vec<Rack>,
}

/// A rack.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rack {
    /// Name, unique in the cluster.
    pub name: String,
    /// Servers.
    pub servers: Vec<Server>,
    /// The most that its servers may draw together in watts with all that is reserved on them at work; no bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_budget_w: Option<f64>,
}

/// A server: a host and up to four SmartNICs on one power supply. One without a host has wimpy cores
/// only, which count as a SmartNIC.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Server {
    /// Name, unique in the cluster.
    pub name: String,
    /// Name of its power model, such as `Type1-SmartNIC`.
    pub system: String,
    /// The host first, then the SmartNICs.
    pub nodes: Vec<Node>,
    /// The most that it may draw in watts with all that is reserved on it at work; no bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_budget_w: Option<f64>,
}

/// A place that runs code.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    /// Name, unique in the cluster.
    pub name: String,
    /// Host or SmartNIC.
    pub kind: NodeKind,
    /// Cores that services may use.
    pub cores: u16,
    /// Memory that services may use.
    pub memory: Bytes,
    /// Disk that services may use; not limited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Bytes>,
    /// True if this machine only stands in for the hardware. A request then takes as many times
    /// longer as the profiles say (by idling), no more of them are at work at once than it has cores,
    /// the process may use no more than `memory`, its port carries no more than `bandwidthGbps`, and
    /// each datagram takes `linkLatency` longer in either direction.
    #[serde(default)]
    pub emulated: bool,
    /// The scale of the emulation, where this machine is smaller than what the node stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<Emulation>,
    /// True if the traffic between its host and other servers passes this SmartNIC. With several, the
    /// traffic is spread over them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub relay: bool,
    /// One-way latency of an emulated node's link, for what it sends and for what it receives; none
    /// by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_latency: Option<Nanos>,
    /// Network bandwidth in Gb/s.
    #[serde(default = "default_bandwidth_gbps")]
    pub bandwidth_gbps: f64,
    /// Accelerators that services find there; all by default.
    #[serde(default, skip_serializing_if = "Accelerators::is_all")]
    pub accelerators: Accelerators,
}

fn default_bandwidth_gbps() -> f64 {
    10.0
}

/// A checked topology with its nodes numbered. Nodes are added and removed at run time
/// (`growth.rs`), so the ids may have gaps and need not ascend along the racks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Topology {
    /// Name of the document.
    pub name: String,
    /// Its content.
    pub spec: TopologySpec,
    /// The ids of the nodes in the order of `spec`. Empty until a node is added or removed: then they
    /// count from 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ids: Vec<NodeId>,
}

/// Where a node stands.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'a> {
    /// Id.
    pub id: NodeId,
    /// Index of the rack.
    pub rack: usize,
    /// Index of the server, counted over all racks: the fault domain.
    pub server: usize,
    /// The rack's name.
    pub rack_name: &'a str,
    /// The server.
    pub in_server: &'a Server,
    /// The node.
    pub node: &'a Node,
}

impl Topology {
    /// The topology of a document, with its nodes numbered from 0.
    pub fn new(name: String, spec: TopologySpec) -> Topology {
        let ids = Vec::new();
        Topology { name, spec, ids }
    }

    /// How many nodes there are.
    pub fn nodes_count(&self) -> usize {
        let servers = self.spec.racks.iter().flat_map(|rack| &rack.servers);
        servers.map(|server| server.nodes.len()).sum()
    }

    /// The length of a table that has a place for every id.
    pub fn table_len(&self) -> usize {
        match self.ids.iter().max() {
            None => self.nodes_count(),
            Some(last) => last.index() + 1,
        }
    }

    /// All nodes in the order of their ids, which may have gaps.
    pub fn nodes(&self) -> impl Iterator<Item = NodeRef<'_>> {
        let mut all: Vec<NodeRef<'_>> = self.in_order().collect();
        all.sort_unstable_by_key(|n| n.id);
        all.into_iter()
    }

    /// All nodes in the order of the document.
    fn in_order(&self) -> impl Iterator<Item = NodeRef<'_>> {
        let racks = self.spec.racks.iter().enumerate();
        let servers = racks.flat_map(|(at, rack)| rack.servers.iter().map(move |s| (at, rack, s)));
        let nodes = servers.enumerate().flat_map(|(server, (at, rack, s))| {
            s.nodes.iter().map(move |node| (server, at, rack, s, node))
        });
        nodes
            .enumerate()
            .map(|(place, (server, at, rack, in_server, node))| NodeRef {
                id: self.id_at(place),
                rack: at,
                server,
                rack_name: &rack.name,
                in_server,
                node,
            })
    }

    /// The id of the node at a place in the document.
    fn id_at(&self, place: usize) -> NodeId {
        let id = self.ids.get(place).copied();
        id.unwrap_or_else(|| NodeId::of_index(place))
    }

    /// The node of that id. It walks over the servers: who asks for many nodes makes an index.
    pub fn node(&self, id: NodeId) -> Option<NodeRef<'_>> {
        self.in_order().find(|n| n.id == id)
    }

    /// The node of that name. It walks over the servers: who asks for many nodes makes an index.
    pub fn node_named(&self, name: &str) -> Option<NodeRef<'_>> {
        self.in_order().find(|n| n.node.name == name)
    }
}
