//! All integration tests of the crate in one program: each program links the whole crate again.

mod access;
mod api;
mod common;
mod energy;
mod full_disk;
mod hearing;
mod newer_log;
mod older_log;
mod operate;
mod orchestrator;
mod placers;
mod plans;
mod power;
mod secrets;
mod solvers;
mod status;
mod tokens;
mod topics;
