//! The state that the services of IOT-TS must have for a thermostat, by the conditions of its manifest.
//!
//! `ema` gets a reading that differs by half a degree from the last one it got, `spike` gets every
//! reading, and `recommend` gets a reading on the other side of an edge of the comfort band.

use super::messages::Rated;
use super::{Fate, Thermostat, celsius};
use crate::oracles::models::{Average, Detection, Detector, Ratings};

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

/// The state of a thermostat.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    average: Option<Average>,
    pub(super) spikes: Detector,
    pub(super) ratings: Ratings,
}

impl Expected {
    /// None if a reading has no outcome, so that nobody knows.
    pub(super) fn of(thermostat: &Thermostat) -> Option<Expected> {
        let mut expected = Expected {
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
                let average = Average::after(expected.average, time, value, TIME_CONSTANT_S);
                expected.average = Some(average);
                passed = Some(value);
            }
            expected.spikes.add(time, value);
            let inside = |value: f64| COMFORT_C.contains(&value);
            if last.is_some_and(|last| inside(last) != inside(value)) {
                expected.ratings.observe(time, value);
            }
            last = Some(value);
        }
        Some(expected)
    }

    /// Whether an answer has the average; None if it is no answer.
    pub(super) fn is_average(&self, said: Option<Average>, nothing: bool) -> Option<bool> {
        match (said, self.average) {
            (Some(said), Some(own)) => Some(said.is(own)),
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
