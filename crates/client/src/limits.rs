//! Bounds and timers of the UDP driver.

use e3_model::Nanos;

/// A request's deadline, unless the user sets it: several fail-overs long.
pub const DEADLINE: Nanos = Nanos::from_secs(10);
/// Wait before a question about dead letters is asked again.
pub const LETTERS_RETRY_AFTER: Nanos = Nanos::from_millis(200);
/// Least time between two looks for new routes.
pub const REFRESH_INTERVAL: Nanos = Nanos::from_millis(200);
/// Socket buffers, so that answers survive a moment in which the client is not scheduled.
pub const SOCKET_BUFFER_LEN: usize = 4 << 20;
