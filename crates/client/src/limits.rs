//! Bounds and timers of the UDP driver.

use e3_model::Nanos;

/// A request's deadline, unless the user sets it: several fail-overs long.
pub const DEADLINE: Nanos = Nanos::from_secs(10);
/// Least time between two queries to the controller about routes.
pub const REFRESH_INTERVAL: Nanos = Nanos::from_millis(200);
/// Longest wait of one turn of [`crate::Client::call`].
pub const WAIT_MAX: Nanos = Nanos::from_millis(100);
/// Socket buffers, so that no reply is lost while the client is not scheduled.
pub const SOCKET_BUFFER_LEN: usize = 4 << 20;
/// Datagrams taken in one turn, so that sending is never starved.
pub const DATAGRAMS_PER_TURN: usize = 1024;
/// Bytes of the buffer for a datagram: the most that UDP has.
pub const DATAGRAM_LEN_MAX: usize = 1 << 16;
