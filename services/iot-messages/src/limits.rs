//! Bounds of the messages. A decoder refuses what lies beyond them before it allocates.

/// Longest SQL text of a query. What goes into the request buffers of `apigw` and `sql` must
/// also hold the token and the parameters.
pub const SQL_TEXT_BYTES_MAX: usize = 1024;
/// Most parameters of a query.
pub const SQL_PARAMETERS_MAX: usize = 16;
/// Longest text value in a parameter or a row.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Most columns in a result.
pub const COLUMNS_MAX: usize = 32;
/// Longest reply payload; leaves room for the frame below the 32 KiB of the service ABI.
pub const REPLY_BYTES_MAX: usize = 31 * 1024;
/// Most spikes in one reply; a reader asks again from the last one's time.
pub const SPIKES_MAX: usize = 1024;
/// Longest text in an error reply.
pub const FAULT_BYTES_MAX: usize = 256;
/// Coldest reading that is taken for one, in degrees Celsius.
pub const TEMPERATURE_C_MIN: f64 = -100.0;
/// Hottest reading that is taken for one, in degrees Celsius.
pub const TEMPERATURE_C_MAX: f64 = 100.0;

/// Bytes of one spike in a reply.
pub const SPIKE_BYTES: usize = 24;
const _: () = assert!(8 + SPIKES_MAX * SPIKE_BYTES <= REPLY_BYTES_MAX);
