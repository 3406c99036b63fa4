//! The node program: joins engine, data path, network and agent into one process.
//!
//! One worker core: the thread that calls [`run`] takes datagrams, runs handlers and sends; the
//! agent's threads talk to the controller, the ingress's thread to users' programs. A node goes on
//! serving while the controller is down.

mod agent;
mod complaints;
mod config;
mod discard;
mod driver;
mod emulation;
mod essential;
mod executor;
mod failed_starts;
mod follow;
mod heartbeats;
mod idle;
mod ingress;
mod journal;
mod limits;
mod meters;
mod network;
mod outbox;
mod owner;
mod parts;
mod process;
mod processor_time;
mod resolver;
mod supplies;

pub use config::{NodeConfig, NodeError};
#[cfg(feature = "clock-offset")]
pub use e3_clock::set_offset_ms;
pub use limits::{INSTANCE_MEMORY_LEN_MAX, TURN_MAX};
pub use resolver::AddressResolver;

use agent::Api;
use driver::End;
use e3_clock::Clock;
use e3_engine::Ticker;
use e3_model::Accelerators;
use e3_net::{Doorbell, Socket};
use limits::PREEMPTION_TICK;
use process::{Process, Surroundings};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a node until SIGTERM or SIGINT.
pub fn run(config: NodeConfig) -> Result<(), NodeError> {
    seed_hashes();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, stop.clone()).map_err(system("signal handler"))?;
    }
    let controller = controller_address(&config.controller)?;
    let clock = Clock::new();
    config.meters.validate()?;
    let ticker = Ticker::new(PREEMPTION_TICK).map_err(system("preemption clock"))?;
    let bell = Doorbell::new().map_err(system("doorbell"))?;
    let (mut socket, listener) = ingress::bind()?;
    let address = socket.local_address().map_err(system("socket"))?;
    let ingress = ingress::Ingress::start(listener, clock, &bell, config.api_token.clone())?;
    tracing::info!(%address, "node serves HTTP");
    let meters =
        meters::Meters::start(config.meters.clone(), clock).map_err(system("meter thread"))?;
    // Before the node joins: from then on it must send heartbeats.
    let rates = e3_engine::accelerator_rates(Accelerators::ALL);
    let mut relay: Option<Socket> = None;
    let mut process = Process::new(Surroundings {
        api: Api::new(&config.controller, config.node_token.clone()),
        config,
        controller,
        clock,
        ticker,
        bell,
        rates,
        door: ingress.door.clone(),
        metered: meters.metered.clone(),
    });
    while !stop.load(Ordering::Relaxed) {
        let found = process.found()?;
        let Some(joined) = process.join(&socket, &mut relay, &found, &stop)? else {
            break;
        };
        let (end, network) = process.serve(joined, found, socket, relay, &stop)?;
        (socket, relay) = network.into_sockets();
        let name = process.name();
        match end {
            End::Stopped => {}
            // What this process holds may be old: begin again with what is on disk.
            End::Expelled => {
                tracing::warn!(
                    "the controller gave this node's shards to other nodes; joining again"
                );
            }
            // A real node's system would kill the process; others have copies of what it holds.
            End::OutOfMemory(text) => return Err(NodeError::OutOfMemory { name, text }),
            End::DiskFailed(text) => return Err(NodeError::Disk { name, text }),
        }
    }
    ingress.stop();
    tracing::info!("stopped");
    Ok(())
}

fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> NodeError {
    move |source| NodeError::System { what, source }
}

fn controller_address(url: &str) -> Result<SocketAddr, NodeError> {
    let error = || NodeError::Controller(url.to_string());
    let authority = url
        .strip_prefix("http://")
        .ok_or_else(error)?
        .trim_end_matches('/');
    authority
        .to_socket_addrs()
        .map_err(|_| error())?
        .next()
        .ok_or_else(error)
}

/// Makes the hashes of keys differ from those of other processes, so that no client can choose keys of one hash.
fn seed_hashes() {
    let mut seed = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    // Without random bytes from the system the hashes stay what they are.
    if rustix::rand::getrandom(&mut seed, flags) == Ok(seed.len()) {
        e3_collections::seed_hashes(u64::from_le_bytes(seed));
    }
}
