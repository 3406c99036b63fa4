//! The check of the checks: each deliberate fault must be found within a number of seeds.

use crate::fleet::{attempt, cores};
use e3_control::deliberate as control;
use e3_dataplane::deliberate as dataplane;
use e3_sim::{Scenario, draw, shrink};
use e3_store::deliberate as store;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A protection that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Of the data path.
    DataPath(dataplane::Fault),
    /// Of the controller.
    Controller(control::Fault),
    /// Of the journal.
    Store(store::Fault),
}

/// How a deliberate fault was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// How many seeds it took.
    pub seeds: u64,
    /// The first line of the failure.
    pub what: String,
    /// The scenario that fails with the fault and passes without.
    pub scenario: Scenario,
}

impl Fault {
    /// Every fault.
    pub fn all() -> Vec<Fault> {
        let data_path = dataplane::Fault::ALL.iter().copied().map(Fault::DataPath);
        let controller = control::Fault::ALL.iter().copied().map(Fault::Controller);
        let store = store::Fault::ALL.iter().copied().map(Fault::Store);
        data_path.chain(controller).chain(store).collect()
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Fault::DataPath(fault) => format!("{fault:?}"),
            Fault::Controller(fault) => format!("{fault:?}"),
            Fault::Store(fault) => format!("{fault:?}"),
        }
    }

    /// Runs a scenario with the fault: the first line of the failure, if it fails.
    pub fn fails(self, scenario: &Scenario) -> Option<String> {
        match self {
            Fault::DataPath(fault) => dataplane::choose(Some(fault)),
            Fault::Controller(fault) => control::choose(Some(fault)),
            Fault::Store(fault) => store::choose(Some(fault)),
        }
        let result = attempt(scenario);
        dataplane::choose(None);
        control::choose(None);
        store::choose(None);
        Some(result.err()?.0.first().cloned().unwrap_or_default())
    }

    /// Whether the scenario shows the fault: it fails with it and passes without.
    pub fn is_shown_by(self, scenario: &Scenario) -> bool {
        self.fails(scenario).is_some() && attempt(scenario).is_ok()
    }

    fn find(self, seeds: u64, base: u64) -> Option<Found> {
        (base..base + seeds).find_map(|seed| {
            let scenario = draw(seed);
            let what = self.fails(&scenario)?;
            attempt(&scenario).ok()?;
            Some(Found {
                seeds: seed - base + 1,
                what,
                scenario,
            })
        })
    }
}

/// Searches for faults on all cores, each within `seeds` seeds, and prints what was found. With
/// `shrink_runs`, the scenarios that are returned are shrunk.
pub fn search(
    faults: &[Fault],
    seeds: u64,
    base: u64,
    shrink_runs: usize,
) -> Vec<(Fault, Option<Found>)> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..cores() {
            scope.spawn(|| {
                while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut found = fault.find(seeds, base);
                    let name = fault.name();
                    match &mut found {
                        Some(found) => {
                            println!("{name}: found after {} seeds: {}", found.seeds, found.what);
                            found.scenario =
                                shrink(&found.scenario, shrink_runs, |s| fault.is_shown_by(s));
                        }
                        None => println!("{name}: not found in {seeds} seeds"),
                    }
                    let mut results = results.lock().unwrap_or_else(|e| e.into_inner());
                    results.push((*fault, found));
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(|e| e.into_inner())
}
