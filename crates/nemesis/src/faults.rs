//! Checks the simulator's checks: each deliberate fault must be found within a number of seeds.

use crate::fleet::{attempt, cores};
use e3_control::deliberate as control;
use e3_dataplane::deliberate as dataplane;
use e3_sim::draw;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone, Copy, Debug)]
enum Fault {
    DataPath(dataplane::Fault),
    Controller(control::Fault),
}

fn choose(fault: Option<Fault>) {
    dataplane::choose(None);
    control::choose(None);
    match fault {
        Some(Fault::DataPath(fault)) => dataplane::choose(Some(fault)),
        Some(Fault::Controller(fault)) => control::choose(Some(fault)),
        None => {}
    }
}

/// How many seeds it took to find the fault, and the first line of the failure.
fn find(fault: Fault, seeds: u64, base: u64) -> Option<(u64, String)> {
    (base..base + seeds).find_map(|seed| {
        choose(Some(fault));
        let result = attempt(&draw(seed));
        choose(None);
        let what = result.err()?.0.first().cloned().unwrap_or_default();
        // The seed counts only if it passes without the fault.
        attempt(&draw(seed)).ok()?;
        Some((seed - base + 1, what))
    })
}

/// Tries all faults whose name contains `only`.
pub fn run(seeds: u64, base: u64, only: &str) -> ExitCode {
    let data_path = dataplane::Fault::ALL.iter().copied().map(Fault::DataPath);
    let controller = control::Fault::ALL.iter().copied().map(Fault::Controller);
    let all: Vec<Fault> = data_path
        .chain(controller)
        .filter(|f| format!("{f:?}").contains(only))
        .collect();
    let (next, missed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..cores() {
            scope.spawn(|| {
                while let Some(fault) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match find(*fault, seeds, base) {
                        Some((after, what)) => {
                            println!("{fault:?}: found after {after} seeds: {what}")
                        }
                        None => {
                            missed.fetch_add(1, Ordering::Relaxed);
                            println!("{fault:?}: not found in {seeds} seeds");
                        }
                    }
                }
            });
        }
    });
    let missed = missed.load(Ordering::Relaxed);
    println!(
        "{} of {} deliberate faults found",
        all.len() - missed,
        all.len()
    );
    if missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
