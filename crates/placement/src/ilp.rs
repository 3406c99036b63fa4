//! The placement problem as a mixed-integer linear program, in the LP format that solvers read.
//!
//! Variables: how many primaries and backups of each service stand on each node, which nodes and
//! servers are used, and `u`, the seconds per request at the knee. The knee's bounds are linear in
//! them: the core time of a node for a request is at most `u` times what the node may be used. The
//! objective is the energy of a request, in microjoules, where "used, times `u`" is written with the
//! usual bounds for the product of a binary and a bounded variable.
//!
//! Two terms of the model are not linear and are replaced by something lower, so that the optimum is
//! a bound from below: traffic between services costs no bandwidth, and of a host's fixed power only
//! the chord from nothing to the knee counts. The result is judged like any other placement.
//!
//! This module reads no clock and starts no process: see the crate `solver`.

use crate::candidates;
use crate::cluster::Cluster;
use crate::decision::{PlaceError, Placement, Rule};
use crate::joules;
use crate::model::{Counts, Model, Part, Reserved, Server, Site};
use crate::request::Request;
use crate::shards;
use e3_model::NodeKind;
use e3_model::plan::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const ROLES: [(Role, char); 2] = [(Role::Primary, 'p'), (Role::Backup, 'q')];
const MICRO: f64 = 1e6;

/// The program for one application.
pub struct Program {
    model: Model,
    /// As solvers read it.
    pub text: String,
    /// Servers that it may use: the candidates, at most [`CANDIDATES_MAX`](crate::limits::CANDIDATES_MAX)
    /// unless the replicas of a shard need more.
    pub servers: usize,
    /// Servers of the cluster.
    pub servers_all: usize,
}

impl Program {
    /// The program of an application beside what is reserved already. An error says why there is none.
    pub fn new(request: &Request<'_>, cluster: &mut Cluster) -> Result<Program, PlaceError> {
        let servers = candidates::servers(request, cluster);
        let model = Model::new(request, cluster, &servers, Reserved::All);
        let placed = cluster.try_out(|cluster| joules::place(request, cluster))?;
        let counts = model.counts(request, &placed);
        let known = counts.and_then(|counts| model.knee(&counts));
        let text = Writer::new(&model, known.map(|k| k.joules)).write();
        Ok(Program {
            servers: model.servers.len(),
            servers_all: cluster.servers().len(),
            model,
            text,
        })
    }

    /// The placement of a solution, which gives the variables' values by name; reserves what it takes.
    pub fn place(
        &self,
        request: &Request<'_>,
        cluster: &mut Cluster,
        values: &BTreeMap<String, f64>,
    ) -> Result<Placement, PlaceError> {
        let mut counts = Counts::new(self.model.parts.len(), self.model.sites.len());
        for part in 0..self.model.parts.len() {
            for (role, letter) in ROLES {
                for (site, count) in counts.of_mut(part, role).iter_mut().enumerate() {
                    let value = values.get(&format!("{letter}_{part}_{site}"));
                    *count = value.map_or(0, |v| v.round() as u16);
                }
            }
        }
        let placed = shards::reserve(
            request,
            cluster,
            &self.model,
            &counts,
            Rule::Optimised,
            |_, _| Vec::new(),
        );
        placed.ok_or_else(|| {
            PlaceError::Solver("its solution does not part the replicas of each shard".into())
        })
    }
}

/// Writes the LP format.
struct Writer<'a> {
    model: &'a Model,
    /// No better placement needs more seconds a request.
    u_max: f64,
    /// What a request needs in a known placement, in microjoules.
    request_uj: f64,
    objective: Vec<String>,
    rules: Vec<String>,
    integers: Vec<String>,
    binaries: Vec<String>,
}

/// A sum with a bound, as the format writes it.
fn rule(terms: &[(f64, String)], relation: &str, bound: f64) -> String {
    let mut text = String::new();
    for (factor, name) in terms.iter().filter(|(factor, _)| *factor != 0.0) {
        let sign = if *factor < 0.0 { '-' } else { '+' };
        write!(text, " {sign} {:e} {name}", factor.abs()).expect("into memory");
    }
    format!("{text} {relation} {bound:e}")
}

impl<'a> Writer<'a> {
    /// `joules` is what a known placement needs for a request.
    fn new(model: &'a Model, joules: Option<f64>) -> Writer<'a> {
        // Servers are only awake for the sake of the application if they sleep otherwise.
        let replicas = model.parts.iter().map(|p| p.replicas).max().unwrap_or(1);
        let mut idle: Vec<f64> = model.servers.iter().map(|s| s.idle_w).collect();
        idle.sort_by(f64::total_cmp);
        let idle_w: f64 = idle.iter().take(replicas).sum();
        let slowest =
            model.parts.iter().map(|p| p.slowest_s()).sum::<f64>() / model.knee_utilisation;
        let u_max = match joules {
            Some(joules) if idle_w > 0.0 => (joules / idle_w).min(slowest),
            _ => slowest,
        };
        Writer {
            model,
            u_max: u_max * MICRO,
            request_uj: joules.unwrap_or(1.0) * MICRO,
            objective: Vec::new(),
            rules: Vec::new(),
            integers: Vec::new(),
            binaries: Vec::new(),
        }
    }

    fn write(mut self) -> String {
        for part in 0..self.model.parts.len() {
            self.part(part);
        }
        for site in 0..self.model.sites.len() {
            self.site(site);
        }
        for server in 0..self.model.servers.len() {
            self.server(server);
        }
        let rules = self.rules.iter().enumerate();
        let rules = rules.map(|(i, r)| format!(" c{i}:{r}\n"));
        format!(
            "Minimize\n obj:{}\nSubject To\n{}Bounds\n 0 <= u <= {:e}\nGeneral\n {}\nBinary\n {}\nEnd\n",
            self.objective.concat(),
            rules.collect::<String>(),
            self.u_max,
            self.integers.join("\n "),
            self.binaries.join("\n "),
        )
    }

    fn costs(&mut self, factor: f64, name: &str) {
        if factor > 0.0 {
            self.objective.push(format!(" + {factor:e} {name}"));
        }
    }

    fn rule(&mut self, terms: &[(f64, String)], relation: &str, bound: f64) {
        self.rules.push(rule(terms, relation, bound));
    }

    /// The variables of a service that may stand somewhere, with their sites.
    fn of(&self, part: usize, role: Role, letter: char) -> Vec<(usize, String)> {
        let p = &self.model.parts[part];
        let may = |site: &Site| {
            p.work(role, site.kind)
                .is_some_and(|w| site.free.holds(&w.demand))
                && p.only.is_none_or(|only| only == Some(site.id))
        };
        let sites = self.model.sites.iter().enumerate().filter(|(_, s)| may(s));
        sites
            .map(|(site, _)| (site, format!("{letter}_{part}_{site}")))
            .collect()
    }

    /// As many instances as it has, not too many on a server, and its slowest shard.
    fn part(&mut self, part: usize) {
        let p: &Part = &self.model.parts[part];
        for (role, letter) in ROLES {
            let of = self.of(part, role, letter);
            let count = match role {
                Role::Primary => p.shards,
                _ => p.shards * (p.replicas - 1),
            };
            let all: Vec<_> = of.iter().map(|(_, name)| (1.0, name.clone())).collect();
            if count > 0 {
                self.rule(&all, "=", count as f64);
            }
            self.integers.extend(of.into_iter().map(|(_, name)| name));
        }
        self.racks(part);
        if p.replicas > 1 {
            for server in 0..self.model.servers.len() {
                let on = ROLES
                    .iter()
                    .flat_map(|(role, letter)| self.of(part, *role, *letter));
                let on = on.filter(|(site, _)| self.model.sites[*site].server == server);
                let on: Vec<_> = on.map(|(_, name)| (1.0, name)).collect();
                self.rule(&on, "<=", p.shards as f64);
            }
        }
        if p.stateful {
            self.slowest_shard(part);
        }
    }

    /// Replicas of a shard go to different racks as far as there are racks. A replica too many in a rack costs
    /// as much as a whole request, so that no energy that it could save weighs as much.
    fn racks(&mut self, part: usize) {
        let p = &self.model.parts[part];
        let (replicas, shards) = (p.replicas, p.shards);
        let racks: BTreeSet<usize> = self.model.servers.iter().map(|s| s.rack).collect();
        if replicas == 1 || racks.len() == 1 {
            return;
        }
        for &rack in &racks {
            let on = ROLES
                .iter()
                .flat_map(|(role, letter)| self.of(part, *role, *letter));
            let server = |site: usize| &self.model.servers[self.model.sites[site].server];
            let on = on.filter(|(site, _)| server(*site).rack == rack);
            let mut terms: Vec<_> = on.map(|(_, name)| (1.0, name)).collect();
            let beyond = format!("r_{part}_{rack}");
            terms.push((-1.0, beyond.clone()));
            let most = shards * replicas.div_ceil(racks.len());
            self.rule(&terms, "<=", most as f64);
            self.costs(self.request_uj, &beyond);
        }
    }

    /// A shard of a stateful service has one core.
    fn slowest_shard(&mut self, part: usize) {
        let p = &self.model.parts[part];
        let sites = self.model.sites.iter();
        let mut cores: Vec<_> = sites.map(|s| (s.kind, s.speed)).collect();
        cores.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        cores.dedup();
        for (i, (kind, speed)) in cores.into_iter().enumerate() {
            let Some(work) = p.work(Role::Primary, kind) else {
                continue;
            };
            let is_used = format!("b_{part}_{}_{i}", kind.name());
            let of = self.of(part, Role::Primary, 'p');
            let of = of.into_iter().filter(|(site, _)| {
                let s = &self.model.sites[*site];
                (s.kind, s.speed) == (kind, speed)
            });
            let mut terms: Vec<_> = of.map(|(_, name)| (1.0, name)).collect();
            terms.push((-(p.shards as f64), is_used.clone()));
            let least = work.core_s / speed * MICRO / self.model.knee_utilisation;
            self.rule(&terms, "<=", 0.0);
            self.rule(&[(1.0, "u".into()), (-least, is_used.clone())], ">=", 0.0);
            self.binaries.push(is_used);
        }
    }

    /// What a node holds, its bounds on the rate, and its power.
    fn site(&mut self, site: usize) {
        let s = &self.model.sites[site];
        let (mut cpu, mut memory, mut port, mut work, mut use_of) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut disk = Vec::new();
        let mut most = 0;
        for (part, p) in self.model.parts.iter().enumerate() {
            for (role, letter) in ROLES {
                let of = self.of(part, role, letter);
                let Some((_, name)) = of.into_iter().find(|(at, _)| *at == site) else {
                    continue;
                };
                let w = p.work(role, s.kind).expect("it may stand there");
                cpu.push((w.demand.cpu_cores, name.clone()));
                memory.push((w.demand.memory_bytes as f64 / MICRO, name.clone()));
                port.push((w.demand.bandwidth_gbps, name.clone()));
                disk.push((w.demand.disk_bytes as f64 / MICRO, name.clone()));
                work.push((w.core_s * MICRO, name.clone()));
                use_of.push((1.0, name));
                most += p.shards * p.replicas;
            }
        }
        if use_of.is_empty() {
            return;
        }
        self.rule(&cpu, "<=", s.free.cpu_cores);
        self.rule(&memory, "<=", s.free.memory_bytes as f64 / MICRO);
        if port.iter().any(|(need, _)| *need > 0.0) {
            self.rule(&port, "<=", s.free.bandwidth_gbps);
        }
        if disk.iter().any(|(need, _)| *need > 0.0) {
            self.rule(&disk, "<=", s.free.disk_bytes as f64 / MICRO);
        }
        let mut bound = work.clone();
        bound.push((-self.model.knee_utilisation * s.cores_left, "u".into()));
        self.rule(&bound, "<=", 0.0);
        let is_used = format!("z_{site}");
        use_of.push((-(most as f64), is_used.clone()));
        self.rule(&use_of, "<=", 0.0);
        self.binaries.push(is_used.clone());
        self.rule(
            &[(1.0, is_used.clone()), (-1.0, format!("y_{}", s.server))],
            "<=",
            0.0,
        );
        self.power(site, &work, &is_used);
    }

    fn power(&mut self, site: usize, work: &[(f64, String)], is_used: &str) {
        let s = &self.model.sites[site];
        let factor = self.model.servers[s.server].factor;
        let added = |busy: f64| {
            let w = |busy| s.watts(&self.model.power, busy);
            (w(s.busy + busy) - w(s.busy)) * factor
        };
        let knee = self.model.knee_utilisation * s.cores_left;
        match s.kind {
            // Its power is concave in its work, so no point is below the chord.
            NodeKind::Host if knee > 0.0 => {
                let watts_per_core = added(knee) / knee;
                for (core_us, name) in work {
                    self.costs(watts_per_core * core_us, name);
                }
            }
            NodeKind::Host => {}
            NodeKind::SmartNic => {
                let watts = added(1.0);
                if watts > 0.0 {
                    let product = format!("uz_{site}");
                    self.product(&product, is_used);
                    self.costs(watts, &product);
                }
            }
        }
    }

    fn server(&mut self, server: usize) {
        let is_awake = format!("y_{server}");
        let idle_w = self.model.servers[server].idle_w;
        if idle_w > 0.0 {
            let product = format!("uy_{server}");
            self.product(&product, &is_awake);
            self.costs(idle_w, &product);
        }
        self.binaries.push(is_awake);
        self.budget(server);
    }

    /// The power budgets of a server and its rack, with a host's fixed power counted whole.
    fn budget(&mut self, server: usize) {
        let Some((left_w, rack_left_w)) = self.model.servers[server].power_left_w else {
            return;
        };
        let terms = self.most_w(server);
        if left_w.is_finite() {
            self.rule(&terms, "<=", left_w);
        }
        let rack = self.model.servers[server].rack;
        let servers =
            || (0..self.model.servers.len()).filter(|s| self.model.servers[*s].rack == rack);
        if rack_left_w.is_finite() && servers().next() == Some(server) {
            let all: Vec<_> = servers().flat_map(|s| self.most_w(s)).collect();
            self.rule(&all, "<=", rack_left_w);
        }
    }

    /// What a server draws at most with what is reserved on it.
    fn most_w(&self, server: usize) -> Vec<(f64, String)> {
        let Server { wake_w, factor, .. } = self.model.servers[server];
        let mut terms = vec![(wake_w, format!("y_{server}"))];
        for (at, site) in self
            .model
            .sites
            .iter()
            .enumerate()
            .filter(|(_, s)| s.server == server)
        {
            let is_busy = site.busy > 0.0;
            let fixed_w = match site.kind {
                NodeKind::Host => self.model.power.host().fixed_w,
                NodeKind::SmartNic => self.model.power.smartnic().0,
            };
            terms.push((
                if is_busy { 0.0 } else { fixed_w * factor },
                format!("z_{at}"),
            ));
            if site.kind == NodeKind::Host {
                let per_core_w = self.model.power.host().per_core_w * factor;
                for (part, p) in self.model.parts.iter().enumerate() {
                    for (role, letter) in ROLES {
                        let of = self
                            .of(part, role, letter)
                            .into_iter()
                            .find(|(s, _)| *s == at);
                        let work = p.work(role, site.kind);
                        if let (Some((_, name)), Some(work)) = (of, work) {
                            terms.push((per_core_w * work.demand.cpu_cores, name));
                        }
                    }
                }
            }
        }
        terms
    }

    /// `name` is at least `u` where the binary variable is 1.
    fn product(&mut self, name: &str, binary: &str) {
        let terms = [
            (1.0, name.to_string()),
            (-1.0, "u".into()),
            (-self.u_max, binary.to_string()),
        ];
        self.rule(&terms, ">=", -self.u_max);
    }
}
