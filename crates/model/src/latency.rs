//! Latency of requests, as reports of measured and of simulated loads have it.

use serde::Serialize;

/// Latency, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Average.
    pub avg_us: f64,
    /// Half of the requests took no longer.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p99_9_us: f64,
    /// The longest.
    pub max_us: f64,
}
