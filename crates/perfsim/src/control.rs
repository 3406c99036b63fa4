//! What a controller sees of a simulated cluster, and what it can do about it.

use crate::report::NodeLoad;
use e3_model::{Nanos, NodeId, ServiceId, ShardId};

/// A controller in the loop of a run. It sees the loads of the nodes a hundred times, and, if it asks
/// for them, the heartbeats of their agents. What it wants done is carried out in simulated time.
pub trait Controller {
    /// The loads since the last call.
    fn on_loads(&mut self, now: Nanos, loads: &[NodeLoad]);

    /// Time between two heartbeats of a node; none if it takes no heartbeats.
    fn heartbeat_interval(&self) -> Option<Nanos> {
        None
    }

    /// The heartbeats that have arrived since the last call, and what the primaries have done.
    fn on_heartbeats(
        &mut self,
        _now: Nanos,
        _beats: &[Heartbeat],
        _counts: &[InstanceCount],
    ) -> Vec<Action> {
        Vec::new()
    }

    /// A step of an action has ended.
    fn on_outcome(&mut self, _now: Nanos, _outcome: Outcome) -> Vec<Action> {
        Vec::new()
    }
}

/// A controller that does nothing.
pub struct NoController;

impl Controller for NoController {
    fn on_loads(&mut self, _: Nanos, _: &[NodeLoad]) {}
}

/// What the agent of a node says of itself. Of a node that has failed, or that no link reaches, there is
/// none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Heartbeat {
    /// Node.
    pub node: NodeId,
    /// How often the node has failed: each time another process comes back.
    pub process: u32,
    /// Messages that wait for its threads, and those that its traffic manager holds.
    pub waiting: u32,
    /// Cores that were busy since the last heartbeat.
    pub busy_cores: f64,
    /// Use of its port since then, in the busier direction.
    pub port_utilisation: f64,
    /// Nanoseconds that its port was busy so far: it grows if there is traffic.
    pub port_busy_ns: u64,
}

/// What the primary of a shard has done since it serves at its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceCount {
    /// Service.
    pub service: ServiceId,
    /// Shard.
    pub shard: ShardId,
    /// Node of the primary.
    pub node: NodeId,
    /// Messages.
    pub handled: u64,
    /// Time in the handler.
    pub busy: Nanos,
}

/// What a controller wants done with a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// The primary sends its state to a node; ends with [`Outcome::Copied`].
    Copy {
        /// Number of the copy.
        number: u32,
        /// Service.
        service: ServiceId,
        /// Shard.
        shard: ShardId,
        /// Where to.
        to: NodeId,
    },
    /// A copy is not needed any more.
    Cancel {
        /// Its number.
        number: u32,
    },
    /// The primary handles nothing more; ends with [`Outcome::Stopped`].
    Stop {
        /// Service.
        service: ServiceId,
        /// Shard.
        shard: ShardId,
    },
    /// These are the replicas from now on. A primary that was stopped goes on.
    Serve {
        /// Service.
        service: ServiceId,
        /// Shard.
        shard: ShardId,
        /// Its primary.
        primary: NodeId,
        /// The primary has the state already: it was copied there, or it was a backup.
        is_prepared: bool,
        /// Its backups.
        backups: Vec<NodeId>,
    },
}

/// A step that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A copy is complete.
    Copied {
        /// Its number.
        number: u32,
    },
    /// A primary has stopped.
    Stopped {
        /// Service.
        service: ServiceId,
        /// Shard.
        shard: ShardId,
    },
}
