//! Types of the platform: ids, units, topology, application, profile, plan; manifests are parsed
//! and validated here.
//!
//! Every crate shares these types, so this one knows neither files nor clocks nor networks.

pub mod accelerator;
mod access;
pub mod api;
pub mod application;
pub mod backup;
mod bounds;
mod commands;
pub mod cron;
pub mod dag;
mod deliberate;
pub mod document;
mod emulation;
pub mod event;
pub mod format;
pub mod growth;
pub mod http_access;
pub mod ids;
mod latency;
pub mod limits;
mod load;
pub mod meter;
mod node_report;
mod operate;
pub mod orchestrator;
pub mod outbound;
mod outcome;
pub mod pending;
pub mod plan;
pub mod plan_change;
pub mod power;
pub mod profile;
pub mod reshard;
pub mod service_timer;
pub mod shard_bounds;
pub mod status;
mod time;
pub mod timer;
pub mod timing;
pub mod token;
pub mod topic;
pub mod topology;
pub mod units;
mod validate;
mod validate_service;
mod validate_timers;
mod validate_topology;
pub mod visits;

pub use accelerator::{Accelerator, Accelerators};
pub use access::{AccessRole, Sealed};
pub use application::{Application, AssetFormat};
pub use document::{Document, Kind, ManifestError};
pub use emulation::Emulation;
pub use format::{Format, Formats};
pub use ids::{
    Address, AppId, EdgeId, MessageId, NodeId, RequestId, ServiceId, ShardId, ShardKey, Slot,
    TraceContext, Via,
};
pub use latency::Latency;
pub use outcome::Outcome;
pub use power::{PowerCaps, PowerDomain};
pub use profile::Profile;
pub use status::DropReason;
pub use time::Timestamp;
pub use token::{Token, TokenError};
pub use topology::{NodeKind, Topology};

pub use units::{Bytes, Joules, Nanos, Watts};
pub use validate::check_name;
