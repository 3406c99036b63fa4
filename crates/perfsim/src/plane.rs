//! Where a data plane takes the place of the table of visits: the full fidelity.
//!
//! The simulator moves datagrams over ports, switches and PCIe and runs handlers on hardware threads, as in the
//! fast fidelity. What a node does with a datagram or a finished handler, a [`DataPlane`] says.

/// A request that arrives: its first datagram.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Node that gets it.
    pub to: u32,
    /// Size in bytes.
    pub bytes: u32,
    /// The plane's own number of the datagram.
    pub token: u32,
}

/// What a node does.
#[derive(Clone, Copy, Debug)]
pub enum NodeAction {
    /// Sends a datagram to another node.
    Send {
        /// From.
        from: u32,
        /// To.
        to: u32,
        /// Size in bytes.
        bytes: u32,
        /// The plane's own number of the datagram.
        token: u32,
    },
    /// Runs a handler, or applies an entry at a backup.
    Run {
        /// Node.
        node: u32,
        /// Service.
        service: u16,
        /// Shard of the service.
        shard: u16,
        /// It applies an entry.
        is_backup: bool,
        /// Its request, while it is not answered.
        request: Option<u32>,
        /// The plane's own number of the run.
        token: u32,
    },
    /// Answers a request.
    Answer {
        /// Node.
        from: u32,
        /// Size in bytes.
        bytes: u32,
        /// Request.
        request: u32,
    },
    /// Refuses a request, or gives it up.
    Refuse {
        /// Request.
        request: u32,
    },
    /// Wants to be called at a time.
    Wake {
        /// Node.
        node: u32,
        /// Time in nanoseconds.
        at: u64,
    },
    /// Has sent a part of a shard's state to a new replica.
    Copied {
        /// Bytes.
        bytes: u32,
    },
}

/// What nodes do with what they get. Times are in nanoseconds since the run began.
pub trait DataPlane {
    /// The run begins.
    fn on_begin(&mut self, actions: &mut Vec<NodeAction>);
    /// A client sends a request with a key of this slot.
    fn on_request(&mut self, now: u64, request: u32, slot: u16) -> Arrival;
    /// A datagram has arrived at a node.
    fn on_datagram(&mut self, now: u64, node: u32, token: u32, actions: &mut Vec<NodeAction>);
    /// A hardware thread has run what [`NodeAction::Run`] asked for.
    fn on_done(&mut self, now: u64, node: u32, token: u32, actions: &mut Vec<NodeAction>);
    /// A time that [`NodeAction::Wake`] gave has come.
    fn on_wake(&mut self, now: u64, node: u32, actions: &mut Vec<NodeAction>);
    /// Messages that wait at a node to be handled.
    fn waiting(&self, node: u32) -> u32;
    /// The controller has heard the nodes' heartbeats, and may have changed the plan.
    fn on_controlled(&mut self, now: u64, actions: &mut Vec<NodeAction>);
}
