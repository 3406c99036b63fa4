//! The traffic manager of an emulated node: one queue, in order, of what arrives for services and for
//! the host.
//!
//! On a SmartNIC every packet is taken from this queue by a core, also those that are only passed on to
//! the host. While a service that computes much occupies all cores, the queue stands, and what is behind
//! its head waits too (E3, ATC 2019, 3.4).

use crate::limits::TRAFFIC_LEN_MAX;
use e3_model::{Address, Formats};
use e3_wire::client::ClientFrame;
use e3_wire::datagram::{Header, open};
use e3_wire::frame::Frame;
use std::collections::VecDeque;

/// A datagram at the traffic manager.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) to: Destination,
    pub(crate) bytes: Vec<u8>,
    requests: u32,
}

/// What a datagram is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// This node, from this address.
    Here(Address),
    /// It is relayed.
    Relayed {
        /// Where from.
        from: Address,
        /// Where to.
        to: Address,
    },
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct TrafficManager {
    queue: VecDeque<Arrival>,
    len_bytes: usize,
    requests: u32,
}

/// What a datagram holds, as far as the traffic manager cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Probes or leases: failure detection. It does not wait.
    Detection,
    /// So many messages, calls and requests, or at least something.
    Work(u32),
}

impl TrafficManager {
    /// Takes a datagram; false if there is no room, so that it is lost.
    pub(crate) fn push(&mut self, to: Destination, bytes: &[u8], requests: u32) -> bool {
        if self.len_bytes + bytes.len() > TRAFFIC_LEN_MAX {
            return false;
        }
        self.len_bytes += bytes.len();
        self.requests += requests;
        self.queue.push_back(Arrival {
            to,
            bytes: bytes.to_vec(),
            requests,
        });
        true
    }

    /// The datagram at the head.
    pub(crate) fn pop(&mut self) -> Option<Arrival> {
        let arrival = self.queue.pop_front()?;
        self.len_bytes -= arrival.bytes.len();
        self.requests -= arrival.requests;
        Some(arrival)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Requests that wait.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }
}

/// Looks into a datagram.
pub(crate) fn class_of(formats: Formats, bytes: &[u8]) -> Class {
    let Ok((header, mut reader)) = open(formats, bytes) else {
        return Class::Work(1);
    };
    let mut requests = 0;
    while !reader.is_empty() {
        let is_request = if header == Header::CLIENT {
            ClientFrame::decode(&mut reader).is_ok_and(|f| matches!(f, ClientFrame::Request(_)))
        } else {
            match Frame::decode(&mut reader) {
                Ok(
                    Frame::Probe { .. }
                    | Frame::ProbeAnswer { .. }
                    | Frame::LeaseRequest { .. }
                    | Frame::LeaseGrant { .. },
                ) => return Class::Detection,
                Ok(frame) => matches!(frame, Frame::Data { .. } | Frame::Call(_)),
                Err(_) => break,
            }
        };
        if !is_request && header == Header::CLIENT {
            break;
        }
        requests += u32::from(is_request);
    }
    Class::Work(requests.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Destination = Destination::Here(Address {
        ip: [0; 16],
        port: 1,
    });

    #[test]
    fn datagrams_leave_in_order_and_a_full_queue_loses_what_comes() {
        let mut manager = TrafficManager::default();
        let big = vec![7; TRAFFIC_LEN_MAX - 1];
        assert!(manager.push(HERE, &big, 3));
        assert!(manager.push(HERE, &[1], 1));
        assert!(!manager.push(HERE, &[2], 1));
        assert_eq!(manager.requests(), 4);
        assert_eq!(manager.pop().map(|a| a.bytes.len()), Some(big.len()));
        assert!(manager.push(HERE, &[3], 1));
        assert_eq!(manager.requests(), 2);
        let rest: Vec<_> = std::iter::from_fn(|| manager.pop()).collect();
        let rest: Vec<_> = rest.into_iter().map(|a| a.bytes).collect();
        assert_eq!(rest, [vec![1], vec![3]]);
        assert!(manager.is_empty() && manager.requests() == 0);
    }

    #[test]
    fn what_cannot_be_read_waits_like_anything_else() {
        assert_eq!(class_of(Formats::PROGRAM, b"no datagram"), Class::Work(1));
    }
}
