//! What a primary knows of the timers that its manifest declares. Nothing here survives it.

use e3_model::Timestamp;

/// Whether the table of timers is as the manifest says.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    /// The table is as declared.
    pub(crate) is_settled: bool,
    /// When the primary is called to change the table.
    pub(crate) wakes_at: Option<Timestamp>,
}
