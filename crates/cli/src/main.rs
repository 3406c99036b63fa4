//! The `e3` program.
fn main() {}
