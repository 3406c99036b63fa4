//! Numbers in words, the same in all experiments.

/// A ratio.
pub(crate) fn times(ratio: f64) -> String {
    format!("{ratio:.2} times")
}

/// A part, with its sign.
pub(crate) fn percent(part: f64) -> String {
    format!("{:+.1} %", part * 100.0)
}
