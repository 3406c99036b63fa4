//! Settings of the program.

use crate::limits::ClientTimeouts;
use crate::rate::RateLimit;
use e3_model::application::Durability;
use e3_model::{Formats, Nanos, Token, Topology};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Settings of a controller process.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Where the API listens; heartbeats go to the UDP port of the same number.
    pub listen: SocketAddr,
    /// Formats that this process reads and can write.
    pub formats: Formats,
    /// The directory of all files.
    pub dir: PathBuf,
    /// The topology. Used at the first start only; later the one on disk counts.
    pub topology: Topology,
    /// Durability of stateful services whose manifests give none.
    pub durability: Durability,
    /// Silence after which a node counts as lost.
    pub heartbeat_timeout: Nanos,
    /// The token of the cluster's owner.
    pub owner_token: Token,
    /// The token of the nodes.
    pub node_token: Token,
    /// File of the key that secrets are encrypted under.
    pub secret_key_file: PathBuf,
    /// Whether the key is made if the file is missing and nothing is encrypted yet.
    pub makes_secret_key: bool,
    /// Shards of the table of heartbeats, 1..=[`SHARDS_MAX`](e3_control::limits::SHARDS_MAX).
    pub heartbeat_shards: u16,
    /// Program of the solver HiGHS, which the placer `ilp` runs.
    pub highs: PathBuf,
    /// How many requests each token may make.
    pub rate_limit: RateLimit,
    /// How long clients may take.
    pub client_timeouts: ClientTimeouts,
}
