//! What the services of IOT-TS must have kept of a thermostat, by the conditions of its manifest: to
//! `ema` goes what differs by half a degree from the last reading passed on, to `spike` everything, to
//! `recommend` a reading on another side of the comfort band's edge than the one before.

use super::messages::{Averaged, Rated};
use super::{Fate, Thermostat, celsius};
use crate::oracles::models::{Average, Detection, Detector, Ratings, close};

/// Change that is passed on to `ema`, in degrees.
const CHANGE_C: f64 = 0.5;
/// Time constant of the average.
const TIME_CONSTANT_S: f64 = 21_600.0;
/// The comfort band of the manifest, in degrees outdoors.
const COMFORT_C: std::ops::RangeInclusive<f64> = 10.0..=18.0;
const DETECTION: Detection = Detection {
    z: 4.5,
    prior_sd: 0.7,
    interval_s: 3600.0,
};

/// What must be kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    average: Option<Average>,
    pub(super) spikes: Detector,
    pub(super) ratings: Ratings,
}

impl Kept {
    /// None if a reading has no outcome, so that nobody knows.
    pub(super) fn of(thermostat: &Thermostat) -> Option<Kept> {
        let mut kept = Kept {
            average: None,
            spikes: Detector::new(DETECTION),
            ratings: Ratings::default(),
        };
        let (mut passed, mut last): (Option<f64>, Option<f64>) = (None, None);
        for (n, sent) in thermostat.sent.iter().enumerate() {
            match sent.fate {
                Fate::Unknown => return None,
                Fate::Refused => continue,
                Fate::Accepted => {}
            }
            let (time, value) = (thermostat.reading_time_s(n), celsius(sent.decidegrees_c));
            if passed.is_none_or(|p| (value - p).abs() >= CHANGE_C) {
                let average = Average::after(kept.average, time, value, TIME_CONSTANT_S);
                kept.average = Some(average);
                passed = Some(value);
            }
            kept.spikes.add(time, value);
            let inside = |value: f64| COMFORT_C.contains(&value);
            if last.is_some_and(|last| inside(last) != inside(value)) {
                kept.ratings.observe(time, value);
            }
            last = Some(value);
        }
        Some(kept)
    }

    /// Whether an answer has the average; None if it is no answer.
    pub(super) fn is_average(&self, said: Option<Averaged>, nothing: bool) -> Option<bool> {
        match (said, self.average) {
            (Some(said), Some(own)) => {
                let same = (said.time, said.samples) == (own.time, own.samples);
                Some(same && close(said.ema, own.ema))
            }
            (Some(_), None) => Some(false),
            (None, own) => nothing.then_some(own.is_none()),
        }
    }

    /// Whether an answer has the rating; None if it is no answer.
    pub(super) fn is_rating(
        &self,
        item: Option<i64>,
        said: Option<Rated>,
        nothing: bool,
    ) -> Option<bool> {
        let own = item.and_then(|item| self.ratings.0.get(&item));
        match (said, own) {
            (Some(said), Some(own)) => Some(said.rated == 1 && said.rating == *own as f64),
            (Some(_), None) => Some(false),
            (None, own) => nothing.then_some(own.is_none()),
        }
    }
}
