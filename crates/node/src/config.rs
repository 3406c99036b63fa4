//! Settings of a node process, and the errors that end it.

use e3_dataplane::RecoveryError;
use e3_energy::{ChoiceError, MeterConfig};
use e3_engine::EngineError;
use e3_model::{Formats, Token};
use e3_net::NetError;
use e3_store::StoreError;
use std::path::PathBuf;

/// Settings of a node process.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The node's name in the topology.
    pub name: String,
    /// Formats that this process reads and can write.
    pub formats: Formats,
    /// The controller, such as `http://127.0.0.1:7300`; heartbeats go to the same port.
    pub controller: String,
    /// Where compiled modules are kept. Nodes of one machine share it, so that each module is compiled once.
    pub code_cache_dir: PathBuf,
    /// Where this node alone keeps the state of services with `durability: disk`.
    pub journal_dir: PathBuf,
    /// What the node presents to the controller.
    pub node_token: Token,
    /// What clients of the node's HTTP ingress present.
    pub api_token: Token,
    /// Its energy meters.
    pub meters: MeterConfig,
}

/// Why a node process ends.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The controller's address makes no sense.
    #[error("controller {0:?} is not an address such as http://127.0.0.1:7300")]
    Controller(String),
    /// The controller does not want it.
    #[error("node {name:?} was refused with status {status}: {text}")]
    Refused {
        /// The node.
        name: String,
        /// HTTP status.
        status: u16,
        /// The controller's words.
        text: String,
    },
    /// The process of an emulated node used more memory than the node has.
    #[error("node {name:?}: {text}")]
    OutOfMemory {
        /// The node.
        name: String,
        /// How much it used, and how much it has.
        text: String,
    },
    /// What was written to its journal may be lost: the next process reads what is there.
    #[error("node {name:?}: its disk failed: {text}")]
    Disk {
        /// The node.
        name: String,
        /// What the system says.
        text: String,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] StoreError),
    /// The journal makes no sense.
    #[error("{dir}: {source}; restore the directory from a copy, or move it away to start without it", dir = dir.display())]
    Recovery {
        /// Where it is.
        dir: PathBuf,
        /// What is wrong.
        source: RecoveryError,
    },
    /// The journal is that of another node.
    #[error("{dir} has the journal of node {found}, and this is node {node}; give each node its own disk", dir = dir.display())]
    OtherNode {
        /// Where it is.
        dir: PathBuf,
        /// Whose it is.
        found: String,
        /// This node.
        node: String,
    },
    /// The chosen meters make no sense.
    #[error(transparent)]
    Meters(#[from] ChoiceError),
    /// No socket.
    #[error(transparent)]
    Net(#[from] NetError),
    /// No engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The system refuses something else.
    #[error("{what}: {source}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// The system's words.
        source: std::io::Error,
    },
}
