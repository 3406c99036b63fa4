//! The node program: joins engine, data path, network and agent into one process.
//!
//! One worker core: the thread that calls [`run`] takes datagrams, runs handlers and sends; the
//! agent's threads talk to the controller, the ingress's thread to users' programs. A node goes on
//! serving while the controller is down.

mod agent;
mod config;
mod discard;
mod driver;
mod emulation;
mod executor;
mod follow;
mod heartbeats;
mod ingress;
mod journal;
mod limits;
mod meters;
mod network;
mod parts;
mod processor_time;
mod supplies;

pub use config::{NodeConfig, NodeError};
#[cfg(feature = "clock-offset")]
pub use e3_clock::set_offset_ms;
pub use limits::INSTANCE_MEMORY_LEN_MAX;

use crate::parts::Parts;
use agent::{Api, Outbox};
use driver::{Driver, End};
use e3_clock::Clock;
use e3_engine::{EngineConfig, LogLine, RandomKey, Ticker};
use e3_model::Accelerators;
use e3_model::format::RELEASE;
use e3_model::plan::{NodeHello, process_number};
use e3_net::{Doorbell, Socket};
use executor::Executor;
use follow::{Follower, Wants};
use heartbeats::Heartbeats;
use journal::JournalWriter;
use limits::{EMULATION_TIMER_SLACK_NS, INSTANCES_MAX, PREEMPTION_TICK};
use network::Network;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use supplies::{Supplier, Supplies};

/// Runs a node until SIGTERM or SIGINT.
pub fn run(config: NodeConfig) -> Result<(), NodeError> {
    let system = |what| move |source| NodeError::System { what, source };
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
    let ingress = ingress::Ingress::start(listener, clock, &bell, config.api_token.clone())
        .map_err(system("HTTP ingress"))?;
    tracing::info!(%address, "node serves HTTP");
    let meters =
        meters::Meters::start(config.meters.clone(), clock).map_err(system("meter thread"))?;
    // Before the node joins: from then on it must send heartbeats.
    let rates = e3_engine::accelerator_rates(Accelerators::ALL);
    let mut joins = 0;
    let mut relay: Option<Socket> = None;
    // Differs where the system uses a process id again.
    let started = (clock.now().0 / 1_000_000) as u32;
    while !stop.load(Ordering::Relaxed) {
        let api = Api::new(&config.controller, config.node_token.clone());
        let address = socket.local_address().map_err(system("socket"))?;
        joins += 1;
        let found = journal::read(&config.journal_dir, config.formats)?;
        let relay_address = |relay: &Socket| {
            let address = relay.local_address().map_err(system("relay socket"))?;
            Ok::<_, NodeError>(e3_net::address(address))
        };
        let mut hello = NodeHello {
            name: config.name.clone(),
            address: e3_net::address(address),
            relay: relay.as_ref().map(relay_address).transpose()?,
            process: process_number(std::process::id(), joins ^ started),
            on_disk: found.on_disk.clone(),
            damaged: found.damaged.clone(),
            release: RELEASE.into(),
            formats: config.formats,
        };
        let Some(mut joined) = agent::join(&api, &hello, &clock, &stop)? else {
            break;
        };
        if joined.welcome.relay && relay.is_none() {
            let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into())?;
            hello.relay = Some(relay_address(&socket)?);
            relay = Some(socket);
            match agent::join(&api, &hello, &clock, &stop)? {
                Some(again) => joined = again,
                None => break,
            }
        }
        let welcome = joined.welcome;
        tracing::info!(incarnation = welcome.incarnation, "joined the cluster");
        let (journal, recovery) = found.begin(&config.journal_dir)?;
        let (sender, agent_events) = mpsc::channel();
        let left = Arc::new(AtomicBool::new(false));
        let outbox = Arc::new(Outbox::default());
        let engine = EngineConfig {
            instance_memory_bytes_max: INSTANCE_MEMORY_LEN_MAX,
            instances_max: INSTANCES_MAX,
            cache_dir: Some(config.code_cache_dir()),
            accelerators: welcome.accelerators,
            log: Some(Rc::new(|line: LogLine<'_>| {
                let (service, text) = (line.service, line.text);
                match line.level {
                    1 => tracing::error!(service, "{text}"),
                    2 => tracing::warn!(service, "{text}"),
                    3 => tracing::info!(service, "{text}"),
                    _ => tracing::debug!(service, "{text}"),
                }
            })),
            ..EngineConfig::new(ticker.clone())
        };
        // All nodes of the cluster have the same token.
        let random_key = RandomKey::derive(config.node_token.expose().as_bytes());
        let executor = Executor::new(engine, &rates, random_key, welcome.slowed)?;
        let (plans, plans_to_supply) = mpsc::channel();
        let supplier = Supplier {
            node: welcome.node,
            incarnation: welcome.incarnation,
            api: api.clone(),
            loader: executor.loader(),
            have: Supplies::default(),
            modules: BTreeMap::new(),
            compiled: BTreeSet::new(),
            is_told: false,
            agent_events: sender.clone(),
            bell: bell.clone(),
        };
        supplier.start(plans_to_supply);
        let wants = Arc::<Wants>::default();
        let follower = Follower {
            api: api.clone(),
            welcome,
            agent_events: sender,
            supplier: plans,
            bell: bell.clone(),
            stop: left.clone(),
            wants: wants.clone(),
        };
        follower.start();
        let parts = Parts::start(api.clone(), welcome.node, bell.clone(), left.clone());
        agent::deliver_reports(api, outbox.clone(), left.clone());
        if welcome.slowed || welcome.emulated {
            // The usual slack of 50 us would dwarf the delays that are emulated.
            let _ =
                rustix::thread::set_current_timer_slack(NonZeroU64::new(EMULATION_TIMER_SLACK_NS));
        }
        let sender = socket.sender().map_err(system("socket"))?;
        let heartbeats = Heartbeats::start(sender, e3_net::address(controller), welcome)?;
        let driver = Driver::new(
            joined,
            config.formats,
            Network::new(socket, relay, &welcome),
            bell.clone(),
            clock,
            agent_events,
            outbox,
            wants,
            heartbeats,
            executor,
            ingress.door.clone(),
            JournalWriter::start(journal, bell.clone()),
            parts,
            recovery,
            meters.metered.clone(),
        );
        let (end, network) = driver.run(&stop);
        (socket, relay) = network.into_sockets();
        left.store(true, Ordering::Relaxed);
        match end {
            End::Stopped => {}
            // What this process holds may be old: begin again with what is on disk.
            End::Expelled => {
                tracing::warn!(
                    "the controller gave this node's shards to other nodes; joining again"
                );
            }
            // A real node's system would kill the process; others have copies of what it holds.
            End::OutOfMemory(text) => {
                let name = config.name;
                return Err(NodeError::OutOfMemory { name, text });
            }
            End::DiskFailed(text) => {
                let name = config.name;
                return Err(NodeError::Disk { name, text });
            }
        }
    }
    ingress.stop();
    tracing::info!("stopped");
    Ok(())
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
