//! Implicit ratings of comfort programmes, derived from the observations of a thermostat.
//!
//! A programme is a set-point for one quarter of the day. The comfortable indoor temperature follows the
//! outdoor temperature (adaptive comfort model of ASHRAE Standard 55: 17.8 + 0.31 * outdoor, in degrees
//! Celsius). The closer a programme's set-point is to it at the hour of the reading, the better its rating,
//! blended with the previous rating. So a thermostat rates only programmes near the conditions that it has
//! observed.

use crate::ratings::{CENTS, Item, Ratings};

/// Set-points of the programmes in degrees Celsius.
pub const SET_POINTS_C: [f64; 6] = [18.0, 19.5, 21.0, 22.5, 24.0, 25.5];
/// Hours of a programme: a quarter of the day.
pub const HOURS: usize = 6;
/// Best rating.
pub const RATING_MAX: u16 = 10;
/// How much a rating falls per degree from the comfortable temperature.
const RATING_PER_C: f64 = 4.0;

/// Rates the programmes of a reading's quarter of the day, on top of what was rated so far.
/// `time_s` is in seconds since the Unix epoch.
pub fn rate(ratings: &mut Ratings, time_s: i64, outdoor_c: f64) {
    let quarter = time_s.div_euclid(3600).rem_euclid(24) as usize / HOURS;
    let comfortable_c = 17.8 + 0.31 * outdoor_c;
    for (index, set_point_c) in SET_POINTS_C.iter().enumerate() {
        let distance_c = (set_point_c - comfortable_c).abs();
        // The cast saturates, so what is far away scores 0.
        let score = e3_sdk::math::round(f64::from(RATING_MAX) - RATING_PER_C * distance_c) as u16;
        let programme = Item::Number((quarter * SET_POINTS_C.len() + index) as u32);
        let rating = match ratings.of(&programme) {
            None if score == 0 => continue,
            None => score,
            // a rated programme stays rated, with the lowest rating at least
            Some(cents) => ((3 * (cents / CENTS) + score + 2) / 4).max(1),
        };
        ratings.set(programme, rating * CENTS);
    }
}

/// Set-point and first hour (UTC) of a programme.
pub fn programme(item: &Item) -> Option<(f64, usize)> {
    let Item::Number(n) = item else { return None };
    let (quarter, index) = (
        *n as usize / SET_POINTS_C.len(),
        *n as usize % SET_POINTS_C.len(),
    );
    (quarter < 24 / HOURS).then(|| (SET_POINTS_C[index], quarter * HOURS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_the_programmes_near_the_comfortable_temperature() {
        // 10 degrees outside at 13:00: comfortable are 20.9 degrees.
        let mut ratings = Ratings::default();
        rate(&mut ratings, 13 * 3600, 10.0);
        let rated = ratings.0.to_vec();
        let expected = [(13, 400), (14, 1000), (15, 400)];
        assert_eq!(rated, expected.map(|(n, cents)| (Item::Number(n), cents)));
        assert_eq!(programme(&Item::Number(14)), Some((21.0, 12)));
        assert_eq!(programme(&Item::Number(24)), None);
        // an hour later it is cold: the ratings fall, but do not vanish
        for _ in 0..20 {
            rate(&mut ratings, 14 * 3600, -40.0);
        }
        assert!(
            ratings
                .0
                .iter()
                .all(|(_, cents)| (CENTS..=2 * CENTS).contains(cents))
        );
        assert_eq!(ratings.0.len(), 3);
    }
}
