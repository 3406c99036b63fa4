//! Numbers in words, the same in all experiments.

use e3_hardware::Estimate;
use e3_perfsim::Report;
use std::collections::BTreeSet;

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

/// A note on what the simulator assumed beyond the profiles in any of the runs; none if it assumed nothing.
pub(crate) fn assumed<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Option<String> {
    let all = reports.into_iter().flat_map(|r| &r.assumptions);
    let all: BTreeSet<&str> = all.map(String::as_str).collect();
    let all: Vec<&str> = all.into_iter().collect();
    (!all.is_empty()).then(|| format!("Beyond the profiles it was assumed: {}.", all.join(". ")))
}
