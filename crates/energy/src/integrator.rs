//! Joules from readings: counters by difference, power by the trapezoidal rule. No I/O and no clock.
//!
//! The readings of a group are taken together, and their joules added. A time for which the group shows
//! nothing usable is counted as unmetered; nothing is interpolated over it.

use crate::limits::{GAP_COUNTER_MAX, GAP_POWER_MAX, POWER_MAX_W, PROCESSOR_POWER_MAX_W};
use crate::meter::Reading;
use e3_model::{Joules, Nanos, Timestamp, Watts};

/// What has been measured.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Totals {
    /// Energy in the metered time.
    pub joules: Joules,
    /// Time that the joules cover.
    pub metered: Nanos,
    /// Time without usable readings.
    pub unmetered: Nanos,
    /// Mean power of the last metered interval.
    pub watts: Watts,
}

/// Integrates the readings of a group of meters.
#[derive(Debug)]
pub struct Integrator {
    at: Timestamp,
    last: Vec<Reading>,
    totals: Totals,
}

impl Integrator {
    /// An integrator that has measured nothing yet.
    pub fn new(now: Timestamp) -> Integrator {
        Integrator {
            at: now,
            last: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Takes the readings of all meters of the group, in the same order each time.
    pub fn on_readings(&mut self, at: Timestamp, readings: &[Reading]) {
        if at <= self.at && !self.last.is_empty() {
            return;
        }
        let elapsed = at.since(self.at);
        let joules = self.joules_since(readings, elapsed);
        let totals = &mut self.totals;
        match joules {
            Some(joules) => {
                totals.joules.0 += joules;
                totals.metered.0 += elapsed.0;
                totals.watts = Watts(joules / elapsed.as_secs_f64());
            }
            None => totals.unmetered.0 += elapsed.0,
        }
        self.at = self.at.max(at);
        self.last = readings.to_vec();
    }

    /// What has been measured. A gap that no reading can close any more is in the unmetered time.
    pub fn totals(&self, now: Timestamp) -> Totals {
        let mut totals = self.totals;
        let silent = now.since(self.at);
        let gap_max = self.last.iter().map(gap_max).min();
        if gap_max.is_none_or(|max| silent > max) {
            totals.unmetered.0 += silent.0;
            totals.watts = Watts(0.0);
        }
        totals
    }

    /// Joules of the group since the last readings; none if they cannot be known.
    fn joules_since(&self, readings: &[Reading], elapsed: Nanos) -> Option<f64> {
        if self.last.is_empty() || self.last.len() != readings.len() || elapsed.0 == 0 {
            return None;
        }
        let pairs = self.last.iter().zip(readings);
        pairs
            .map(|(last, now)| joules_between(last, now, elapsed))
            .sum()
    }
}

fn joules_between(last: &Reading, now: &Reading, elapsed: Nanos) -> Option<f64> {
    if elapsed > gap_max(last) {
        return None;
    }
    let seconds = elapsed.as_secs_f64();
    match (*last, *now) {
        (Reading::Power(a), Reading::Power(b)) => Some((a.0 + b.0) / 2.0 * seconds),
        (Reading::Counter { uj: a, range_uj }, Reading::Counter { uj: b, .. }) => {
            let uj = match b.checked_sub(a) {
                Some(uj) => uj,
                // Without a range a smaller value means a reset: what was before it is lost.
                None => range_uj?.checked_sub(a)?.checked_add(b)?,
            };
            let joules = uj as f64 / 1e6;
            (joules <= POWER_MAX_W * seconds).then_some(joules)
        }
        _ => None,
    }
}

/// Longest time between two readings that tell the energy between them: a counter must not have
/// wrapped twice.
fn gap_max(reading: &Reading) -> Nanos {
    match reading {
        Reading::Power(_) => GAP_POWER_MAX,
        Reading::Counter { range_uj: None, .. } => GAP_COUNTER_MAX,
        Reading::Counter {
            range_uj: Some(range),
            ..
        } => {
            let wraps_in_s = *range as f64 / 1e6 / PROCESSOR_POWER_MAX_W;
            Nanos((wraps_in_s * 1e9) as u64).min(GAP_COUNTER_MAX)
        }
    }
}
