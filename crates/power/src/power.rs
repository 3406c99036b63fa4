//! What a server draws. Calibrated on nothing but Tables 1 and 4 of E3 (USENIX ATC 2019).
//!
//! A host draws, above idle, a fixed part while any core is active and a part for each active core;
//! both come from a least-squares fit of Table 1. A SmartNIC's cores never sleep: it draws its active
//! power, Table 1's mean, as soon as it serves anything. The parts add up to more or less than whole
//! servers draw, so Table 4 bounds the server (idle, and peak when every node is at its full) and the
//! parts are scaled to fit in between. [`PowerModel::residuals`] says by how much they are off.

use crate::paper::{SMARTNIC_CORES, table1, table4};
use e3_model::topology::Server;
use e3_model::{NodeKind, Watts};
use std::collections::BTreeMap;
use std::fmt;

/// Power of a host above idle: `fixed_w` while any core is active, `per_core_w` for each.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HostFit {
    /// Part that is drawn while any core is active.
    pub fixed_w: f64,
    /// Part of each active core.
    pub per_core_w: f64,
    /// Coefficient of determination of the fit.
    pub r_squared: f64,
    /// Mean of the relative errors.
    pub error_mean: f64,
}

/// A server of Table 4.
#[derive(Clone, PartialEq, Debug)]
pub struct System {
    /// Power when idle.
    pub idle_w: f64,
    /// Power at the peak.
    pub peak_w: f64,
    /// Host cores.
    pub host_cores: f64,
    /// SmartNICs.
    pub smartnics: f64,
}

/// Power model of all systems.
#[derive(Clone, PartialEq, Debug)]
pub struct PowerModel {
    systems: BTreeMap<String, System>,
    host: HostFit,
    smartnic_w: f64,
}

/// Power of one server.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerPower {
    /// When idle.
    pub idle: Watts,
    /// Above idle, by node in the topology's order.
    pub active: Vec<Watts>,
}

/// How the parts of a server make up the whole.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    /// Power when idle.
    pub idle_w: f64,
    /// By this the nodes' parts are multiplied, so that together they draw what Table 4 says.
    pub factor: f64,
}

/// A system that Table 4 does not know.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("server {server:?}: no power model for system {system:?}, known are {known}")]
pub struct UnknownSystem {
    /// Server.
    pub server: String,
    /// Its system.
    pub system: String,
    /// Those that there are.
    pub known: String,
}

/// How far the parts of a server (Table 1) are from the whole (Table 4).
#[derive(Clone, PartialEq, Debug)]
pub struct Residual {
    /// System.
    pub system: String,
    /// Sum of its parts at their full.
    pub parts_w: f64,
    /// Peak minus idle.
    pub table_w: f64,
}

impl HostFit {
    /// Least squares over pairs of (active cores, active watts).
    pub fn fit(points: &[(f64, f64)]) -> HostFit {
        let count = points.len() as f64;
        let mean_cores = points.iter().map(|p| p.0).sum::<f64>() / count;
        let mean_w = points.iter().map(|p| p.1).sum::<f64>() / count;
        let spread: f64 = points.iter().map(|p| (p.0 - mean_cores).powi(2)).sum();
        let joint = points.iter().map(|p| (p.0 - mean_cores) * (p.1 - mean_w));
        let per_core_w = joint.sum::<f64>() / spread;
        let fixed_w = mean_w - per_core_w * mean_cores;
        let off = |p: &(f64, f64)| p.1 - (fixed_w + per_core_w * p.0);
        let left: f64 = points.iter().map(|p| off(p).powi(2)).sum();
        let all: f64 = points.iter().map(|p| (p.1 - mean_w).powi(2)).sum();
        HostFit {
            fixed_w,
            per_core_w,
            r_squared: 1.0 - left / all,
            error_mean: points.iter().map(|p| (off(p) / p.1).abs()).sum::<f64>() / count,
        }
    }

    /// Watts above idle with `busy` cores' worth of work on `cores`. The cores' work is taken as
    /// independent, so that some core is active for a part `1 - (1 - busy/cores)^cores` of the time.
    pub fn watts(&self, busy: f64, cores: f64) -> f64 {
        let busy = busy.clamp(0.0, cores);
        let any = 1.0 - (1.0 - busy / cores).powf(cores);
        self.fixed_w * any + self.per_core_w * busy
    }
}

impl PowerModel {
    /// The model of the paper's hardware.
    pub fn paper() -> PowerModel {
        let rows = table1();
        let points: Vec<_> = rows
            .iter()
            .map(|r| (r.host.cores, r.host.active_w))
            .collect();
        let smartnic_w = rows.iter().map(|r| r.smartnic.active_w).sum::<f64>() / rows.len() as f64;
        let systems = table4().into_iter().map(|row| {
            let system = System {
                idle_w: row.idle_w,
                peak_w: row.peak_w,
                host_cores: row.host_cores,
                smartnics: row.smartnic_cores / SMARTNIC_CORES,
            };
            (row.system, system)
        });
        PowerModel {
            systems: systems.collect(),
            host: HostFit::fit(&points),
            smartnic_w,
        }
    }

    /// The model with another system, such as one of the present day.
    pub fn with_system(mut self, name: &str, system: System) -> PowerModel {
        self.systems.insert(name.to_string(), system);
        self
    }

    /// The fit of the host.
    pub fn host(&self) -> HostFit {
        self.host
    }

    /// Power of a serving SmartNIC above idle, before scaling.
    pub fn smartnic(&self) -> Watts {
        Watts(self.smartnic_w)
    }

    /// The systems by name.
    pub fn systems(&self) -> &BTreeMap<String, System> {
        &self.systems
    }

    /// Power of a server with `busy_cores` of work on each of its nodes, in the topology's order.
    pub fn server(
        &self,
        server: &Server,
        busy_cores: &[f64],
    ) -> Result<ServerPower, UnknownSystem> {
        let system = self
            .systems
            .get(&server.system)
            .ok_or_else(|| UnknownSystem {
                server: server.name.clone(),
                system: server.system.clone(),
                known: self.systems.keys().cloned().collect::<Vec<_>>().join(", "),
            })?;
        let nodes = || server.nodes.iter().map(|n| (n.kind, f64::from(n.cores)));
        let scale = self.scale_of(system, nodes());
        let active = nodes()
            .zip(busy_cores)
            .map(|((kind, cores), busy)| Watts(self.node_w(kind, cores, *busy) * scale.factor));
        Ok(ServerPower {
            idle: Watts(scale.idle_w),
            active: active.collect(),
        })
    }

    /// What a node draws above idle with `busy` cores of work, before scaling.
    pub fn node_w(&self, kind: NodeKind, cores: f64, busy: f64) -> f64 {
        match kind {
            NodeKind::Host => self.host.watts(busy, cores),
            NodeKind::SmartNic if busy > 0.0 => self.smartnic_w,
            NodeKind::SmartNic => 0.0,
        }
    }

    /// The same of an emulated node: its cores, and the work, are in cores at full speed, and each of its
    /// own has only this speed.
    pub fn emulated_node_w(&self, kind: NodeKind, cores: f64, speed: f64, busy: f64) -> f64 {
        self.node_w(kind, cores / speed, busy / speed)
    }

    /// Idle power and scale of a server of that system with these nodes and their cores. A system that
    /// Table 4 does not know is taken to draw as much when idle as its nodes add at their full: the
    /// systems of Table 4 with a host draw 0.4 to 0.8 times as much.
    pub fn scale(
        &self,
        system: &str,
        nodes: impl Iterator<Item = (NodeKind, f64)> + Clone,
    ) -> Scale {
        match self.systems.get(system) {
            Some(system) => self.scale_of(system, nodes),
            None => Scale {
                idle_w: self.full_w(nodes),
                factor: 1.0,
            },
        }
    }

    fn scale_of(&self, system: &System, nodes: impl Iterator<Item = (NodeKind, f64)>) -> Scale {
        Scale {
            idle_w: system.idle_w,
            factor: (system.peak_w - system.idle_w) / self.full_w(nodes),
        }
    }

    fn full_w(&self, nodes: impl Iterator<Item = (NodeKind, f64)>) -> f64 {
        nodes
            .map(|(kind, cores)| self.node_w(kind, cores, cores))
            .sum()
    }

    /// How far the parts are from the whole, for the single servers with a host.
    pub fn residuals(&self) -> Vec<Residual> {
        let single = ["Beefy", "Type1-SmartNIC", "Type2-SmartNIC", "SuperBeefy"];
        let residual = |name: &&str| {
            let system = self.systems.get(*name)?;
            let host = self.host.watts(system.host_cores, system.host_cores);
            Some(Residual {
                system: (*name).to_string(),
                parts_w: host + system.smartnics * self.smartnic_w,
                table_w: system.peak_w - system.idle_w,
            })
        };
        single.iter().filter_map(residual).collect()
    }
}

impl ServerPower {
    /// All of it.
    pub fn total(&self) -> Watts {
        Watts(self.idle.0 + self.active.iter().map(|w| w.0).sum::<f64>())
    }
}

impl fmt::Display for HostFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} W + {:.2} W a core (R2 {:.3}, mean error {:.1} %)",
            self.fixed_w,
            self.per_core_w,
            self.r_squared,
            self.error_mean * 100.0
        )
    }
}

impl fmt::Display for Residual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: parts {:.0} W (Table 1), peak minus idle {:.0} W (Table 4), {:+.0} %",
            self.system,
            self.parts_w,
            self.table_w,
            (self.parts_w / self.table_w - 1.0) * 100.0
        )
    }
}
