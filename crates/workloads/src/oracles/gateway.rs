//! What gateways must answer: flows from inside hosts to servers that the shipped route table has a route
//! to, the translated form of each packet, and next hops by an independent longest-prefix match.

use crate::error::WorkloadError;
use crate::packets::FLOWS;
use crate::readback::queries::{answer, record};
use crate::readback::score::Score;
use e3_loadgen::workload::Call;
use e3_packet::{Flow, Packet, checksum, protocol};
use e3_random::Random;
use e3_wire::entry::{Outcome, Reply};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

/// The route table of the manifests.
const ROUTES: &str = include_str!("../../../../data/nfv-routes.txt");
/// Hosts inside; each has several flows.
const HOSTS: u32 = 800;
/// The public addresses of the manifests: 203.0.113.0/28.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
const PUBLIC_COUNT: u32 = 16;
/// Bytes of the IPv4 header of packets that are sent here.
const HEADER: usize = 20;
/// The seed of which server a flow goes to. The same for all loads: what is kept for their flows
/// does not grow from one load to the next.
const SERVERS_SEED: u64 = 7;

/// Flag of the first packet of a TCP connection.
pub(crate) const SYN: u8 = 2;
pub(crate) use crate::readback::queries::NOT_FOUND;

/// Protocol, address and port of an inside host.
pub(crate) type Inside = (u8, Ipv4Addr, u16);

/// One end of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Source,
    Destination,
}

/// The route table, looked up in the simplest way.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    /// By length and first address.
    hops: BTreeMap<(u32, u32), Ipv4Addr>,
}

fn mask(len: u32) -> u32 {
    u32::MAX.checked_shl(32 - len).unwrap_or(0)
}

impl Routes {
    pub(crate) fn shipped() -> Result<Routes, WorkloadError> {
        let mut hops = BTreeMap::new();
        for (line, text) in (1..)
            .zip(ROUTES.lines())
            .filter(|(_, t)| !t.starts_with('#'))
        {
            let read = || {
                let (prefix, hop) = text.split_once(' ')?;
                let (address, len) = prefix.split_once('/')?;
                let (address, hop) = (address.parse::<Ipv4Addr>().ok()?, hop.parse().ok()?);
                let len: u32 = len.parse().ok().filter(|len| *len <= 32)?;
                Some(((len, address.to_bits()), hop))
            };
            let wrong = || WorkloadError::Route {
                line,
                text: text.into(),
            };
            hops.extend([read().ok_or_else(wrong)?]);
        }
        Ok(Routes { hops })
    }

    /// The next hop of the longest prefix that the address begins with.
    pub(crate) fn next_hop(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        let of_len = |len| self.hops.get(&(len, address.to_bits() & mask(len)));
        (0..=32).rev().find_map(of_len).copied()
    }

    /// An address in one of the prefixes.
    fn address(&self, random: &mut Random) -> Ipv4Addr {
        let at = random.below(self.hops.len() as u64) as usize;
        let (len, base) = *self.hops.keys().nth(at).expect("below their number");
        Ipv4Addr::from_bits(base | random.next_u64() as u32 & !mask(len))
    }
}

/// Flows of hosts inside, by rank.
#[derive(Clone, Debug)]
pub(crate) struct Flows(Vec<Flow>);

impl Flows {
    pub(crate) fn new(routes: &Routes) -> Flows {
        let mut random = Random::new(SERVERS_SEED);
        let flow = |rank: u32| {
            let [_, _, a, b] = (rank % HOSTS).to_be_bytes();
            Flow {
                source: Ipv4Addr::new(10, 1, a, b),
                destination: routes.address(&mut random),
                protocol: match rank % 5 {
                    4 => protocol::UDP,
                    _ => protocol::TCP,
                },
                source_port: 1024 + (rank / HOSTS * 997 + rank % HOSTS) as u16,
                destination_port: [80, 443, 8080, 53][rank as usize % 4],
            }
        };
        Flows((0..FLOWS).map(flow).collect())
    }

    pub(crate) fn of(&self, rank: u32) -> Flow {
        self.0[rank as usize]
    }
}

/// Routing key of an inside host's packets in both directions: translation needs one for all.
pub(crate) fn key(host: Ipv4Addr) -> Vec<u8> {
    host.octets().to_vec()
}

/// The inside end of a flow that goes out.
pub(crate) fn inside(flow: &Flow) -> Inside {
    (flow.protocol, flow.source, flow.source_port)
}

/// Inside hosts; a flood to the outside comes from one of them.
pub(crate) const BOTS: u64 = 200;

/// One of these hosts.
pub(crate) fn bot(number: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 2, 0, number as u8)
}

/// One of the public addresses.
pub(crate) fn public(number: u64) -> Ipv4Addr {
    Ipv4Addr::from_bits(PUBLIC.to_bits() + number as u32 % PUBLIC_COUNT)
}

/// Any address outside, as in a packet with a forged source.
pub(crate) fn outside(random: &mut Random) -> Ipv4Addr {
    loop {
        let address = Ipv4Addr::from_bits(random.next_u64() as u32);
        let [first, ..] = address.octets();
        let public = address.to_bits() & mask(28) == PUBLIC.to_bits();
        if (1..224).contains(&first) && first != 127 && !address.is_private() && !public {
            return address;
        }
    }
}

/// A packet as it is forwarded with another address and port at one end: its time to live is one less,
/// and its checksums are computed from scratch.
pub(crate) fn readdressed(packet: &[u8], end: End, address: Ipv4Addr, port: u16) -> Vec<u8> {
    let (at, port_at) = match end {
        End::Source => (12, HEADER),
        End::Destination => (16, HEADER + 2),
    };
    let mut out = packet.to_vec();
    out[at..at + 4].copy_from_slice(&address.octets());
    out[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
    out[8] -= 1;
    let sum = checksum::of_header(&out[..HEADER]);
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    let transport = Packet::parse(&out).ok().and_then(|p| {
        let at = match p.protocol() {
            protocol::TCP => 16,
            protocol::UDP => 6,
            _ => return None,
        };
        Some((HEADER + at, checksum::of_transport(&p)?))
    });
    if let Some((at, sum)) = transport {
        out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    out
}

/// The public address and port of each inside end, from the answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Translations {
    public: BTreeMap<Inside, (Ipv4Addr, u16)>,
    owner: BTreeMap<(u8, Ipv4Addr, u16), Inside>,
    /// Answers with a translation that is the same as before, and no other's.
    pub(crate) consistent: Score,
}

impl Translations {
    /// Notes one; false if it contradicts another.
    pub(crate) fn add(&mut self, inside: Inside, public: (Ipv4Addr, u16)) -> bool {
        let same = *self.public.entry(inside).or_insert(public) == public;
        let of = (inside.0, public.0, public.1);
        let own = *self.owner.entry(of).or_insert(inside) == inside;
        let ours = public.0.to_bits() & mask(28) == PUBLIC.to_bits();
        self.consistent.add(same && own && ours)
    }

    /// Inside ends that have a translation.
    pub(crate) fn insides(&self) -> impl Iterator<Item = &Inside> + Clone {
        self.public.keys()
    }

    pub(crate) fn public(&self, inside: &Inside) -> Option<(Ipv4Addr, u16)> {
        self.public.get(inside).copied()
    }
}

/// Most translations that are asked for at the end.
const ASKED_MAX: usize = 1000;
/// What is compared of natv4.
pub(crate) const MAPPINGS: &str = "public address and port of inside hosts";
/// What is compared of its routes.
pub(crate) const HOPS: &str = "next hops that an independent longest-prefix search gives";

/// The inside ends to ask about after the load: of TCP, whose translations outlive it.
pub(crate) fn sample<'a>(
    insides: impl Iterator<Item = &'a Inside> + Clone,
) -> impl Iterator<Item = Inside> {
    let tcp = insides.filter(|inside| inside.0 == protocol::TCP);
    let step = tcp.clone().count().div_ceil(ASKED_MAX).max(1);
    tcp.step_by(step).copied()
}

#[derive(Serialize)]
struct MappingQuery {
    op: &'static str,
    at: &'static str,
    protocol: u8,
    address: String,
    port: u16,
}

/// A query about the translation of an inside end; the answer is a [`Mapping`].
pub(crate) fn ask_mapping((protocol, address, port): Inside) -> Call {
    let query = MappingQuery {
        op: "get",
        at: "natv4",
        protocol,
        address: address.to_string(),
        port,
    };
    Call {
        tag: 0,
        key: key(address),
        payload: record(&query),
    }
}

/// The public address and port of an inside end.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Mapping {
    public: Address,
    public_port: u16,
}

impl Mapping {
    /// What an answer says; None if it is none. An inside end without a translation has none.
    pub(crate) fn of(reply: Option<&Reply>) -> Option<Option<(Ipv4Addr, u16)>> {
        let nothing = reply.filter(|r| r.outcome == Outcome::Done && r.status == NOT_FOUND);
        if nothing.is_some() {
            return Some(None);
        }
        let mapping: Mapping = answer(reply)?;
        Some(Some((mapping.public.0, mapping.public_port)))
    }
}

/// An address of a record, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Address(pub(crate) Ipv4Addr);

impl TryFrom<String> for Address {
    type Error = std::net::AddrParseError;

    fn try_from(text: String) -> Result<Address, Self::Error> {
        text.parse().map(Address)
    }
}

/// A byte string of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        struct Reads;
        impl Visitor<'_> for Reads {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a byte string")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        from.deserialize_bytes(Reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_packet::PacketBuilder;

    #[test]
    fn the_longest_prefix_wins() {
        let hop = |n| Ipv4Addr::new(198, 51, 100, n);
        let of = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits();
        let hops = [((8, of("4.0.0.0")), hop(1)), ((30, of("4.5.6.4")), hop(2))];
        let routes = Routes { hops: hops.into() };
        let next = |text: &str| routes.next_hop(text.parse().unwrap());
        assert_eq!(next("4.5.6.3"), Some(hop(1)));
        assert_eq!(next("4.5.6.7"), Some(hop(2)));
        assert_eq!(next("5.5.6.7"), None);
    }

    #[test]
    fn every_flow_has_a_route_and_its_own_inside_end() {
        let routes = Routes::shipped().unwrap();
        assert_eq!(routes.hops.len(), 12_000);
        let flows = Flows::new(&routes);
        let mut ends = std::collections::BTreeSet::new();
        for rank in 0..FLOWS {
            let flow = flows.of(rank);
            assert!(routes.next_hop(flow.destination).is_some(), "{flow}");
            assert!(flow.source.is_private(), "{flow}");
            ends.insert(inside(&flow));
        }
        assert_eq!(ends.len(), FLOWS as usize);
    }

    #[test]
    fn a_packet_with_another_end_is_as_if_it_were_built_so() {
        let routes = Routes::shipped().unwrap();
        let flows = Flows::new(&routes);
        for rank in 0..10 {
            let flow = flows.of(rank);
            let packet = |flow, ttl| {
                let packet = PacketBuilder::new(flow).payload(b"payload");
                packet.ttl(ttl).build()
            };
            let (built, forwarded) = (|flow| packet(flow, 64), |flow| packet(flow, 63));
            let (address, port) = (public(u64::from(rank)), 4321);
            let other = Flow {
                source: address,
                source_port: port,
                ..flow
            };
            let out = readdressed(&built(flow), End::Source, address, port);
            assert_eq!(out, forwarded(other));
            let back = readdressed(&built(flow), End::Destination, address, port);
            let other = Flow {
                destination: address,
                destination_port: port,
                ..flow
            };
            assert_eq!(back, forwarded(other));
        }
    }

    #[test]
    fn two_insides_may_not_share_a_port() {
        let host = |n| (6, Ipv4Addr::new(10, 1, 0, n), 9);
        let mut t = Translations::default();
        assert!(t.add(host(1), (public(1), 5000)));
        assert!(t.add(host(1), (public(1), 5000)));
        assert!(!t.add(host(1), (public(1), 5001)));
        assert!(!t.add(host(2), (public(1), 5000)));
        assert!(!t.add(host(3), (Ipv4Addr::new(9, 9, 9, 9), 5000)));
        assert_eq!((t.consistent.0, t.consistent.1), (2, 5));
    }
}
