//! Where a data plane takes the place of the table of visits: the full fidelity.
//!
//! The simulator moves datagrams over ports, switches and PCIe and runs handlers on hardware threads, as in the
//! fast fidelity. What a node does with a datagram or a finished handler, a [`DataPlane`] says.

use crate::arena::{Message, NONE, What};
use crate::event::Kind;
use crate::simulator::Simulator;

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
pub enum Action {
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
        /// The request of which it is, while it is not answered.
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
}

/// What nodes do with what they get. Times are in nanoseconds since the run began.
pub trait DataPlane {
    /// The run begins.
    fn on_begin(&mut self, actions: &mut Vec<Action>);
    /// A client sends a request with a key of this slot.
    fn on_request(&mut self, now: u64, request: u32, slot: u16) -> Arrival;
    /// A datagram has arrived at a node.
    fn on_datagram(&mut self, now: u64, node: u32, token: u32, actions: &mut Vec<Action>);
    /// A hardware thread has run what [`Action::Run`] asked for.
    fn on_done(&mut self, now: u64, node: u32, token: u32, actions: &mut Vec<Action>);
    /// A time that [`Action::Wake`] gave has come.
    fn on_wake(&mut self, now: u64, node: u32, actions: &mut Vec<Action>);
}

impl Simulator {
    /// Lets a data plane decide what nodes do.
    pub fn with_plane(mut self, plane: Box<dyn DataPlane>) -> Simulator {
        self.plane = Some(plane);
        self
    }

    /// Calls the plane, if there is one, and does what it says.
    pub(crate) fn plane(&mut self, call: impl FnOnce(&mut dyn DataPlane, &mut Vec<Action>)) {
        let mut actions = std::mem::take(&mut self.actions);
        if let Some(plane) = &mut self.plane {
            call(plane.as_mut(), &mut actions);
        }
        for action in actions.drain(..) {
            self.act(action);
        }
        self.actions = actions;
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send {
                from,
                to,
                bytes,
                token,
            } => {
                let id = self.messages.add(Message {
                    of: NONE,
                    from,
                    to,
                    shard: token,
                    work: bytes,
                    what: What::Datagram,
                    ..Message::default()
                });
                self.overflowed |= self.messages.len() > crate::limits::MESSAGES_MAX;
                self.send(id);
            }
            Action::Run {
                node,
                service,
                shard,
                is_backup,
                request,
                token,
            } => {
                if let Some(request) = request {
                    self.requests[request].open += 1;
                }
                let first = self.model.services[usize::from(service)].first_shard;
                let id = self.messages.add(Message {
                    of: request.unwrap_or(NONE),
                    from: token,
                    to: node,
                    shard: first + u32::from(shard),
                    service,
                    what: if is_backup { What::Entry } else { What::Work },
                    ..Message::default()
                });
                self.enqueue(id);
            }
            Action::Answer {
                from,
                bytes,
                request,
            } => {
                self.requests[request].is_answered = true;
                let slot = self.requests[request].slot;
                let id = self.messages.add(Message {
                    of: request,
                    from,
                    to: slot.into(),
                    work: bytes,
                    what: What::Reply,
                    ..Message::default()
                });
                self.depart(id);
            }
            Action::Refuse { request } => {
                self.refused += 1;
                let refused = &mut self.requests[request];
                refused.is_answered = true;
                refused.latency = u64::MAX;
                self.close(request);
            }
            Action::Wake { node, at } => self.schedule(at.max(self.now), Kind::Wake, node),
        }
    }

    /// A run of a plane's has ended.
    pub(crate) fn on_plane_done(&mut self, id: u32) {
        let Message {
            of, from, to: node, ..
        } = self.messages[id];
        self.messages.remove(id);
        let now = self.now;
        self.plane(|plane, actions| plane.on_done(now, node, from, actions));
        if of != NONE {
            self.close(of);
        }
    }

    /// A request of a plane arrives.
    pub(crate) fn on_plane_arrive(&mut self, request: u32, slot: u16) {
        let now = self.now;
        let Some(plane) = &mut self.plane else {
            return;
        };
        let arrival = plane.on_request(now, request, slot);
        let client_ns = self.model.client_ns(arrival.to);
        self.requests[request].start = now as i64 - client_ns as i64;
        let id = self.messages.add(Message {
            of: NONE,
            from: slot.into(),
            to: arrival.to,
            shard: arrival.token,
            work: arrival.bytes,
            what: What::Datagram,
            ..Message::default()
        });
        self.ingress(id);
    }
}
