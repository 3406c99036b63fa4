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
