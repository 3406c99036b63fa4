//! Hardware joins and leaves a topology at run time. Node ids are never used again: what is late may
//! still name them.

use crate::ids::NodeId;
use crate::limits::NODES_MAX;
use crate::topology::{Rack, Topology};
use crate::validate_topology;
use std::collections::BTreeMap;

/// Why hardware cannot be added. Nothing is added then.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum AddError {
    /// The grown topology would break a rule.
    #[error("{0}")]
    Invalid(String),
    /// Racks, servers and nodes of a cluster have names of their own.
    #[error("{what} {name:?}: the cluster has a {found} of this name; choose another name")]
    Name {
        /// `rack`, `server` or `node`.
        what: &'static str,
        /// The name.
        name: String,
        /// What has it.
        found: &'static str,
    },
    /// What exists has another value.
    #[error(
        "{what} {name:?} exists with {field} {found}, not {wanted}; it cannot change while the cluster exists"
    )]
    Differs {
        /// `rack` or `server`.
        what: &'static str,
        /// Its name.
        name: String,
        /// The field.
        field: &'static str,
        /// What it is.
        found: String,
        /// What it was to be.
        wanted: String,
    },
    /// No id is left.
    #[error(
        "{wanted} more nodes: {used} of {NODES_MAX} node ids of this cluster are used, and ids of removed nodes are not used again"
    )]
    Ids {
        /// How many were to be added.
        wanted: usize,
        /// Ids that are or were in use.
        used: usize,
    },
}

impl Topology {
    /// Adds racks, servers to racks that exist, and nodes to servers that exist. The new nodes get the
    /// ids from `next` on, in the order in which they stand in `racks`. Returns these ids.
    pub fn add(&mut self, racks: &[Rack], next: usize) -> Result<Vec<NodeId>, AddError> {
        let servers = racks.iter().flat_map(|rack| &rack.servers);
        let wanted: usize = servers.map(|server| server.nodes.len()).sum();
        let used = next.max(self.table_len());
        if wanted == 0 {
            let message = "no node is added, must be 1 or more".into();
            return Err(AddError::Invalid(message));
        }
        if wanted > NODES_MAX.saturating_sub(used) {
            return Err(AddError::Ids { wanted, used });
        }
        self.check_names(racks)?;
        let mut grown = self.clone();
        grown.ids = self.ids_in_order();
        let mut ids = (used..used + wanted).map(NodeId::of_index);
        for rack in racks {
            grown.add_rack(rack, &mut ids)?;
        }
        validate_topology::topology(&grown).map_err(|fault| AddError::Invalid(fault.message))?;
        *self = grown;
        Ok((used..used + wanted).map(NodeId::of_index).collect())
    }

    /// Removes a node; a server or rack that has none left goes with it.
    pub fn remove(&mut self, id: NodeId) {
        let mut ids = self.ids_in_order().into_iter();
        let mut left = Vec::new();
        for server in self.spec.racks.iter_mut().flat_map(|r| &mut r.servers) {
            server.nodes.retain(|_| {
                let this = ids.next().expect("an id for every node");
                if this != id {
                    left.push(this);
                }
                this != id
            });
        }
        for rack in &mut self.spec.racks {
            rack.servers.retain(|server| !server.nodes.is_empty());
        }
        self.spec.racks.retain(|rack| !rack.servers.is_empty());
        self.ids = left;
    }

    /// Refuses what is new under a name that something has.
    fn check_names(&self, racks: &[Rack]) -> Result<(), AddError> {
        let mut names: BTreeMap<&str, &'static str> = BTreeMap::new();
        let mut is_in: BTreeMap<&str, &str> = BTreeMap::new();
        for rack in &self.spec.racks {
            names.insert(&rack.name, "rack");
            for server in &rack.servers {
                names.insert(&server.name, "server");
                is_in.insert(&server.name, &rack.name);
                names.extend(server.nodes.iter().map(|n| (n.name.as_str(), "node")));
            }
        }
        let free = |what: &'static str, name: &String| match names.get(name.as_str()) {
            None => Ok(()),
            Some(found) => Err(AddError::Name {
                what,
                name: name.clone(),
                found,
            }),
        };
        for rack in racks {
            if names.get(rack.name.as_str()) != Some(&"rack") {
                free("rack", &rack.name)?;
            }
            for server in &rack.servers {
                if is_in.get(server.name.as_str()) != Some(&rack.name.as_str()) {
                    free("server", &server.name)?;
                }
                for node in &server.nodes {
                    free("node", &node.name)?;
                }
            }
        }
        Ok(())
    }

    fn ids_in_order(&self) -> Vec<NodeId> {
        if !self.ids.is_empty() {
            return self.ids.clone();
        }
        (0..self.nodes_count()).map(NodeId::of_index).collect()
    }

    /// How many nodes stand before a rack.
    fn nodes_before(&self, rack: usize) -> usize {
        let servers = self.spec.racks[..rack].iter().flat_map(|r| &r.servers);
        servers.map(|server| server.nodes.len()).sum()
    }

    fn add_rack(
        &mut self,
        rack: &Rack,
        ids: &mut impl Iterator<Item = NodeId>,
    ) -> Result<(), AddError> {
        let Some(r) = self.spec.racks.iter().position(|r| r.name == rack.name) else {
            let nodes = rack.servers.iter().map(|server| server.nodes.len()).sum();
            self.ids.extend(ids.take(nodes));
            self.spec.racks.push(rack.clone());
            return Ok(());
        };
        let budget_w = self.spec.racks[r].power_budget_w;
        same_budget("rack", &rack.name, budget_w, rack.power_budget_w)?;
        for server in &rack.servers {
            let mut at = self.nodes_before(r);
            let servers = &mut self.spec.racks[r].servers;
            let s = servers.iter().position(|s| s.name == server.name);
            let end = s.map_or(servers.len(), |s| s + 1);
            at += servers[..end].iter().map(|s| s.nodes.len()).sum::<usize>();
            match s.map(|s| &mut servers[s]) {
                None => servers.push(server.clone()),
                Some(found) => {
                    let budget_w = found.power_budget_w;
                    same_budget("server", &server.name, budget_w, server.power_budget_w)?;
                    if found.system != server.system {
                        return Err(AddError::Differs {
                            what: "server",
                            name: server.name.clone(),
                            field: "system",
                            found: found.system.clone(),
                            wanted: server.system.clone(),
                        });
                    }
                    found.nodes.extend(server.nodes.iter().cloned());
                }
            }
            let new = ids.take(server.nodes.len());
            self.ids.splice(at..at, new);
        }
        Ok(())
    }
}

/// What is added to a rack or server leaves its budget out, or says the same.
fn same_budget(
    what: &'static str,
    name: &str,
    found: Option<f64>,
    wanted: Option<f64>,
) -> Result<(), AddError> {
    if wanted.is_none() || wanted == found {
        return Ok(());
    }
    let watts = |w: Option<f64>| w.map_or("none".into(), |w| format!("{w} W"));
    Err(AddError::Differs {
        what,
        name: name.into(),
        field: "powerBudgetW",
        found: watts(found),
        wanted: watts(wanted),
    })
}
