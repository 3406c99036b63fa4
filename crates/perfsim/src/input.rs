//! What is simulated, what can be switched, and what cannot be simulated.

use crate::faults::Fault;
use e3_hardware::Guesses;
use e3_hardware::interconnect::Interconnect;
use e3_hardware::measured::Measured;
use e3_hardware::service_time::ServiceTimeError;
use e3_hardware::stack::{Stack, StackError};
use e3_model::{Application, NodeId, Profile, ServiceId, Topology};
use e3_placement::Placement;
use e3_power::{IdleServers, PowerModel, UnknownSystem};
use std::collections::BTreeMap;

/// How messages for a stateless service find a hardware thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Steering {
    /// One thread after the other, each with a queue of its own, as in E3.
    RoundRobin,
    /// All threads of a node share a queue.
    Shared,
}

/// How a host with SmartNICs reaches the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostPort {
    /// Over the ports of its SmartNICs by ECMP, as in E3. Their bandwidth is that of all nodes of the
    /// server.
    Shared,
    /// Over a port of its own.
    Dedicated,
}

/// What can be switched or changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Parameters that no source gives.
    pub guesses: Guesses,
    /// Idle cores of hosts sleep.
    pub sleep: bool,
    /// Links between servers.
    pub interconnect: Interconnect,
    /// Of stateless services.
    pub steering: Steering,
    /// Of hosts with SmartNICs.
    pub host_port: HostPort,
    /// What servers without an instance do.
    pub idle_servers: IdleServers,
    /// Network stack of hosts.
    pub stack: Stack,
    /// What fails.
    pub faults: Vec<Fault>,
    /// A machine that was measured, instead of the models of cores and hops.
    pub machine: Option<Measured>,
    /// The service that answers the client, if the answer does not wait for all messages of the request. A
    /// request that does not reach it is answered when its last message is committed.
    pub answered_by: Option<ServiceId>,
    /// What servers draw.
    pub power: PowerModel,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            guesses: Guesses::default(),
            sleep: true,
            interconnect: Interconnect::Ethernet,
            steering: Steering::RoundRobin,
            host_port: HostPort::Shared,
            idle_servers: IdleServers::On,
            stack: Stack::default(),
            faults: Vec::new(),
            machine: None,
            answered_by: None,
            power: PowerModel::paper(),
        }
    }
}

/// What is simulated.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The application.
    pub app: &'a Application,
    /// Profiles by name.
    pub profiles: &'a BTreeMap<String, Profile>,
    /// The cluster.
    pub topology: &'a Topology,
    /// Where the instances are.
    pub placement: &'a Placement,
    /// Handled messages per request of a client, by service.
    pub visits: &'a [f64],
    /// Size of a message.
    pub request_bytes: u32,
    /// Switches.
    pub options: &'a Options,
}

/// What cannot be simulated.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ModelError {
    /// No power model.
    #[error(transparent)]
    System(#[from] UnknownSystem),
    /// No profile.
    #[error("service {service:?}: there is no profile {profile:?}")]
    Profile {
        /// Service.
        service: String,
        /// Its profile.
        profile: String,
    },
    /// No service time.
    #[error("service {service:?}: {source}")]
    ServiceTime {
        /// Service.
        service: String,
        /// Why.
        source: ServiceTimeError,
    },
    /// No service time with the stack.
    #[error("service {service:?}: {source}")]
    Stack {
        /// Service.
        service: String,
        /// Why.
        source: StackError,
    },
    /// Visits.
    #[error("service {service:?}: {visits} messages a request, must be 0 or more")]
    Visits {
        /// Service.
        service: String,
        /// As given.
        visits: f64,
    },
    /// Their number.
    #[error("visits of {given} services, the application has {services}")]
    VisitsCount {
        /// Given.
        given: usize,
        /// Needed.
        services: usize,
    },
    /// What this fidelity does not model.
    #[error("service {service:?} {what}, which the simulator does not model")]
    NotModelled {
        /// Service.
        service: String,
        /// What it does.
        what: &'static str,
    },
    /// No instance.
    #[error("shard {shard} of service {service:?} has no primary in the placement")]
    Unplaced {
        /// Service.
        service: String,
        /// Shard.
        shard: u32,
    },
    /// A node.
    #[error("{node} is not in topology {topology:?}")]
    Node {
        /// Of the placement.
        node: NodeId,
        /// Topology.
        topology: String,
    },
    /// A fault of what is not there.
    #[error("a fault names {what} {given}, topology {topology:?} has {known}")]
    FaultOf {
        /// What it names.
        what: &'static str,
        /// Its number.
        given: usize,
        /// Topology.
        topology: String,
        /// How many there are.
        known: usize,
    },
    /// A fault that ends before it begins.
    #[error("a fault ends at {until_s} s, must be later than its beginning at {from_s} s")]
    FaultTime {
        /// Begins.
        from_s: f64,
        /// Ends.
        until_s: f64,
    },
    /// The load.
    #[error(transparent)]
    Load(#[from] crate::load::LoadError),
    /// The length of the run.
    #[error("{what} is {ns} ns, must be {bound}")]
    Time {
        /// What.
        what: &'static str,
        /// As given.
        ns: u64,
        /// Bound.
        bound: &'static str,
    },
}
