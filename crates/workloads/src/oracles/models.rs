//! Averages (`ema`), spikes (`spike`) and ratings (`recommend`), computed independently of the services.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Relative error that rounding may cause.
const TOLERANCE: f64 = 1e-9;

/// Whether a number is what was computed here, but for its rounding.
pub(crate) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE * b.abs().max(1.0)
}

/// An exponential moving average over uneven intervals, as `ema` keeps it and answers with it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct Average {
    pub(crate) ema: f64,
    pub(crate) time: i64,
    pub(crate) samples: u64,
}

impl Average {
    /// After one more reading, which is newer than the last.
    pub(crate) fn after(before: Option<Average>, time: i64, value: f64, constant: f64) -> Average {
        let Some(before) = before else {
            return Average {
                ema: value,
                time,
                samples: 1,
            };
        };
        let passed = (time - before.time) as f64;
        let weight = 1.0 - (-passed / constant).exp();
        Average {
            ema: before.ema + weight * (value - before.ema),
            time,
            samples: before.samples + 1,
        }
    }

    /// Whether this is the other average, but for rounding.
    pub(crate) fn is(self, other: Average) -> bool {
        (self.time, self.samples) == (other.time, other.samples) && close(self.ema, other.ema)
    }
}

/// Outliers in a row that are a new level, intervals of silence after which the level is new, and the
/// changes that the prior spread counts for: as `spike` has them.
const OUTLIERS: u32 = 3;
const SILENCE: f64 = 6.0;
const PRIOR_CHANGES: f64 = 6.0;
/// Changes of a window, as both manifests have it by default.
const WINDOW: usize = 24;

/// How a manifest has `spike`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detection {
    pub(crate) z: f64,
    pub(crate) prior_sd: f64,
    pub(crate) interval_s: f64,
}

/// A detector of spikes by the Z-score of changes, as `spike` keeps one for each series.
#[derive(Clone, Debug)]
pub(crate) struct Detector {
    how: Detection,
    /// Value and time of the last good reading.
    good: Option<(f64, i64)>,
    outliers: u32,
    window: VecDeque<f64>,
    /// Times of spikes.
    pub(crate) spikes: BTreeSet<i64>,
}

impl Detector {
    pub(crate) fn new(how: Detection) -> Detector {
        Detector {
            how,
            good: None,
            outliers: 0,
            window: VecDeque::new(),
            spikes: BTreeSet::new(),
        }
    }

    /// Takes a reading newer than the last; whether it is a spike.
    pub(crate) fn add(&mut self, time: i64, value: f64) -> bool {
        let Some((level, since)) = self.good else {
            self.good = Some((value, time));
            return false;
        };
        let intervals = ((time - since) as f64 / self.how.interval_s).max(1.0);
        if intervals > SILENCE {
            (self.good, self.outliers) = (Some((value, time)), 0);
            return false;
        }
        let change = value - level;
        let is_spike = self.score(change, intervals).abs() >= self.how.z;
        if is_spike {
            self.spikes.insert(time);
            self.outliers += 1;
            if self.outliers < OUTLIERS {
                return true;
            }
        } else {
            self.window.push_back(change / intervals);
            if self.window.len() > WINDOW {
                self.window.pop_front();
            }
        }
        (self.good, self.outliers) = (Some((value, time)), 0);
        is_spike
    }

    fn score(&self, change: f64, intervals: f64) -> f64 {
        let weight = PRIOR_CHANGES + self.window.len() as f64;
        let mean = self.window.iter().sum::<f64>() / weight;
        let squares: f64 = self.window.iter().map(|c| (c - mean) * (c - mean)).sum();
        let prior = self.how.prior_sd * self.how.prior_sd + mean * mean;
        let variance = (PRIOR_CHANGES * prior + squares) / weight;
        (change - intervals * mean) / (variance * intervals).sqrt()
    }
}

/// Set-points of the comfort programmes of a quarter of the day.
const SET_POINTS: [f64; 6] = [18.0, 19.5, 21.0, 22.5, 24.0, 25.5];
const QUARTER_S: i64 = 6 * 3600;

/// Ratings of comfort programmes, as `recommend` draws them from observations (adaptive comfort model
/// of ASHRAE Standard 55).
#[derive(Clone, Debug, Default)]
pub(crate) struct Ratings(pub(crate) BTreeMap<i64, i64>);

impl Ratings {
    /// Takes an observation.
    pub(crate) fn observe(&mut self, time: i64, outdoor: f64) {
        let quarter = time.rem_euclid(86_400) / QUARTER_S;
        let comfortable = 17.8 + 0.31 * outdoor;
        for (index, set_point) in (0..).zip(SET_POINTS) {
            let score = (10.0 - 4.0 * (set_point - comfortable).abs())
                .round()
                .max(0.0) as i64;
            let programme = quarter * SET_POINTS.len() as i64 + index;
            let rating = match self.0.get(&programme) {
                None if score == 0 => continue,
                None => score,
                Some(before) => ((3 * before + score + 2) / 4).max(1),
            };
            self.0.insert(programme, rating);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_moves_by_the_time_that_has_passed() {
        let first = Average::after(None, 100, 10.0, 50.0);
        assert_eq!((first.ema, first.samples), (10.0, 1));
        let second = Average::after(Some(first), 150, 20.0, 50.0);
        // one time constant: 1 - 1/e of the way
        assert!(close(second.ema, 10.0 + 10.0 * (1.0 - (-1.0f64).exp())));
        assert_eq!((second.time, second.samples), (150, 2));
    }

    #[test]
    fn a_spike_is_a_jump_and_three_of_them_are_a_new_level() {
        let mut d = Detector::new(Detection {
            z: 4.5,
            prior_sd: 0.7,
            interval_s: 3600.0,
        });
        let hours = |values: &[f64], d: &mut Detector, from: i64| {
            let each = (from..).zip(values);
            each.map(|(n, v)| d.add(n * 3600, *v)).collect::<Vec<_>>()
        };
        assert_eq!(
            hours(&[10.0, 10.5, 25.0, 10.2], &mut d, 0),
            [false, false, true, false]
        );
        let moved = hours(&[30.0, 30.1, 30.0, 30.2], &mut d, 4);
        assert_eq!(moved, [true, true, true, false]);
        assert_eq!(d.spikes.len(), 4);
        // after a silence the level is new
        assert!(!d.add(100 * 3600, -50.0));
    }

    #[test]
    fn ratings_follow_the_comfortable_temperature() {
        let mut r = Ratings::default();
        // 10 degrees outside at 13:00: 20.9 are comfortable
        r.observe(13 * 3600, 10.0);
        assert_eq!(r.0, BTreeMap::from([(13, 4), (14, 10), (15, 4)]));
        for _ in 0..20 {
            r.observe(14 * 3600, -40.0);
        }
        assert!(r.0.values().all(|rating| (1..=2).contains(rating)) && r.0.len() == 3);
    }
}
