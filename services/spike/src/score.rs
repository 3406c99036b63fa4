//! The statistic: the Z-score of a change against the window of the last good changes.

/// Changes that the prior spread counts for.
pub const PRIOR_CHANGES: f64 = 6.0;

/// Z-score of a change over `intervals` against the window of changes (each over one interval).
///
/// The variance is shrunk towards the prior's, as if [`PRIOR_CHANGES`] changes with that spread had been
/// seen: half of them one `prior_sd` above zero, half one below.
pub fn z_score(change: f64, intervals: f64, window: &[f64], prior_sd: f64) -> f64 {
    let weight = PRIOR_CHANGES + window.len() as f64;
    let mean = window.iter().sum::<f64>() / weight;
    let squares: f64 = window.iter().map(|c| (c - mean) * (c - mean)).sum();
    let variance = (PRIOR_CHANGES * (prior_sd * prior_sd + mean * mean) + squares) / weight;
    (change - intervals * mean) / e3_sdk::math::sqrt(variance * intervals)
}
