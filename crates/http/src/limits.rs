//! Bounds of the HTTP servers.

/// Bytes of an error's text that the framework gave.
pub(crate) const ERROR_LEN_MAX: usize = 64 << 10;
