//! To whom the energy of a run is attributed.
//!
//! Energy is attributed such that the sums over services and over requests are the cluster's energy.
//! A message weighs what its work would draw on one core (for a SmartNIC, its share of the constant
//! power). A node's energy above idle is divided among the services in proportion to the weights on it, a
//! server's idle energy to the weights on the server, and the energy of servers without work to all
//! weights. A request gets the part of the cluster's energy that its weight has in all weights. What
//! is still in flight at the end keeps its part.

use crate::simulator::Simulator;

/// Where the energy went, in joules.
pub(crate) struct Attributed {
    pub total: f64,
    pub nodes: Vec<f64>,
    pub services: Vec<f64>,
    pub requests: f64,
    pub in_flight: f64,
    /// Energy of a nanojoule of weight.
    pub per_weight: f64,
}

impl Simulator {
    /// The energy since the measurement began.
    pub(crate) fn attributed(&self) -> Attributed {
        let (model, begin, end) = (&self.model, &self.totals.begin, self.mark());
        let services = model.services.len();
        let nodes: Vec<f64> = end
            .joules
            .iter()
            .zip(&begin.joules)
            .map(|(e, b)| e - b)
            .collect();
        let idle = model.servers.iter().map(|s| self.idle_j(s, begin.at));
        let mut servers: Vec<f64> = idle.collect();
        let mut of_services = vec![0.0; services];
        // A node without work leaves its energy to its server, a server to the cluster.
        let mut of_server = vec![0.0; servers.len() * services];
        let mut shared = servers.clone();
        for (at, node) in model.nodes.iter().enumerate() {
            let server = node.server as usize;
            servers[server] += nodes[at];
            let weights = &self.totals.weight_nj[at * services..(at + 1) * services];
            for (sum, w) in of_server[server * services..].iter_mut().zip(weights) {
                *sum += w;
            }
            shared[server] += divide(nodes[at], weights, &mut of_services);
        }
        let mut rest = 0.0;
        for (at, joules) in shared.iter().enumerate() {
            let weights = &of_server[at * services..(at + 1) * services];
            rest += divide(*joules, weights, &mut of_services);
        }
        let mut all = vec![0.0; services];
        for weights in self.totals.weight_nj.chunks(services) {
            all.iter_mut().zip(weights).for_each(|(sum, w)| *sum += w);
        }
        divide(rest, &all, &mut of_services);
        let total: f64 = servers.iter().sum();
        let weight: f64 = all.iter().sum();
        let per_weight = if weight > 0.0 { total / weight } else { 0.0 };
        Attributed {
            total,
            nodes,
            services: of_services,
            requests: self.totals.request_weight_nj * per_weight,
            in_flight: (self.open_weight() + self.totals.other_weight_nj) * per_weight,
            per_weight,
        }
    }

    /// Weight of the requests in flight.
    fn open_weight(&self) -> f64 {
        self.requests.live().map(|r| r.weight_nj).sum()
    }
}

/// Divides an amount in proportion to weights; the result is what could not be divided.
fn divide(amount: f64, weights: &[f64], parts: &mut [f64]) -> f64 {
    let all: f64 = weights.iter().sum();
    if all <= 0.0 {
        return amount;
    }
    for (part, weight) in parts.iter_mut().zip(weights) {
        *part += amount * weight / all;
    }
    0.0
}
