//! Releases of E3 and the formats that they have.

use e3_model::{Format, Formats, Timestamp};
use std::collections::BTreeMap;

/// The format of both releases, in which a cluster begins.
pub(super) const FORMAT: Format = Format::NEWEST;
/// The format that the next release has too. It is the same with another number.
pub(super) const NEXT_FORMAT: Format = Format(FORMAT.0 + 1);

/// Which release each process is of.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// By node: whether its process is of the next release.
    pub(super) next: BTreeMap<u32, bool>,
    /// Whether the controller's is.
    pub(super) controller: bool,
    /// When the next process is replaced.
    pub(super) due: Timestamp,
    /// Processes that were replaced by those of the next release, and by those of the one before.
    pub(super) replaced: [u64; 2],
}

/// The formats of a release.
pub(super) fn formats(is_next: bool) -> Formats {
    let newest = if is_next { NEXT_FORMAT } else { FORMAT };
    Formats::new(Format::OLDEST, newest).expect("it does not end before it begins")
}
