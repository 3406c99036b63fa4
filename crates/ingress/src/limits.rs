//! Bounds of the ingress, and its timers.

use e3_model::Nanos;
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use std::time::Duration;

/// Bounds and timeouts for clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Connections at a time. For a further one the oldest idle connection is closed; if none is idle,
    /// it waits.
    pub connections_max: usize,
    /// Longest wait for the head of a request, also between two requests of a connection.
    pub head_timeout: Duration,
    /// Longest wait for the body of a request.
    pub body_timeout: Duration,
    /// Longest time in which a client takes no byte of its answer.
    pub write_timeout: Duration,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            connections_max: 1024,
            head_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(15),
        }
    }
}

/// Pause after a connection could not be accepted: the process has no file descriptors left.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Requests without answer at a time.
pub const CALLS_MAX: usize = 4096;
/// Requests queued for the worker.
pub const QUEUE_MAX: usize = 2 * CALLS_MAX;
/// Seconds after which a client may retry at a node that was not ready.
pub const NOT_READY_WAIT_S: u64 = 1;
/// Bytes of all headers of a request.
pub const HEADERS_LEN_MAX: usize = 16 * 1024;
/// Headers of a request.
pub const HEADERS_MAX: usize = 64;
/// Bytes of the head of a request that are read at all.
pub const HEAD_LEN_MAX: usize = 64 * 1024;
/// Bytes of a body. A record is shorter than its JSON; its own bound is [`PAYLOAD_LEN_MAX`].
pub const BODY_LEN_MAX: usize = 4 * PAYLOAD_LEN_MAX;
/// Bytes of an idempotency key.
pub const IDEMPOTENCY_KEY_LEN_MAX: usize = 255;
/// Idempotency keys of answered requests that the ingress knows; the oldest are dropped first.
pub const KEYS_MAX: usize = 1 << 16;
/// Deadline of a request whose client sets none.
pub const DEADLINE_MS: u64 = 10_000;
/// Longest deadline that a client may set.
pub const DEADLINE_MS_MAX: u64 = 600_000;
/// How long an answer is awaited beyond the deadline.
pub const ANSWER_GRACE: Nanos = Nanos::from_secs(1);
/// Wait before the retry of a request that the platform reports as expired although its deadline
/// has not passed.
pub const EXPIRED_RETRY_AFTER: Nanos = Nanos::from_millis(50);
/// Number of such retries.
pub const EXPIRED_RETRIES_MAX: u32 = 2;
/// Bounds of `Retry-After` for a client that is refused for overload, in seconds.
pub const OVERLOAD_WAIT_S: (u64, u64) = (1, 30);
/// Longest wait for the last answers when the node stops.
pub const CLOSE_GRACE: Duration = Duration::from_millis(300);

const _: () = assert!(KEY_LEN_MAX * 3 < HEADERS_LEN_MAX, "every key fits, escaped");
const _: () = assert!(HEADERS_LEN_MAX < HEAD_LEN_MAX);
const _: () = assert!(PAYLOAD_LEN_MAX < BODY_LEN_MAX);
const _: () = assert!(DEADLINE_MS <= DEADLINE_MS_MAX);
