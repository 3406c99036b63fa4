//! What a node draws, for the integration of energy over time.
//!
//! The parts are those of [`e3_power`]: a least-squares fit of Table 1 for hosts (a fixed part while any
//! core is awake, a part for each core that is awake), Table 1's mean for a SmartNIC from its first
//! message on, less the part that the guess `smartnic_power_by_load` puts on busy cores, scaled so that a
//! server at its full draws what Table 4 says. Table 1 was measured with polling cores, so a core that is
//! awake draws as much as a busy one.

use crate::guesses::Guesses;
use e3_model::NodeKind;
use e3_model::topology::Server;
use e3_power::{PowerModel, UnknownSystem};

/// Watts of a node above its server's idle power.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NodePower {
    /// While it is awake.
    pub fixed_w: f64,
    /// For each core of a host that is awake, and for each core of a SmartNIC that is busy.
    pub per_core_w: f64,
    /// By which the energy of a request's time on one core is weighed when energy is attributed.
    pub weight_w: f64,
}

/// Power of a server.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerPower {
    /// When idle.
    pub idle_w: f64,
    /// Of its nodes, in the topology's order.
    pub nodes: Vec<NodePower>,
}

impl ServerPower {
    /// By the power model.
    pub fn of(
        server: &Server,
        power: &PowerModel,
        guesses: &Guesses,
    ) -> Result<ServerPower, UnknownSystem> {
        let idle = power.server(server, &vec![0.0; server.nodes.len()])?.idle;
        let nodes = server.nodes.iter();
        let sizes = nodes.clone().map(|n| (n.kind, f64::from(n.cores)));
        let scale = power.scale(&server.system, sizes);
        let node = |kind, cores: u16| match kind {
            NodeKind::Host => NodePower {
                fixed_w: power.host().fixed_w * scale.factor,
                per_core_w: power.host().per_core_w * scale.factor,
                weight_w: power.host().per_core_w * scale.factor,
            },
            NodeKind::SmartNic => {
                let (all_w, by_load) = (
                    power.smartnic().0 * scale.factor,
                    guesses.smartnic_power_by_load,
                );
                let of_a_core_w = all_w / f64::from(cores.max(1));
                NodePower {
                    fixed_w: all_w * (1.0 - by_load),
                    per_core_w: of_a_core_w * by_load,
                    weight_w: of_a_core_w,
                }
            }
        };
        Ok(ServerPower {
            idle_w: idle.0,
            nodes: nodes.map(|n| node(n.kind, n.cores)).collect(),
        })
    }
}
