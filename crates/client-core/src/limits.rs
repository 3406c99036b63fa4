//! Bounds and timers of requests.

use e3_model::Nanos;

/// Wait for an answer before the first retry.
pub const RETRY_AFTER: Nanos = Nanos::from_millis(500);
/// Growth of the wait with each attempt: numerator, denominator.
pub const RETRY_GROWTH: (u64, u64) = (3, 2);
/// Longest wait between two attempts.
pub const RETRY_AFTER_MAX: Nanos = Nanos::from_secs(3);
/// Longest wait between two attempts when answers take long.
pub const SLOW_REPLY_WAIT_MAX: Nanos = Nanos::from_secs(10);
/// What is known of slow replies counts half after each such time without another one.
pub const REPLY_TIME_HALVED_AFTER: Nanos = Nanos::from_secs(1);
/// Wait before the retry of a request that a node rejected (it may have no plan yet).
pub const REJECTED_RETRY_AFTER: Nanos = Nanos::from_millis(50);
/// How long an answer is awaited beyond the deadline; then the outcome is unknown.
pub const ANSWER_GRACE: Nanos = Nanos::from_secs(1);
/// Wait between two attempts to learn the outcome after the deadline. If a fifth of all datagrams is
/// lost, on three hops for request and answer, half of the attempts fail: after ten of them one request
/// in a thousand is left without an outcome.
pub const ASK_AGAIN_AFTER: Nanos = Nanos::from_millis(100);
/// Bytes of a datagram after which no further request is packed into it.
pub const DATAGRAM_LEN_GOAL: usize = 16 * 1024;
/// Identities of requests with an idempotency key that a client remembers.
pub const KEYED_IDS_MAX: usize = 4096;

const _: () = assert!(DATAGRAM_LEN_GOAL < e3_wire::limits::DATAGRAM_LEN_MAX);
