//! Does what a data plane says: sends its datagrams, runs its handlers, answers its requests.

use crate::arena::{Message, NONE, What};
use crate::event::Kind;
use crate::plane::{DataPlane, NodeAction};
use crate::simulator::Simulator;

impl Simulator {
    /// Lets a data plane decide what nodes do.
    pub fn with_plane(mut self, plane: Box<dyn DataPlane>) -> Simulator {
        self.plane = Some(plane);
        self
    }

    /// Calls the plane, if there is one, and does what it says.
    pub(crate) fn plane(&mut self, call: impl FnOnce(&mut dyn DataPlane, &mut Vec<NodeAction>)) {
        let mut actions = std::mem::take(&mut self.actions);
        if let Some(plane) = &mut self.plane {
            call(plane.as_mut(), &mut actions);
        }
        for action in actions.drain(..) {
            self.act_for_node(action);
        }
        self.actions = actions;
    }

    fn act_for_node(&mut self, action: NodeAction) {
        match action {
            NodeAction::Send {
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
            NodeAction::Run {
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
            NodeAction::Answer {
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
            NodeAction::Refuse { request } => {
                self.refused += 1;
                let refused = &mut self.requests[request];
                refused.is_answered = true;
                refused.latency = u64::MAX;
                self.close(request);
            }
            NodeAction::Wake { node, at } => self.schedule(at.max(self.now), Kind::Wake, node),
            NodeAction::Copied { bytes } => self.totals.copied_bytes += u64::from(bytes),
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
