//! The node's place in the network: its port, its own socket, and the traffic between a host and others
//! that passes a SmartNIC.
//!
//! A SmartNIC that relays has a second socket. Others take its address for that of the host. What comes
//! there from elsewhere goes to the host with its origin in front; what comes from the host has its
//! destination in front, and leaves without it. The datagrams themselves are not touched, so their
//! checks are those between their two ends. The host accepts origins from its relays only.

use crate::emulation::Line;
use crate::limits::RECEIVE_MAX;
use e3_dataplane::Worker;
use e3_model::plan::{NodePlan, NodeWelcome};
use e3_model::{Address, Nanos, Timestamp};
use e3_net::{Doorbell, Socket};
use std::collections::BTreeSet;

/// Bytes of an address in front of a datagram.
const ADDRESS_LEN: usize = 18;
const _: () = assert!(e3_net::limits::DATAGRAM_LEN_MAX > ADDRESS_LEN);

/// A datagram that has come.
#[derive(Debug)]
struct Received {
    from: Address,
    bytes: Vec<u8>,
    is_relayed: bool,
}

/// A datagram that leaves.
#[derive(Debug)]
struct Leaving {
    to: Address,
    bytes: Vec<u8>,
    is_relayed: bool,
}

/// Bytes that passed the port since the last look.
#[derive(Debug, Default)]
struct Passed {
    bytes_in: u64,
    bytes_out: u64,
}

pub(crate) struct Network {
    pub(crate) socket: Socket,
    /// Where a SmartNIC that relays takes the traffic of its host.
    relay: Option<Socket>,
    /// Where the host listens whose traffic it relays.
    host: Option<Address>,
    /// Of a host: where its relays listen.
    relays: Vec<Address>,
    /// Nodes of the same server: what is for them does not pass the port.
    neighbours: BTreeSet<Address>,
    port_bytes_per_s: f64,
    passed: Passed,
    /// The two directions of an emulated port.
    line_in: Line<Received>,
    line_out: Line<Leaving>,
    /// Datagrams that the emulated port had no room for.
    pub(crate) lost: u64,
}

impl Network {
    pub(crate) fn new(socket: Socket, relay: Option<Socket>, welcome: &NodeWelcome) -> Network {
        let port_bytes_per_s = welcome.port_gbps * 1e9 / 8.0;
        let is_limited = welcome.emulated && port_bytes_per_s > 0.0;
        let limit = is_limited.then_some(port_bytes_per_s);
        Network {
            socket,
            relay,
            host: None,
            relays: Vec::new(),
            neighbours: BTreeSet::new(),
            port_bytes_per_s,
            passed: Passed::default(),
            line_in: Line::new(welcome.link_latency, limit),
            line_out: Line::new(welcome.link_latency, limit),
            lost: 0,
        }
    }

    /// The sockets, for the next time that the process joins.
    pub(crate) fn into_sockets(self) -> (Socket, Option<Socket>) {
        (self.socket, self.relay)
    }

    /// Takes over where others are by the plan.
    pub(crate) fn follow(&mut self, plan: &NodePlan) {
        self.host = plan.relayed;
        self.relays.clone_from(&plan.relays);
        let server = plan.peers.get(&plan.node).map(|peer| peer.server);
        let neighbours = plan.peers.values().filter(|p| Some(p.server) == server);
        self.neighbours = neighbours.map(|peer| peer.address).collect();
    }

    /// Passes what has come to the worker. Gives the number of datagrams: from [`RECEIVE_MAX`] on there
    /// may be more.
    pub(crate) fn receive(&mut self, worker: &mut Worker, clock: impl Fn() -> Timestamp) -> usize {
        let mut received = 0;
        while received < RECEIVE_MAX
            && let Some((from, bytes)) = self.socket.receive()
        {
            received += 1;
            let now = clock();
            // A relay says in front where a datagram is from.
            let (from, bytes) = if self.relays.contains(&from) {
                split(bytes).unwrap_or((from, bytes))
            } else {
                (from, bytes)
            };
            let carried = if self.neighbours.contains(&from) {
                0
            } else {
                bytes.len()
            };
            self.passed.bytes_in += carried as u64;
            if !self.line_in.is_used() {
                worker.handle_datagram(now, from, bytes);
                continue;
            }
            let datagram = Received {
                from,
                bytes: bytes.to_vec(),
                is_relayed: false,
            };
            let is_taken = self.line_in.push(now, carried, datagram);
            self.lost += u64::from(!is_taken);
        }
        let relayed = self.receive_relayed(worker, &clock);
        while let Some(datagram) = self.line_in.pop_due(clock()) {
            let Received { from, bytes, .. } = &datagram;
            match (datagram.is_relayed, self.host) {
                (false, _) => worker.handle_datagram(clock(), *from, bytes),
                (true, Some(host)) => worker.handle_relayed(clock(), *from, host, bytes),
                (true, None) => {}
            }
        }
        received.max(relayed)
    }

    fn receive_relayed(&mut self, worker: &mut Worker, clock: impl Fn() -> Timestamp) -> usize {
        let (Some(relay), Some(host)) = (&mut self.relay, self.host) else {
            return 0;
        };
        let mut received = 0;
        while received < RECEIVE_MAX
            && let Some((from, bytes)) = relay.receive()
        {
            received += 1;
            if from == host {
                if let Some((to, bytes)) = split(bytes) {
                    worker.handle_relayed(clock(), host, to, bytes);
                }
                continue;
            }
            self.passed.bytes_in += bytes.len() as u64;
            if !self.line_in.is_used() {
                worker.handle_relayed(clock(), from, host, bytes);
                continue;
            }
            let datagram = Received {
                from,
                bytes: bytes.to_vec(),
                is_relayed: true,
            };
            let is_taken = self.line_in.push(clock(), datagram.bytes.len(), datagram);
            self.lost += u64::from(!is_taken);
        }
        received
    }

    /// Sends a datagram of this node. Gives its buffer back if it has left.
    pub(crate) fn send(&mut self, now: Timestamp, to: Address, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let passes = !self.neighbours.contains(&to);
        if passes {
            self.passed.bytes_out += bytes.len() as u64;
        }
        if passes && !self.relays.is_empty() {
            let relay = self.relays[usize::from(to.port) % self.relays.len()];
            self.socket.send(relay, &joined(to, &bytes));
            return Some(bytes);
        }
        if !self.line_out.is_used() {
            self.socket.send(to, &bytes);
            return Some(bytes);
        }
        let carried = if passes { bytes.len() } else { 0 };
        let leaving = Leaving {
            to,
            bytes,
            is_relayed: false,
        };
        self.leave(now, carried, leaving);
        None
    }

    /// Sends a datagram on that passed this node.
    pub(crate) fn relay(&mut self, now: Timestamp, from: Address, to: Address, bytes: Vec<u8>) {
        let Some(relay) = &self.relay else {
            return;
        };
        if Some(to) == self.host {
            relay.send(to, &joined(from, &bytes));
            return;
        }
        self.passed.bytes_out += bytes.len() as u64;
        if self.line_out.is_used() {
            let leaving = Leaving {
                to,
                bytes,
                is_relayed: true,
            };
            self.leave(now, leaving.bytes.len(), leaving);
        } else {
            relay.send(to, &bytes);
        }
    }

    fn leave(&mut self, now: Timestamp, carried: usize, leaving: Leaving) {
        let is_taken = self.line_out.push(now, carried, leaving);
        self.lost += u64::from(!is_taken);
    }

    /// Sends what the emulated port has carried by now.
    pub(crate) fn send_due(&mut self, now: Timestamp) {
        while let Some(leaving) = self.line_out.pop_due(now) {
            let socket = match &self.relay {
                Some(relay) if leaving.is_relayed => relay,
                _ => &self.socket,
            };
            socket.send(leaving.to, &leaving.bytes);
        }
    }

    /// When the emulated port has carried something next.
    pub(crate) fn next_due(&self) -> Timestamp {
        self.line_in.next_due().min(self.line_out.next_due())
    }

    /// Sleeps until a datagram is there, the bell rings, or the time is over.
    pub(crate) fn wait(&self, bell: &Doorbell, at_most: Nanos) {
        // Before its plan it does not read what is there for the host.
        let relay = self.relay.as_ref().filter(|_| self.host.is_some());
        bell.wait_for_any(&self.socket, relay, at_most.into());
    }

    /// Part of the port's bandwidth that was used in the `interval` since the last look, in thousandths,
    /// of the busier direction.
    pub(crate) fn take_port_permille(&mut self, interval: Nanos) -> u16 {
        let passed = std::mem::take(&mut self.passed);
        let capacity = self.port_bytes_per_s * interval.as_secs_f64();
        if capacity <= 0.0 {
            return 0;
        }
        let used = passed.bytes_in.max(passed.bytes_out) as f64 / capacity;
        // After a pause of the process more passes at once than the interval holds.
        (used.min(1.0) * 1e3) as u16
    }
}

/// A datagram with an address in front.
fn joined(address: Address, bytes: &[u8]) -> Vec<u8> {
    let port = address.port.to_le_bytes();
    [&address.ip[..], &port, bytes].concat()
}

/// The address in front of a datagram, and the datagram; none if it is too short.
fn split(bytes: &[u8]) -> Option<(Address, &[u8])> {
    let (front, bytes) = bytes.split_at_checked(ADDRESS_LEN)?;
    let (ip, port) = front.split_at_checked(16)?;
    let address = Address {
        ip: ip.try_into().ok()?,
        port: u16::from_le_bytes(port.try_into().ok()?),
    };
    Some((address, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_front_of_a_datagram_is_read_as_it_was_written() {
        let address = Address {
            ip: *b"0123456789abcdef",
            port: 7_300,
        };
        let datagram = joined(address, b"datagram");
        assert_eq!(datagram.len(), ADDRESS_LEN + 8);
        assert_eq!(split(&datagram), Some((address, &b"datagram"[..])));
        assert_eq!(split(&datagram[..ADDRESS_LEN]), Some((address, &b""[..])));
        assert_eq!(split(&datagram[..ADDRESS_LEN - 1]), None);
    }
}
