//! What an application costs on some servers, as a function of how many primaries and backups of
//! each service stand on each node.
//!
//! It is the model of [`e3_power::knee`] (a test holds it against that) with two differences. What
//! runs there already keeps its cores, and its servers and nodes are powered in any case: only what
//! the application adds counts. And a server without an instance is asleep.

use crate::cluster::Cluster;
pub(crate) use crate::counts::Counts;
use crate::decision::Placement;
use crate::fit::{Ask, allowed, wanted};
use crate::index::Free;
pub(crate) use crate::knee::Knee;
use crate::objective::{Objective, objective};
use crate::parents::{Parent, parents};
use crate::request::{Demand, Request};
use e3_model::plan::Role;
use e3_model::{NodeId, NodeKind, ServiceId};
use e3_power::PowerModel;
use e3_power::limits::WIRE_OVERHEAD_BYTES;

pub(crate) const KINDS: [NodeKind; 2] = [NodeKind::Host, NodeKind::SmartNic];
/// Service time of a service without a profile: that of a small handler. It only matters relative to
/// those that have one.
const UNKNOWN_TIME_S: f64 = 10e-6;

/// Which reservations bind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reserved {
    /// Cores, bandwidth and memory.
    All,
    /// Memory.
    Memory,
}

/// What one instance takes on a kind of node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Core seconds for one request of a client.
    pub(crate) core_s: f64,
    /// What is reserved at the load of the manifest.
    pub(crate) demand: Demand,
}

/// A service.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) service: ServiceId,
    pub(crate) shards: usize,
    pub(crate) replicas: usize,
    pub(crate) stateful: bool,
    /// The node to which it is pinned.
    pub(crate) only: Option<Option<NodeId>>,
    /// By kind; None where it may not run.
    primary: [Option<Work>; 2],
    backup: [Option<Work>; 2],
    /// Messages of one shard for one request of a client.
    pub(crate) messages: f64,
    parents: Vec<Parent>,
    is_source: bool,
    entry_bytes: f64,
    /// Service time by kind; 0 if it is not known.
    pub(crate) time_us: [f64; 2],
}

/// A node that may be used.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) id: NodeId,
    pub(crate) kind: NodeKind,
    /// Index of its server among those of the model.
    pub(crate) server: usize,
    pub(crate) cores: f64,
    /// Speed of its cores.
    pub(crate) speed: f64,
    /// Cores that others have reserved.
    pub(crate) reserved: f64,
    /// Cores that others leave.
    pub(crate) cores_left: f64,
    pub(crate) port_left_bps: f64,
    pub(crate) free: Free,
    /// Cores that others keep busy at the knee.
    pub(crate) busy: f64,
}

/// A server that may be used.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) rack: usize,
    /// What the lower of its power budget and its cap, and its rack's, leave; None if nothing is bounded.
    pub(crate) power_left_w: Option<(f64, f64)>,
    /// Idle power that it adds; 0 if it is awake in any case.
    pub(crate) idle_w: f64,
    /// Idle power that it adds to what the bounds count: 0 also under a power cap.
    pub(crate) wake_w: f64,
    pub(crate) factor: f64,
}

/// An application on some servers.
pub(crate) struct Model {
    pub(crate) parts: Vec<Part>,
    pub(crate) sites: Vec<Site>,
    pub(crate) servers: Vec<Server>,
    pub(crate) power: PowerModel,
    /// Use of the first resource at the knee.
    pub(crate) knee_utilisation: f64,
    wire_bytes: f64,
    pub(crate) objective: Objective,
    /// Load of the hours of a day against that of the busiest one, each with how many hours have it.
    day: Vec<(f64, f64)>,
}

pub(crate) fn slot(kind: NodeKind) -> usize {
    match kind {
        NodeKind::Host => 0,
        NodeKind::SmartNic => 1,
    }
}

impl Site {
    /// What it draws above idle with `busy` cores' worth of work, before scaling.
    pub(crate) fn watts(&self, power: &PowerModel, busy: f64) -> f64 {
        power.emulated_node_w(self.kind, self.cores, self.speed, busy)
    }
}

impl Part {
    /// What an instance takes on a kind of node; None if it may not run there.
    pub(crate) fn work(&self, role: Role, kind: NodeKind) -> Option<&Work> {
        let by_kind = match role {
            Role::Primary => &self.primary,
            Role::Backup | Role::Joining => &self.backup,
        };
        by_kind[slot(kind)].as_ref()
    }

    /// Core seconds of a primary on a SmartNIC against those on a host: services with less gain more
    /// from a SmartNIC. None if it may run on one kind only.
    pub(crate) fn advantage(&self) -> Option<f64> {
        let [host, smartnic] = self.primary;
        Some(smartnic?.core_s / host?.core_s)
    }

    /// Core seconds of all instances on the kind that takes most.
    pub(crate) fn slowest_s(&self) -> f64 {
        let most = |by_kind: &[Option<Work>; 2]| {
            let all = by_kind.iter().flatten().map(|w| w.core_s);
            all.fold(0.0, f64::max)
        };
        let backups = (self.replicas - 1) as f64 * most(&self.backup);
        (most(&self.primary) + backups) * self.shards as f64
    }

    /// Core seconds of all primaries on the kind that takes least.
    pub(crate) fn weight(&self) -> f64 {
        let least = self.primary.iter().flatten().map(|w| w.core_s);
        least.fold(f64::INFINITY, f64::min) * self.shards as f64
    }
}

impl Model {
    /// The application on the servers with these indices in the cluster.
    pub(crate) fn new(
        request: &Request<'_>,
        cluster: &Cluster,
        servers: &[usize],
        reserved: Reserved,
    ) -> Model {
        let knee_utilisation = request.knee_utilisation();
        let sites = servers.iter().enumerate().flat_map(|(server, index)| {
            let nodes = cluster.servers()[*index].iter();
            nodes.map(move |id| site(cluster, *id, server, reserved, knee_utilisation))
        });
        let walk = request.walk().iter();
        let parts: Vec<Part> = walk
            .map(|(s, _)| part(request, cluster, *s, reserved))
            .collect();
        let sites: Vec<Site> = sites.collect();
        Model {
            objective: objective(request, &parts, &sites),
            parts,
            sites,
            servers: servers.iter().map(|s| server(cluster, *s)).collect(),
            power: cluster.power().clone(),
            knee_utilisation,
            wire_bytes: f64::from(request.request_bytes() + WIRE_OVERHEAD_BYTES),
            day: hours(request.day()),
        }
    }

    /// How many instances a placement has where; None if it uses a node that the model does not have.
    pub(crate) fn counts(&self, request: &Request<'_>, placement: &Placement) -> Option<Counts> {
        let mut counts = Counts::new(self.parts.len(), self.sites.len());
        for d in &placement.decisions {
            let part = request
                .walk()
                .iter()
                .position(|(s, _)| *s == d.key.service)?;
            let site = self.sites.iter().position(|s| s.id == d.node)?;
            counts.of_mut(part, d.key.role())[site] += 1;
        }
        Some(counts)
    }

    /// The knee of these counts; None if nothing is used.
    pub(crate) fn knee(&self, counts: &Counts) -> Option<Knee> {
        let (use_of, mut bound) = self.use_of(counts);
        for (at, (site, of)) in self.sites.iter().zip(&use_of).enumerate() {
            let worst = of.worst(site);
            if worst > bound.0 {
                bound = (worst, at);
            }
        }
        if bound.0 <= 0.0 {
            return None;
        }
        let rate_rps = self.knee_utilisation / bound.0;
        Some(Knee {
            rate_rps,
            joules: self.joules(counts, &use_of, rate_rps),
            bound: bound.1,
            late_us: self.late_us(counts),
        })
    }

    /// By how much a rate exceeds what can be carried: for nodes, and for the one core of each stateful
    /// shard, the sum of the squares of what is beyond their use at the knee. 0 if all carry it.
    pub(crate) fn excess(&self, counts: &Counts, rate_rps: f64) -> f64 {
        let (use_of, _) = self.use_of(counts);
        let beyond = |used: f64| (used * rate_rps - self.knee_utilisation).max(0.0).powi(2);
        let sites = self.sites.iter().zip(&use_of);
        let of_sites: f64 = sites.map(|(site, of)| beyond(of.worst(site))).sum();
        let stateful = (0..self.parts.len()).filter(|i| self.parts[*i].stateful);
        let of_shards: f64 = stateful
            .flat_map(|i| [Role::Primary, Role::Backup].map(|role| (i, role)))
            .map(|(i, role)| {
                let counts = self.sites.iter().zip(counts.of(i, role));
                let work = |site: &Site| self.parts[i].work(role, site.kind);
                let of_site = |(site, count): (&Site, &u16)| {
                    work(site).map_or(0.0, |w| f64::from(*count) * beyond(w.core_s / site.speed))
                };
                counts.map(of_site).sum::<f64>()
            })
            .sum();
        of_sites + of_shards
    }

    /// Power that the application adds at a rate.
    pub(crate) fn watts_at(&self, counts: &Counts, rate_rps: f64) -> f64 {
        self.watts(counts, &self.use_of(counts).0, rate_rps)
    }

    /// What one request takes of each site, and the use of the one shard's core that is used most.
    fn use_of(&self, counts: &Counts) -> (Vec<Use>, (f64, usize)) {
        let mut use_of = vec![Use::default(); self.sites.len()];
        let mut bound = (0.0, 0);
        for (i, part) in self.parts.iter().enumerate() {
            self.add_work(part, counts, i, &mut use_of, &mut bound);
            self.add_traffic(part, counts, i, &mut use_of);
        }
        (use_of, bound)
    }

    fn add_work(
        &self,
        part: &Part,
        counts: &Counts,
        i: usize,
        use_of: &mut [Use],
        bound: &mut (f64, usize),
    ) {
        for role in [Role::Primary, Role::Backup] {
            for (at, count) in counts.of(i, role).iter().enumerate() {
                let work = part.work(role, self.sites[at].kind);
                let Some(work) = work.filter(|_| *count > 0) else {
                    continue;
                };
                use_of[at].core_s += work.core_s * f64::from(*count);
                // One of the node's cores does less than a core at full speed.
                let core_s = work.core_s / self.sites[at].speed;
                if part.stateful && core_s > bound.0 {
                    *bound = (core_s, at);
                }
            }
        }
    }

    /// What crosses the ports, as [`e3_power::knee`] counts it.
    fn add_traffic(&self, part: &Part, counts: &Counts, i: usize, use_of: &mut [Use]) {
        let entry = part.messages * part.entry_bytes;
        let primaries = counts.of(i, Role::Primary);
        for (at, of) in use_of.iter_mut().enumerate() {
            let (p, q) = (
                f64::from(primaries[at]),
                f64::from(counts.of(i, Role::Backup)[at]),
            );
            if part.is_source {
                of.bytes_in += p * part.messages * self.wire_bytes;
                of.bytes_out += p * part.messages * self.wire_bytes;
            }
            of.bytes_in += q * entry;
            of.bytes_out += p * (part.replicas - 1) as f64 * entry;
        }
        for parent in &part.parents {
            let senders = counts.of(parent.part, Role::Primary);
            let sending = self.by_server(senders);
            let receiving = self.by_server(primaries);
            let all: f64 = sending.iter().sum();
            let received: f64 = receiving.iter().sum();
            let each = part.messages * parent.share / all * self.wire_bytes;
            for (at, site) in self.sites.iter().enumerate() {
                let from_others = all - sending[site.server];
                let from_others = f64::from(primaries[at]) * from_others * each;
                let to_others = received - receiving[site.server];
                let to_others = f64::from(senders[at]) * to_others * each;
                use_of[at].bytes_in += from_others;
                use_of[at].bytes_out += to_others;
                if parent.calls {
                    use_of[at].bytes_in += to_others;
                    use_of[at].bytes_out += from_others;
                }
            }
        }
    }

    fn by_server(&self, of_sites: &[u16]) -> Vec<f64> {
        let mut sums = vec![0.0; self.servers.len()];
        for (site, count) in self.sites.iter().zip(of_sites) {
            sums[site.server] += f64::from(*count);
        }
        sums
    }

    /// Energy that a request adds, as a mean over the day, if the busiest hour has this rate.
    fn joules(&self, counts: &Counts, use_of: &[Use], rate_rps: f64) -> f64 {
        let (mut joules, mut requests) = (0.0, 0.0);
        for (factor, hours) in &self.day {
            joules += hours * self.watts(counts, use_of, rate_rps * factor);
            requests += hours * rate_rps * factor;
        }
        joules / requests
    }

    /// Power that the application adds at a rate.
    fn watts(&self, counts: &Counts, use_of: &[Use], rate_rps: f64) -> f64 {
        let mut awake = vec![false; self.servers.len()];
        let mut watts = 0.0;
        for (at, site) in self.sites.iter().enumerate() {
            if counts.on(at) == 0 {
                continue;
            }
            awake[site.server] = true;
            let w = |busy| site.watts(&self.power, busy);
            let added = w(site.busy + use_of[at].core_s * rate_rps) - w(site.busy);
            watts += added * self.servers[site.server].factor;
        }
        let idle = self.servers.iter().zip(awake).filter(|(_, awake)| *awake);
        watts + idle.map(|(server, _)| server.idle_w).sum::<f64>()
    }
}

/// What one request of a client takes of a site.
#[derive(Clone, Copy, Default)]
struct Use {
    core_s: f64,
    bytes_in: f64,
    bytes_out: f64,
}

impl Use {
    /// Use of the site's cores or port, whichever is higher.
    fn worst(&self, site: &Site) -> f64 {
        let port = self.bytes_in.max(self.bytes_out) * 8.0 / site.port_left_bps;
        // An overloaded site bounds the rate all the more.
        let cores = self.core_s / site.cores_left.max(site.cores * 1e-3);
        cores.max(if port.is_nan() { 0.0 } else { port })
    }
}

/// Equal hours together; one hour at the full rate if all are alike.
fn hours(day: &[f64]) -> Vec<(f64, f64)> {
    let mut factors = if day.is_empty() {
        vec![1.0]
    } else {
        day.to_vec()
    };
    factors.sort_by(f64::total_cmp);
    let equal = factors.chunk_by(|a, b| a == b);
    equal.map(|same| (same[0], same.len() as f64)).collect()
}

fn site(
    cluster: &Cluster,
    id: NodeId,
    server: usize,
    reserved: Reserved,
    knee_utilisation: f64,
) -> Site {
    let node = cluster.node(id);
    let busy = node.used.cpu_cores.min(node.cores) * knee_utilisation;
    let mut free = Free::of(node);
    if reserved == Reserved::Memory && free != Free::NOTHING {
        free.cpu_cores = f64::INFINITY;
        free.bandwidth_gbps = f64::INFINITY;
    }
    Site {
        id,
        kind: node.kind,
        server,
        cores: node.cores,
        speed: node.speed,
        reserved: node.used.cpu_cores,
        cores_left: node.cpu_left_cores(),
        port_left_bps: node.bandwidth_left_gbps().max(node.bandwidth_gbps * 1e-3) * 1e9,
        free,
        busy,
    }
}

fn server(cluster: &Cluster, index: usize) -> Server {
    let nodes = cluster.servers()[index].iter();
    let is_awake = nodes
        .map(|id| cluster.node(*id))
        .any(|n| n.used != Demand::default());
    let scale = cluster.scale(index);
    let idle_w = if is_awake { 0.0 } else { scale.idle_w };
    Server {
        rack: cluster.node(cluster.servers()[index][0]).rack,
        power_left_w: cluster.power_left_w(index),
        idle_w,
        wake_w: if cluster.is_capped(index) {
            0.0
        } else {
            idle_w
        },
        factor: scale.factor,
    }
}

fn part(request: &Request<'_>, cluster: &Cluster, service: ServiceId, reserved: Reserved) -> Part {
    let spec = request.app.service(service);
    let messages = request.visits_expected(service) / f64::from(spec.shards);
    let ask = |role| Ask::new(service, role, &[]);
    let late = |kind| request.cost(service, kind).late;
    let both_late = KINDS.iter().all(|k| late(*k));
    let work = |role: Role| {
        let need = match reserved {
            Reserved::All => wanted(request, cluster, ask(role)).need,
            Reserved::Memory => allowed(request, ask(role)),
        };
        KINDS.map(|kind| {
            let demand = *need.of(kind)?;
            if late(kind) && !both_late {
                return None;
            }
            let time = request.cost(service, kind).time;
            let time_s = time.map_or(UNKNOWN_TIME_S, |t| t.as_secs_f64());
            let part = match role {
                Role::Primary => 1.0,
                Role::Backup | Role::Joining => crate::limits::BACKUP_CPU_FRACTION,
            };
            let core_s = messages * time_s * part;
            Some(Work { core_s, demand })
        })
    };
    Part {
        service,
        shards: usize::from(spec.shards),
        replicas: usize::from(spec.replicas),
        stateful: spec.stateful,
        only: wanted(request, cluster, ask(Role::Primary)).only,
        primary: work(Role::Primary),
        backup: work(Role::Backup),
        messages,
        parents: parents(request, service),
        is_source: spec.name == request.app.spec.ingress,
        entry_bytes: request.write_bytes(service) + f64::from(WIRE_OVERHEAD_BYTES),
        time_us: KINDS.map(|kind| {
            let time = request.cost(service, kind).time;
            time.map_or(0.0, |t| t.as_secs_f64() * 1e6)
        }),
    }
}
