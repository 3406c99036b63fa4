//! Numbers in words, the same in all experiments.

use e3_hardware::Estimate;

/// A ratio.
pub(crate) fn times(ratio: f64) -> String {
    format!("{ratio:.2} times")
}

/// A ratio with its range.
pub(crate) fn times_range(ratio: &Estimate) -> String {
    format!(
        "{:.2} times ({:.2} to {:.2})",
        ratio.value, ratio.low, ratio.high
    )
}

/// A part, with its sign.
pub(crate) fn percent(part: f64) -> String {
    format!("{:+.1} %", part * 100.0)
}
