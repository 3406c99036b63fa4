//! What the experiments are lent: threads and a clock.

use e3_bench::Machine;
use e3_bench::control::times::{self, Lengths};
use e3_evaluation::{Pool, Timer};
use e3_solver::Ilp;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Threads that take jobs until none is left.
pub struct Threads {
    count: usize,
}

impl Threads {
    /// One for each core.
    pub fn all() -> Threads {
        Threads {
            count: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl Pool for Threads {
    fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.count.min(count) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= count {
                            return;
                        }
                        job(at);
                    }
                });
            }
        });
    }
}

/// Measures on this machine.
pub struct Stopwatch<'a> {
    ilp: &'a Ilp,
    lengths: Lengths,
}

impl<'a> Stopwatch<'a> {
    /// With this solver; a quick one measures shortly.
    pub fn new(ilp: &'a Ilp, quick: bool) -> Stopwatch<'a> {
        let lengths = if quick {
            Lengths {
                measured: Duration::from_millis(1),
                limit: Duration::from_millis(500),
            }
        } else {
            Lengths {
                measured: Duration::from_secs(1),
                limit: Duration::from_secs(10),
            }
        };
        Stopwatch { ilp, lengths }
    }
}

impl Timer for Stopwatch<'_> {
    fn machine(&self) -> String {
        Machine::here().to_string()
    }

    fn placement_ms(&self, placers: &[&str], servers: usize) -> Vec<Result<f64, String>> {
        times::placement_ms(placers, self.ilp, servers, self.lengths)
    }

    fn decision_ms(&self, servers: usize) -> (f64, f64) {
        times::decision_ms(servers)
    }

    fn heartbeats_ms(&self, servers: usize) -> f64 {
        times::heartbeats_ms(servers, self.lengths)
    }
}
