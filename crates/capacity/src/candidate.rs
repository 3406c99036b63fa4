//! A candidate: a type of server of which there may be any number, or the servers of a topology as a block that is
//! bought once or several times.

use crate::limits::SERVERS_PER_RACK;
use e3_hardware::Guesses;
use e3_hardware::servers::{self, Part, Quantity, ServerType};
use e3_model::topology::{Rack, Server, TopologySpec};
use e3_model::{NodeKind, Topology};
use e3_power::PowerModel;

/// A candidate.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// Name as the user gave it.
    pub name: String,
    /// What is bought together: one server, or all of a topology with different ones.
    block: Vec<Server>,
    /// Types of the servers of the block.
    types: Vec<ServerType>,
}

/// A candidate that there is not.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CandidateError {
    /// Neither a type of server nor a file.
    #[error("candidate {name:?} is no type of server; there are {}", .known.join(", "))]
    Unknown {
        /// As given.
        name: String,
        /// Types.
        known: Vec<String>,
    },
    /// A topology has a server of a type that has no price and no power.
    #[error("candidate {name:?}: server {server:?} is of system {system:?}; there are {}", .known.join(", "))]
    System {
        /// Candidate.
        name: String,
        /// Server.
        server: String,
        /// Its system.
        system: String,
        /// Types.
        known: Vec<String>,
    },
    /// A topology has servers whose cores are of different speed.
    #[error(
        "candidate {name:?}: servers {} and {} have cores of different speed; a profile has one service time for each \
         kind of node, so plan each type on its own", .types[0], .types[1]
    )]
    Mixed {
        /// Candidate.
        name: String,
        /// Two of its types.
        types: [String; 2],
    },
    /// A topology without servers.
    #[error("candidate {0:?} has no servers")]
    Empty(String),
}

impl Candidate {
    /// A type of server.
    pub fn of_type(name: &str) -> Result<Candidate, CandidateError> {
        let found = servers::server_type(name).ok_or_else(|| CandidateError::Unknown {
            name: name.to_string(),
            known: servers::names(),
        })?;
        let server = Server {
            name: "s1".into(),
            system: found.name.clone(),
            nodes: found.nodes.clone(),
            power_budget_w: None,
        };
        Ok(Candidate {
            name: found.name.clone(),
            block: vec![server],
            types: vec![found],
        })
    }

    /// The servers of a topology: if all are alike, any number of them, else all of them once or several times.
    pub fn of_topology(name: &str, topology: &Topology) -> Result<Candidate, CandidateError> {
        let servers = topology.spec.racks.iter().flat_map(|r| &r.servers);
        let mut block: Vec<Server> = servers.cloned().collect();
        if block.is_empty() {
            return Err(CandidateError::Empty(name.to_string()));
        }
        if block.iter().all(|s| is_alike(s, &block[0])) {
            block.truncate(1);
        }
        let mut types: Vec<ServerType> = Vec::new();
        for server in &block {
            let found = servers::server_type(&server.system);
            types.push(found.ok_or_else(|| CandidateError::System {
                name: name.to_string(),
                server: server.name.clone(),
                system: server.system.clone(),
                known: servers::names(),
            })?);
        }
        let speeds = |t: &ServerType| {
            (
                t.host_speed.0.estimate,
                t.smartnic_speed.0.estimate,
                t.host_threads,
            )
        };
        if let Some(other) = types.iter().find(|t| speeds(t) != speeds(&types[0])) {
            return Err(CandidateError::Mixed {
                name: name.to_string(),
                types: [types[0].name.clone(), other.name.clone()],
            });
        }
        Ok(Candidate {
            name: name.to_string(),
            block,
            types,
        })
    }

    /// Servers of a block.
    pub fn servers_per_block(&self) -> usize {
        self.block.len()
    }

    /// Whether it has nodes of this kind.
    pub fn has(&self, kind: NodeKind) -> bool {
        self.block
            .iter()
            .flat_map(|s| &s.nodes)
            .any(|n| n.kind == kind)
    }

    /// Cores of this kind in a block.
    pub fn cores(&self, kind: NodeKind) -> f64 {
        let nodes = self.block.iter().flat_map(|s| &s.nodes);
        let cores = nodes.filter(|n| n.kind == kind).map(|n| f64::from(n.cores));
        cores.sum()
    }

    /// A cluster of so many blocks, in racks.
    pub fn topology(&self, blocks: usize) -> Topology {
        let all = (0..blocks).flat_map(|_| &self.block).enumerate();
        let servers: Vec<Server> = all
            .map(|(at, server)| {
                let mut server = server.clone();
                server.name = format!("s{}", at + 1);
                let nodes = server.nodes.iter_mut().enumerate();
                for (i, node) in nodes {
                    node.name = format!("s{}-{}{i}", at + 1, node.kind.name());
                }
                server
            })
            .collect();
        let racks = servers.chunks(SERVERS_PER_RACK).enumerate();
        let racks = racks.map(|(at, servers)| Rack {
            name: format!("rack{at}"),
            servers: servers.to_vec(),
            power_budget_w: None,
        });
        let spec = TopologySpec {
            racks: racks.collect(),
        };
        Topology::new(self.name.clone(), spec)
    }

    /// The power model that knows its servers.
    pub fn power_model(&self) -> PowerModel {
        let types = self.types.iter();
        types.fold(PowerModel::paper(), servers::power_model)
    }

    /// Guesses as this hardware bounds them: cores without hyper-threading gain nothing by it.
    pub fn guesses(&self, guesses: &Guesses) -> Guesses {
        let mut guesses = guesses.clone();
        if self.types[0].host_threads == 1 {
            guesses.hyper_threading_gain = 1.0;
        }
        guesses
    }

    /// Whether its hosts have hardware threads that share a core.
    pub fn has_hyper_threading(&self) -> bool {
        self.has(NodeKind::Host) && self.types[0].host_threads > 1
    }

    /// All parts of a block; a part that it has several times is there several times.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.types.iter().flat_map(|t| &t.parts)
    }

    /// Sum of a quantity over the parts of a block.
    pub fn sum(&self, of: fn(&Part) -> Quantity) -> Quantity {
        servers::sum(self.parts(), of)
    }

    /// Speed of a core of this kind against the paper's.
    pub fn speed(&self, kind: NodeKind) -> Quantity {
        self.speed_of(kind).0
    }

    /// Name of the part that has the cores of this kind.
    pub fn processor(&self, kind: NodeKind) -> &str {
        &self.speed_of(kind).1
    }

    fn speed_of(&self, kind: NodeKind) -> &(Quantity, String) {
        match kind {
            NodeKind::Host => &self.types[0].host_speed,
            NodeKind::SmartNic => &self.types[0].smartnic_speed,
        }
    }
}

/// Whether two servers differ in their names only.
fn is_alike(a: &Server, b: &Server) -> bool {
    let nodes = |s: &Server| -> Vec<_> {
        let nodes = s.nodes.iter().map(|n| {
            let mut n = n.clone();
            n.name.clear();
            n
        });
        nodes.collect()
    };
    a.system == b.system && nodes(a) == nodes(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_make_racks_of_forty_servers_with_names_of_their_own() {
        let candidate = Candidate::of_type("type1-smartnic").unwrap();
        let topology = candidate.topology(45);
        let sizes: Vec<usize> = topology
            .spec
            .racks
            .iter()
            .map(|r| r.servers.len())
            .collect();
        assert_eq!(sizes, [40, 5]);
        let mut names: Vec<_> = topology.nodes().map(|n| n.node.name.clone()).collect();
        assert_eq!(names[0], "s1-host0");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 90);
    }

    #[test]
    fn a_topology_of_like_servers_is_bought_one_by_one_and_another_as_a_whole() {
        let beefy = Candidate::of_type("Beefy").unwrap();
        let again = Candidate::of_topology("mine", &beefy.topology(4)).unwrap();
        assert_eq!(again.servers_per_block(), 1);
        let mut both = beefy.topology(1);
        let wimpy = Candidate::of_type("Wimpy").unwrap().topology(1);
        both.spec.racks.extend(wimpy.spec.racks);
        let both = Candidate::of_topology("both", &both).unwrap();
        assert_eq!(both.servers_per_block(), 2);
        assert_eq!(both.sum(|p| p.price_usd).estimate.value, 4500.0 + 2209.0);
    }

    #[test]
    fn what_is_no_candidate_is_refused() {
        let unknown = Candidate::of_type("abacus").unwrap_err().to_string();
        assert!(unknown.contains("there are Beefy, SuperBeefy"), "{unknown}");
        let mut mixed = Candidate::of_type("Beefy").unwrap().topology(1);
        let epyc = Candidate::of_type("epyc-9354").unwrap().topology(1);
        mixed.spec.racks.extend(epyc.spec.racks);
        let refused = Candidate::of_topology("mixed", &mixed)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("Beefy and epyc-9354"), "{refused}");
        mixed.spec.racks[0].servers[0].system = "Abacus".into();
        let refused = Candidate::of_topology("mixed", &mixed)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("of system \"Abacus\""), "{refused}");
    }
}
