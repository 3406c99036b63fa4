//! The highest rate that a cluster on this machine sustains, and what a request costs then.
//!
//! The caller runs the loads; this module chooses their rates: doubled until one is not sustained,
//! then bisected.

use crate::{Better, Figure};
use std::time::Duration;

/// What the group runs.
pub const ABOUT: &str = "\
The thermostat application as in `e3 demo`, on a cluster of its own: clients, controller and six nodes on
this machine. The rate is doubled until it does not hold, then narrowed down by bisection in runs of 3 s,
each on an empty application; the highest that held is measured for 10 s.
The processor time of a request is that of all processes at 15,000 requests/s, or at the highest rate that
held if that is lower, which misses the aim. The same load on ten times the shards shows what an idle instance
costs; it misses its aim if that load does not hold.";

/// A rate is held if at least this part of the offered requests is handled in time.
const HELD_PART: f64 = 0.99;
/// And if 99 of 100 requests take no longer than this.
const HELD_P99: Duration = Duration::from_millis(500);
/// Where the search begins and ends.
const RATES_RPS: (f64, f64) = (500.0, 256_000.0);
/// The search ends when the highest rate that was held and the lowest that was not are this close.
const SEARCH_RATIO: f64 = 1.15;
/// Length of a run of the search.
const SEARCH_RUN: Duration = Duration::from_secs(3);
/// Length of the measured run.
const MEASURED_RUN: Duration = Duration::from_secs(10);
/// A measured run that did not hold is repeated at this part of its rate, since a longer run holds
/// less than a short one.
const MEASURED_STEP: f64 = 0.85;
/// Measured runs at most.
const MEASURED_TRIES: u32 = 8;

/// Rate at which the processor time of a request is measured, or the highest that was held.
const CPU_RATE_RPS: f64 = 15_000.0;
/// Processor time of a request at that rate, at most, in microseconds.
const CPU_AIM_US: f64 = 70.0;

/// Instances, as a multiple of those of the application, that a request's processor time is compared
/// with.
const SCALE: u16 = 10;
/// Processor time of a request with that many instances, at most, relative to the application's own.
const SCALE_AIM: f64 = 1.25;

/// What is run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Requests per second.
    pub rate_rps: f64,
    /// Length.
    pub duration: Duration,
    /// Shards of each service, as a multiple of those in its manifest.
    pub shards_factor: u16,
}

/// What came of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// Requests per second that were offered.
    pub offered_rps: f64,
    /// Requests per second that were handled in time.
    pub achieved_rps: f64,
    /// Length of the run in seconds.
    pub duration_s: f64,
    /// Processor time of all processes during the run in seconds, reading back included.
    pub cpu_s: f64,
    /// Median latency in microseconds, from the time that a request was due.
    pub p50_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: f64,
    /// Requests that were sent.
    pub sent: u64,
    /// Requests without an outcome, and updates that are missing.
    pub lost: u64,
    /// Updates that are there twice, and contradictory replies.
    pub repeated: u64,
}

impl Run {
    /// Whether the machine holds this rate.
    pub fn held(&self) -> bool {
        let p99 = Duration::from_secs_f64(self.p99_us / 1e6);
        self.achieved_rps >= HELD_PART * self.offered_rps && p99 <= HELD_P99
    }

    fn verdict(&self) -> &'static str {
        if self.held() { "held" } else { "NOT held" }
    }

    /// Processor time of a request in microseconds.
    fn cpu_us(&self) -> f64 {
        self.cpu_s * 1e6 / self.sent.max(1) as f64
    }
}

/// Searches for the highest rate and measures it. `load` runs a load on an empty application.
pub fn run<E>(mut load: impl FnMut(Load) -> Result<Run, E>) -> Result<Vec<Figure>, E> {
    let mut run = |rate_rps, duration| {
        load(Load {
            rate_rps,
            duration,
            shards_factor: 1,
        })
    };
    let (mut low, mut high) = (RATES_RPS.0, RATES_RPS.0);
    while high < RATES_RPS.1 && run(high, SEARCH_RUN)?.held() {
        low = high;
        high *= 2.0;
    }
    while high / low > SEARCH_RATIO {
        let middle = (low * high).sqrt();
        if run(middle, SEARCH_RUN)?.held() {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut measured = run(low, MEASURED_RUN)?;
    for _ in 1..MEASURED_TRIES {
        if measured.held() {
            break;
        }
        low *= MEASURED_STEP;
        measured = run(low, MEASURED_RUN)?;
    }
    let mut figures = figures(&measured);
    let at_rate = run(CPU_RATE_RPS.min(measured.offered_rps), MEASURED_RUN)?;
    figures.push(cpu(&at_rate));
    let scaled = load(Load {
        rate_rps: at_rate.offered_rps,
        duration: MEASURED_RUN,
        shards_factor: SCALE,
    })?;
    figures.push(scale(&at_rate, &scaled));
    Ok(figures)
}

/// What a request costs with more instances.
fn scale(one: &Run, scaled: &Run) -> Figure {
    let ratio = scaled.cpu_us() / one.cpu_us();
    let figure = Figure::new("demo.scale_instances", ratio, "ratio", Better::Lower);
    let figure = figure.aim_under_load(SCALE_AIM, scaled.held());
    figure.note(format!(
        "processor time of a request with {SCALE} times the instances: {:.0} us, against {:.0} us; {} requests/s, {}",
        scaled.cpu_us(),
        one.cpu_us(),
        grouped(scaled.offered_rps),
        scaled.verdict(),
    ))
}

/// What a request costs. The aim is for one rate; a machine that does not hold it misses the aim.
fn cpu(run: &Run) -> Figure {
    let is_held = run.offered_rps >= CPU_RATE_RPS && run.held();
    let figure = Figure::new("demo.cpu_us_per_request", run.cpu_us(), "us", Better::Lower);
    let mut note = format!(
        "processor time of clients, controller and nodes, measured at {} requests/s, {}",
        grouped(run.offered_rps),
        run.verdict(),
    );
    if run.offered_rps < CPU_RATE_RPS {
        let rate = grouped(CPU_RATE_RPS);
        note += &format!("; the {rate} requests/s that the aim is for do not hold");
    }
    figure.aim_under_load(CPU_AIM_US, is_held).note(note)
}

fn figures(run: &Run) -> Vec<Figure> {
    let verdict = if run.held() {
        "held"
    } else {
        "NOT held, as no rate was"
    };
    let how = format!(
        "offered {} requests/s for {:.0} s, {verdict} (99 % handled in time, p99 at most {} ms)",
        grouped(run.offered_rps),
        run.duration_s,
        HELD_P99.as_millis()
    );
    let due = "from the time that a request was due";
    let sent = format!("of {} sent; ledger and state read back", run.sent);
    let latency = |name, us| Figure::new(name, us, "us", Better::Lower).note(due);
    let none_of = |name, value: u64| {
        let figure = Figure::new(name, value as f64, "requests", Better::Lower);
        figure.aim(0.0).note(&*sent)
    };
    vec![
        Figure::new("demo.rps", run.achieved_rps, "requests/s", Better::Higher).note(how),
        latency("demo.p50_us", run.p50_us),
        latency("demo.p99_us", run.p99_us),
        none_of("demo.lost", run.lost),
        none_of("demo.repeated", run.repeated),
    ]
}

/// A rate below a million with a comma between the thousands.
fn grouped(rate: f64) -> String {
    let rate = rate.round() as u64;
    match rate {
        0..1000 => rate.to_string(),
        _ => format!("{},{:03}", rate / 1000, rate % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A machine that handles at most `bound` requests per second.
    fn machine(bound: f64) -> impl FnMut(Load) -> Result<Run, Infallible> {
        move |load| {
            let offered_rps = load.rate_rps;
            Ok(Run {
                offered_rps,
                achieved_rps: offered_rps.min(bound),
                duration_s: load.duration.as_secs_f64(),
                cpu_s: 50e-6 * (1.0 + f64::from(load.shards_factor - 1) / 45.0),
                p50_us: 100.0,
                p99_us: 1000.0,
                sent: 1,
                lost: 0,
                repeated: 1,
            })
        }
    }

    #[test]
    fn the_highest_rate_is_found() {
        for bound in [700.0, 11_000.0, 90_000.0] {
            let Ok(figures) = run(machine(bound));
            let rps = figures[0].value.unwrap();
            assert!(
                rps <= bound && rps * SEARCH_RATIO * 1.02 >= bound,
                "{rps} of {bound}"
            );
            let is_met = bound > CPU_RATE_RPS;
            let cpu = &figures[5];
            assert_eq!((cpu.value, cpu.aim), (Some(50.0), Some(CPU_AIM_US)));
            assert_eq!(cpu.pass, Some(is_met));
            let other_rate = "the 15,000 requests/s that the aim is for do not hold";
            assert_eq!(cpu.note.contains(other_rate), !is_met, "{cpu:?}");
            assert_eq!((figures[6].value, figures[6].pass), (Some(1.2), Some(true)));
            assert_eq!(
                (figures[3].pass, figures[4].pass),
                (Some(true), Some(false))
            );
        }
        let Ok(figures) = run(machine(10.0));
        assert!(figures[0].note.contains("NOT held"), "{figures:?}");
        assert_eq!(
            (figures[5].pass, figures[6].pass),
            (Some(false), Some(false))
        );
    }

    #[test]
    fn a_cheap_request_misses_the_aims_where_the_load_does_not_hold() {
        // Ten times the instances take the machine below the rate, but not above the processor time.
        let Ok(figures) = run(|load| {
            let Ok(one) = machine(20_000.0)(load);
            let bound = if load.shards_factor > 1 {
                5_000.0
            } else {
                20_000.0
            };
            Ok::<_, Infallible>(Run {
                achieved_rps: load.rate_rps.min(bound),
                ..one
            })
        });
        let scaled = &figures[6];
        assert_eq!((scaled.value, scaled.pass), (Some(1.2), Some(false)));
        assert!(scaled.note.contains("NOT held"), "{scaled:?}");
        assert_eq!(figures[5].pass, Some(true));

        // The rate of the aim held in the search, and not when the processor time is measured at it.
        let mut at_rate = 0;
        let Ok(figures) = run(|load| {
            at_rate += u32::from(load.rate_rps == CPU_RATE_RPS);
            let bound = if at_rate > 0 { 10_000.0 } else { 20_000.0 };
            machine(bound)(load)
        });
        assert_eq!(
            (figures[5].value, figures[5].pass),
            (Some(50.0), Some(false))
        );
        assert!(figures[5].note.ends_with("NOT held"), "{:?}", figures[5]);
    }
}
