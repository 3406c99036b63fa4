//! The rate over a day: low at night, high in the afternoon. A cosine with its lowest point at 4 h and its
//! highest at 16 h, squared, so that the night is long: the shape of the load of interactive services.

use e3_model::Nanos;
use std::sync::Arc;
use std::time::Duration;

/// Part of the highest rate that the lowest is.
const NIGHT: f64 = 0.08;
/// Hour of the lowest rate.
const LOWEST_H: f64 = 4.0;
/// Steps in which requests are counted.
const STEPS: u32 = 24 * 60;

/// A day that passes in a shorter time.
#[derive(Clone, Copy, Debug)]
pub struct Day {
    /// How long it takes here.
    pub length: Duration,
    /// Highest rate, in requests per second of the time here.
    pub peak_rps: f64,
}

impl Day {
    /// The hour after so much time here.
    pub fn hour(&self, passed: Duration) -> f64 {
        passed.as_secs_f64() / self.length.as_secs_f64() * 24.0
    }

    /// The rate at an hour.
    pub fn rate_rps(&self, hour: f64) -> f64 {
        let angle = (hour - LOWEST_H) / 24.0 * std::f64::consts::TAU;
        let height = (1.0 - angle.cos()) / 2.0;
        self.peak_rps * (NIGHT + (1.0 - NIGHT) * height * height)
    }

    /// When each request is due, since the day began.
    pub fn times(&self) -> Arc<[Nanos]> {
        let step_s = self.length.as_secs_f64() / f64::from(STEPS);
        let mut times = Vec::new();
        let mut sum = 0.0;
        for step in 0..STEPS {
            let hour = f64::from(step) / f64::from(STEPS) * 24.0;
            let before = sum;
            sum += self.rate_rps(hour) * step_s;
            // The requests whose number lies in this step, evenly.
            while (times.len() as f64) < sum.floor() {
                let part = (times.len() as f64 + 1.0 - before) / (sum - before);
                let at_s = (f64::from(step) + part) * step_s;
                times.push(Nanos((at_s * 1e9) as u64));
            }
        }
        times.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_requests_in_order_most_of_them_in_the_afternoon() {
        let day = Day {
            length: Duration::from_secs(60),
            peak_rps: 200.0,
        };
        assert!((day.rate_rps(4.0) - 16.0).abs() < 1e-9);
        assert!((day.rate_rps(16.0) - 200.0).abs() < 1e-9);
        let times = day.times();
        assert!(times.windows(2).all(|w| w[0] <= w[1]));
        assert!(times.last().unwrap().0 <= 60_000_000_000);
        let between = |from: f64, to: f64| {
            let hour = |at: &Nanos| day.hour(Duration::from_nanos(at.0));
            let within = times.iter().filter(|at| (from..to).contains(&hour(at)));
            within.count()
        };
        // Five seconds at nearly the highest rate, and at nearly the lowest.
        assert!(
            (900..=1_000).contains(&between(15.0, 17.0)),
            "{}",
            between(15.0, 17.0)
        );
        assert!(
            (75..=90).contains(&between(3.0, 5.0)),
            "{}",
            between(3.0, 5.0)
        );
    }
}
