//! Bounds of the store.

/// Bytes of one record.
pub const RECORD_LEN_MAX: usize = 1 << 30;
/// Bytes after which a journal begins another file.
#[cfg(not(test))]
pub const SEGMENT_LEN: u64 = 64 << 20;
/// Small, so that tests have many files.
#[cfg(test)]
pub const SEGMENT_LEN: u64 = 3_000;
/// Bytes that [`crate::Store::probe`] writes: a block, so that they take space on the disk.
pub const PROBE_LEN: usize = 4096;
