//! The workload of an IPsec gateway (NFV-IFID): packets of hosts inside are counted for floods and by
//! flow, translated, routed, and sealed into a tunnel.
//!
//! The answer to a packet is how it was sealed. Its security association and its length follow from
//! the key and the packet (RFC 4303: the cipher's blocks, header, vector and tag), and the sequence
//! numbers of an association must follow each other without a gap and without a repeat. Between the
//! packets, and at the end, translations and next hops are asked for; at the end the counts of some
//! flows, and the windows with an alarm. A flood comes from a host inside that somebody has taken over, to
//! one server (as bots do: Antonakakis et al., "Understanding the Mirai Botnet", USENIX Security 2017):
//! it lowers the entropies of the bot's shard.

use super::counts::{Count, Counted};
use super::floods::{self, Floods};
use super::gateway::{self, Address, Flows, Inside, NOT_FOUND, Routes, SYN, Translations};
use super::packets::{FLOWS, Packets};
use super::questions::{Questions, Sequences, answer, first_answer, handled, record};
use super::score::Score;
use super::{Call, Check, Inputs, Judged, Verified, Workload};
use crate::LoadError;
use crate::ledger::Rows;
use crate::random::Random;
use e3_model::{Nanos, Slot};
use e3_packet::{Flow, PacketBuilder, protocol};
use e3_wire::entry::{Outcome, Reply};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// While there is a flood, so many packets of 5 belong to it.
const FLOOD_OF_5: u64 = 2;
/// Hosts, one of which it comes from.
const BOTS: u64 = 200;
/// Flows among which a flood's victim is a server.
const VICTIMS: u64 = 20;
/// One request in so many is a question.
const ASK_ONE_IN: u64 = 50;
/// Most translations that are asked for at the end.
const ASKED_MAX: usize = 1000;
/// Flows that are counted: so many of the most frequent, and every so many-th.
const COUNTED_FIRST: u32 = 20;
const COUNTED_EVERY: u32 = 200;
/// First security association, as ipsec has it unless told otherwise; one for each slot follows.
const SPI_FIRST: u64 = 256;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct CountQuestion {
    op: &'static str,
    at: &'static str,
    which: &'static str,
    source: String,
    source_port: u16,
    destination: String,
    destination_port: u16,
    protocol: u8,
}

#[derive(Serialize)]
struct MappingQuestion {
    op: &'static str,
    at: &'static str,
    protocol: u8,
    address: String,
    port: u16,
}

#[derive(Serialize)]
struct RouteQuestion {
    op: &'static str,
    at: &'static str,
    address: String,
}

#[derive(Deserialize)]
struct Sealed {
    spi: u64,
    sequence: u64,
    bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Mapping {
    public: Address,
    public_port: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Route {
    next_hop: Address,
}

#[derive(Clone, Copy, Debug)]
enum Sent {
    Packet {
        inside: Inside,
        rank: Option<u32>,
        slot: u16,
        bytes: usize,
    },
    Floods(u16),
    Mapping(Inside),
    Route(Ipv4Addr),
    Count {
        rank: u32,
        last: bool,
    },
}

/// The workload.
pub struct NfvIfid {
    stream: Packets,
    random: Random,
    routes: Routes,
    flows: Flows,
    rate_rps: f64,
    requests: u64,
    under_way: BTreeMap<u64, Sent>,
    floods: Floods,
    /// The flood that there is now.
    attack: Option<Flow>,
    /// Inside ends with a packet that was sealed.
    translated: BTreeSet<Inside>,
    translations: Translations,
    counted: BTreeMap<u32, Counted>,
    /// Flows that are to be asked for before the load.
    to_ask: Vec<u32>,
    sealed: Score,
    hops: Score,
    sequences: Sequences<u64>,
    check_from: Option<Nanos>,
    asked: Vec<Sent>,
    questions: Questions,
}

/// Bytes of the ESP packet that a packet becomes (RFC 4303, tunnel mode): an outer header, SPI and
/// number, vector, the packet with its padding, the padding's length and the next header in whole
/// blocks, and the tag.
fn sealed_len(bytes: usize) -> u64 {
    (20 + 8 + 16 + (bytes + 2).next_multiple_of(16) + 12) as u64
}

impl NfvIfid {
    /// The packets of a seed.
    pub fn new(inputs: &Inputs) -> Result<NfvIfid, LoadError> {
        let routes = Routes::shipped()?;
        let is_counted = |rank: &u32| *rank < COUNTED_FIRST || rank.is_multiple_of(COUNTED_EVERY);
        let counted = (0..FLOWS).filter(is_counted);
        let counted: BTreeMap<u32, Counted> = counted.map(|r| (r, Counted::default())).collect();
        Ok(NfvIfid {
            stream: Packets::new(inputs.seed),
            random: Random::new(!inputs.seed),
            flows: Flows::new(&routes),
            routes,
            rate_rps: inputs.rate_rps,
            requests: 0,
            under_way: BTreeMap::new(),
            floods: Floods::default(),
            attack: None,
            translated: BTreeSet::new(),
            translations: Translations::default(),
            to_ask: counted.keys().copied().collect(),
            counted,
            sealed: Score::default(),
            hops: Score::default(),
            sequences: Sequences::default(),
            check_from: None,
            asked: Vec::new(),
            questions: Questions::default(),
        })
    }

    /// A packet of a flood, if there is one now.
    fn flood(&mut self) -> Option<(Flow, Vec<u8>)> {
        if !floods::is_time(self.requests as f64 / self.rate_rps) {
            self.attack = None;
            return None;
        }
        if self.random.below(5) >= FLOOD_OF_5 {
            return None;
        }
        let flow = match self.attack {
            Some(flow) => flow,
            None => {
                let rank = self.random.below(VICTIMS) as u32;
                Flow {
                    source: Ipv4Addr::new(10, 2, 0, self.random.below(BOTS) as u8),
                    source_port: 6000,
                    destination: self.flows.of(rank).destination,
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

    /// A question between packets: about an inside end that has been translated, or a route.
    fn question(&mut self) -> Option<Sent> {
        if self.random.one_in(2) {
            // most addresses have no route, those of servers have
            let rank = self.random.below(u64::from(FLOWS)) as u32;
            let address = match self.random.one_in(2) {
                true => gateway::outside(&mut self.random),
                false => self.flows.of(rank).destination,
            };
            return Some(Sent::Route(address));
        }
        let somewhere = Ipv4Addr::new(
            10,
            1,
            self.random.below(4) as u8,
            self.random.next_u64() as u8,
        );
        let from = (protocol::TCP, somewhere, 0);
        let after = self.translated.range(from..).next();
        let inside = after.or_else(|| self.translated.first());
        inside.map(|inside| Sent::Mapping(*inside))
    }

    fn ask(&self, what: Sent) -> Call {
        let (key, payload) = match what {
            Sent::Floods(shard) => return floods::question(shard),
            Sent::Mapping((protocol, address, port)) => {
                let question = MappingQuestion {
                    op: "get",
                    at: "natv4",
                    protocol,
                    address: address.to_string(),
                    port,
                };
                (gateway::key(address), record(&question))
            }
            Sent::Count { rank, last } => {
                let flow = self.flows.of(rank);
                let question = CountQuestion {
                    op: "report",
                    at: "flowmon",
                    which: if last { "last" } else { "current" },
                    source: flow.source.to_string(),
                    source_port: flow.source_port,
                    destination: flow.destination.to_string(),
                    destination_port: flow.destination_port,
                    protocol: flow.protocol,
                };
                (gateway::key(flow.source), record(&question))
            }
            Sent::Route(address) => {
                let question = RouteQuestion {
                    op: "route",
                    at: "natv4",
                    address: address.to_string(),
                };
                (gateway::key(address), record(&question))
            }
            Sent::Packet { .. } => unreachable!("a packet is no question"),
        };
        Call {
            tag: 0,
            key,
            payload,
        }
    }

    /// Takes the answer to a question; None if it is none.
    fn on_answer(&mut self, asked: Sent, reply: Option<&Reply>) -> Option<bool> {
        match asked {
            Sent::Floods(shard) => {
                let report = answer(reply)?;
                self.floods.on_report(shard, &report);
                Some(true)
            }
            Sent::Mapping(inside) => {
                let mapping: Mapping = answer(reply)?;
                let public = (mapping.public.0, mapping.public_port);
                Some(self.translations.add(inside, public))
            }
            Sent::Route(address) => {
                let none = reply.filter(|r| r.outcome == Outcome::Done && r.status == NOT_FOUND);
                let hop = match none {
                    Some(_) => None,
                    None => Some(answer::<Route>(reply)?.next_hop.0),
                };
                Some(self.hops.add(hop == self.routes.next_hop(address)))
            }
            Sent::Count { rank, last } => {
                let count = answer(reply)?;
                let counted = self.counted.get_mut(&rank)?;
                match last {
                    true => counted.last = Some(count),
                    false => counted.current = Some(count),
                }
                Some(true)
            }
            Sent::Packet { .. } => None,
        }
    }

    /// What is asked at the end.
    fn all_questions(&self) -> Vec<Sent> {
        let floods = (0..floods::SHARDS).map(Sent::Floods);
        let counts = self
            .counted
            .keys()
            .flat_map(|rank| [false, true].map(|last| Sent::Count { rank: *rank, last }));
        let step = self.translated.len().div_ceil(ASKED_MAX).max(1);
        let insides = self.translated.iter().step_by(step);
        let mappings = insides.map(|inside| Sent::Mapping(*inside));
        floods.chain(counts).chain(mappings).collect()
    }
}

impl Workload for NfvIfid {
    fn name(&self) -> &'static str {
        "nfv-ifid"
    }

    fn describe(&self) -> String {
        format!("packets of {FLOWS} flows by Zipf's law, simple IMIX, out of hosts inside; floods")
    }

    fn probe(&mut self) -> Call {
        let rank = self.to_ask.last().copied().unwrap_or(0);
        self.ask(Sent::Count { rank, last: false })
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), LoadError> {
        let count = first_answer::<Count>(self.name(), reply)?;
        if let Some(rank) = self.to_ask.pop() {
            self.counted.entry(rank).or_default().before = count;
        }
        Ok(())
    }

    fn ready(&self) -> bool {
        self.to_ask.is_empty()
    }

    fn at(&mut self, now: Nanos) {
        self.floods.at(now);
    }

    fn next(&mut self) -> Option<Call> {
        self.requests += 1;
        let tag = self.requests;
        let question = match self.floods.next_question() {
            Some(shard) => Some(Sent::Floods(shard)),
            None if self.random.one_in(ASK_ONE_IN) => self.question(),
            None => None,
        };
        if let Some(question) = question {
            self.under_way.insert(tag, question);
            let call = self.ask(question);
            return Some(Call { tag, ..call });
        }
        let mut rank = None;
        let flood = self.flood();
        let is_flood = flood.is_some();
        let (flow, payload) = match flood {
            Some(flood) => flood,
            None => {
                let flows = &self.flows;
                let sent = self.stream.next_of(|rank| flows.of(rank));
                rank = Some(sent.flow);
                (self.flows.of(sent.flow), sent.bytes)
            }
        };
        let key = gateway::key(flow.source);
        if let Some(counted) = rank.and_then(|rank| self.counted.get_mut(&rank)) {
            counted.sent += 1;
        }
        self.floods.on_sent(&key, is_flood);
        let sent = Sent::Packet {
            inside: gateway::inside(&flow),
            rank,
            slot: Slot::of(&key).0,
            bytes: payload.len(),
        };
        self.under_way.insert(tag, sent);
        Some(Call { tag, key, payload })
    }

    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged {
        let Some(sent) = self.under_way.remove(&tag) else {
            return Judged::refused(handled(reply));
        };
        let Sent::Packet {
            inside,
            rank,
            slot,
            bytes,
        } = sent
        else {
            return match self.on_answer(sent, reply) {
                Some(true) => Judged::accepted(),
                _ => Judged::refused(handled(reply)),
            };
        };
        let Some(sealed) = answer::<Sealed>(reply) else {
            return Judged::refused(handled(reply));
        };
        self.sequences.add(sealed.spi, sealed.sequence);
        self.translated.insert(inside);
        if let Some(counted) = rank.and_then(|rank| self.counted.get_mut(&rank)) {
            counted.sealed += 1;
        }
        let spi = SPI_FIRST + u64::from(slot);
        let right = sealed.spi == spi && sealed.bytes == sealed_len(bytes);
        match self.sealed.add(right) {
            true => Judged::accepted(),
            false => Judged::refused(true),
        }
    }

    fn next_check(&mut self, now: Nanos) -> Check {
        if self.check_from.is_none() {
            // The last window must be over.
            self.check_from = Some(Nanos(now.0 + floods::WINDOW.0 + floods::WINDOW.0 / 10));
            self.asked = self.all_questions();
            let calls = self.asked.iter().map(|what| self.ask(*what)).collect();
            self.questions = Questions::new(calls);
        }
        match self.check_from {
            Some(from) if now < from => Check::At(from),
            _ => self.questions.next(),
        }
    }

    fn on_check(&mut self, _: Nanos, tag: u64, reply: Option<&Reply>) {
        let asked = self.asked.get(tag as usize).copied();
        let good = asked.and_then(|asked| self.on_answer(asked, reply));
        self.questions.on_answer(tag, good.is_some());
    }

    fn checked(&self) -> f64 {
        self.questions.progress()
    }

    fn verify(&self) -> Verified {
        let rows = self.sequences.rows();
        let judged = self.counted.values().filter_map(Counted::is_right);
        let mut counts = Score::default();
        judged.for_each(|right| {
            counts.add(right);
        });
        let t = &self.translations;
        let mut findings = self.floods.findings().to_vec();
        findings.extend([
            Score(t.consistent, t.seen).finding(
                "translations",
                "answers with the flow's one public address and port, no other's",
            ),
            self.hops.finding(
                "next hops",
                "next hops as a plain search for the longest prefix has them",
            ),
            counts.finding(
                "flow counts",
                "estimates from the exact count to the sketch's bound above it",
            ),
            self.sealed.finding(
                "ESP packets",
                "packets sealed under their key's SPI, with the length that RFC 4303 says",
            ),
            Score(rows.found, rows.expected).finding(
                "sequence numbers",
                "packets with a number that no other has",
            ),
        ]);
        Verified {
            rows: Rows {
                checks_failed: self.questions.failed(),
                ..rows
            },
            spikes: None,
            findings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn esp_packets_are_whole_blocks() {
        // RFC 4303: 64 bytes and the two behind the padding take five blocks
        assert_eq!(sealed_len(64), 20 + 8 + 16 + 80 + 12);
        assert_eq!(sealed_len(62), 20 + 8 + 16 + 64 + 12);
    }
}
