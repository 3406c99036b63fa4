//! Recommends comfort programmes by item-based collaborative filtering.
//!
//! Users are thermostats, items are comfort programmes: a set-point for one quarter of the day.
//! Nobody fills in ratings, so they are drawn from what is observed. The temperature that people
//! are comfortable at follows the outdoor temperature (adaptive comfort model of ASHRAE
//! Standard 55: 17.8 + 0.31 * outdoor, in degrees Celsius); the closer a programme's set-point
//! is to that at a reading's hour, the better its rating, blended with the rating so far. A
//! thermostat thus rates only programmes near the conditions that it has seen. The others are
//! predicted from the programmes that it rated, weighted by the cosine similarity of the
//! programmes' ratings over all thermostats of the shard (Sarwar et al., "Item-based
//! collaborative filtering recommendation algorithms", WWW 2001), and the best of them is
//! recommended.
//!
//! The dot products behind the similarities are kept in instance memory: they follow from the
//! ratings, so they are rebuilt by a scan when they are missing. Ratings are small integers, so
//! that rebuilt and updated sums are equal to the last bit.
//!
//! Needs the ordered collection `ratings` (thermostat -> a rating for each programme, 0 = none)
//! and the hash collection `recommendations` (thermostat -> programme, rating). No configuration.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use e3_iot_messages::{AnalysisMessage, Reading, Recommendation, Reply, routing_key};
use e3_sdk::{Error, HashMap, OrderedMap, Request, Service, reply};

/// Set-points of the programmes in degrees Celsius.
pub const SET_POINTS_C: [f64; 6] = [18.0, 19.5, 21.0, 22.5, 24.0, 25.5];
/// Hours of a programme: a quarter of the day.
pub const HOURS: i64 = 6;
/// Programmes: each set-point in each quarter of the day.
pub const PROGRAMMES: usize = SET_POINTS_C.len() * (24 / HOURS) as usize;
/// Best rating; 0 means not rated.
pub const RATING_MAX: u8 = 10;
/// How fast a rating falls with the distance from the comfortable temperature, per degree.
const RATING_PER_C: f64 = 4.0;

type Ratings = [u8; PROGRAMMES];

/// Rates the programmes of the reading's quarter of the day by what was observed.
fn rate(ratings: &Ratings, reading: &Reading) -> Ratings {
    let mut rated = *ratings;
    let quarter = (reading.reading_time_s.div_euclid(3600).rem_euclid(24) / HOURS) as usize;
    let comfortable_c = 17.8 + 0.31 * reading.temperature_c;
    for (index, set_point_c) in SET_POINTS_C.iter().enumerate() {
        let distance_c = (set_point_c - comfortable_c).abs();
        let score = f64::from(RATING_MAX) - RATING_PER_C * distance_c;
        // The cast saturates, so what is far away scores 0.
        let score = libm::round(score) as u8;
        let rating = &mut rated[quarter * SET_POINTS_C.len() + index];
        *rating = match (*rating, score) {
            (0, score) => score,
            // Once rated it stays rated, be it at the lowest.
            (rating, score) => ((3 * rating + score + 2) / 4).max(1),
        };
    }
    rated
}

/// Dot products of the programmes' rating vectors over all thermostats.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Products([[u64; PROGRAMMES]; PROGRAMMES]);

impl Products {
    fn none() -> Box<Self> {
        Box::new(Self([[0; PROGRAMMES]; PROGRAMMES]))
    }

    /// Replaces one thermostat's ratings.
    fn replace(&mut self, old: &Ratings, new: &Ratings) {
        for i in 0..PROGRAMMES {
            for j in 0..PROGRAMMES {
                let before = u64::from(old[i]) * u64::from(old[j]);
                let after = u64::from(new[i]) * u64::from(new[j]);
                self.0[i][j] = self.0[i][j] + after - before;
            }
        }
    }

    /// Cosine similarity of two programmes, 0..=1.
    fn similarity(&self, i: usize, j: usize) -> f64 {
        let norms = self.0[i][i] as f64 * self.0[j][j] as f64;
        if norms > 0.0 {
            self.0[i][j] as f64 / libm::sqrt(norms)
        } else {
            0.0
        }
    }

    /// The rating that a thermostat would give to programme `i`, if anything is known.
    fn predict(&self, ratings: &Ratings, i: usize) -> Option<f64> {
        let (mut weighted, mut weights) = (0.0, 0.0);
        for (j, &rating) in ratings.iter().enumerate() {
            if rating > 0 && j != i {
                let similarity = self.similarity(i, j);
                weighted += similarity * f64::from(rating);
                weights += similarity;
            }
        }
        (weights > 0.0).then(|| weighted / weights)
    }

    /// The best programme that the thermostat has not rated; if there is none to predict, the
    /// best that it has rated. The first of equals.
    fn recommend(&self, ratings: &Ratings) -> Option<(usize, f64)> {
        let best = |candidates: &mut dyn Iterator<Item = (usize, f64)>| {
            candidates.reduce(|best, next| if next.1 > best.1 { next } else { best })
        };
        let programmes = || ratings.iter().copied().enumerate();
        best(
            &mut programmes()
                .filter(|&(_, rating)| rating == 0)
                .filter_map(|(i, _)| Some((i, self.predict(ratings, i)?))),
        )
        .or_else(|| {
            best(
                &mut programmes()
                    .filter(|&(_, rating)| rating > 0)
                    .map(|(i, rating)| (i, f64::from(rating))),
            )
        })
    }
}

/// Recommends.
#[derive(Debug)]
pub struct Recommender {
    ratings: OrderedMap,
    recommendations: HashMap,
    products: Option<Box<Products>>,
    out: Vec<u8>,
}

impl Service for Recommender {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            ratings: OrderedMap::open("ratings")?,
            recommendations: HashMap::open("recommendations")?,
            products: None,
            out: Vec::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let handled = match AnalysisMessage::decode(request.payload()) {
            Ok(AnalysisMessage::Reading(reading)) => self.on_reading(&reading),
            Ok(AnalysisMessage::Query { thermostat, .. }) => self.on_query(thermostat),
            Err(error) => self.answer(&Reply::Malformed(error.to_string())),
        };
        if handled.is_err() {
            // The writes are dropped, so what was summed up with them must go too.
            self.products = None;
        }
        handled
    }
}

impl Recommender {
    fn on_reading(&mut self, reading: &Reading) -> Result<(), Error> {
        let key = routing_key(reading.thermostat);
        if self.products.is_none() {
            self.products = Some(self.rebuild()?);
        }
        let mut room = [0; PROGRAMMES];
        let stored = self.ratings.get(&key, &mut room)?;
        let old: Ratings = stored
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or([0; PROGRAMMES]);
        let new = rate(&old, reading);
        if new == [0; PROGRAMMES] {
            // Too hot or too cold for every programme.
            return Ok(());
        }
        let Some(products) = &mut self.products else {
            return Ok(());
        };
        if new != old {
            self.ratings.put(&key, &new)?;
            products.replace(&old, &new);
        }
        if let Some((programme, rating)) = products.recommend(&new) {
            let mut value = [0; 10];
            value[..2].copy_from_slice(&(programme as u16).to_le_bytes());
            value[2..].copy_from_slice(&rating.to_le_bytes());
            self.recommendations.put(&key, &value)?;
        }
        Ok(())
    }

    fn rebuild(&self) -> Result<Box<Products>, Error> {
        let mut products = Products::none();
        let mut scan = self.ratings.scan(&[], &[]);
        while let Some((_, ratings)) = scan.next()? {
            if let Ok(ratings) = ratings.try_into() {
                products.replace(&[0; PROGRAMMES], ratings);
            }
        }
        Ok(products)
    }

    fn on_query(&mut self, thermostat: u32) -> Result<(), Error> {
        let mut room = [0; 10];
        let stored = self
            .recommendations
            .get(&routing_key(thermostat), &mut room)?;
        let answer = match stored.and_then(decode) {
            Some(recommendation) => Reply::Recommendation(recommendation),
            None => Reply::NotFound(format!("thermostat {thermostat}: nothing observed yet")),
        };
        self.answer(&answer)
    }

    fn answer(&mut self, answer: &Reply) -> Result<(), Error> {
        self.out.clear();
        answer.encode(&mut self.out);
        reply(answer.status(), &self.out)
    }
}

fn decode(bytes: &[u8]) -> Option<Recommendation> {
    let (programme, rest) = bytes.split_first_chunk()?;
    let programme = u16::from_le_bytes(*programme);
    let quarter = usize::from(programme) / SET_POINTS_C.len();
    Some(Recommendation {
        programme,
        set_point_c: SET_POINTS_C[usize::from(programme) % SET_POINTS_C.len()],
        hour: (quarter as i64 * HOURS) as u8,
        rating: f64::from_le_bytes(*rest.first_chunk()?),
    })
}

e3_sdk::service!(Recommender, request_capacity = 2048);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use e3_iot_messages::status;
    use e3_sdk::testing::{Call, Host, Kind, Outcome};

    fn host() -> Host {
        Host::new()
            .collection("ratings", Kind::Ordered)
            .collection("recommendations", Kind::Hash)
    }

    fn send(host: &Host, service: &mut Recommender, message: &AnalysisMessage) -> Outcome {
        let mut payload = Vec::new();
        message.encode(&mut payload);
        let call = Call {
            payload,
            ..Call::default()
        };
        host.call(service, &call)
    }

    fn ask(host: &Host, service: &mut Recommender, thermostat: u32) -> Reply {
        let query = AnalysisMessage::Query {
            thermostat,
            from_time_s: 0,
        };
        let outcome = send(host, service, &query);
        Reply::decode(outcome.replies[0].0, &outcome.replies[0].1).unwrap()
    }

    fn reading(n: i64) -> Reading {
        Reading {
            thermostat: (n * 7 % 13) as u32,
            reading_time_s: n * 3600 * 5 + (n % 3) * 3600,
            temperature_c: ((n * 31) % 350) as f64 / 10.0 - 4.0,
        }
    }

    /// The formulas of the paper, over dense vectors, from the ratings alone: the predicted
    /// ratings of all programmes that the thermostat has not rated.
    fn naive(all: &BTreeMap<u32, Ratings>, thermostat: u32) -> BTreeMap<u16, f64> {
        let ratings = all[&thermostat];
        let column = |i: usize| -> Vec<f64> { all.values().map(|r| f64::from(r[i])).collect() };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let similarity = |i: usize, j: usize| {
            let (a, b) = (column(i), column(j));
            let norms = (dot(&a, &a) * dot(&b, &b)).sqrt();
            if norms == 0.0 {
                0.0
            } else {
                dot(&a, &b) / norms
            }
        };
        let rated: Vec<usize> = (0..PROGRAMMES).filter(|&j| ratings[j] > 0).collect();
        let mut predicted = BTreeMap::new();
        for i in (0..PROGRAMMES).filter(|&i| ratings[i] == 0) {
            let weights: f64 = rated.iter().map(|&j| similarity(i, j)).sum();
            let weighted: f64 = rated
                .iter()
                .map(|&j| similarity(i, j) * f64::from(ratings[j]))
                .sum();
            if weights > 0.0 {
                predicted.insert(i as u16, weighted / weights);
            }
        }
        predicted
    }

    #[test]
    fn recommends_what_the_naive_computation_does() {
        let host = host();
        let mut service = Recommender::init().unwrap();
        let mut all = BTreeMap::new();
        let mut predicted = 0;
        for n in 0..400 {
            let reading = reading(n);
            let ratings = all.entry(reading.thermostat).or_insert([0; PROGRAMMES]);
            *ratings = rate(ratings, &reading);
            if n % 37 == 0 {
                // Instance memory may vanish at any time.
                service = Recommender::init().unwrap();
            }
            let outcome = send(&host, &mut service, &AnalysisMessage::Reading(reading));
            assert_eq!((outcome.result, outcome.replies.len()), (Ok(()), 0));
            let naive = naive(&all, reading.thermostat);
            let Some(best) = naive.values().copied().reduce(f64::max) else {
                continue;
            };
            let Reply::Recommendation(got) = ask(&host, &mut service, reading.thermostat) else {
                panic!("no recommendation at {n}");
            };
            assert!((got.rating - best).abs() < 1e-9, "{n}: {got:?}, {best}");
            // Of equals, rounding decides which one.
            assert!((naive[&got.programme] - best).abs() < 1e-9, "{n}: {got:?}");
            predicted += 1;
        }
        assert!(predicted > 100, "only {predicted} predictions");
    }

    #[test]
    fn sums_that_were_updated_equal_sums_that_were_rebuilt() {
        let host = host();
        let mut service = Recommender::init().unwrap();
        for n in 0..200 {
            send(&host, &mut service, &AnalysisMessage::Reading(reading(n)));
        }
        assert_eq!(service.products, Some(service.rebuild().unwrap()));
    }

    #[test]
    fn rates_the_programmes_near_the_comfortable_temperature() {
        // 10 degrees outside at 13:00: comfortable are 20.9 degrees.
        let reading = Reading {
            thermostat: 1,
            reading_time_s: 13 * 3600,
            temperature_c: 10.0,
        };
        let ratings = rate(&[0; PROGRAMMES], &reading);
        let mut expected = [0; PROGRAMMES];
        expected[12..18].copy_from_slice(&[0, 4, 10, 4, 0, 0]);
        assert_eq!(ratings, expected);
    }

    #[test]
    fn unknown_thermostats_and_malformed_messages() {
        let host = host();
        let mut service = Recommender::init().unwrap();
        let before = host.state();
        assert_eq!(ask(&host, &mut service, 1).status(), status::NOT_FOUND);
        let outcome = host.call(&mut service, &Call::default());
        assert_eq!(outcome.replies[0].0, status::MALFORMED);
        let hot = Reading {
            temperature_c: 99.0,
            ..reading(0)
        };
        let outcome = send(&host, &mut service, &AnalysisMessage::Reading(hot));
        assert_eq!(outcome.result, Ok(()));
        assert_eq!(host.state(), before);
    }
}
