//! When requests are due: at the times of a file, or at a rate.

use crate::limits::TICK;
use e3_model::{Nanos, Timestamp};
use std::sync::Arc;

/// When each request is due, by its number.
pub(crate) struct Due {
    started: Timestamp,
    schedule: Option<Arc<[Nanos]>>,
    rate_rps: f64,
    /// At more than one request per tick, those of a tick are due together.
    step: u64,
}

impl Due {
    /// By the schedule of a workload, else at a rate.
    pub(crate) fn new(started: Timestamp, schedule: Option<Arc<[Nanos]>>, rate_rps: f64) -> Due {
        let many = rate_rps * TICK.0 as f64 > 1e9;
        Due {
            started,
            schedule,
            rate_rps,
            step: if many { TICK.0 } else { 1 },
        }
    }

    /// The time of the `n`th request.
    pub(crate) fn at(&self, n: u64) -> Timestamp {
        let since = match &self.schedule {
            // nothing is due after the last one
            Some(times) => times.get(n as usize).copied().unwrap_or(Nanos::MAX),
            None => Nanos((n as f64 / self.rate_rps * 1e9) as u64 / self.step * self.step),
        };
        self.started + since
    }
}
