//! How many servers a load needs.
//!
//! A number of servers is enough if the placer `joules` holds all reservations, if placement's closed form has the
//! load at or below the knee, and if the simulator carries the load within the objective on p99. The closed form
//! finds the smallest number by doubling and bisection; the simulator confirms it, or adds a few servers.
//!
//! Reservations are computed for the planned load: service time x messages x load / shards / use at the knee.

use crate::candidate::Candidate;
use crate::limits::{SERVERS_MAX, SIMULATED_STEPS};
use e3_hardware::Guesses;
use e3_model::{Application, Nanos, NodeKind, Profile, Topology};
use e3_perfsim::limits::DURATION_MAX;
use e3_perfsim::{Input, Load, ModelError, NoController, Options, Report, Run, Simulator};
use e3_placement::{Cluster, Joules, Placement, Placer, Request, accept};
use e3_power::knee::knee;
use e3_power::limits::KNEE_UTILISATION;
use e3_power::{IdleServers, Instance, KneeInput, PowerModel};
use std::collections::BTreeMap;

/// Shortest run.
const DURATION_MIN: Nanos = Nanos(1_000_000);

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
    /// Of the simulator.
    pub seed: u64,
    /// Requests of one simulation.
    pub requests: u64,
}

/// A candidate with a value for each input that needs a simulation.
pub struct Case<'a> {
    /// Candidate.
    pub candidate: &'a Candidate,
    /// Parameters of the simulator.
    pub guesses: Guesses,
    /// Service times on its cores.
    pub profiles: BTreeMap<String, Profile>,
}

/// The smallest cluster that was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Sized {
    /// Blocks of the candidate.
    pub blocks: usize,
    /// What the closed form asked for.
    pub blocks_closed: usize,
    /// Power at the load in watts.
    pub watts: f64,
    /// 99 of 100 requests took no longer, in microseconds.
    pub p99_us: f64,
    /// Load at the knee by the closed form, in requests per second.
    pub knee_rps: f64,
    /// What is used most, in words.
    pub bottleneck: String,
}

/// Why no number of servers carries the load.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Lack {
    /// A shard of a stateful service runs on one core.
    #[error(
        "a shard of service {service:?} would use {:.0} % of its one core, the knee is at {:.0} %; \
         at most {rate_max_rps:.0} requests/s, or {shards} shards instead of {has}",
        .used * 100.0, KNEE_UTILISATION * 100.0
    )]
    Shard {
        /// Service.
        service: String,
        /// Use of the core at the load.
        used: f64,
        /// Load at which it is at the knee.
        rate_max_rps: f64,
        /// Shards that would carry the load.
        shards: u64,
        /// Shards that there are.
        has: u16,
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
        guesses: &Guesses,
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
            guesses: candidate.guesses(guesses),
            profiles,
        }
    }

    /// Service time on the kind of node of this candidate that is fastest, in seconds.
    fn fastest_s(&self, profile: &str, bytes: u32) -> Option<f64> {
        let profile = self.profiles.get(profile)?;
        let kinds = [NodeKind::Host, NodeKind::SmartNic];
        let kinds = kinds.into_iter().filter(|k| self.candidate.has(*k));
        let times = kinds.filter_map(|k| profile.service_time(k, bytes));
        times.min().map(Nanos::as_secs_f64)
    }

    /// The application with the reservations that the load needs.
    fn reserved(&self, subject: &Subject<'_>, load_rps: f64) -> Result<Application, Lack> {
        let mut app = subject.app.clone();
        let latency_ns = subject.p99_us * 1e3;
        app.spec.objective.latency = Nanos(latency_ns as u64);
        app.spec.load = Some(e3_model::application::Load {
            rate_rps: load_rps,
            request_bytes: subject.request_bytes,
        });
        for (service, visits) in app.spec.services.iter_mut().zip(subject.visits) {
            let bytes = subject.request_bytes;
            let fastest = self.fastest_s(service.profile(), bytes);
            let fastest = fastest.ok_or_else(|| {
                Lack::Profiles(format!(
                    "service {:?}: profile {:?} has no service time on its nodes",
                    service.name,
                    service.profile()
                ))
            })?;
            let shards = f64::from(service.shards);
            let used = fastest * visits * load_rps / shards;
            if service.stateful && used > KNEE_UTILISATION {
                return Err(Lack::Shard {
                    service: service.name.clone(),
                    used,
                    rate_max_rps: load_rps * KNEE_UTILISATION / used,
                    shards: (shards * used / KNEE_UTILISATION).ceil() as u64,
                    has: service.shards,
                });
            }
            // Reservations are in cores of a host, if the profile knows one.
            let profile = self.profiles.get(service.profile());
            let host = profile.and_then(|p| p.service_time(NodeKind::Host, bytes));
            let host = host.map_or(fastest, Nanos::as_secs_f64);
            service.resources.cpu = host * visits * load_rps / shards / KNEE_UTILISATION;
        }
        Ok(app)
    }
}

/// A placement that the closed form accepts.
struct Placed {
    topology: Topology,
    placement: Placement,
    knee_rps: f64,
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

impl<'a> Search<'a> {
    fn new(
        subject: &'a Subject<'a>,
        case: &'a Case<'a>,
        load_rps: f64,
    ) -> Result<Search<'a>, Lack> {
        Ok(Search {
            app: case.reserved(subject, load_rps)?,
            power: case.candidate.power_model(),
            blocks_max: (SERVERS_MAX / case.candidate.servers_per_block()).max(1),
            subject,
            case,
            load_rps,
        })
    }

    /// Whether so many blocks are enough by the closed form.
    fn closed(&self, blocks: usize) -> Result<Placed, Lack> {
        let topology = self.case.candidate.topology(blocks);
        let servers = blocks * self.case.candidate.servers_per_block();
        let room = |why: String| Lack::Room { servers, why };
        let request = Request::new(&self.app, &self.case.profiles);
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
            backup_cpu_fraction: self.case.guesses.backup_cpu_fraction,
            power: &self.power,
        });
        let knee = knee.map_err(|e| Lack::Profiles(e.to_string()))?;
        if knee.rate_rps < self.load_rps {
            return Err(Lack::Knee {
                servers,
                rate_rps: knee.rate_rps,
            });
        }
        Ok(Placed {
            topology,
            placement,
            knee_rps: knee.rate_rps,
        })
    }

    /// The fewest blocks, `from` or more, that are enough by the closed form.
    fn smallest(&self, from: usize) -> Result<usize, Lack> {
        let (mut low, mut high) = (from.max(1) - 1, from.max(1));
        while let Err(lack) = self.closed(high) {
            if high >= self.blocks_max {
                return Err(lack);
            }
            (low, high) = (high, (high * 2).min(self.blocks_max));
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.closed(middle) {
                Ok(_) => high = middle,
                Err(_) => low = middle,
            }
        }
        Ok(high)
    }

    fn simulate(&self, placed: &Placed, load: Load) -> Result<Report, ModelError> {
        let options = Options {
            guesses: self.case.guesses.clone(),
            power: self.power.clone(),
            ..Options::default()
        };
        let mean_rps = match &load {
            Load::Day {
                peak_rps,
                trough_rps,
            } => (peak_rps + trough_rps) / 2.0,
            _ => self.load_rps,
        };
        let length = self.subject.requests as f64 / mean_rps * 1e9;
        let duration = Nanos((length as u64).clamp(DURATION_MIN.0, DURATION_MAX.0));
        let is_day = matches!(load, Load::Day { .. });
        let run = Run {
            load,
            duration,
            // A day is measured as a whole.
            warm_up: Nanos(if is_day { 0 } else { duration.0 / 10 }),
            seed: self.subject.seed,
            samples: false,
            spans: false,
        };
        let input = Input {
            app: &self.app,
            profiles: &self.case.profiles,
            topology: &placed.topology,
            placement: &placed.placement,
            visits: self.subject.visits,
            request_bytes: self.subject.request_bytes,
            options: &options,
        };
        Ok(Simulator::new(&input, run)?.run(&mut NoController))
    }

    /// What the simulator has against it.
    fn objection(&self, report: &Report) -> Option<String> {
        if report.saturated {
            return Some("are saturated in the simulator".into());
        }
        let (p99, most) = (report.latency.p99_us, self.subject.p99_us);
        (p99 > most).then(|| {
            let (p99, most) = (p99 / 1e3, most / 1e3);
            format!("have a p99 of {p99:.3} ms in the simulator, the objective is {most} ms")
        })
    }
}

/// The smallest cluster, of `from` blocks or more, that carries a load. An error of the model concerns
/// the application, whatever the servers are.
pub fn size(
    subject: &Subject<'_>,
    case: &Case<'_>,
    load_rps: f64,
    from: usize,
) -> Result<Result<Sized, Lack>, ModelError> {
    let search = match Search::new(subject, case, load_rps) {
        Ok(search) => search,
        Err(lack) => return Ok(Err(lack)),
    };
    let least = match search.smallest(from) {
        Ok(least) => least,
        Err(lack) => return Ok(Err(lack)),
    };
    let mut refused = None;
    for more in SIMULATED_STEPS {
        let blocks = least + more;
        if blocks > search.blocks_max {
            break;
        }
        // A larger cluster may be placed worse; then the next one is tried.
        let Ok(placed) = search.closed(blocks) else {
            continue;
        };
        let report = search.simulate(&placed, Load::Constant(load_rps))?;
        match search.objection(&report) {
            None => {
                return Ok(Ok(Sized {
                    blocks,
                    blocks_closed: least,
                    watts: report.watts_total,
                    p99_us: report.latency.p99_us,
                    knee_rps: placed.knee_rps,
                    bottleneck: report.bottleneck.what.words().to_string(),
                }));
            }
            Some(what) => {
                let servers = blocks * case.candidate.servers_per_block();
                refused = Some(Lack::Simulated { servers, what });
            }
        }
    }
    Ok(Err(refused.expect("the first step was tried")))
}

/// Mean power in watts over a day, by the simulator.
pub fn day_watts(
    subject: &Subject<'_>,
    case: &Case<'_>,
    (peak_rps, trough_rps): (f64, f64),
    blocks: usize,
) -> Result<Option<f64>, ModelError> {
    let search = Search::new(subject, case, peak_rps);
    let Ok(search) = search else { return Ok(None) };
    let Ok(placed) = search.closed(blocks) else {
        return Ok(None);
    };
    let load = Load::Day {
        peak_rps,
        trough_rps,
    };
    Ok(Some(search.simulate(&placed, load)?.watts_total))
}
