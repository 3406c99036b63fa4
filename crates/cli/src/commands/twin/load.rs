//! Loads on the twin's cluster: latency, and the processor time that nodes and client took.

use crate::cluster::process::Process;
use crate::commands::demo::cluster::DemoCluster;
use crate::ui::failure::{Exit, Failure};
use e3_bench::twin::Point;
use e3_client::Call;
use e3_loadgen::workload::{Check, Judged, Workload};
use e3_loadgen::{Config, LoadReport, run};
use e3_model::{Nanos, Timestamp};
use e3_random::Random;
use e3_wire::entry::Reply;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A load is held if this part of it is answered in time.
const HELD_PART: f64 = 0.97;
/// And if 99 of 100 requests take no longer.
const HELD_P99_US: f64 = 50_000.0;
/// Where searches for the highest rate begin and end.
pub const SEARCH_FIRST_RPS: f64 = 500.0;
const SEARCH_MAX_RPS: f64 = 512_000.0;
/// The highest rate is known to this factor.
const SEARCH_RATIO: f64 = 1.2;
/// Length of a load of a search.
const SEARCH_LOAD: Duration = Duration::from_millis(600);

/// Time that a request has; beyond it, an overloaded node is known to be one.
const DEADLINE: Duration = Duration::from_secs(1);

/// A workload of one load at a rate.
pub type Make<'a> = &'a mut dyn FnMut(f64, Duration, u64) -> Result<Box<dyn Workload>, Failure>;

/// What a load showed.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Rate and latency.
    pub point: Point,
    /// Latency that 999 of 1,000 requests did not exceed, and the longest.
    pub p99_9_us: f64,
    pub max_us: f64,
    /// Requests.
    pub sent: u64,
    /// Requests without an outcome.
    pub lost: u64,
    /// Processor time of each node, without what it takes when idle.
    pub nodes: BTreeMap<String, Duration>,
    /// Processor time of this process, which is the client, as a part of one core.
    pub client_cores: f64,
}

impl Sample {
    /// Whether the cluster carries the load.
    pub fn is_held(&self) -> bool {
        let p = &self.point;
        p.achieved_rps >= HELD_PART * p.offered_rps && p.p99_us <= HELD_P99_US
    }

    /// Processor time of a request on a node, in nanoseconds.
    pub fn node_ns(&self, node: &str) -> f64 {
        let time = self.nodes.get(node).copied().unwrap_or_default();
        time.as_nanos() as f64 / self.sent.max(1) as f64
    }
}

/// Loads on a cluster.
pub struct Loads<'a> {
    pub cluster: &'a DemoCluster,
    pub nodes: Vec<String>,
    /// Processor time of each node per second when nothing is sent.
    idle: BTreeMap<String, f64>,
    seed: u64,
    _slack: NoTimerSlack,
}

/// Has this thread wake up when it is due, not up to 50 us later, as long as this lives.
struct NoTimerSlack(Option<NonZeroU64>);

impl NoTimerSlack {
    fn new() -> NoTimerSlack {
        let before = rustix::thread::current_timer_slack();
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        NoTimerSlack(before.ok().and_then(NonZeroU64::new))
    }
}

impl Drop for NoTimerSlack {
    fn drop(&mut self) {
        let _ = rustix::thread::set_current_timer_slack(self.0);
    }
}

impl<'a> Loads<'a> {
    /// Measures for so long what the nodes take when nothing is sent.
    pub fn new(cluster: &'a DemoCluster, nodes: Vec<String>, idle: Duration, seed: u64) -> Self {
        let mut loads = Loads {
            cluster,
            nodes,
            idle: BTreeMap::new(),
            seed,
            _slack: NoTimerSlack::new(),
        };
        let (before, begin) = (loads.cpu(), Instant::now());
        std::thread::sleep(idle);
        let (after, seconds) = (loads.cpu(), begin.elapsed().as_secs_f64());
        let used = |name: &String| after[name].saturating_sub(before[name]).as_secs_f64();
        loads.idle = loads
            .nodes
            .iter()
            .map(|n| (n.clone(), used(n) / seconds))
            .collect();
        loads
    }

    fn cpu(&self) -> BTreeMap<String, Duration> {
        let alive = self.cluster.state.processes_alive();
        let of = |name: &String| {
            let process = alive.iter().find(|(n, _)| n == name);
            process.and_then(|(_, p)| p.cpu()).unwrap_or_default()
        };
        self.nodes.iter().map(|n| (n.clone(), of(n))).collect()
    }

    /// Runs one load.
    pub fn at(
        &mut self,
        app: &str,
        rate_rps: f64,
        duration: Duration,
        make: Make<'_>,
    ) -> Result<Sample, Failure> {
        self.seed += 1;
        let mut workload = Unread {
            workload: make(rate_rps, duration, self.seed)?,
            schedule: poisson(rate_rps, duration, self.seed),
        };
        let config = Config {
            app: app.into(),
            endpoints: self.cluster.client.endpoints(app)?,
            refresh: None,
            rate_rps,
            duration,
            deadline: DEADLINE,
            seed: self.seed,
            stop: Arc::new(AtomicBool::new(false)),
        };
        let own = || Process::this().and_then(|p| p.cpu()).unwrap_or_default();
        let (before, own_before, begin) = (self.cpu(), own(), Instant::now());
        let report = run(config, &mut workload, |_| {});
        let report = report.map_err(|e| Failure::new(Exit::Unexpected, e))?;
        let (after, own_after) = (self.cpu(), own());
        let seconds = begin.elapsed().as_secs_f64();
        let used = |name: &String| {
            let idle = Duration::from_secs_f64(self.idle[name] * seconds);
            let used = after[name].saturating_sub(before[name]);
            (name.clone(), used.saturating_sub(idle))
        };
        let nodes = self.nodes.iter().map(used).collect();
        let client = own_after.saturating_sub(own_before).as_secs_f64();
        Ok(sample(&report, nodes, client / seconds))
    }

    /// The loads of a search for the highest rate that is held, the last of them that rate; none if even the
    /// first is not held.
    pub fn search(&mut self, app: &str, make: Make<'_>) -> Result<Vec<Sample>, Failure> {
        let (mut low, mut high) = (0.0, SEARCH_FIRST_RPS);
        let mut held = Vec::new();
        while high < SEARCH_MAX_RPS {
            let sample = self.at(app, high, SEARCH_LOAD, make)?;
            if !sample.is_held() {
                break;
            }
            low = high;
            high *= 2.0;
            held.push(sample);
        }
        while low > 0.0 && high / low > SEARCH_RATIO {
            let middle = (low * high).sqrt();
            let sample = self.at(app, middle, SEARCH_LOAD, make)?;
            if sample.is_held() {
                low = middle;
                held.push(sample);
            } else {
                high = middle;
            }
        }
        Ok(held)
    }
}

fn sample(report: &LoadReport, nodes: BTreeMap<String, Duration>, client_cores: f64) -> Sample {
    let latency = &report.latency;
    Sample {
        point: Point {
            offered_rps: report.offered_rps,
            achieved_rps: report.achieved_rps,
            avg_us: latency.avg_us,
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
        },
        p99_9_us: latency.p99_9_us,
        max_us: latency.max_us,
        sent: report.ledger.sent,
        lost: report.ledger.unknown,
        nodes,
        client_cores,
    }
}

/// Arrivals of a Poisson process, as the simulator has them; given how many there are, each is at any time. At a rate
/// alone, requests would be due together, a group each millisecond.
fn poisson(rate_rps: f64, duration: Duration, seed: u64) -> Arc<[Nanos]> {
    let mut random = Random::new(seed);
    let count = (rate_rps * duration.as_secs_f64()).round().max(1.0) as u64;
    let nanos = duration.as_nanos() as f64;
    let mut times: Vec<Nanos> = (0..count)
        .map(|_| Nanos((random.unit() * nanos) as u64))
        .collect();
    times.sort_unstable();
    times.into()
}

/// A workload with times of its own, whose state is not read back.
struct Unread {
    workload: Box<dyn Workload>,
    schedule: Arc<[Nanos]>,
}

impl Workload for Unread {
    fn name(&self) -> &'static str {
        self.workload.name()
    }
    fn describe(&self) -> String {
        self.workload.describe()
    }
    fn probe(&mut self) -> Call {
        self.workload.probe()
    }
    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        self.workload.on_probe(reply)
    }
    fn next_baseline(&mut self) -> Check {
        self.workload.next_baseline()
    }
    fn on_baseline(&mut self, tag: u64, reply: Option<&Reply>) {
        self.workload.on_baseline(tag, reply);
    }
    fn baseline_unanswered(&self) -> u64 {
        self.workload.baseline_unanswered()
    }
    fn at(&mut self, now: Timestamp) {
        self.workload.at(now);
    }
    fn schedule(&self) -> Option<Arc<[Nanos]>> {
        Some(self.schedule.clone())
    }
    fn next(&mut self) -> Option<Call> {
        self.workload.next()
    }
    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged {
        self.workload.on_outcome(tag, reply)
    }
}

/// Requests of one size with random keys, for bare services.
pub struct Bare {
    random: Random,
    bytes: usize,
}

impl Bare {
    pub fn new(seed: u64, bytes: usize) -> Bare {
        Bare {
            random: Random::new(seed),
            bytes,
        }
    }
}

impl Workload for Bare {
    fn name(&self) -> &'static str {
        "bare"
    }
    fn describe(&self) -> String {
        format!("requests of {} bytes with random keys", self.bytes)
    }
    fn probe(&mut self) -> Call {
        Call {
            tag: 0,
            key: self.random.bytes(8),
            payload: self.random.bytes(self.bytes),
        }
    }
    fn on_probe(&mut self, _: &Reply) -> Result<(), String> {
        Ok(())
    }
    fn next(&mut self) -> Option<Call> {
        Some(self.probe())
    }
    fn on_outcome(&mut self, _: u64, reply: Option<&Reply>) -> Judged {
        Judged::by_status(reply)
    }
}
