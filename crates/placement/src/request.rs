//! What is to be placed: an application with its costs on each kind of node.
//!
//! Cores: the manifest's `resources.cpu` is in host cores; on another kind it is multiplied by the
//! ratio of the profile's service times. A service without a profile, or whose profile does not
//! know both kinds, counts the same on both.
//!
//! Where the manifest's load differs from hour to hour, cores and bandwidth are those of the busiest one.
//!
//! Joules per request and kind: (active power / active cores) x service time, which for the paper's
//! profiles is the inverse of Table 1's requests per joule (E3, ATC 2019).
//!
//! Latency: a kind is too slow for a service if the longest path through it, with this service on
//! that kind and every other service on its fastest, takes longer than the objective even on an
//! idle cluster.

use crate::latency::Paths;
use crate::limits::{BACKUP_CPU_FRACTION, REQUEST_BYTES_DEFAULT};
use e3_model::application::{Application, Load};
use e3_model::dag::{Dag, entries};
use e3_model::plan::Role;
use e3_model::profile::Provenance;
use e3_model::visits::{declared_outputs, visits};
use e3_model::{Accelerators, Nanos, NodeKind, Profile, ServiceId};
use e3_power::limits::KNEE_UTILISATION;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// What an instance takes of a node.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Demand {
    /// Cores of that kind of node.
    pub cpu_cores: f64,
    /// Memory.
    pub memory_bytes: u64,
    /// Bandwidth of its port.
    pub bandwidth_gbps: f64,
    /// Disk.
    pub disk_bytes: u64,
    /// Accelerators that the node must have. They are shared, so nothing of them is taken.
    pub accelerators: Accelerators,
}

/// Adds bytes, or takes them away if the sign is negative.
pub(crate) fn shift_bytes(total: &mut u64, bytes: u64, sign: f64) {
    *total = if sign > 0.0 {
        total.saturating_add(bytes)
    } else {
        total.saturating_sub(bytes)
    };
}

impl Default for Demand {
    fn default() -> Demand {
        Demand {
            cpu_cores: 0.0,
            memory_bytes: 0,
            bandwidth_gbps: 0.0,
            disk_bytes: 0,
            accelerators: Accelerators::NONE,
        }
    }
}

/// What an instance takes of the node that it is on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reservation {
    /// Its role.
    pub role: Role,
    /// What it takes in that role.
    pub demand: Demand,
    /// Cores that it takes as a primary.
    pub full_cpu_cores: f64,
}

/// What a service costs on one kind of node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KindCost {
    /// Service time against that on a host.
    pub factor: f64,
    /// Mean service time, if the profile knows it.
    pub time: Option<Nanos>,
    /// Energy of one request above idle, if the profile knows it.
    pub joules: Option<f64>,
    /// The latency objective cannot be held on this kind.
    pub late: bool,
    /// The service time is only known to be at most the profile's.
    pub lower_bound: bool,
}

/// Which kind of node a service should run on, and why.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Preference {
    /// Nothing is known that distinguishes the kinds.
    None,
    /// One kind cannot hold the latency objective.
    Latency {
        /// The other one.
        kind: NodeKind,
    },
    /// One kind needs fewer joules for a request.
    Joules {
        /// That kind.
        kind: NodeKind,
        /// Its energy per request in microjoules.
        uj: f64,
        /// Energy per request on the other kind in microjoules.
        uj_other: f64,
        /// Where the profile's service times come from. The energy is modelled from them.
        provenance: Provenance,
    },
}

impl Preference {
    /// The preferred kind.
    pub fn kind(&self) -> Option<NodeKind> {
        match self {
            Preference::None => None,
            Preference::Latency { kind } | Preference::Joules { kind, .. } => Some(*kind),
        }
    }
}

struct Cost {
    host: KindCost,
    smartnic: KindCost,
    preference: Preference,
    bandwidth_primary_gbps: f64,
    bandwidth_backup_gbps: f64,
    write_bytes: f64,
    disk_bytes: u64,
    accelerators: Accelerators,
}

/// An application to place.
pub struct Request<'a> {
    /// The application, checked.
    pub app: &'a Application,
    costs: Vec<Cost>,
    visits: Vec<f64>,
    bytes: u32,
    rate_rps: f64,
    /// Use of the first resource at the knee.
    knee_utilisation: f64,
    /// Load of the busiest hour against that of the manifest.
    peak: f64,
    /// Load of each hour against that of the busiest one.
    day: Vec<f64>,
    /// Services breadth-first, each with the first parent that reaches it.
    walk: Vec<(ServiceId, Option<ServiceId>)>,
    paths: Paths,
}

impl<'a> Request<'a> {
    /// Works out the costs. `app` must have passed the manifest's checks; `profiles` are by name.
    pub fn new(app: &'a Application, profiles: &BTreeMap<String, Profile>) -> Request<'a> {
        let dag = Dag::new(app).expect("checked when parsed");
        let load = app.spec.load.as_ref();
        let bytes = load.map_or(REQUEST_BYTES_DEFAULT, |l| l.request_bytes);
        let peak = load.map_or(1.0, Load::peak);
        let rate_rps = load.map_or(0.0, |l| l.rate_rps * peak);
        let day = load.map_or(&[][..], |l| &l.day);
        // Where a profile leaves the outputs open the manifest's bound is the safe figure.
        let ratio = visits(app, &dag, |e| {
            let bound = app.spec.channels[usize::from(e.0)].outputs;
            declared_outputs(app, profiles, e).unwrap_or(f64::from(bound))
        });
        let profile = |s: ServiceId| profiles.get(app.service(s).profile());
        let through = longest_paths(app, &dag, |s| fastest(profile(s), bytes));
        let ids = (0..app.spec.services.len()).map(|i| ServiceId(i as u16));
        let costs: Vec<Cost> = ids
            .map(|id| {
                let i = usize::from(id.0);
                let profile = profile(id);
                let rest = through[i].saturating_sub(fastest(profile, bytes));
                let budget = app.spec.objective.latency.0;
                let late = |time: Nanos| rest.saturating_add(time.0) > budget;
                let kind_cost = |kind| kind_cost(profile, kind, bytes, late);
                let (host, smartnic) = (kind_cost(NodeKind::Host), kind_cost(NodeKind::SmartNic));
                let per_shard = rate_rps * ratio[i] / f64::from(app.spec.services[i].shards);
                let write_bytes = profile.map_or(0.0, |p| p.spec.write_bytes as f64);
                let gbps = |bytes: f64| per_shard * bytes * 8.0 / 1e9;
                Cost {
                    preference: prefer(&host, &smartnic, profile),
                    host,
                    smartnic,
                    bandwidth_primary_gbps: gbps(f64::from(bytes)),
                    bandwidth_backup_gbps: gbps(write_bytes),
                    write_bytes,
                    disk_bytes: app.service(id).disk().0,
                    accelerators: app.service(id).accelerators_required(),
                }
            })
            .collect();
        Request {
            app,
            costs,
            visits: ratio,
            bytes,
            rate_rps,
            knee_utilisation: KNEE_UTILISATION,
            peak,
            day: day.iter().map(|factor| factor / peak).collect(),
            walk: breadth_first(app, dag.source()),
            paths: Paths::new(app, &dag),
        }
    }

    /// The same with the knee at another use of the first resource than [`KNEE_UTILISATION`], above 0 and at most 1.
    pub fn with_knee_utilisation(mut self, part: f64) -> Request<'a> {
        assert!(part > 0.0 && part <= 1.0, "a part of a resource: {part}");
        self.knee_utilisation = part;
        self
    }

    /// Use of the first resource at the knee.
    pub fn knee_utilisation(&self) -> f64 {
        self.knee_utilisation
    }

    /// Messages of a service that a client's request causes.
    pub fn visits(&self, service: ServiceId) -> f64 {
        self.visits[usize::from(service.0)]
    }

    /// As [`Request::visits`], but no more than the cores that the manifest reserves for the service can
    /// handle at the manifest's load. Where a profile leaves the outputs open, `visits` is the most that
    /// there may be, and a service that few requests reach would seem to bound the rate.
    pub fn visits_expected(&self, service: ServiceId) -> f64 {
        let most = self.visits(service);
        let (spec, cost) = (
            self.app.service(service),
            self.cost(service, NodeKind::Host),
        );
        let time = cost.time.filter(|t| t.0 > 0 && !cost.lower_bound);
        let Some(time) = time.filter(|_| self.rate_rps > 0.0) else {
            return most;
        };
        let cores = spec.resources.cpu * self.peak * f64::from(spec.shards);
        let busy = cores * self.knee_utilisation;
        most.min(busy / (self.rate_rps * time.as_secs_f64()))
    }

    /// Bytes of a request.
    pub fn request_bytes(&self) -> u32 {
        self.bytes
    }

    /// Requests per second of the manifest's load in its busiest hour; 0 if it names none.
    pub fn rate_rps(&self) -> f64 {
        self.rate_rps
    }

    /// The load of each hour of a day against that of the busiest one; empty if it is always the same.
    pub fn day(&self) -> &[f64] {
        &self.day
    }

    /// Bytes that a service writes for a message.
    pub(crate) fn write_bytes(&self, service: ServiceId) -> f64 {
        self.costs[usize::from(service.0)].write_bytes
    }

    /// All services, in the manifest's order.
    pub fn services(&self) -> impl Iterator<Item = ServiceId> + use<> {
        (0..self.app.spec.services.len() as u16).map(ServiceId)
    }

    /// What an instance takes of a node of that kind.
    pub fn demand(&self, service: ServiceId, role: Role, kind: NodeKind) -> Demand {
        let resources = &self.app.service(service).resources;
        let cost = &self.costs[usize::from(service.0)];
        let full = resources.cpu * self.peak * self.cost(service, kind).factor;
        let (cpu_cores, bandwidth_gbps) = match role {
            Role::Primary => (full, cost.bandwidth_primary_gbps),
            Role::Backup | Role::Joining => {
                (full * BACKUP_CPU_FRACTION, cost.bandwidth_backup_gbps)
            }
        };
        Demand {
            cpu_cores,
            memory_bytes: resources.memory.0,
            bandwidth_gbps,
            disk_bytes: cost.disk_bytes,
            accelerators: cost.accelerators,
        }
    }

    /// Accelerators that a node of the service must have.
    pub fn accelerators_required(&self, service: ServiceId) -> Accelerators {
        self.costs[usize::from(service.0)].accelerators
    }

    /// What an instance reserves on a node of that kind.
    pub fn reservation(&self, service: ServiceId, role: Role, kind: NodeKind) -> Reservation {
        Reservation {
            role,
            demand: self.demand(service, role, kind),
            full_cpu_cores: self.demand(service, Role::Primary, kind).cpu_cores,
        }
    }

    /// What a service costs on a kind of node.
    pub fn cost(&self, service: ServiceId, kind: NodeKind) -> &KindCost {
        let cost = &self.costs[usize::from(service.0)];
        match kind {
            NodeKind::Host => &cost.host,
            NodeKind::SmartNic => &cost.smartnic,
        }
    }

    /// Which kind of node a service should run on.
    pub fn preference(&self, service: ServiceId) -> Preference {
        self.costs[usize::from(service.0)].preference
    }

    /// All services breadth-first from the ingress service, each with the first parent that reaches it, by
    /// messages if it is not only called.
    pub fn walk(&self) -> &[(ServiceId, Option<ServiceId>)] {
        &self.walk
    }

    /// Paths of messages through the application.
    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }
}

fn kind_cost(
    profile: Option<&Profile>,
    kind: NodeKind,
    bytes: u32,
    late: impl Fn(Nanos) -> bool,
) -> KindCost {
    let time = |kind| profile.and_then(|p| p.service_time(kind, bytes));
    let factor = match (time(kind), time(NodeKind::Host)) {
        (Some(t), Some(host)) if host.0 > 0 => t.0 as f64 / host.0 as f64,
        _ => 1.0,
    };
    let node = profile.and_then(|p| p.spec.nodes.get(&kind));
    let joules = node.zip(time(kind)).and_then(|(node, time)| {
        let per_core = node.active_power_w.0 / node.active_cores;
        (node.active_cores > 0.0).then(|| per_core * time.as_secs_f64())
    });
    KindCost {
        factor,
        time: time(kind),
        joules,
        late: time(kind).is_some_and(late),
        lower_bound: node.is_some_and(|n| n.lower_bound),
    }
}

fn prefer(host: &KindCost, smartnic: &KindCost, profile: Option<&Profile>) -> Preference {
    let provenance = profile.map_or(Provenance::Modelled, |p| p.spec.provenance);
    match (host.late, smartnic.late) {
        (true, false) => {
            return Preference::Latency {
                kind: NodeKind::SmartNic,
            };
        }
        (false, true) => {
            return Preference::Latency {
                kind: NodeKind::Host,
            };
        }
        _ => {}
    }
    match (host.joules, smartnic.joules) {
        (Some(h), Some(s)) if h < s => Preference::Joules {
            kind: NodeKind::Host,
            uj: h * 1e6,
            uj_other: s * 1e6,
            provenance,
        },
        (Some(h), Some(s)) if s < h => Preference::Joules {
            kind: NodeKind::SmartNic,
            uj: s * 1e6,
            uj_other: h * 1e6,
            provenance,
        },
        _ => Preference::None,
    }
}

/// Service time in nanoseconds on the fastest kind; 0 if unknown.
fn fastest(profile: Option<&Profile>, bytes: u32) -> u64 {
    let Some(profile) = profile else { return 0 };
    let kinds = profile.spec.nodes.keys();
    let times = kinds.filter_map(|k| profile.service_time(*k, bytes));
    times.min().unwrap_or_default().0
}

/// By service: length of the longest path through it, or through a service that waits for it.
fn longest_paths(app: &Application, dag: &Dag, time: impl Fn(ServiceId) -> u64) -> Vec<u64> {
    let count = app.spec.services.len();
    let (mut before, mut after) = (vec![0u64; count], vec![0u64; count]);
    let at = |s: ServiceId| usize::from(s.0);
    let calls = |s: ServiceId| app.flows().filter(move |f| f.is_call && f.from == s);
    // A service takes the time of those that it calls too.
    let mut times: Vec<u64> = (0..count).map(|s| time(ServiceId(s as u16))).collect();
    for &s in dag.order().iter().rev() {
        for called in calls(s).map(|f| f.to) {
            times[at(s)] = times[at(s)].saturating_add(times[at(called)]);
        }
    }
    let time = |s: ServiceId| times[at(s)];
    for &s in dag.order() {
        let here = before[at(s)].saturating_add(time(s));
        for (_, to, _) in app.channels_from(s) {
            before[at(to)] = before[at(to)].max(here);
        }
    }
    for &s in dag.order().iter().rev() {
        for (_, to, _) in app.channels_from(s) {
            after[at(s)] = after[at(s)].max(after[at(to)].saturating_add(time(to)));
        }
    }
    let mut through = vec![0u64; count];
    for &s in dag.order() {
        let own = before[at(s)].saturating_add(time(s));
        let own = own.saturating_add(after[at(s)]);
        through[at(s)] = through[at(s)].max(own);
        for called in calls(s).map(|f| f.to) {
            through[at(called)] = through[at(called)].max(through[at(s)]);
        }
    }
    through
}

/// All services, each with the first that reaches it.
fn breadth_first(app: &Application, source: ServiceId) -> Vec<(ServiceId, Option<ServiceId>)> {
    let mut seen = vec![false; app.spec.services.len()];
    let mut walk = Vec::new();
    let mut next = VecDeque::from([(source, None)]);
    seen[usize::from(source.0)] = true;
    let id = |name: &String| Some(app.service_named(name)?.0);
    // Those that only ask each other come after the others, and those that are only called last.
    let mut entries = entries(app).into_iter();
    loop {
        while let Some((service, parent)) = next.pop_front() {
            walk.push((service, parent));
            let channels = app.channels_from(service).map(|(_, to, _)| to);
            let asks = app.service(service).asks.iter().filter_map(id);
            for to in channels.chain(asks) {
                if !std::mem::replace(&mut seen[usize::from(to.0)], true) {
                    next.push_back((to, Some(service)));
                }
            }
        }
        let mut is_new = |id: &ServiceId| !std::mem::replace(&mut seen[usize::from(id.0)], true);
        let entry = entries.find(&mut is_new).map(|entry| (entry, None));
        let found = entry.or_else(|| {
            walk.iter().find_map(|&(caller, _)| {
                let mut calls = app.service(caller).calls.iter().filter_map(id);
                Some((calls.find(&mut is_new)?, Some(caller)))
            })
        });
        match found {
            Some(found) => next.push_back(found),
            None => return walk,
        }
    }
}
