//! Power models: what a placement costs in watts and joules.
//!
//! [`power`] says what a server draws (from the paper's Tables 1 and 4), [`knee`] how fast an
//! application can go on given nodes and what that costs, [`paper`] holds the tables and derives the
//! profiles from them. All of it carries [`e3_model::profile::Provenance::Modelled`].

pub mod knee;
pub mod limits;
pub mod paper;
pub mod power;

pub use knee::{
    Bottleneck, IdleServers, Instance, Knee, KneeInput, ModelError, NodeUse, ServerUse,
};
pub use power::{HostFit, PowerModel, Residual, Scale, System, UnknownSystem};
