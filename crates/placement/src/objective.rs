//! The latency objective of an application, and by how much counts miss it.

use crate::counts::Counts;
use crate::latency::{Apart, Paths, between_us};
use crate::model::{KINDS, Model, Part, Site, slot};
use crate::request::Request;
use e3_model::plan::Role;
use e3_model::{NodeKind, ServiceId};

/// The latency objective, and what it takes to see whether counts meet it.
pub(crate) struct Objective {
    us: f64,
    paths: Paths,
    /// By service: its part of the model.
    part_of: Vec<usize>,
    /// Whether there may be counts that do not meet it.
    binds: bool,
}

impl Model {
    /// By how much the longest path of these counts exceeds the objective; 0 if it does not.
    pub(crate) fn late_us(&self, counts: &Counts) -> f64 {
        if !self.objective.binds {
            return 0.0;
        }
        let longest = longest_us(
            &self.objective,
            |at| self.mean_time_us(counts, at),
            |a, b| self.mean_hop_us(counts.of(a, Role::Primary), counts.of(b, Role::Primary)),
        );
        (longest - self.objective.us).max(0.0)
    }

    fn mean_time_us(&self, counts: &Counts, part: usize) -> f64 {
        let (primaries, time_us) = (counts.of(part, Role::Primary), &self.parts[part].time_us);
        let sites = self.sites.iter().zip(primaries);
        let times = sites.map(|(s, n)| f64::from(*n) * time_us[slot(s.kind)] / s.speed);
        times.sum::<f64>() / total(primaries).max(1.0)
    }

    /// Mean time of a message between primaries on these sites, which all send to all.
    fn mean_hop_us(&self, from: &[u16], to: &[u16]) -> f64 {
        // By server, nodes of each kind: what would take as long as between servers takes less.
        let mut of_servers = vec![([0.0; 2], [0.0; 2]); self.servers.len()];
        let (mut senders, mut receivers) = ([0.0; 2], [0.0; 2]);
        let mut same_node_us = 0.0;
        for ((site, a), b) in self.sites.iter().zip(from).zip(to) {
            let (a, b, kind) = (f64::from(*a), f64::from(*b), slot(site.kind));
            let of_server = &mut of_servers[site.server];
            of_server.0[kind] += a;
            of_server.1[kind] += b;
            senders[kind] += a;
            receivers[kind] += b;
            same_node_us += a * b * between_us(Apart::Nodes, site.kind, site.kind);
        }
        let all = |apart, (a, b): &([f64; 2], [f64; 2])| {
            let us = pairs().map(|(x, y)| a[slot(x)] * b[slot(y)] * between_us(apart, x, y));
            us.sum::<f64>()
        };
        let mut us = all(Apart::Servers, &(senders, receivers)) - same_node_us;
        for of_server in &of_servers {
            us += all(Apart::Nodes, of_server) - all(Apart::Servers, of_server);
        }
        let messages = senders.iter().sum::<f64>() * receivers.iter().sum::<f64>();
        us.max(0.0) / messages.max(1.0)
    }
}

pub(crate) fn objective(request: &Request<'_>, parts: &[Part], sites: &[Site]) -> Objective {
    let mut part_of = vec![0; parts.len()];
    for (at, part) in parts.iter().enumerate() {
        part_of[usize::from(part.service.0)] = at;
    }
    let mut objective = Objective {
        us: request.app.spec.objective.latency.as_secs_f64() * 1e6,
        paths: request.paths().clone(),
        part_of,
        binds: false,
    };
    // All on the slowest nodes and as far apart as can be.
    let slowest = |at: usize| {
        let of_sites = sites
            .iter()
            .map(|s| parts[at].time_us[slot(s.kind)] / s.speed);
        of_sites.fold(0.0, f64::max)
    };
    let farthest = pairs().map(|(x, y)| between_us(Apart::Servers, x, y));
    let farthest = farthest.fold(0.0, f64::max);
    objective.binds = longest_us(&objective, slowest, |_, _| farthest) > objective.us;
    objective
}

/// The longest path, with times by part of the model.
fn longest_us(
    objective: &Objective,
    time: impl Fn(usize) -> f64,
    hop: impl Fn(usize, usize) -> f64,
) -> f64 {
    let part = |s: ServiceId| objective.part_of[usize::from(s.0)];
    let hop = |from, to| hop(part(from), part(to));
    objective.paths.longest(|s| time(part(s)), hop)
}

/// Kinds of the sender's and the receiver's node.
fn pairs() -> impl Iterator<Item = (NodeKind, NodeKind)> {
    let from = KINDS.into_iter();
    from.flat_map(|x| KINDS.into_iter().map(move |y| (x, y)))
}

fn total(counts: &[u16]) -> f64 {
    counts.iter().map(|n| f64::from(*n)).sum()
}
