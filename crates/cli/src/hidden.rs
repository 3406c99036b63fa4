//! Arguments of the commands that the program gives to itself.

use clap::Args;
use std::path::PathBuf;

/// `e3 supervise`.
#[derive(Args, Debug, Clone)]
pub struct Supervise {
    /// Port of the controller.
    #[arg(long)]
    pub port: u16,
    /// Do not restart processes that end.
    #[arg(long)]
    pub no_restart: bool,
    /// State directory.
    #[arg(long)]
    pub state: PathBuf,
    /// Process to end with.
    #[arg(long)]
    pub parent: Option<u32>,
}

/// `e3 controller-run`.
#[derive(Args, Debug, Clone)]
pub struct ControllerRun {
    /// Port.
    #[arg(long)]
    pub port: u16,
    /// State directory.
    #[arg(long)]
    pub state: PathBuf,
    /// File of the owner's token.
    #[arg(long)]
    pub token_file: PathBuf,
    /// File of the nodes' token.
    #[arg(long)]
    pub node_token_file: PathBuf,
    /// Process to end with.
    #[arg(long)]
    pub parent: Option<u32>,
}

/// `e3 node-run`.
#[derive(Args, Debug, Clone)]
pub struct NodeRun {
    /// Name in the topology.
    #[arg(long)]
    pub name: String,
    /// The controller.
    #[arg(long)]
    pub url: String,
    /// State directory.
    #[arg(long)]
    pub state: PathBuf,
    /// File of the nodes' token, which the node presents to the controller.
    #[arg(long)]
    pub node_token_file: PathBuf,
    /// File of the owner's token, which clients present to the node.
    #[arg(long)]
    pub api_token_file: PathBuf,
    /// Process to end with.
    #[arg(long)]
    pub parent: Option<u32>,
}
