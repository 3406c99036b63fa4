//! Bounds of the store.

/// Bytes of one record.
pub const RECORD_LEN_MAX: usize = 256 << 20;
/// Bytes that [`crate::Store::probe`] writes: a block, so that they take space on the disk.
pub const PROBE_LEN: usize = 4096;
