//! Settings of the program.

use crate::limits::ClientTimeouts;
use e3_model::{Nanos, Token, Topology};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Settings of a controller process.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Where the API listens; heartbeats come to the UDP port of the same number.
    pub listen: SocketAddr,
    /// Where everything is kept.
    pub dir: PathBuf,
    /// The hardware. Used at the first start only; later the one on disk counts.
    pub topology: Topology,
    /// Silence after which a node counts as lost.
    pub heartbeat_timeout: Nanos,
    /// What the cluster's owner presents.
    pub owner_token: Token,
    /// What the nodes present.
    pub node_token: Token,
    /// How long clients may take.
    pub client_timeouts: ClientTimeouts,
}
