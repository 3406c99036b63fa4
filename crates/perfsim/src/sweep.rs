//! Latency against throughput, and the knee of that curve.
//!
//! E3 measures at the knee of the latency-throughput curve. The knee is where throughput over mean
//! latency is highest (Kleinrock, "Power and Deterministic Rules of Thumb for Probabilistic Problems in
//! Computer Communications", ICC 1979).

use crate::control::NoController;
use crate::input::{Input, ModelError};
use crate::load::Load;
use crate::report::Report;
use crate::simulator::{Run, Simulator};
use e3_model::{Latency, Nanos};
use serde::Serialize;

/// Rate at which the search for the highest one begins.
const RATE_FIRST_RPS: f64 = 100.0;
/// No cluster carries more.
const RATE_MAX_RPS: f64 = 1e10;
/// The highest rate is known to this part.
const RATE_PART: f64 = 1.02;
/// Points of the curve, as parts of the highest rate. A guess, as the next ones; design page 026 has the reasons.
const PARTS: [f64; 14] = [
    0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95,
];
/// Further points beside the best one.
const REFINE: [f64; 4] = [0.95, 0.975, 1.025, 1.05];

/// How many requests the runs of a sweep simulate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Effort {
    /// Requests of a run of the search for the highest rate.
    pub search: f64,
    /// Requests of a run of the curve.
    pub point: f64,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            search: 20_000.0,
            point: 200_000.0,
        }
    }
}

/// A point of the curve.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Point {
    /// Requests that arrived per second.
    pub offered_rps: f64,
    /// Requests that were answered per second.
    pub achieved_rps: f64,
    /// The cluster cannot carry it.
    pub saturated: bool,
    /// Latency; None if no request was answered.
    pub latency: Option<Latency>,
    /// Energy of all servers over requests.
    pub joules_per_request: Option<f64>,
    /// Mean power of all servers.
    pub watts_total: f64,
}

/// The curve.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sweep {
    /// Points in the order of their rates.
    pub points: Vec<Point>,
    /// The lowest rate that was found to saturate.
    pub saturates_rps: f64,
    /// The report of the knee.
    pub knee: Report,
}

/// Runs at many rates. `run` gives length and seed; its load does not matter. Runs are shorter where the
/// rate is high.
pub fn sweep(input: &Input<'_>, run: &Run) -> Result<Sweep, ModelError> {
    sweep_with(run, Effort::default(), |run| {
        Ok(Simulator::new(input, run)?.run(&mut NoController))
    })
}

/// A [`sweep`] whose runs have so many requests, with runs of any fidelity.
pub fn sweep_with<E>(
    run: &Run,
    effort: Effort,
    one: impl Fn(Run) -> Result<Report, E>,
) -> Result<Sweep, E> {
    let at = |rate: f64, requests: f64| {
        let length =
            ((requests / rate * 1e9) as u64).clamp(1_000_000, run.duration.0.max(1_000_000));
        let run = Run {
            load: Load::Constant(rate),
            duration: Nanos(length),
            warm_up: Nanos(length / 10),
            samples: false,
            spans: false,
            ..run.clone()
        };
        one(run)
    };
    let (mut low, mut high) = (0.0, RATE_FIRST_RPS);
    while high < RATE_MAX_RPS && !at(high, effort.search)?.saturated {
        low = high;
        high *= 2.0;
    }
    while high > low * RATE_PART {
        let middle = if low > 0.0 {
            (low * high).sqrt()
        } else {
            high / 2.0
        };
        if at(middle, effort.search)?.saturated {
            high = middle
        } else {
            low = middle
        }
    }
    let mut reports = Vec::new();
    for part in PARTS {
        reports.push(at(high * part, effort.point)?);
    }
    let best = power_max(&reports).offered_rps;
    for part in REFINE {
        reports.push(at(best * part, effort.point)?);
    }
    reports.push(at(high * 1.1, effort.point)?);
    reports.sort_by(|a, b| a.offered_rps.total_cmp(&b.offered_rps));
    Ok(Sweep {
        points: reports.iter().map(point).collect(),
        saturates_rps: high,
        knee: power_max(&reports).clone(),
    })
}

/// Where throughput over latency is highest.
fn power_max(reports: &[Report]) -> &Report {
    let power = |r: &Report| match r.latency {
        Some(latency) if latency.avg_us > 0.0 && !r.saturated => r.achieved_rps / latency.avg_us,
        _ => 0.0,
    };
    let best = reports.iter().max_by(|a, b| power(a).total_cmp(&power(b)));
    best.expect("a curve has points")
}

fn point(report: &Report) -> Point {
    Point {
        offered_rps: report.offered_rps,
        achieved_rps: report.achieved_rps,
        saturated: report.saturated,
        latency: report.latency,
        joules_per_request: report.joules_per_request,
        watts_total: report.watts_total,
    }
}
