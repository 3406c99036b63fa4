//! Switches of `e3 sim`: mechanisms, hardware, and what changes in the course of a run.

use crate::ui::failure::{Exit, Failure};
use clap::{Args, ValueEnum};
use e3_hardware::interconnect::Interconnect;
use e3_hardware::stack::Stack;
use e3_model::orchestrator::{OrchestratorMode, OrchestratorSettings};
use e3_perfsim::{HostPort, Options, Steering};
use e3_power::IdleServers;

/// What changes in the course of a run.
#[derive(Args, Debug, Clone)]
pub struct Changes {
    /// The product's orchestrator watches the SmartNICs: off, on, or dry-run, which records its decisions
    #[arg(long, value_enum, default_value_t = Orchestrate::Off, conflicts_with = "sweep")]
    pub orchestrator: Orchestrate,
    /// A node fails, and comes back if a second time is given
    #[arg(
        long = "fail",
        value_name = "NODE@SECONDS[..SECONDS]",
        conflicts_with = "sweep"
    )]
    pub nodes: Vec<String>,
    /// The link between a node's port and the rack's switch fails, or one of a rack to those above
    #[arg(
        long = "fail-link",
        value_name = "NODE|RACK/NUMBER@SECONDS[..SECONDS]",
        conflicts_with = "sweep"
    )]
    pub links: Vec<String>,
}

/// Mode of the orchestrator.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Orchestrate {
    /// It carries out its decisions
    On,
    /// It makes none
    Off,
    /// It records them and moves nothing
    DryRun,
}

impl Orchestrate {
    /// Its settings in the product.
    pub fn settings(self) -> OrchestratorSettings {
        OrchestratorSettings {
            mode: match self {
                Orchestrate::On => OrchestratorMode::On,
                Orchestrate::Off => OrchestratorMode::Off,
                Orchestrate::DryRun => OrchestratorMode::DryRun,
            },
            ..OrchestratorSettings::default()
        }
    }
}

/// Mechanisms and hardware.
#[derive(Args, Debug, Clone)]
pub struct Switches {
    /// Hide from the placer how far nodes are from each other
    #[arg(long)]
    pub no_topology_awareness: bool,
    /// Idle cores of hosts stay awake
    #[arg(long)]
    pub no_sleep: bool,
    /// Links between servers
    #[arg(long, value_enum, default_value_t = Wire::Ethernet)]
    pub interconnect: Wire,
    /// RoCE without hardware-assisted batching
    #[arg(long)]
    pub no_batching: bool,
    /// How a host with SmartNICs reaches the network
    #[arg(long, value_enum, default_value_t = Port::Shared)]
    pub host_port: Port,
    /// Which hardware thread a message of a stateless service takes
    #[arg(long, value_enum, default_value_t = Steer::RoundRobin)]
    pub steering: Steer,
    /// What servers without an instance do
    #[arg(long, value_enum, default_value_t = Idle::On)]
    pub idle_servers: Idle,
    /// Network stack of hosts
    #[arg(long, value_enum, default_value_t = NetworkStack::Bypass)]
    pub stack: NetworkStack,
    /// Another value for a parameter that is a guess
    #[arg(long = "guess", value_name = "NAME=VALUE")]
    pub guesses: Vec<String>,
}

/// Links between servers.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// As in E3
    Ethernet,
    /// RoCE with hardware-assisted batching
    Roce,
}

/// How a host with SmartNICs reaches the network.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Port {
    /// Over the ports of its SmartNICs
    Shared,
    /// Over a port of its own
    Dedicated,
}

/// Steering.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Steer {
    /// One after the other
    RoundRobin,
    /// Any that is free
    Shared,
}

/// Servers without an instance.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// They draw their idle power
    On,
    /// They draw nothing
    Asleep,
}

/// Network stack of hosts.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkStack {
    /// Kernel bypass
    Bypass,
    /// Linux sockets
    Linux,
}

impl Switches {
    /// The simulator's options, without faults.
    pub fn options(&self) -> Result<Options, Failure> {
        let batching = !self.no_batching;
        if self.no_batching && self.interconnect == Wire::Ethernet {
            let message = "--no-batching has no effect: only RoCE batches";
            return Err(Failure::new(Exit::Input, message).hint("add --interconnect roce"));
        }
        let mut options = Options {
            sleep: !self.no_sleep,
            interconnect: match self.interconnect {
                Wire::Ethernet => Interconnect::Ethernet,
                Wire::Roce => Interconnect::Roce { batching },
            },
            steering: match self.steering {
                Steer::RoundRobin => Steering::RoundRobin,
                Steer::Shared => Steering::Shared,
            },
            host_port: match self.host_port {
                Port::Shared => HostPort::Shared,
                Port::Dedicated => HostPort::Dedicated,
            },
            idle_servers: match self.idle_servers {
                Idle::On => IdleServers::On,
                Idle::Asleep => IdleServers::Asleep,
            },
            stack: match self.stack {
                NetworkStack::Bypass => Stack::Bypass,
                NetworkStack::Linux => Stack::Linux,
            },
            ..Options::default()
        };
        for text in &self.guesses {
            let wrong = |e: String| Failure::new(Exit::Input, e);
            let parsed = text
                .split_once('=')
                .and_then(|(n, v)| Some((n, v.parse().ok()?)));
            let (name, value) =
                parsed.ok_or_else(|| wrong(format!("guess {text:?} is not NAME=VALUE")))?;
            options
                .guesses
                .set(name, value)
                .map_err(|e| wrong(e.to_string()))?;
        }
        Ok(options)
    }
}
