//! How many servers a load needs.
//!
//! The closed form ([`crate::closed`]) finds the fewest servers. The simulator confirms that they carry the load within the
//! objective on p99. If it objects, the closed form is asked for a higher load, and where services may get more shards,
//! they get them: that spreads the load over servers and hardware threads.

use crate::closed::{Case, Lack, Placed, Subject, smallest};
use crate::limits::STEPS;
use e3_hardware::Guesses;
use e3_model::Nanos;
use e3_perfsim::limits::DURATION_MAX;
use e3_perfsim::{Input, Load, ModelError, NoController, Options, Report, Run, Simulator};
use std::cell::OnceCell;

/// A run lasts at least so many times the objective on p99: what is in flight at its end must be little against what was
/// answered.
const OBJECTIVES_MIN: f64 = 5.0;
/// But it has at most so many times the requests that were asked for.
const REQUESTS_FACTOR_MAX: f64 = 20.0;

/// The smallest cluster that was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Sized {
    /// Blocks of the candidate.
    pub blocks: usize,
    /// Power at the load in watts.
    pub watts: f64,
    /// 99 of 100 requests took no longer, in microseconds.
    pub p99_us: f64,
    /// Load at the knee by the closed form, in requests per second.
    pub knee_rps: f64,
    /// What is used most, in words.
    pub bottleneck: String,
    /// Services with more shards than in the manifest, and how many they have.
    pub shards: Vec<(String, u16)>,
    /// What the simulator assumed beyond the profiles, in words.
    pub assumptions: Vec<String>,
    /// The step of [`STEPS`] that was enough, by index.
    pub step: usize,
}

/// A load on a candidate. The clusters of the closed form are kept, since they do not depend on the parameters of the
/// simulator.
pub struct Sizer<'a> {
    subject: &'a Subject<'a>,
    case: Case<'a>,
    load_rps: f64,
    from: usize,
    placed: Vec<OnceCell<Result<Placed, Lack>>>,
}

impl<'a> Sizer<'a> {
    /// For clusters of `from` blocks or more.
    pub fn new(subject: &'a Subject<'a>, case: Case<'a>, load_rps: f64, from: usize) -> Sizer<'a> {
        Sizer {
            subject,
            case,
            load_rps,
            from,
            placed: STEPS.iter().map(|_| OnceCell::new()).collect(),
        }
    }

    /// What the closed form finds in a step.
    fn placed(&self, step: usize) -> Result<&Placed, Lack> {
        let (headroom, margin) = STEPS[step];
        let found = self.placed[step].get_or_init(|| {
            let load_rps = self.load_rps * headroom;
            smallest(self.subject, &self.case, load_rps, margin, self.from)
        });
        found.as_ref().map_err(Clone::clone)
    }

    /// The smallest cluster. The search begins with the step `hint`, which may have been enough for a like
    /// question. An error of the model concerns the application, whatever the servers are.
    pub fn size(&self, guesses: &Guesses, hint: usize) -> Result<Result<Sized, Lack>, ModelError> {
        let mut best = self.try_step(guesses, hint)?;
        if best.is_ok() {
            for step in (0..hint).rev() {
                if !self.differs(step) {
                    continue;
                }
                match self.try_step(guesses, step)? {
                    Ok(smaller) => best = Ok(smaller),
                    Err(_) => break,
                }
            }
            return Ok(best);
        }
        for step in hint + 1..STEPS.len() {
            if !self.differs(step) {
                continue;
            }
            match self.try_step(guesses, step)? {
                Ok(found) => return Ok(Ok(found)),
                Err(lack @ Lack::Simulated { .. }) => best = Err(lack),
                // What the simulator said of fewer servers is the better reason.
                Err(_) => break,
            }
        }
        Ok(best)
    }

    /// Whether a step is another one than that before it.
    fn differs(&self, step: usize) -> bool {
        step == 0 || self.subject.grow_shards || STEPS[step].0 > STEPS[step - 1].0
    }

    fn try_step(&self, guesses: &Guesses, step: usize) -> Result<Result<Sized, Lack>, ModelError> {
        let placed = match self.placed(step) {
            Ok(placed) => placed,
            Err(lack) => return Ok(Err(lack)),
        };
        let load = Load::Constant(self.load_rps);
        let report = self.simulate(placed, guesses, load, self.load_rps)?;
        if let Some(what) = self.objection(&report) {
            let servers = placed.blocks * self.case.candidate.servers_per_block();
            return Ok(Err(Lack::Simulated { servers, what }));
        }
        let pairs = placed.app.spec.services.iter();
        let pairs = pairs.zip(&self.subject.app.spec.services);
        let grown = pairs.filter(|(now, before)| now.shards > before.shards);
        Ok(Ok(Sized {
            blocks: placed.blocks,
            watts: report.watts_total,
            p99_us: report.latency_us_p99(),
            knee_rps: placed.knee_rps,
            bottleneck: report.bottleneck.what.words().to_string(),
            assumptions: report.assumptions,
            shards: grown
                .map(|(now, _)| (now.name.clone(), now.shards))
                .collect(),
            step,
        }))
    }

    /// Mean power in watts over a day of the cluster that was found.
    pub fn day_watts(
        &self,
        guesses: &Guesses,
        sized: &Sized,
        trough_rps: f64,
    ) -> Result<Option<f64>, ModelError> {
        let peak_rps = self.load_rps;
        let Ok(placed) = self.placed(sized.step) else {
            return Ok(None);
        };
        let load = Load::Day {
            peak_rps,
            trough_rps,
        };
        let report = self.simulate(placed, guesses, load, (peak_rps + trough_rps) / 2.0)?;
        Ok(Some(report.watts_total))
    }

    fn simulate(
        &self,
        placed: &Placed,
        guesses: &Guesses,
        load: Load,
        mean_rps: f64,
    ) -> Result<Report, ModelError> {
        let options = Options {
            guesses: self.case.candidate.guesses(guesses),
            power: self.case.candidate.power_model(),
            ..Options::default()
        };
        let length = self.subject.requests as f64 / mean_rps * 1e9;
        let least = self.subject.p99_us * 1e3 * OBJECTIVES_MIN;
        let length = length.max(least.min(length * REQUESTS_FACTOR_MAX));
        let duration = Nanos((length as u64).clamp(1, DURATION_MAX.0));
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
            app: &placed.app,
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
        let Some(latency) = report.latency else {
            return Some("answer no request in the simulator".into());
        };
        let (p99, most) = (latency.p99_us, self.subject.p99_us);
        (p99 > most).then(|| {
            let (p99, most) = (p99 / 1e3, most / 1e3);
            format!("have a p99 of {p99:.3} ms in the simulator, the objective is {most} ms")
        })
    }
}
