//! Bounds of the service ABI (docs/abi.md) that a service meets.

/// Longest key in bytes; the shortest is 1.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest value, message or reply in bytes.
pub const VALUE_BYTES_MAX: usize = 32 * 1024;
/// Slots of keys.
pub const SLOTS: u16 = 4096;
/// Longest log line in bytes; the host cuts what is longer.
pub const LOG_BYTES_MAX: usize = 512;
/// Bytes that a scan fetches at once, unless one entry needs more.
pub const SCAN_CHUNK_BYTES: usize = 4 * 1024;
/// Bytes that a value is first read into; a longer one takes a second call.
pub const FIRST_READ_BYTES: usize = 256;
const _: () = assert!(SCAN_CHUNK_BYTES > KEY_BYTES_MAX);
