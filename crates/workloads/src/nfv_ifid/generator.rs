//! Packets of inside hosts, with floods and queries among them.

use super::Sent;
use super::oracle::{Asked, Gateway};
use crate::inputs::Inputs;
use crate::load::Generator;
use crate::oracles::ddos;
use crate::oracles::gateway::{self, SYN};
use crate::packets::{self, FLOWS};
use e3_loadgen::workload::Call;
use e3_packet::{Flow, PacketBuilder, protocol};
use e3_random::Random;
use std::net::Ipv4Addr;

/// Flows among which a flood's victim is a server.
const VICTIMS: u64 = 20;
/// One request in so many is a query.
const ASK_ONE_IN: u64 = 50;

/// The packets of a seed.
pub(crate) struct Packets {
    stream: packets::Packets,
    random: Random,
    rate_rps: f64,
    requests: u64,
    /// The flood that there is now.
    attack: Option<Flow>,
}

impl Packets {
    pub(super) fn new(inputs: &Inputs) -> Packets {
        Packets {
            stream: packets::Packets::new(inputs.seed),
            random: Random::new(!inputs.seed),
            rate_rps: inputs.rate_rps,
            requests: 0,
            attack: None,
        }
    }

    /// A packet of a flood, if there is one now.
    fn flood(&mut self, oracle: &Gateway) -> Option<(Flow, Vec<u8>)> {
        if !ddos::is_time(self.requests as f64 / self.rate_rps) {
            self.attack = None;
            return None;
        }
        if self.random.below(5) >= ddos::FLOOD_OF_5 {
            return None;
        }
        let flow = match self.attack {
            Some(flow) => flow,
            None => {
                let rank = self.random.below(VICTIMS) as u32;
                Flow {
                    source: gateway::bot(self.random.below(gateway::BOTS)),
                    source_port: 6000,
                    destination: oracle.flows.of(rank).destination,
                    destination_port: 80,
                    protocol: protocol::TCP,
                }
            }
        };
        self.attack = Some(flow);
        let sequence = self.random.next_u64() as u32;
        let packet = PacketBuilder::new(flow).segment(sequence, 0, SYN).build();
        Some((flow, packet))
    }

    /// A query between packets: about an inside end that has been translated, or a route.
    fn query(&mut self, oracle: &Gateway) -> Option<Asked> {
        if self.random.one_in(2) {
            // most addresses have no route, those of servers have
            let rank = self.random.below(u64::from(FLOWS)) as u32;
            let address = if self.random.one_in(2) {
                gateway::outside(&mut self.random)
            } else {
                oracle.flows.of(rank).destination
            };
            return Some(Asked::Route(address));
        }
        let (third, fourth) = (self.random.below(4) as u8, self.random.next_u64() as u8);
        let from = (protocol::TCP, Ipv4Addr::new(10, 1, third, fourth), 0);
        let after = oracle.translated.range(from..).next();
        let inside = after.or_else(|| oracle.translated.first());
        inside.map(|inside| Asked::Mapping(*inside))
    }
}

impl Generator<Gateway> for Packets {
    fn describe(&self) -> String {
        format!("packets of {FLOWS} flows by Zipf's law, simple IMIX, out of hosts inside; floods")
    }

    fn next(&mut self, oracle: &mut Gateway) -> Option<(Call, Sent)> {
        self.requests += 1;
        let query = match oracle.floods.next_query() {
            Some(shard) => Some(Asked::Floods(shard)),
            None if self.random.one_in(ASK_ONE_IN) => self.query(oracle),
            None => None,
        };
        if let Some(query) = query {
            return Some((oracle.ask(query), Sent::Query(query)));
        }
        let mut rank = None;
        let flood = self.flood(oracle);
        let is_flood = flood.is_some();
        let (flow, payload) = flood.unwrap_or_else(|| {
            let sent = self.stream.next_of(|rank| oracle.flows.of(rank));
            rank = Some(sent.flow);
            (oracle.flows.of(sent.flow), sent.bytes)
        });
        let key = gateway::key(flow.source);
        oracle.on_sent(&key, rank, is_flood);
        let sent = Sent::Packet {
            inside: gateway::inside(&flow),
            rank,
            bytes: payload.len(),
        };
        let call = Call {
            tag: 0,
            key,
            payload,
        };
        Some((call, sent))
    }
}
