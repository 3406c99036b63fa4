//! How far predictions of the simulator are from what a cluster on this machine does.
//!
//! The caller measures and predicts; this module finds knees and errors.

use crate::{Better, Figure};
use serde::Serialize;

/// Knee: highest error.
const KNEE_AIM: f64 = 0.15;
/// Median latency: highest error.
const P50_AIM: f64 = 0.25;
/// The errors of the median latency count up to this part of the measured knee.
pub const LOAD_MAX: f64 = 0.7;

/// One load, measured or predicted.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Point {
    /// Requests due per second.
    pub offered_rps: f64,
    /// Requests answered per second.
    pub achieved_rps: f64,
    /// Average latency in microseconds.
    pub avg_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99 of 100 requests took no longer.
    pub p99_us: f64,
}

impl Point {
    /// Throughput over mean latency.
    fn power(&self) -> f64 {
        if self.avg_us > 0.0 {
            self.achieved_rps / self.avg_us
        } else {
            0.0
        }
    }
}

/// The knee of a measured curve, in requests per second: where throughput over mean latency is highest (Kleinrock
/// 1979). Between the points it is that of the parabola through the best point and its neighbours, on
/// logarithmic scales. None without points.
pub fn knee(points: &[Point]) -> Option<f64> {
    let mut all: Vec<&Point> = points.iter().filter(|p| p.power() > 0.0).collect();
    all.sort_by(|a, b| a.offered_rps.total_cmp(&b.offered_rps));
    let best = (0..all.len()).max_by(|a, b| all[*a].power().total_cmp(&all[*b].power()))?;
    let at = |i: usize| (all[i].achieved_rps.ln(), all[i].power().ln());
    let own = all[best].achieved_rps;
    if best == 0 || best + 1 == all.len() {
        return Some(own);
    }
    let ((x0, y0), (x1, y1), (x2, y2)) = (at(best - 1), at(best), at(best + 1));
    let (left, right) = (x1 - x0, x2 - x1);
    if left <= 0.0 || right <= 0.0 {
        return Some(own);
    }
    let (rise, fall) = ((y1 - y0) / left, (y2 - y1) / right);
    let curve = (fall - rise) / (x2 - x0);
    if curve >= 0.0 {
        return Some(own);
    }
    let top = f64::midpoint(x0, x1) - rise / (2.0 * curve);
    Some(top.clamp(x0, x2).exp())
}

/// By how much a prediction is off, as a part of what was measured.
pub fn error(predicted: f64, measured: f64) -> f64 {
    if measured > 0.0 {
        (predicted - measured) / measured
    } else {
        f64::INFINITY
    }
}

/// The largest error of the median latency at loads up to [`LOAD_MAX`] of the knee, with its sign. `pairs` are the
/// measured and the predicted point of each load. None if no load is that low.
pub fn p50_error(pairs: &[(Point, Point)], knee_rps: f64) -> Option<f64> {
    let low = pairs
        .iter()
        .filter(|(measured, _)| measured.offered_rps <= LOAD_MAX * knee_rps);
    let errors = low.map(|(measured, predicted)| error(predicted.p50_us, measured.p50_us));
    errors.max_by(|a, b| a.abs().total_cmp(&b.abs()))
}

/// The figures of a comparison.
pub fn figures(knee_error: f64, p50_error: Option<f64>, note: &str) -> Vec<Figure> {
    let figure = |name, value: Option<f64>, aim| {
        let mut figure = Figure::new(name, 0.0, "ratio", Better::Lower);
        figure.value = value.map(f64::abs);
        figure.aim(aim).note(note)
    };
    vec![
        figure("sim.twin_knee_error", Some(knee_error), KNEE_AIM),
        figure("sim.twin_p50_error", p50_error, P50_AIM),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A point of an M/M/1 queue with a service time of 100 us behind a constant latency.
    fn point(rate: f64, constant_us: f64) -> Point {
        let us = constant_us + 100.0 / (1.0 - rate / 1e4);
        Point {
            offered_rps: rate,
            achieved_rps: rate,
            avg_us: us,
            p50_us: us,
            p99_us: us,
        }
    }

    #[test]
    fn the_knee_is_found_between_the_points() {
        let points: Vec<Point> = [2e3, 4e3, 5.5e3, 8e3, 9e3].map(|r| point(r, 0.0)).into();
        let knee = knee(&points).unwrap();
        assert!((knee / 5e3 - 1.0).abs() < 0.05, "{knee}");
        assert_eq!(super::knee(&points[..1]), Some(2e3));
        assert_eq!(super::knee(&[]), None);
    }

    #[test]
    fn errors_of_the_median_count_below_the_knee_only() {
        let of = |rate: f64, factor: f64| {
            let measured = point(rate, 100.0);
            let mut predicted = measured;
            predicted.p50_us *= factor;
            (measured, predicted)
        };
        let pairs = [of(1e3, 1.1), of(3e3, 0.8), of(9e3, 3.0)];
        let error = p50_error(&pairs, 5e3).unwrap();
        assert!((error + 0.2).abs() < 1e-9, "{error}");
        assert_eq!(p50_error(&pairs, 100.0), None);
        let figures = figures(-0.1, None, "");
        assert_eq!((figures[0].value, figures[0].pass), (Some(0.1), Some(true)));
        assert_eq!((figures[1].value, figures[1].pass), (None, Some(false)));
    }
}
