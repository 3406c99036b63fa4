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
/// Bytes that an accelerator takes at once.
pub const ACCEL_BYTES_MAX: usize = 1 << 20;
/// Patterns of a set.
pub const PATTERNS_MAX: usize = 1 << 16;
/// Bytes of the patterns of a set.
pub const PATTERN_BYTES_MAX: usize = 256 << 10;
/// Bytes of patterns up to which the portable code makes a table of states by bytes.
pub(crate) const DFA_PATTERN_BYTES_MAX: usize = 2 << 10;
/// Occurrences that one search of a text may find.
pub const MATCHES_MAX: usize = 1 << 16;
/// Longest name of a timer in bytes.
pub const TIMER_NAME_BYTES_MAX: usize = 63;
/// Timers that one request may set or cancel.
pub const REQUEST_TIMERS_MAX: usize = 64;
/// How far ahead a timer may be set, in nanoseconds: a year.
pub const TIMER_AHEAD_NS_MAX: i64 = 366 * 24 * 3_600 * 1_000_000_000;
/// How long an outbound request may take, in nanoseconds: a day.
pub const OUTBOUND_AHEAD_NS_MAX: i64 = 24 * 3_600 * 1_000_000_000;
/// Most random bytes that a service asks for at once.
pub const RANDOM_BYTES_MAX: usize = 256;
/// What `request_edge` returns for the request of a timer.
pub(crate) const TIMER_EDGE: i32 = -2;
/// What `request_edge` returns for a request that brings an answer.
pub(crate) const ANSWER_EDGE: i32 = -4;
/// What it returns for a request that brings a publication.
pub(crate) const TOPIC_EDGE: i32 = -5;
/// What it returns for a call.
pub(crate) const CALL_EDGE: i32 = -3;
/// Calls that one request may make.
pub const REQUEST_CALLS_MAX: usize = 64;
const _: () = assert!(SCAN_CHUNK_BYTES > KEY_BYTES_MAX);
