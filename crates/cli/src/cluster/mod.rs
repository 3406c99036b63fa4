//! A cluster on this machine: its processes, its state directory, and its controller's API.

pub mod access;
pub mod client;
pub mod credentials;
pub mod durable;
mod managed;
pub mod meters;
mod orchestrator;
pub mod patience;
pub mod process;
pub mod programs;
pub mod removal;
pub mod start;
pub mod state_dir;
pub mod stop;
pub mod supervisor;
mod watch;
