//! When requests arrive.
//!
//! Rates make a Poisson process; where the rate changes with time, by thinning (Lewis and Shedler,
//! Naval Research Logistics 1979). A trace is taken as it is.

use e3_random::Random;

const S: f64 = 1e9;

/// The load of a run.
#[derive(Clone, PartialEq, Debug)]
pub enum Load {
    /// Requests per second.
    Constant(f64),
    /// Rates one after the other, each from a time in seconds; 0 before the first.
    Steps(Vec<(f64, f64)>),
    /// A day, compressed into the run: lowest at its ends, highest in its middle.
    Day {
        /// Highest rate.
        peak_rps: f64,
        /// Lowest rate.
        trough_rps: f64,
    },
    /// Times of arrivals in nanoseconds, in ascending order.
    Arrivals(Vec<u64>),
}

/// A load that cannot be.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum LoadError {
    /// A rate.
    #[error("rate {0} requests/s: must be a finite number, 0 or more")]
    Rate(f64),
    /// The times of steps.
    #[error("step at {at_s} s: times must ascend from 0, the one before is {before_s} s")]
    Step {
        /// Of the step.
        at_s: f64,
        /// Of the one before.
        before_s: f64,
    },
    /// The times of a trace.
    #[error("arrival {index} is at {at_ns} ns, before the one before it at {before_ns} ns")]
    Order {
        /// From 0.
        index: usize,
        /// Its time.
        at_ns: u64,
        /// Time of the one before.
        before_ns: u64,
    },
    /// A day whose lowest rate is above its highest.
    #[error("the lowest rate of the day, {trough_rps}, is above its highest, {peak_rps}")]
    Day {
        /// Highest.
        peak_rps: f64,
        /// Lowest.
        trough_rps: f64,
    },
    /// Nothing arrives.
    #[error("the load has no requests")]
    Empty,
}

impl Load {
    /// Checks it.
    pub fn validate(&self) -> Result<(), LoadError> {
        let rates: Vec<f64> = match self {
            Load::Constant(rate) => vec![*rate],
            Load::Steps(steps) => {
                check_steps(steps)?;
                steps.iter().map(|(_, rate)| *rate).collect()
            }
            Load::Day {
                peak_rps,
                trough_rps,
            } => {
                if trough_rps > peak_rps {
                    return Err(LoadError::Day {
                        peak_rps: *peak_rps,
                        trough_rps: *trough_rps,
                    });
                }
                vec![*peak_rps, *trough_rps]
            }
            Load::Arrivals(times) => return check_arrivals(times),
        };
        if let Some(wrong) = rates.iter().find(|r| !r.is_finite() || **r < 0.0) {
            return Err(LoadError::Rate(*wrong));
        }
        if rates.iter().any(|r| *r > 0.0) {
            Ok(())
        } else {
            Err(LoadError::Empty)
        }
    }

    /// Highest rate in a run of so many nanoseconds.
    pub fn rate_max(&self, duration: u64) -> f64 {
        match self {
            Load::Constant(rate) => *rate,
            Load::Steps(steps) => steps.iter().map(|s| s.1).fold(0.0, f64::max),
            Load::Day { peak_rps, .. } => *peak_rps,
            Load::Arrivals(times) => times.len() as f64 * S / duration.max(1) as f64,
        }
    }

    /// Rate at a time of a run of so many nanoseconds.
    fn rate(&self, at: u64, duration: u64) -> f64 {
        match self {
            Load::Steps(steps) => {
                let after = steps.partition_point(|(s, _)| s * S <= at as f64);
                after.checked_sub(1).map_or(0.0, |i| steps[i].1)
            }
            Load::Day {
                peak_rps,
                trough_rps,
            } => {
                let part = at as f64 / duration as f64;
                let high = 0.5 * (1.0 - (std::f64::consts::TAU * part).cos());
                trough_rps + (peak_rps - trough_rps) * high
            }
            Load::Constant(_) | Load::Arrivals(_) => self.rate_max(duration),
        }
    }
}

fn check_steps(steps: &[(f64, f64)]) -> Result<(), LoadError> {
    let mut before_s = 0.0;
    for (i, (at_s, _)) in steps.iter().enumerate() {
        let ascends = *at_s > before_s || (i == 0 && *at_s >= 0.0);
        if !at_s.is_finite() || !ascends {
            return Err(LoadError::Step {
                at_s: *at_s,
                before_s,
            });
        }
        before_s = *at_s;
    }
    Ok(())
}

fn check_arrivals(times: &[u64]) -> Result<(), LoadError> {
    if times.is_empty() {
        return Err(LoadError::Empty);
    }
    match times.windows(2).position(|w| w[1] < w[0]) {
        None => Ok(()),
        Some(i) => Err(LoadError::Order {
            index: i + 1,
            at_ns: times[i + 1],
            before_ns: times[i],
        }),
    }
}

/// The arrivals of a run.
pub(crate) struct Arrivals {
    load: Load,
    duration: u64,
    mean_gap: f64,
    next: usize,
    now: f64,
    random: Random,
}

impl Arrivals {
    pub fn new(load: Load, duration: u64, seed: u64) -> Arrivals {
        Arrivals {
            mean_gap: S / load.rate_max(duration),
            load,
            duration,
            next: 0,
            now: 0.0,
            random: Random::new(seed),
        }
    }

    /// Time of the next one; None if there is none before the end.
    #[inline]
    pub fn next(&mut self) -> Option<u64> {
        if let Load::Arrivals(times) = &self.load {
            let at = times.get(self.next).copied();
            self.next += 1;
            return at.filter(|at| *at < self.duration);
        }
        loop {
            self.now -= (1.0 - self.random.unit()).ln() * self.mean_gap;
            if self.now >= self.duration as f64 {
                return None;
            }
            let at = self.now as u64;
            if matches!(self.load, Load::Constant(_)) {
                return Some(at);
            }
            let part = self.load.rate(at, self.duration) / self.load.rate_max(self.duration);
            if self.random.unit() < part {
                return Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(load: Load, from_s: f64, to_s: f64) -> f64 {
        load.validate().unwrap();
        let mut arrivals = Arrivals::new(load, 10_000_000_000, 3);
        let all = std::iter::from_fn(|| arrivals.next());
        all.filter(|at| (from_s * S..to_s * S).contains(&(*at as f64)))
            .count() as f64
    }

    #[test]
    fn arrivals_follow_the_load() {
        let near = |found: f64, expected: f64| {
            assert!(
                (found - expected).abs() < 4.0 * expected.sqrt() + 1.0,
                "{found} for {expected}"
            );
        };
        near(count(Load::Constant(1e4), 0.0, 10.0), 1e5);
        let steps = || Load::Steps(vec![(1.0, 1e4), (5.0, 0.0), (6.0, 2e4)]);
        for (from, to, expected) in [
            (0.0, 1.0, 0.0),
            (1.0, 5.0, 4e4),
            (5.0, 6.0, 0.0),
            (6.0, 10.0, 8e4),
        ] {
            near(count(steps(), from, to), expected);
        }
        let day = || Load::Day {
            peak_rps: 2e4,
            trough_rps: 1e4,
        };
        near(count(day(), 0.0, 10.0), 1.5e5);
        assert!(count(day(), 4.5, 5.5) > 1.9e4 && count(day(), 0.0, 1.0) < 1.1e4);
        near(
            count(Load::Arrivals(vec![5, 5, 20_000_000_000]), 0.0, 10.0),
            2.0,
        );
    }

    #[test]
    fn a_load_that_cannot_be_is_refused() {
        let refused = |load: Load| load.validate().unwrap_err().to_string();
        assert!(refused(Load::Constant(-1.0)).contains("-1"));
        assert!(refused(Load::Constant(f64::NAN)).contains("NaN"));
        assert_eq!(refused(Load::Constant(0.0)), "the load has no requests");
        assert!(refused(Load::Steps(vec![(0.0, 1.0), (0.0, 2.0)])).contains("must ascend"));
        assert!(refused(Load::Arrivals(vec![3, 2])).contains("arrival 1"));
        let day = Load::Day {
            peak_rps: 1.0,
            trough_rps: 2.0,
        };
        assert!(refused(day).contains("above its highest"));
    }
}
