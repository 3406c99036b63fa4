//! A plan: all candidates are sized at several loads, and at the planned load every uncertain input is moved to both
//! ends of its range while the others stay.
//!
//! Inputs that enter figures by a formula (prices, power, PUE, utilisation) are computed. The others (parameters
//! of the simulator, speed of cores) are sized and simulated again.

use crate::candidate::Candidate;
use crate::closed::{Case, Lack, Subject};
use crate::compare::Compared;
use crate::inputs::{InputError, Settings};
use crate::limits::{CANDIDATES_MAX, LOADS};
use crate::outputs::{Block, Operating, Outputs, World};
use crate::report::Plan;
use crate::sizing::{Sized, Sizer};
use e3_hardware::guesses::{Concerns, GUESSES, Guesses};
use e3_hardware::servers::{Part, Quantity};
use e3_hardware::{Estimate, Origin};
use e3_model::{Application, NodeKind, Profile};
use e3_perfsim::ModelError;
use std::collections::BTreeMap;

/// A candidate with the profiles that count on it.
pub struct Entrant {
    /// Candidate.
    pub candidate: Candidate,
    /// Profiles by name.
    pub profiles: BTreeMap<String, Profile>,
    /// The profiles were measured on this candidate's cores. Otherwise they are those of the paper's cores, and
    /// are scaled by the speed of the candidate's.
    pub is_measured: bool,
}

/// Why there is no plan.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The question.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Number of candidates.
    #[error("{0} candidates, must be 1 to {CANDIDATES_MAX}")]
    Candidates(usize),
    /// A candidate is given twice.
    #[error("candidate {0:?} is given twice")]
    Twice(String),
    /// The application cannot be simulated.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// An uncertain input.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Input {
    Price,
    Carbon,
    Pue,
    Utilisation,
    /// A quantity of a part, for all candidates that have it.
    OfPart(Part, PartQuantity),
    /// Speed of the cores of this kind in the part of this name.
    Speed(String, NodeKind, Quantity),
    /// A parameter of the simulator, by its index.
    Guess(usize),
}

/// A quantity of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartQuantity {
    Price,
    Idle,
    Peak,
}

impl PartQuantity {
    pub(crate) fn of(self, part: &Part) -> Quantity {
        match self {
            PartQuantity::Price => part.price_usd,
            PartQuantity::Idle => part.idle_w,
            PartQuantity::Peak => part.peak_w,
        }
    }
}

/// End of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Low,
    High,
}

impl End {
    pub(crate) fn of(self, estimate: &Estimate) -> f64 {
        match self {
            End::Low => estimate.low,
            End::High => estimate.high,
        }
    }
}

/// A candidate after sizing.
pub(crate) struct Entry<'a> {
    pub entrant: &'a Entrant,
    /// At each of [`LOADS`].
    pub sized: Vec<Result<Sized, Lack>>,
    /// At the planned load.
    pub operating: Option<Operating>,
    /// Which found that, and keeps the clusters of the closed form.
    pub sizer: Option<Sizer<'a>>,
    /// Average power above idle over that at the peak.
    pub day_part: f64,
}

/// An input at an end: the figures of each candidate, None if it does not carry the load.
pub(crate) struct Varied {
    pub input: Input,
    pub ends: [Vec<Option<Outputs>>; 2],
}

/// Plans. `visits` are handled messages per request of a client, by service.
pub fn plan(
    app: &Application,
    visits: &[f64],
    request_bytes: u32,
    entrants: &[Entrant],
    settings: &Settings,
) -> Result<Plan, PlanError> {
    settings.validate()?;
    if entrants.is_empty() || entrants.len() > CANDIDATES_MAX {
        return Err(PlanError::Candidates(entrants.len()));
    }
    for (at, entrant) in entrants.iter().enumerate() {
        let name = &entrant.candidate.name;
        if entrants[..at].iter().any(|e| e.candidate.name == *name) {
            return Err(PlanError::Twice(name.clone()));
        }
    }
    let objective_us = app.spec.objective.latency.0 as f64 / 1e3;
    let subject = Subject {
        app,
        visits,
        request_bytes,
        p99_us: settings.p99_ms.map_or(objective_us, |ms| ms * 1e3),
        grow_shards: settings.grow_shards,
        seed: settings.seed,
        requests: settings.requests,
    };
    let planner = Planner { subject, settings };
    let entries = entrants.iter().map(|e| planner.enter(e));
    let entries = entries.collect::<Result<Vec<Entry<'_>>, PlanError>>()?;
    let mut varied = Vec::new();
    for input in planner.inputs(&entries) {
        let low = planner.vary(&entries, &input, End::Low)?;
        let high = planner.vary(&entries, &input, End::High)?;
        let ends = [low, high];
        varied.push(Varied { input, ends });
    }
    let compared = Compared {
        subject: &planner.subject,
        settings,
        entries: &entries,
        varied: &varied,
    };
    Ok(compared.report())
}

struct Planner<'a> {
    subject: Subject<'a>,
    settings: &'a Settings,
}

impl Entrant {
    /// Where its service times come from.
    pub(crate) fn service_times(&self) -> Origin {
        if self.is_measured {
            Origin::Measured
        } else {
            let kinds = [NodeKind::Host, NodeKind::SmartNic].into_iter();
            let has = kinds.filter(|k| self.candidate.has(*k));
            let from = has.map(|k| self.candidate.speed(k).from).max();
            from.unwrap_or(Origin::Paper)
        }
    }

    /// Speed of its cores against those of its profiles.
    pub(crate) fn speed(&self, kind: NodeKind) -> Estimate {
        if self.is_measured {
            Estimate::exact(1.0)
        } else {
            self.candidate.speed(kind).estimate
        }
    }

    pub(crate) fn block(&self) -> Block {
        Block {
            idle_w: self.candidate.sum(|p| p.idle_w).estimate.value,
            peak_w: self.candidate.sum(|p| p.peak_w).estimate.value,
            price_usd: self.candidate.sum(|p| p.price_usd).estimate.value,
        }
    }

    fn case(&self) -> Case<'_> {
        let speed = |kind| self.speed(kind).value;
        Case::new(&self.candidate, &self.profiles, speed)
    }
}

impl Settings {
    pub(crate) fn world(&self) -> World {
        World {
            years: self.years,
            price_usd_kwh: self.price_usd_kwh.value,
            carbon_g_kwh: self.carbon_g_kwh.value,
            pue: self.pue.value,
            utilisation: self.utilisation.value,
        }
    }
}

impl<'a> Planner<'a> {
    /// Sizes a candidate at all loads. A larger load begins with the servers of the one before.
    fn enter(&'a self, entrant: &'a Entrant) -> Result<Entry<'a>, PlanError> {
        let guesses = Guesses::default();
        let mut sized: Vec<Result<Sized, Lack>> = Vec::new();
        let (mut from, mut hint) = (1, 0);
        let mut entry = Entry {
            entrant,
            sized: Vec::new(),
            operating: None,
            sizer: None,
            day_part: 1.0,
        };
        for (at, factor) in LOADS.into_iter().enumerate() {
            let load_rps = self.settings.load_rps * factor;
            let sizer = Sizer::new(&self.subject, entrant.case(), load_rps, from);
            let found = sizer.size(&guesses, hint)?;
            if let Ok(found) = &found {
                (from, hint) = (found.blocks, found.step);
                if at == planned() {
                    entry.day_part = self.day_part(entrant, &sizer, found)?;
                    entry.operating = Some(entry.operating(found));
                }
            }
            if at == planned() {
                entry.sizer = Some(sizer);
            }
            sized.push(found);
        }
        entry.sized = sized;
        Ok(entry)
    }

    /// Average power above idle over that at the peak.
    fn day_part(
        &self,
        entrant: &Entrant,
        sizer: &Sizer<'_>,
        found: &Sized,
    ) -> Result<f64, PlanError> {
        let Some(trough_rps) = self.settings.trough_rps else {
            return Ok(1.0);
        };
        let active = |watts| Operating::active(&entrant.block(), found.blocks as f64, watts);
        let average = sizer.day_watts(&Guesses::default(), found, trough_rps)?;
        Ok(average.map_or(1.0, |watts| active(watts) / active(found.watts)))
    }

    /// All inputs whose value is uncertain and matters.
    fn inputs(&self, entries: &[Entry<'_>]) -> Vec<Input> {
        let s = self.settings;
        let common = [
            (Input::Price, s.price_usd_kwh),
            (Input::Carbon, s.carbon_g_kwh),
            (Input::Pue, s.pue),
            (Input::Utilisation, s.utilisation),
        ];
        let common = common.into_iter().filter(|(_, e)| !e.is_exact());
        let mut inputs: Vec<Input> = common.map(|(input, _)| input).collect();
        for entry in entries.iter().filter(|e| e.operating.is_some()) {
            let candidate = &entry.entrant.candidate;
            for part in candidate.parts() {
                for of in [PartQuantity::Price, PartQuantity::Idle, PartQuantity::Peak] {
                    if !of.of(part).estimate.is_exact() {
                        inputs.push(Input::OfPart(part.clone(), of));
                    }
                }
            }
            for kind in [NodeKind::Host, NodeKind::SmartNic] {
                if candidate.has(kind) && !entry.entrant.speed(kind).is_exact() {
                    let part = candidate.processor(kind).to_string();
                    inputs.push(Input::Speed(part, kind, candidate.speed(kind)));
                }
            }
        }
        for (at, guess) in GUESSES.iter().enumerate() {
            if entries.iter().any(|e| self.matters(guess.concerns, e)) {
                inputs.push(Input::Guess(at));
            }
        }
        let mut distinct: Vec<Input> = Vec::new();
        for input in inputs {
            if !distinct.contains(&input) {
                distinct.push(input);
            }
        }
        distinct
    }

    /// Whether a parameter of the simulator has an effect on a candidate.
    fn matters(&self, guess: Concerns, entry: &Entry<'_>) -> bool {
        let Ok(sized) = &entry.sized[planned()] else {
            return false;
        };
        let candidate = &entry.entrant.candidate;
        let has = |kind| candidate.has(kind);
        let services = &self.subject.app.spec.services;
        match guess {
            Concerns::Every => true,
            Concerns::Racks => candidate.topology(sized.blocks).spec.racks.len() > 1,
            Concerns::HyperThreading => candidate.has_hyper_threading(),
            Concerns::Hosts => has(NodeKind::Host),
            Concerns::SmartNics => has(NodeKind::SmartNic),
            Concerns::Pcie => has(NodeKind::SmartNic) && has(NodeKind::Host),
            Concerns::Backups => services.iter().any(|s| s.stateful && s.replicas > 1),
            // The profiles may not have the size of the requests.
            Concerns::SmallRequests => true,
            // Nothing of these is in a plan.
            Concerns::Roce | Concerns::LinuxStack | Concerns::Moves | Concerns::LinkFailures => {
                false
            }
        }
    }

    /// The figures of all candidates with one input at an end.
    fn vary(
        &self,
        entries: &[Entry<'_>],
        input: &Input,
        end: End,
    ) -> Result<Vec<Option<Outputs>>, PlanError> {
        let figures = entries.iter().map(|e| self.figures(e, input, end));
        figures.collect()
    }

    fn figures(
        &self,
        entry: &Entry<'_>,
        input: &Input,
        end: End,
    ) -> Result<Option<Outputs>, PlanError> {
        let Some(mut operating) = entry.operating else {
            return Ok(None);
        };
        let s = self.settings;
        let (mut block, mut world) = (entry.entrant.block(), s.world());
        match input {
            Input::Price => world.price_usd_kwh = end.of(&s.price_usd_kwh),
            Input::Carbon => world.carbon_g_kwh = end.of(&s.carbon_g_kwh),
            Input::Pue => world.pue = end.of(&s.pue),
            Input::Utilisation => world.utilisation = end.of(&s.utilisation),
            Input::OfPart(part, of) => {
                let count = entry
                    .entrant
                    .candidate
                    .parts()
                    .filter(|p| *p == part)
                    .count();
                let estimate = of.of(part).estimate;
                let more = count as f64 * (end.of(&estimate) - estimate.value);
                match of {
                    PartQuantity::Price => block.price_usd += more,
                    PartQuantity::Idle => block.idle_w += more,
                    PartQuantity::Peak => block.peak_w += more,
                }
            }
            Input::Speed(..) | Input::Guess(_) => match self.resized(entry, input, end)? {
                Some(sized) => operating = entry.operating(&sized),
                None => return Ok(None),
            },
        }
        Ok(Some(operating.outputs(&block, &world, s.average_rps())))
    }

    /// The size of a candidate with an input at an end that needs a simulation.
    fn resized(
        &self,
        entry: &Entry<'_>,
        input: &Input,
        end: End,
    ) -> Result<Option<Sized>, PlanError> {
        let Ok(central) = &entry.sized[planned()] else {
            return Ok(None);
        };
        let (entrant, step) = (entry.entrant, central.step);
        let candidate = &entrant.candidate;
        let found = match input {
            Input::Speed(part, kind, _)
                if candidate.processor(*kind) == part && !entrant.speed(*kind).is_exact() =>
            {
                let speed = |k| {
                    if k == *kind {
                        end.of(&entrant.speed(k))
                    } else {
                        entrant.speed(k).value
                    }
                };
                let case = Case::new(candidate, &entrant.profiles, speed);
                let load_rps = self.settings.load_rps;
                let sizer = Sizer::new(&self.subject, case, load_rps, 1);
                sizer.size(&Guesses::default(), step)?
            }
            Input::Guess(at) if self.matters(GUESSES[*at].concerns, entry) => {
                let guess = &GUESSES[*at];
                let mut guesses = Guesses::default();
                let value = match end {
                    End::Low => guess.low,
                    End::High => guess.high,
                };
                guesses.set(guess.name, value).expect("within its range");
                if guesses.knee_utilisation != entrant.case().knee_utilisation {
                    // The closed form depends on it.
                    let mut case = entrant.case();
                    case.knee_utilisation = guesses.knee_utilisation;
                    let load_rps = self.settings.load_rps;
                    let sizer = Sizer::new(&self.subject, case, load_rps, 1);
                    return Ok(sizer.size(&guesses, step)?.ok());
                }
                match &entry.sizer {
                    Some(sizer) => sizer.size(&guesses, step)?,
                    None => return Ok(None),
                }
            }
            _ => return Ok(Some(central.clone())),
        };
        Ok(found.ok())
    }
}

impl Entry<'_> {
    /// A size at work. How the load of a day uses it is taken from the planned one.
    pub(crate) fn operating(&self, sized: &Sized) -> Operating {
        let blocks = sized.blocks as f64;
        let active = Operating::active(&self.entrant.block(), blocks, sized.watts);
        Operating {
            servers: blocks * self.entrant.candidate.servers_per_block() as f64,
            blocks,
            active,
            active_average: active * self.day_part,
        }
    }
}

/// Index of the planned load in [`LOADS`].
pub(crate) fn planned() -> usize {
    const { LOADS.len() / 2 }
}
