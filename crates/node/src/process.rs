//! A process of a node, from joining the cluster to its end as a member. One that was expelled joins
//! again.

use crate::agent::{self, Api, Joined, LatestKey};
use crate::config::{NodeConfig, NodeError};
use crate::driver::{Driver, End};
use crate::executor::Executor;
use crate::follow::{Follower, Wants};
use crate::heartbeats::Heartbeats;
use crate::journal::{self, Found, JournalWriter};
use crate::limits::{EMULATION_TIMER_SLACK_NS, INSTANCE_MEMORY_LEN_MAX, INSTANCES_MAX};
use crate::meters::Metered;
use crate::network::Network;
use crate::outbox::{Outbox, deliver_reports};
use crate::owner;
use crate::parts::Parts;
use crate::supplies::{Supplier, Supplies};
use crate::system;
use e3_clock::Clock;
use e3_engine::{EngineConfig, LogLine, RandomKey, Ticker};
use e3_ingress::Door;
use e3_model::format::RELEASE;
use e3_model::plan::{NodeHello, NodeWelcome, process_number};
use e3_model::{Accelerator, Address};
use e3_net::{Doorbell, Socket};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

/// What a process has before it joins, and keeps when it joins again.
pub(crate) struct Surroundings {
    pub(crate) config: NodeConfig,
    pub(crate) api: Api,
    /// Where heartbeats go.
    pub(crate) controller: SocketAddr,
    pub(crate) clock: Clock,
    pub(crate) ticker: Ticker,
    pub(crate) bell: Doorbell,
    /// How fast each accelerator is here.
    pub(crate) rates: Vec<(Accelerator, f64)>,
    /// Where requests over HTTP come from.
    pub(crate) door: Rc<Door>,
    pub(crate) metered: Metered,
}

/// A process of a node.
pub(crate) struct Process {
    with: Surroundings,
    /// In ms; differs where the system uses a process id again.
    started: u32,
    joins: u32,
}

impl Process {
    pub(crate) fn new(with: Surroundings) -> Process {
        let started = (with.clock.now().0 / 1_000_000) as u32;
        Process {
            with,
            started,
            joins: 0,
        }
    }

    pub(crate) fn name(&self) -> String {
        self.with.config.name.clone()
    }

    /// What is on the disk.
    pub(crate) fn found(&self) -> Result<Found, NodeError> {
        let config = &self.with.config;
        owner::check(&config.journal_dir, &config.name)?;
        journal::read(&config.journal_dir, config.formats)
    }

    /// Joins the cluster; None if it was stopped first. A node that relays its server's traffic opens a
    /// socket for that and says so.
    pub(crate) fn join(
        &mut self,
        socket: &Socket,
        relay: &mut Option<Socket>,
        found: &Found,
        stop: &AtomicBool,
    ) -> Result<Option<Joined>, NodeError> {
        self.joins += 1;
        let config = &self.with.config;
        let mut hello = NodeHello {
            name: config.name.clone(),
            address: address_of(socket)?,
            relay: relay.as_ref().map(address_of).transpose()?,
            process: process_number(std::process::id(), self.joins ^ self.started),
            on_disk: found.on_disk.clone(),
            damaged: found.damaged.clone(),
            release: RELEASE.into(),
            formats: config.formats,
        };
        let (api, clock) = (&self.with.api, &self.with.clock);
        let Some(mut joined) = agent::join(api, &hello, clock, stop)? else {
            return Ok(None);
        };
        if joined.welcome.relay && relay.is_none() {
            let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into())?;
            hello.relay = Some(address_of(&socket)?);
            *relay = Some(socket);
            match agent::join(api, &hello, clock, stop)? {
                Some(again) => joined = again,
                None => return Ok(None),
            }
        }
        let incarnation = joined.welcome.incarnation;
        tracing::info!(incarnation, "joined the cluster");
        Ok(Some(joined))
    }

    /// Serves as a member of the cluster. Its threads end with it.
    pub(crate) fn serve(
        &self,
        joined: Joined,
        found: Found,
        socket: Socket,
        relay: Option<Socket>,
        stop: &AtomicBool,
    ) -> Result<(End, Network), NodeError> {
        let (with, welcome) = (&self.with, joined.welcome);
        let (journal, recovery) = found.begin(&with.config.journal_dir)?;
        owner::note(&with.config.journal_dir, &with.config.name);
        let executor = self.executor(&welcome)?;
        let (agent_sender, agent_events) = mpsc::channel();
        let (plans, plans_to_supply) = mpsc::channel();
        let left = Arc::new(AtomicBool::new(false));
        let supplier = Supplier {
            node: welcome.node,
            incarnation: welcome.incarnation,
            api: with.api.clone(),
            loader: executor.loader(),
            have: Supplies::default(),
            modules: BTreeMap::new(),
            compiled: BTreeSet::new(),
            loads_again: false,
            is_told: false,
            complaints: BTreeMap::new(),
            agent_events: agent_sender.clone(),
            bell: with.bell.clone(),
        };
        supplier.start(plans_to_supply)?;
        let (wants, key) = (Arc::<Wants>::default(), LatestKey::default());
        let follower = Follower {
            api: with.api.clone(),
            welcome,
            agent_events: agent_sender,
            supplier: plans,
            bell: with.bell.clone(),
            stop: left.clone(),
            wants: wants.clone(),
            key: key.clone(),
        };
        follower.start()?;
        let bell = || with.bell.clone();
        let parts = Parts::start(with.api.clone(), welcome.node, bell(), left.clone())?;
        let outbox = Arc::new(Outbox::default());
        deliver_reports(with.api.clone(), outbox.clone(), left.clone())?;
        if welcome.slowed || welcome.emulated {
            // The usual slack of 50 us would dwarf the delays that are emulated.
            let _ =
                rustix::thread::set_current_timer_slack(NonZeroU64::new(EMULATION_TIMER_SLACK_NS));
        }
        let sender = socket.sender().map_err(system("socket"))?;
        let controller = e3_net::address(with.controller);
        let heartbeats = Heartbeats::start(sender, controller, welcome, key)?;
        let driver = Driver::new(
            joined,
            with.config.formats,
            Network::new(socket, relay, &welcome),
            bell(),
            with.clock,
            agent_events,
            outbox,
            wants,
            heartbeats,
            executor,
            with.door.clone(),
            JournalWriter::start(journal, bell())?,
            parts,
            recovery,
            with.metered.clone(),
        );
        let ended = driver.run(stop);
        left.store(true, Ordering::Relaxed);
        Ok(ended)
    }

    fn executor(&self, welcome: &NodeWelcome) -> Result<Executor, NodeError> {
        let config = &self.with.config;
        let engine = EngineConfig {
            instance_memory_bytes_max: INSTANCE_MEMORY_LEN_MAX,
            instances_max: INSTANCES_MAX,
            cache_dir: Some(config.code_cache_dir.clone()),
            accelerators: welcome.accelerators,
            log: Some(Rc::new(log)),
            ..EngineConfig::new(self.with.ticker.clone())
        };
        // All nodes of the cluster have the same token.
        let random_key = RandomKey::derive(config.node_token.expose().as_bytes());
        Ok(Executor::new(
            engine,
            &self.with.rates,
            random_key,
            welcome.slowed,
        )?)
    }
}

/// Logs what a service says.
fn log(line: LogLine<'_>) {
    let (service, text) = (line.service, line.text);
    match line.level {
        1 => tracing::error!(service, "{text}"),
        2 => tracing::warn!(service, "{text}"),
        3 => tracing::info!(service, "{text}"),
        _ => tracing::debug!(service, "{text}"),
    }
}

fn address_of(socket: &Socket) -> Result<Address, NodeError> {
    let address = socket.local_address().map_err(system("socket"))?;
    Ok(e3_net::address(address))
}
