//! The user interface: output, errors, formatted numbers, and the values that users type.

pub mod exchange;
pub mod failure;
pub mod interrupt;
pub mod output;
pub mod text;
pub mod values;
