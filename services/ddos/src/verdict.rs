//! Which windows are abnormal: those with an entropy further from the mean of the previous windows
//! than a number of standard deviations (Feinstein, Schnackenberg, Balupari, Kindred: "Statistical
//! Approaches to DDoS Attack Detection and Response", DISCEX 2003). A flood at one victim lowers the
//! entropy of destinations, one from many sources raises that of sources. Windows with an alarm are
//! not part of the mean, so an attack does not become normal as long as older windows are in the history.

use alloc::vec::Vec;

use crate::entropy::Sums;

/// When to raise an alarm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Standard deviations from the mean.
    pub sigmas: f64,
    /// Least standard deviation, in bits.
    pub sigma_min: f64,
    /// Normal windows required before the first alarm.
    pub warmup: u64,
    /// Fewest packets of a window that counts.
    pub packets_min: u64,
}

/// A complete window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Its number.
    pub number: u64,
    /// Its sums.
    pub sums: Sums,
    /// Whether it is abnormal; `None` = not yet judged.
    pub alarm: Option<bool>,
}

/// Mean and standard deviation of each entropy over the normal windows, and their number.
pub fn ordinary(rule: &Rule, windows: &[Window]) -> ([(f64, f64); 2], u64) {
    let is_ordinary = |w: &&Window| w.alarm == Some(false) && w.sums.packets >= rule.packets_min;
    let entropies: Vec<[f64; 2]> = windows
        .iter()
        .filter(is_ordinary)
        .map(|w| w.sums.entropies())
        .collect();
    let count = entropies.len().max(1) as f64;
    let statistics = [0, 1].map(|which| {
        let mean = entropies.iter().map(|e| e[which]).sum::<f64>() / count;
        let squares = entropies
            .iter()
            .map(|e| (e[which] - mean) * (e[which] - mean));
        (mean, e3_sdk::math::sqrt(squares.sum::<f64>() / count))
    });
    (statistics, entropies.len() as u64)
}

/// Judges the windows that are not judged yet, each by those before it. The windows are in order.
pub fn judge(rule: &Rule, windows: &mut [Window]) {
    for at in 0..windows.len() {
        let (before, rest) = windows.split_at_mut(at);
        let window = &mut rest[0];
        if window.alarm.is_some() {
            continue;
        }
        let (statistics, count) = ordinary(rule, before);
        let entropies = window.sums.entropies();
        let is_out = entropies
            .iter()
            .zip(statistics)
            .any(|(entropy, (mean, sigma))| {
                (entropy - mean).abs() > rule.sigmas * sigma.max(rule.sigma_min)
            });
        let counts = window.sums.packets >= rule.packets_min && count >= rule.warmup;
        window.alarm = Some(counts && is_out);
    }
}
