//! Codes that imports return in place of a result, see docs/abi.md.

/// No such handle.
pub(crate) const NO_HANDLE: i32 = -1;
/// A bound is reached.
pub(crate) const BOUND: i32 = -2;
/// A handle of another kind.
pub(crate) const WRONG_KIND: i32 = -3;
/// The node does not have this accelerator.
pub(crate) const ABSENT: i32 = -5;
/// A length that is not allowed.
pub(crate) const LENGTH: i32 = -6;
/// A time that is too far ahead.
pub(crate) const TIME: i32 = -7;
/// No cron expression.
pub(crate) const CRON: i32 = -8;
/// A key of another slot than the request's.
pub(crate) const SLOT: i32 = -9;
/// No address, method or header field of an outbound request.
pub(crate) const URL: i32 = -20;
/// The manifest does not allow whom an outbound request asks, or the topic.
pub(crate) const NOT_ALLOWED: i32 = -21;
/// No node serves the shard that was called.
pub(crate) const UNAVAILABLE: i32 = -10;
/// No answer to a call in time.
pub(crate) const TIMED_OUT: i32 = -11;
/// The called handler failed.
pub(crate) const FAILED: i32 = -12;
