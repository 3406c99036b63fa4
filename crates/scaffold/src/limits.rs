//! Bounds of new projects.

/// Longest name of a service.
pub(crate) const NAME_LEN_MAX: usize = 63;
