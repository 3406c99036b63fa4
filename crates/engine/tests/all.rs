//! All integration tests of the crate in one program: each program links the whole crate again.

mod accelerators;
mod call;
mod common;
mod engine;
mod lifecycle;
mod outbound;
mod random;
mod refused;
mod timers;
mod topics;
