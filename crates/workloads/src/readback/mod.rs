//! Reads the state of an application back: queries with retry, facts and scores.

pub(crate) mod checks;
pub(crate) mod queries;
pub(crate) mod score;
