//! Bounds of the workloads.

use e3_model::Nanos;

/// Attempts of one such query (each with all its repeats).
pub const CHECK_ATTEMPTS_MAX: u32 = 8;
/// Wait before a query is asked again; doubles.
pub const CHECK_RETRY_AFTER: Nanos = Nanos::from_millis(250);
/// Time between two queries about floods during a load: less than half of the time that ddos
/// remembers in the manifests.
pub const FLOOD_REPORT_INTERVAL: Nanos = Nanos::from_secs(60);
/// Most thermostats of one run: they share the upper half of their ids.
pub const THERMOSTATS_MAX: u32 = 1 << 16;
/// Most sensors of one run: they share the upper half of their ids.
pub const SENSORS_MAX: u32 = 1 << 16;
/// Most senders of one run of the key-value store.
pub const WRITERS_MAX: u32 = 1 << 16;
