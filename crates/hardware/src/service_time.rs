//! Service time of a request on one core, from the service's profile.
//!
//! The mean is linear between the request sizes that the profile has. A larger request is refused: a time
//! that nobody measured is no prediction. A smaller one takes as long as the smallest that was measured, less
//! what the guess `per_byte_part` says; whatever that is, the time is between the one in proportion to the
//! bytes and the one that was measured. The coefficient of variation is the profile's; where that
//! is 0 it is not known, and the guess applies. A variation v up to 1 is a constant part 1 - v and an
//! exponential part v, above 1 a hyperexponential with two balanced phases; mean and variation are exact
//! in both.

use crate::guesses::Guesses;
use e3_model::{NodeKind, Profile};
use e3_random::Random;

/// Why there is no service time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ServiceTimeError {
    /// The profile does not have the kind of node.
    #[error("profile {profile:?} gives no service time on a {}", .kind.name())]
    Kind {
        /// Profile.
        profile: String,
        /// Kind of node.
        kind: NodeKind,
    },
    /// The request is outside of what was measured.
    #[error(
        "profile {profile:?} gives service times on a {} for requests of {low}..={high} bytes, not of {bytes}; they are not extrapolated",
        .kind.name()
    )]
    Size {
        /// Profile.
        profile: String,
        /// Kind of node.
        kind: NodeKind,
        /// Size of the request.
        bytes: u32,
        /// Smallest size.
        low: u32,
        /// Largest size.
        high: u32,
    },
}

/// Smallest request that is predicted: Fig. 2 of E3 begins there.
pub const BYTES_MIN: u32 = 64;

/// Distribution of a service time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServiceTime {
    /// Mean in nanoseconds.
    pub mean: f64,
    /// Coefficient of variation.
    pub variation: f64,
}

impl ServiceTime {
    /// That of a profile for requests of `bytes` on a kind of node.
    pub fn of(
        profile: &Profile,
        kind: NodeKind,
        bytes: u32,
        guesses: &Guesses,
    ) -> Result<ServiceTime, ServiceTimeError> {
        let missing = || ServiceTimeError::Kind {
            profile: profile.name.clone(),
            kind,
        };
        let cost = profile.spec.nodes.get(&kind).ok_or_else(missing)?;
        let points = &cost.service_time;
        let (low, high) = match (points.first(), points.last()) {
            (Some(first), Some(last)) => (first.bytes, last.bytes),
            _ => return Err(missing()),
        };
        if !(low.min(BYTES_MIN)..=high).contains(&bytes) {
            return Err(ServiceTimeError::Size {
                profile: profile.name.clone(),
                kind,
                bytes,
                low,
                high,
            });
        }
        let mean = profile.service_time(kind, bytes).ok_or_else(missing)?;
        let variation = match cost.variation {
            v if v > 0.0 => v,
            _ => guesses.service_variation,
        };
        Ok(ServiceTime {
            mean: mean.0 as f64 * small_part(bytes, low, guesses),
            variation,
        })
    }

    /// The smallest request that was measured on a kind of node, if a smaller one is asked for.
    pub fn assumed_from(profile: &Profile, kind: NodeKind, bytes: u32) -> Option<u32> {
        let first = profile.spec.nodes.get(&kind)?.service_time.first()?;
        (bytes < first.bytes).then_some(first.bytes)
    }

    /// The time of one request in nanoseconds.
    #[inline]
    pub fn sample(&self, random: &mut Random) -> f64 {
        let v = self.variation;
        if v == 0.0 {
            return self.mean;
        }
        let exponential = -(1.0 - random.unit()).ln();
        if v <= 1.0 {
            return self.mean * (1.0 - v + v * exponential);
        }
        // Two phases, each with half of the time (Morse 1958; Tijms, "Stochastic Models").
        let first = 0.5 * (1.0 + ((v * v - 1.0) / (v * v + 1.0)).sqrt());
        let phase = if random.unit() < first {
            first
        } else {
            1.0 - first
        };
        self.mean * exponential / (2.0 * phase)
    }
}

/// Service time of a request smaller than all that were measured, as a part of that of the smallest.
fn small_part(bytes: u32, smallest: u32, guesses: &Guesses) -> f64 {
    if bytes >= smallest {
        return 1.0;
    }
    1.0 - guesses.per_byte_part * (1.0 - f64::from(bytes) / f64::from(smallest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::document::parse_profile;

    #[test]
    fn a_smaller_request_takes_no_longer_and_no_less_than_its_part_of_the_bytes() {
        let text = include_str!("../../../profiles/paper/knn.yaml");
        let knn = parse_profile("knn", text).unwrap();
        let mean = |bytes, part| {
            let mut guesses = Guesses::default();
            guesses.set("per_byte_part", part).unwrap();
            let time = ServiceTime::of(&knn, NodeKind::Host, bytes, &guesses);
            time.map(|t| t.mean)
        };
        assert_eq!(mean(256, 0.0), mean(512, 0.0));
        assert_eq!(mean(256, 1.0).unwrap() * 2.0, mean(512, 1.0).unwrap());
        assert!(mean(1024, 0.0).is_err() && mean(BYTES_MIN - 1, 0.0).is_err());
        let from = |bytes| ServiceTime::assumed_from(&knn, NodeKind::Host, bytes);
        assert_eq!((from(256), from(512)), (Some(512), None));
    }

    #[test]
    fn a_size_between_two_takes_a_time_between_theirs() {
        let text = include_str!("../../../profiles/paper/knn.yaml");
        let mut knn = parse_profile("knn", text).unwrap();
        let cost = knn.spec.nodes.get_mut(&NodeKind::Host).unwrap();
        let point = |bytes, ns| e3_model::profile::ServiceTime {
            bytes,
            time: e3_model::Nanos(ns),
            instructions: None,
        };
        cost.service_time = vec![point(256, 10_000), point(1024, 40_000)];
        let mean = |bytes| {
            let time = ServiceTime::of(&knn, NodeKind::Host, bytes, &Guesses::default());
            time.map(|t| t.mean)
        };
        let all = [256, 448, 640, 1024].map(|bytes| mean(bytes).unwrap());
        assert_eq!(all, [10_000.0, 17_500.0, 25_000.0, 40_000.0]);
        let refused = mean(1025).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("256..=1024 bytes, not of 1025"),
            "{refused}"
        );
    }

    #[test]
    fn samples_have_the_mean_and_the_variation() {
        let mut random = Random::new(5);
        for variation in [0.0, 0.5, 1.0, 2.0] {
            let time = ServiceTime {
                mean: 1000.0,
                variation,
            };
            let count = 400_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..count {
                let t = time.sample(&mut random);
                sum += t;
                squares += t * t;
            }
            let mean = sum / f64::from(count);
            let found = (squares / f64::from(count) - mean * mean).max(0.0).sqrt() / mean;
            assert!((mean / 1000.0 - 1.0).abs() < 0.01, "{variation}: {mean}");
            assert!((found - variation).abs() < 0.03, "{variation}: {found}");
        }
    }
}
