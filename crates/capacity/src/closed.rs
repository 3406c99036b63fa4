//! The closed form: the fewest servers on which the placer `joules` holds all reservations, and whose knee is at the load
//! or above it.
//!
//! Reservations are computed for the load: service time x messages x load / shards / use at the knee.

use crate::candidate::Candidate;
use crate::limits::{INSTANCES_MAX, SERVERS_MAX};
use e3_model::limits::SHARDS_MAX;
use e3_model::{Application, Nanos, NodeKind, Profile, Topology};
use e3_placement::limits::BACKUP_CPU_FRACTION;
use e3_placement::{Cluster, Joules, Placement, Placer, Request, accept};
use e3_power::knee::knee;
use e3_power::limits::KNEE_UTILISATION;
use e3_power::{IdleServers, Instance, KneeInput, PowerModel};
use std::collections::BTreeMap;

/// What is planned for.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The application, checked.
    pub app: &'a Application,
    /// Handled messages per request of a client, by service.
    pub visits: &'a [f64],
    /// Size of a message.
    pub request_bytes: u32,
    /// Objective on p99 in microseconds.
    pub p99_us: f64,
    /// Services may get more shards than the manifest gives them.
    pub grow_shards: bool,
    /// Of the simulator.
    pub seed: u64,
    /// Requests of one simulation.
    pub requests: u64,
}

/// A candidate with the service times on its cores.
pub struct Case<'a> {
    /// Candidate.
    pub candidate: &'a Candidate,
    /// Profiles by name.
    pub profiles: BTreeMap<String, Profile>,
    /// Use of the first resource at the knee.
    pub knee_utilisation: f64,
}

/// Why no number of servers carries the load.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Lack {
    /// A shard of a stateful service runs on one core.
    #[error(
        "a shard of service {service:?} would use {:.0} % of its one core, the knee is at {:.0} %; \
         at most {rate_max_rps:.0} requests/s, or {shards} shards instead of {has}",
        .used * 100.0, .knee * 100.0
    )]
    Shard {
        /// Service.
        service: String,
        /// Use of the core at the load.
        used: f64,
        /// Use of it at the knee.
        knee: f64,
        /// Load at which it is at the knee.
        rate_max_rps: f64,
        /// Shards that would carry the load.
        shards: u64,
        /// Shards that there are.
        has: u16,
    },
    /// The load needs more instances than are planned.
    #[error("it needs {instances} instances, a plan has at most {INSTANCES_MAX}")]
    Instances {
        /// Instances.
        instances: u64,
    },
    /// The servers do not hold the application.
    #[error("not even {servers} servers hold it: {why}")]
    Room {
        /// Servers.
        servers: usize,
        /// What the placer or admission said.
        why: String,
    },
    /// The knee is below the load.
    #[error("even {servers} servers are at their knee at {rate_rps:.0} requests/s")]
    Knee {
        /// Servers.
        servers: usize,
        /// Load at the knee.
        rate_rps: f64,
    },
    /// The simulator saw the servers saturated or late.
    #[error("{servers} servers {what}")]
    Simulated {
        /// Servers.
        servers: usize,
        /// What the simulator saw.
        what: String,
    },
    /// The profiles have no service time.
    #[error("{0}")]
    Profiles(String),
}

impl<'a> Case<'a> {
    /// A case with the service times of `profiles`, taken for cores that are so many times as fast.
    pub fn new(
        candidate: &'a Candidate,
        profiles: &BTreeMap<String, Profile>,
        speed: impl Fn(NodeKind) -> f64,
    ) -> Case<'a> {
        let mut profiles = profiles.clone();
        for profile in profiles.values_mut() {
            for (kind, cost) in &mut profile.spec.nodes {
                for point in &mut cost.service_time {
                    let time = point.time.0 as f64 / speed(*kind);
                    point.time = Nanos((time.round() as u64).max(1));
                }
            }
        }
        Case {
            candidate,
            profiles,
            knee_utilisation: KNEE_UTILISATION,
        }
    }

    /// Service times in seconds on the kinds of node of this candidate.
    fn times_s(&self, profile: &str, bytes: u32) -> Vec<(NodeKind, f64)> {
        let profile = self.profiles.get(profile);
        let kinds = [NodeKind::Host, NodeKind::SmartNic];
        let kinds = kinds.into_iter().filter(|k| self.candidate.has(*k));
        let times = kinds.filter_map(|k| Some((k, profile?.service_time(k, bytes)?.as_secs_f64())));
        times.collect()
    }

    /// Shards that keep each below the knee on every kind of node. A shard has one hardware thread, which is half as
    /// fast as its core where another one is busy beside it.
    fn shards_needed(&self, times_s: &[(NodeKind, f64)], messages_rps: f64) -> f64 {
        let slowest = times_s.iter().map(|(kind, time)| match kind {
            NodeKind::Host if self.candidate.has_hyper_threading() => 2.0 * time,
            _ => *time,
        });
        (slowest.fold(0.0, f64::max) * messages_rps / self.knee_utilisation).ceil()
    }

    /// The application with the reservations that the load needs, and with `margin` times the shards.
    fn reserved(
        &self,
        subject: &Subject<'_>,
        load_rps: f64,
        margin: f64,
    ) -> Result<Application, Lack> {
        let mut app = subject.app.clone();
        let latency_ns = subject.p99_us * 1e3;
        app.spec.objective.latency = Nanos(latency_ns as u64);
        app.spec.load = Some(e3_model::application::Load {
            rate_rps: load_rps,
            request_bytes: subject.request_bytes,
            day: Vec::new(),
        });
        for (service, visits) in app.spec.services.iter_mut().zip(subject.visits) {
            let bytes = subject.request_bytes;
            let times = self.times_s(service.profile(), bytes);
            let fastest = times.iter().map(|(_, time)| *time).reduce(f64::min);
            let fastest = fastest.ok_or_else(|| {
                Lack::Profiles(format!(
                    "service {:?}: profile {:?} has no service time on its nodes",
                    service.name,
                    service.profile()
                ))
            })?;
            if subject.grow_shards && service.stateful {
                let needed = margin * self.shards_needed(&times, visits * load_rps);
                service.shards = service.shards.max(needed.min(f64::from(SHARDS_MAX)) as u16);
            }
            let shards = f64::from(service.shards);
            let used = fastest * visits * load_rps / shards;
            if service.stateful && used > self.knee_utilisation {
                return Err(Lack::Shard {
                    service: service.name.clone(),
                    used,
                    knee: self.knee_utilisation,
                    rate_max_rps: load_rps * self.knee_utilisation / used,
                    shards: (shards * used / self.knee_utilisation).ceil() as u64,
                    has: service.shards,
                });
            }
            // Reservations are in cores of a host, if the profile knows one.
            let profile = self.profiles.get(service.profile());
            let host = profile.and_then(|p| p.service_time(NodeKind::Host, bytes));
            let host = host.map_or(fastest, Nanos::as_secs_f64);
            service.resources.cpu = host * visits * load_rps / shards / self.knee_utilisation;
        }
        let services = app.spec.services.iter();
        let instances = services.map(|s| u64::from(s.shards) * u64::from(s.replicas));
        match instances.sum::<u64>() {
            instances if subject.grow_shards && instances > INSTANCES_MAX => {
                Err(Lack::Instances { instances })
            }
            _ => Ok(app),
        }
    }
}

/// A cluster that is enough by the closed form.
pub struct Placed {
    /// The application with its reservations and shards.
    pub app: Application,
    /// Cluster.
    pub topology: Topology,
    /// Where the instances are.
    pub placement: Placement,
    /// Blocks of the candidate.
    pub blocks: usize,
    /// Load at the knee in requests per second.
    pub knee_rps: f64,
}

/// A load on a candidate.
struct Search<'a> {
    subject: &'a Subject<'a>,
    case: &'a Case<'a>,
    app: Application,
    load_rps: f64,
    power: PowerModel,
    blocks_max: usize,
}

/// The smallest cluster of `from` blocks or more that is enough for a load by the closed form, with `margin` times
/// the shards that the load needs.
pub fn smallest(
    subject: &Subject<'_>,
    case: &Case<'_>,
    load_rps: f64,
    margin: f64,
    from: usize,
) -> Result<Placed, Lack> {
    let search = Search {
        app: case.reserved(subject, load_rps, margin)?,
        power: case.candidate.power_model(),
        blocks_max: (SERVERS_MAX / case.candidate.servers_per_block()).max(1),
        subject,
        case,
        load_rps,
    };
    search.smallest(from)
}

impl Search<'_> {
    /// Whether so many blocks are enough by the closed form.
    fn closed(&self, blocks: usize) -> Result<Placed, Lack> {
        let topology = self.case.candidate.topology(blocks);
        let servers = blocks * self.case.candidate.servers_per_block();
        let room = |why: String| Lack::Room { servers, why };
        let request = Request::new(&self.app, &self.case.profiles)
            .with_knee_utilisation(self.case.knee_utilisation);
        let mut cluster = Cluster::with_power(&topology, self.power.clone());
        let placed = cluster.try_out(|cluster| Joules.place(&request, cluster));
        let placement = placed.map_err(|e| room(e.to_string()))?;
        accept(Joules.name(), &request, &mut cluster, &placement, false)
            .map_err(|e| room(e.to_string()))?;
        let decisions = placement.decisions.iter();
        let instances: Vec<Instance> = decisions
            .map(|d| Instance {
                service: d.key.service,
                shard: d.key.shard,
                role: d.key.role(),
                node: d.node,
            })
            .collect();
        let knee = knee(&KneeInput {
            app: &self.app,
            profiles: &self.case.profiles,
            topology: &topology,
            idle_servers: IdleServers::On,
            instances: &instances,
            visits: self.subject.visits,
            request_bytes: self.subject.request_bytes,
            backup_cpu_fraction: BACKUP_CPU_FRACTION,
            power: &self.power,
            knee_utilisation: self.case.knee_utilisation,
        });
        let knee = knee.map_err(|e| Lack::Profiles(e.to_string()))?;
        if knee.rate_rps < self.load_rps {
            return Err(Lack::Knee {
                servers,
                rate_rps: knee.rate_rps,
            });
        }
        Ok(Placed {
            app: self.app.clone(),
            topology,
            placement,
            blocks,
            knee_rps: knee.rate_rps,
        })
    }

    /// The fewest blocks, `from` or more, that are enough by the closed form. It steps up from what the work of
    /// all services needs at least, ever faster, and bisects the last step.
    fn smallest(&self, from: usize) -> Result<Placed, Lack> {
        let from = from.max(self.blocks_least()).min(self.blocks_max);
        let (mut low, mut high, mut step) = (from - 1, from, 1);
        let mut found = loop {
            match self.closed(high) {
                Ok(placed) => break placed,
                Err(lack) if high >= self.blocks_max => return Err(lack),
                Err(_) => (low, high) = (high, (high + step).min(self.blocks_max)),
            }
            step *= 2;
        };
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.closed(middle) {
                Ok(placed) => (found, high) = (placed, middle),
                Err(_) => low = middle,
            }
        }
        Ok(found)
    }

    /// Blocks without which the cores cannot do the work, whatever the placement: if all work could be divided at will, and
    /// each service ran where it is fastest against the others.
    fn blocks_least(&self) -> usize {
        let candidate = self.case.candidate;
        let cores = |kind| candidate.cores(kind) * self.case.knee_utilisation / self.load_rps;
        let (mut host, mut smartnic) = (cores(NodeKind::Host), cores(NodeKind::SmartNic));
        (host, smartnic) = (host.max(f64::MIN_POSITIVE), smartnic.max(f64::MIN_POSITIVE));
        let services = self.app.spec.services.iter().zip(self.subject.visits);
        let mut work: Vec<(f64, f64)> = services
            .map(|(service, visits)| {
                let times = self
                    .case
                    .times_s(service.profile(), self.subject.request_bytes);
                let on = |kind| {
                    let time = times.iter().find(|(k, _)| *k == kind);
                    time.map_or(f64::INFINITY, |(_, time)| time * visits)
                };
                (on(NodeKind::Host), on(NodeKind::SmartNic))
            })
            .filter(|(host, smartnic)| host.min(*smartnic) > 0.0)
            .collect();
        work.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        // A prefix on SmartNICs, the rest on hosts, one service divided: the least of the largest use.
        let mut least = f64::INFINITY;
        for split in 0..=work.len() {
            let on_smartnic: f64 = work[..split].iter().map(|w| w.1).sum();
            let after: f64 = work[(split + 1).min(work.len())..]
                .iter()
                .map(|w| w.0)
                .sum();
            let both = work.get(split).copied();
            let blocks = |part: f64| {
                let add = |time: f64, part: f64| if part > 0.0 { time * part } else { 0.0 };
                let (h, s) = both.unwrap_or((0.0, 0.0));
                let on_smartnic = (on_smartnic + add(s, part)) / smartnic;
                let on_host = (after + add(h, 1.0 - part)) / host;
                (on_smartnic, on_host)
            };
            let (mut low, mut high) = (0.0, 1.0);
            for _ in 0..50 {
                let middle = (low + high) / 2.0;
                let (on_smartnic, on_host) = blocks(middle);
                if on_smartnic < on_host {
                    low = middle
                } else {
                    high = middle
                }
            }
            for part in [0.0, low, 1.0] {
                let (on_smartnic, on_host) = blocks(part);
                least = least.min(on_smartnic.max(on_host));
            }
        }
        // Rounding must not ask for one too many.
        ((least * (1.0 - 1e-6)).ceil().max(1.0) as usize).min(self.blocks_max)
    }
}
