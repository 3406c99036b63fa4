//! Bounds of outbound HTTP requests.

use std::time::Duration;

/// Threads that perform requests.
pub const THREADS_MAX: usize = 32;
/// Requests to one host and port at a time, so that a slow host does not take all threads.
pub const HOST_REQUESTS_MAX: usize = 8;
/// Requests that the threads know of; further ones wait in order.
pub const QUEUE_LEN_MAX: usize = 4096;
/// How long a connection may take to be made, TLS included.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long one attempt may take.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(30);
/// Wait after the first attempt; it doubles with each further one.
pub const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest wait between two attempts, unless the server asks for more.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Bytes of all header fields of a response.
pub const RESPONSE_HEADERS_LEN_MAX: usize = 64 << 10;
/// Connections that are kept for further requests.
pub const IDLE_CONNECTIONS_MAX: usize = 64;
/// Connections to one host and port that are kept.
pub const IDLE_HOST_CONNECTIONS_MAX: usize = HOST_REQUESTS_MAX;
/// Bytes of a reason that takes the place of an answer.
pub const REASON_LEN_MAX: usize = 1024;
/// Bytes of the reason why an attempt failed, as lists of pending requests show it.
pub const LAST_ERROR_LEN_MAX: usize = 200;

const _: () = assert!(HOST_REQUESTS_MAX < THREADS_MAX, "two hosts at least");
