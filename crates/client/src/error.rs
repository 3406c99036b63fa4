//! Why a client fails.

/// Why a client fails.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No node of the application is known.
    #[error("application {app} has no node that takes requests")]
    NoNodes {
        /// The application.
        app: String,
    },
    /// An address that cannot be read.
    #[error("address {address:?} of a node is not IP:PORT")]
    Address {
        /// The address.
        address: String,
    },
    /// An address outside of this machine.
    #[error("address {address} of a node is not a loopback address")]
    NotLoopback {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// No node serves a shard.
    #[error("no node has served the shard {shard} for {waited_s} s")]
    NotServed {
        /// The shard.
        shard: e3_model::ShardKey,
        /// How long it was tried.
        waited_s: u64,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Its answer.
        source: std::io::Error,
    },
}
