//! Delays datagrams: rules redirect them to a relay, which sends each on after a random time, with its
//! own source and destination.

use crate::limits::{CHAOS_DELAY_MAX, RELAY_WAIT_MAX};
use e3_random::Random;
use socket2::{Domain, Protocol, Socket, Type};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Marks what the relay sends, so that it is not redirected again.
pub(super) const MARK: u32 = 0xe3;
/// Bytes of the headers of IPv4 and UDP.
const HEADERS_LEN: usize = 20 + 8;
/// The longest datagram.
const DATAGRAM_LEN_MAX: usize = 65_535 - HEADERS_LEN;

/// A relay for some ports of this machine. When it is dropped, it first sends what it holds.
pub(super) struct Relay {
    /// Each port, and the port that its datagrams must be redirected to.
    pub(super) ports: Vec<(u16, u16)>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay. It needs root, for the raw socket.
    pub(super) fn start(ports: &[u16]) -> io::Result<Relay> {
        let mut relay = Relay {
            ports: Vec::new(),
            stop: Arc::default(),
            threads: Vec::new(),
        };
        for port in ports {
            let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            let sender = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP))?;
            sender.set_header_included_v4(true)?;
            sender.set_mark(MARK)?;
            relay.ports.push((*port, receiver.local_addr()?.port()));
            let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, *port);
            let stop = relay.stop.clone();
            let queue = Queue {
                receiver,
                sender,
                to,
                random: Random::new(u64::from(*port)),
                waiting: BinaryHeap::new(),
            };
            relay
                .threads
                .push(std::thread::spawn(move || queue.run(&stop)));
        }
        Ok(relay)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The datagrams for one port.
struct Queue {
    receiver: UdpSocket,
    sender: Socket,
    to: SocketAddrV4,
    random: Random,
    /// When each is due, and the whole packet.
    waiting: BinaryHeap<Reverse<(Instant, Vec<u8>)>>,
}

impl Queue {
    fn run(mut self, stop: &AtomicBool) {
        let mut buffer = vec![0; DATAGRAM_LEN_MAX];
        loop {
            let stops = stop.load(Ordering::Relaxed);
            let now = Instant::now();
            while let Some(Reverse((due, _))) = self.waiting.peek()
                && (stops || *due <= now)
                && let Some(Reverse((_, packet))) = self.waiting.pop()
            {
                // As a network does, it loses what it cannot send.
                let _ = self
                    .sender
                    .send_to(&packet, &SocketAddr::V4(self.to).into());
            }
            let next = self.waiting.peek().map(|Reverse((due, _))| *due - now);
            let wait = next.unwrap_or(RELAY_WAIT_MAX).min(RELAY_WAIT_MAX);
            let wait = wait.max(Duration::from_micros(1));
            let received = self
                .receiver
                .set_read_timeout(Some(wait))
                .and_then(|()| self.receiver.recv_from(&mut buffer));
            match received {
                Ok((len, SocketAddr::V4(from))) => {
                    let span = self.random.below(CHAOS_DELAY_MAX.as_micros() as u64);
                    let due = Instant::now() + Duration::from_micros(span);
                    let packet = packet(from, self.to, &buffer[..len]);
                    self.waiting.push(Reverse((due, packet)));
                }
                _ if stops && self.waiting.is_empty() => return,
                _ => {}
            }
        }
    }
}

/// A datagram with its headers. The system fills in the length and the checksum of IPv4's; the
/// checksum of UDP's may be 0.
fn packet(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let len = |more: usize| u16::try_from(payload.len() + more).unwrap_or(u16::MAX);
    let mut packet = Vec::with_capacity(HEADERS_LEN + payload.len());
    packet.extend([0x45, 0]);
    packet.extend(len(HEADERS_LEN).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(len(8).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_the_source_and_destination_of_its_datagram() {
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let packet = packet(at(0x1234), at(0x5678), b"abc");
        assert_eq!(packet.len(), HEADERS_LEN + 3);
        assert_eq!(packet[2..4], [0, 31]);
        assert_eq!(packet[20..26], [0x12, 0x34, 0x56, 0x78, 0, 11]);
        assert_eq!(&packet[28..], b"abc");
    }
}
