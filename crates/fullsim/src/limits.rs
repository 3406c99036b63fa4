//! Bounds of the full fidelity.

use e3_model::Nanos;

/// Nodes of a cluster.
pub const NODES_MAX: usize = 256;
/// Time before the run in which nodes check their clocks and get their leases.
pub const BOOT: Nanos = Nanos::from_secs(3);
/// A step of that time.
pub const BOOT_STEP: Nanos = Nanos::from_millis(1);
/// Time that a request has.
pub const DEADLINE: Nanos = Nanos::from_secs(30);
/// Bytes that a stub writes at most.
pub const WRITE_BYTES_MAX: usize = 16 << 10;

const _: () = assert!(BOOT.0 > BOOT_STEP.0);
