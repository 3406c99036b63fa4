//! What people and scripts see: output, errors, numbers, and values that they type.

pub mod exchange;
pub mod failure;
pub mod output;
pub mod text;
pub mod values;
