//! The processes that `e3 up` starts: this program as a controller or as a node.

use crate::cluster::credentials::read_token;
use crate::cluster::meters::Meters;
use crate::cluster::process::raise_open_files;
use crate::cluster::state_dir::StateDir;
use crate::cluster::supervisor::end_with_parent;
use crate::ui::failure::{Exit, Failure};
use clap::Args;
use e3_controller::{ClientTimeouts, ControllerConfig, ControllerError, RATE_LIMIT};
#[cfg(feature = "formats")]
use e3_model::Format;
use e3_model::Formats;
use e3_model::timing::HEARTBEAT_TIMEOUT;
use e3_node::NodeConfig;
use std::net::SocketAddr;
use std::path::Path;
use std::path::PathBuf;

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
    /// Shards of the table of heartbeats.
    #[arg(long, env = "E3_HEARTBEAT_SHARDS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub heartbeat_shards: u16,
    /// Program of the solver HiGHS, which the placer ilp runs.
    #[arg(long, env = "E3_HIGHS", default_value = "highs")]
    pub highs: PathBuf,
    /// Process whose end is to end this one.
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
    /// Where compiled modules are kept instead of in the state directory.
    #[arg(long, env = "E3_CODE_CACHE", value_name = "DIR")]
    pub code_cache: Option<PathBuf>,
    /// Process whose end is to end this one.
    #[arg(long)]
    pub parent: Option<u32>,
    /// Its energy meters.
    #[command(flatten)]
    pub meters: Meters,
}

/// `e3 controller-run`.
pub fn controller(args: &ControllerRun) -> Result<(), Failure> {
    recorded(&args.state, "controller", run_controller(args))
}

/// `e3 node-run`.
pub fn node(args: &NodeRun) -> Result<(), Failure> {
    recorded(&args.state, &args.name, run_node(args))
}

/// Records a failure for the supervisor, which reports it if the cluster is starting.
fn recorded(state: &Path, name: &str, ended: Result<(), Failure>) -> Result<(), Failure> {
    ended.inspect_err(|failure| {
        let _ = StateDir::new(state).write_start_failure(name, failure);
    })
}

/// The formats that this program reads and can write.
#[cfg(not(feature = "formats"))]
pub fn formats() -> Result<Formats, Failure> {
    Ok(Formats::PROGRAM)
}

/// What `E3_FORMATS` says, such as `7-10`, so that one build can stand for two releases.
#[cfg(feature = "formats")]
pub fn formats() -> Result<Formats, Failure> {
    let Ok(text) = std::env::var("E3_FORMATS") else {
        return Ok(Formats::PROGRAM);
    };
    let number = |text: &str| text.parse().ok().map(Format);
    let ends = text.split_once('-');
    let ends = ends.and_then(|(oldest, newest)| Some((number(oldest)?, number(newest)?)));
    let formats = ends.and_then(|(oldest, newest)| Formats::new(oldest, newest).ok());
    formats.ok_or_else(|| {
        let message = format!("E3_FORMATS is {text:?}, must be two formats such as 7-10");
        Failure::new(Exit::Input, message)
    })
}

fn run_controller(args: &ControllerRun) -> Result<(), Failure> {
    raise_open_files();
    if let Some(parent) = args.parent {
        end_with_parent(parent)?;
    }
    let state = StateDir::new(&args.state);
    let config = ControllerConfig {
        formats: formats()?,
        listen: SocketAddr::from(([127, 0, 0, 1], args.port)),
        dir: state.controller_dir(),
        topology: state.stored_topology()?,
        durability: state.durability(),
        heartbeat_timeout: HEARTBEAT_TIMEOUT,
        owner_token: read_token(&args.token_file)?,
        node_token: read_token(&args.node_token_file)?,
        secret_key_file: state.secret_key_file()?,
        makes_secret_key: state.makes_secret_key(),
        heartbeat_shards: args.heartbeat_shards,
        highs: args.highs.clone(),
        rate_limit: RATE_LIMIT,
        client_timeouts: ClientTimeouts::default(),
    };
    e3_controller::run(config).map_err(|e| match e {
        ControllerError::InUse(_) => {
            Failure::new(Exit::Conflict, e).hint("choose another with --port PORT")
        }
        ControllerError::SecretKey(_) => Failure::new(Exit::Input, e),
        _ => Failure::new(Exit::Unexpected, e),
    })
}

fn run_node(args: &NodeRun) -> Result<(), Failure> {
    raise_open_files();
    if let Some(parent) = args.parent {
        end_with_parent(parent)?;
    }
    #[cfg(feature = "clock-offset")]
    {
        let file = StateDir::new(&args.state).clock_offset_file(&args.name);
        let text = std::fs::read_to_string(file).unwrap_or_default();
        e3_node::set_offset_ms(text.trim().parse().unwrap_or_default());
    }
    let state = StateDir::new(&args.state);
    let config = NodeConfig {
        name: args.name.clone(),
        formats: formats()?,
        controller: args.url.clone(),
        code_cache_dir: args.code_cache.clone().unwrap_or(state.code_cache_dir()),
        journal_dir: state.journal_dir(&args.name),
        node_token: read_token(&args.node_token_file)?,
        api_token: read_token(&args.api_token_file)?,
        meters: args.meters.config()?,
    };
    e3_node::run(config).map_err(|e| Failure::new(Exit::Unexpected, e))
}
