//! All integration tests of the crate in one program: each program links the whole crate again.

mod admit;
mod annealing;
mod budget;
mod by_hand;
mod common;
mod constraints;
mod follow;
mod iot_ts;
mod levels;
mod linear;
mod loss;
mod objective;
mod properties;
mod quality;
mod traffic;
mod weigh;
