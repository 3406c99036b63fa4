//! The workload of an IPsec gateway (NFV-IFID): packets of inside hosts are counted for floods and by
//! flow, translated, routed, and sealed into a tunnel.
//!
//! The answer to a packet says how it was sealed. Its security association and length follow from the key
//! and the packet (RFC 4303: the cipher's blocks, header, vector and tag). The sequence numbers of an
//! association must have no gap and no duplicate. Translations and next hops are queried during the load
//! and after it; after it also the counts of some flows, of all packets, and the windows with an alarm.
//! What earlier loads left is read before the load. A flood comes from a hijacked inside host to one
//! server (as bots do: Antonakakis et al., "Understanding the Mirai Botnet", USENIX Security 2017): it
//! lowers the entropies of the bot's shard.

mod counts;
mod messages;

use crate::error::WorkloadError;
use crate::inputs::Inputs;
use crate::oracles::ddos::{self, Floods};
use crate::oracles::flowmon::{self, Totals, Window};
use crate::oracles::gateway::{self, Flows, Inside, Mapping, NOT_FOUND, Routes, SYN, Translations};
use crate::oracles::ipsec::{self, Associations};
use crate::packets::{FLOWS, Packets};
use crate::readback::checks::{Ask, Checks, Facts, WithFacts};
use crate::readback::queries::{Sequences, answer, first_answer, handled, not_admitted, record};
use crate::readback::score::Score;
use counts::{Count, Counted};
use e3_loadgen::ledger::Rows;
use e3_loadgen::workload::{Call, Check, Judged, Verified, Workload};
use e3_model::Timestamp;
use e3_packet::{Flow, PacketBuilder, protocol};
use e3_random::Random;
use e3_wire::entry::{Outcome, Reply};
use messages::{CountQuery, Route, RouteQuery, Sealed, sealed_len};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// While there is a flood, so many packets of 5 belong to it.
const FLOOD_OF_5: u64 = 2;
/// Flows among which a flood's victim is a server.
const VICTIMS: u64 = 20;
/// One request in so many is a query.
const ASK_ONE_IN: u64 = 50;
/// Shards of flowmon, as the manifest has them.
const SHARDS: u16 = 12;
/// Flows that are counted: so many of the most frequent, and every so many-th.
const COUNTED_FIRST: u32 = 20;
const COUNTED_EVERY: u32 = 200;

#[derive(Clone, Copy, Debug)]
enum Sent {
    Packet {
        inside: Inside,
        rank: Option<u32>,
        bytes: usize,
    },
    Total {
        shard: u16,
        last: bool,
    },
    Sequence(u64),
    Floods(u16),
    Mapping(Inside),
    Route(Ipv4Addr),
    Count {
        rank: u32,
        last: bool,
    },
}

impl Ask for Sent {
    fn service(self) -> &'static str {
        match self {
            Sent::Floods(_) => "ddos",
            Sent::Total { .. } | Sent::Count { .. } => "flowmon",
            Sent::Mapping(_) | Sent::Route(_) => "natv4",
            Sent::Packet { .. } | Sent::Sequence(_) => "ipsec",
        }
    }
}

/// The workload.
pub struct NfvIfid {
    stream: Packets,
    random: Random,
    routes: Routes,
    flows: Flows,
    rate_rps: f64,
    requests: u64,
    in_flight: BTreeMap<u64, Sent>,
    floods: Floods,
    /// The flood that there is now.
    attack: Option<Flow>,
    /// Inside ends with a packet that was sealed.
    translated: BTreeSet<Inside>,
    translations: Translations,
    counted: BTreeMap<u32, Counted>,
    totals: Totals,
    associations: Associations,
    sealed: Score,
    hops: Score,
    sequences: Sequences<u64>,
    check_from: Option<Timestamp>,
    baseline: Checks<Sent>,
    checks: Checks<Sent>,
}

impl NfvIfid {
    /// The packets of a seed.
    pub fn new(inputs: &Inputs) -> Result<NfvIfid, WorkloadError> {
        let routes = Routes::shipped()?;
        let is_counted = |rank: &u32| *rank < COUNTED_FIRST || rank.is_multiple_of(COUNTED_EVERY);
        let counted = (0..FLOWS).filter(is_counted);
        let counted: BTreeMap<u32, Counted> = counted.map(|r| (r, Counted::default())).collect();
        let flows = Flows::new(&routes);
        let hosts = (0..FLOWS).map(|rank| flows.of(rank).source);
        let hosts = hosts.chain((0..gateway::BOTS).map(gateway::bot));
        let mut load = NfvIfid {
            stream: Packets::new(inputs.seed),
            random: Random::new(!inputs.seed),
            associations: Associations::new(hosts.map(gateway::key)),
            flows,
            routes,
            rate_rps: inputs.rate_rps,
            requests: 0,
            in_flight: BTreeMap::new(),
            floods: Floods::default(),
            attack: None,
            translated: BTreeSet::new(),
            translations: Translations::default(),
            totals: Totals::new(SHARDS),
            counted,
            sealed: Score::default(),
            hops: Score::default(),
            sequences: Sequences::default(),
            check_from: None,
            baseline: Checks::default(),
            checks: Checks::default(),
        };
        let ranks = load.counted.keys().map(|rank| (*rank, false));
        let counts = ranks.map(|(rank, last)| Sent::Count { rank, last });
        let floods = (0..ddos::SHARDS).map(Sent::Floods);
        let totals = (0..SHARDS).map(|shard| Sent::Total { shard, last: false });
        let sequences = load.associations.all().map(|(spi, _)| Sent::Sequence(spi));
        let all = counts.chain(floods).chain(totals).chain(sequences);
        load.baseline = Checks::new(all.map(|what| (what, load.ask(what))).collect());
        Ok(load)
    }

    /// A packet of a flood, if there is one now.
    fn flood(&mut self) -> Option<(Flow, Vec<u8>)> {
        if !ddos::is_time(self.requests as f64 / self.rate_rps) {
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
                    source: gateway::bot(self.random.below(gateway::BOTS)),
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

    /// A query between packets: about an inside end that has been translated, or a route.
    fn query(&mut self) -> Option<Sent> {
        if self.random.one_in(2) {
            // most addresses have no route, those of servers have
            let rank = self.random.below(u64::from(FLOWS)) as u32;
            let address = if self.random.one_in(2) {
                gateway::outside(&mut self.random)
            } else {
                self.flows.of(rank).destination
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
            Sent::Floods(shard) => return ddos::query(shard),
            Sent::Mapping(inside) => return gateway::ask_mapping(inside),
            Sent::Total { shard, last } => return flowmon::flowmon(shard, SHARDS, last),
            Sent::Sequence(spi) => return self.associations.query(spi),
            Sent::Count { rank, last } => {
                let flow = self.flows.of(rank);
                let query = CountQuery {
                    op: "report",
                    at: "flowmon",
                    which: if last { "last" } else { "current" },
                    source: flow.source.to_string(),
                    source_port: flow.source_port,
                    destination: flow.destination.to_string(),
                    destination_port: flow.destination_port,
                    protocol: flow.protocol,
                };
                (gateway::key(flow.source), record(&query))
            }
            Sent::Route(address) => {
                let query = RouteQuery {
                    op: "route",
                    at: "natv4",
                    address: address.to_string(),
                };
                (gateway::key(address), record(&query))
            }
            Sent::Packet { .. } => unreachable!("a packet is no query"),
        };
        Call {
            tag: 0,
            key,
            payload,
        }
    }

    /// Takes the answer to a query; None if it is none.
    fn on_answer(&mut self, asked: Sent, reply: Option<&Reply>) -> Option<Facts> {
        match asked {
            Sent::Floods(shard) => self.floods.on_report(shard, &answer(reply)?),
            Sent::Total { shard, .. } => self.totals.on_report(shard, answer(reply)?),
            Sent::Mapping(inside) => {
                let public = Mapping::of(reply)?;
                let right = public.is_some_and(|public| self.translations.add(inside, public));
                return Some(Facts::one(right));
            }
            Sent::Route(address) => {
                let none = reply.filter(|r| r.outcome == Outcome::Done && r.status == NOT_FOUND);
                let hop = match none {
                    Some(_) => None,
                    None => Some(answer::<Route>(reply)?.next_hop.0),
                };
                let right = hop == self.routes.next_hop(address);
                return Some(Facts::one(self.hops.add(right)));
            }
            Sent::Count { rank, last } => {
                let count = answer(reply)?;
                let counted = self.counted.get_mut(&rank)?;
                if last {
                    counted.last = Some(count)
                } else {
                    counted.current = Some(count)
                }
            }
            Sent::Sequence(spi) => {
                let said: ipsec::Report = answer(reply)?;
                let known = self.sequences.expected(&spi);
                return Some(Facts::one(said.spi == spi && known == Some(said.sequence)));
            }
            Sent::Packet { .. } => return None,
        }
        Some(Facts::default())
    }

    /// What is asked at the end.
    fn all_questions(&self) -> Vec<Sent> {
        let floods = (0..ddos::SHARDS).map(Sent::Floods);
        let counts = self
            .counted
            .keys()
            .flat_map(|rank| [false, true].map(|last| Sent::Count { rank: *rank, last }));
        let totals =
            (0..SHARDS).flat_map(|shard| [true, false].map(|last| Sent::Total { shard, last }));
        let tcp = || self.translated.iter().filter(|i| i.0 == protocol::TCP);
        let step = tcp().count().div_ceil(gateway::ASKED_MAX).max(1);
        let mappings = tcp().step_by(step).map(|inside| Sent::Mapping(*inside));
        let sequences = self.associations.sure(&self.sequences);
        let sequences = sequences.map(|(spi, _)| Sent::Sequence(spi));
        let shards = floods.chain(counts).chain(totals);
        shards.chain(mappings).chain(sequences).collect()
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
        let (rank, last) = (0, false);
        self.ask(Sent::Count { rank, last })
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        first_answer::<Count>(reply).map(drop)
    }

    fn next_baseline(&mut self) -> Check {
        self.baseline.next()
    }

    fn on_baseline(&mut self, tag: u64, reply: Option<&Reply>) {
        let taken = match self.baseline.asked(tag) {
            Some(Sent::Count { rank, .. }) => {
                answer(reply).map(|said| self.counted.entry(rank).or_default().before = said)
            }
            Some(Sent::Floods(shard)) => answer(reply).map(|said| self.floods.begin(shard, &said)),
            Some(Sent::Total { shard, .. }) => {
                answer::<Window>(reply).map(|said| self.totals.begin(shard, said))
            }
            Some(Sent::Sequence(spi)) => answer::<ipsec::Report>(reply)
                .map(|said| self.sequences.begin_after(spi, said.sequence)),
            _ => None,
        };
        self.baseline.take(tag, taken.map(|()| Facts::one(true)));
    }

    fn baseline_unanswered(&self) -> u64 {
        self.baseline.unanswered()
    }

    fn at(&mut self, now: Timestamp) {
        self.floods.at(now);
    }

    fn next(&mut self) -> Option<Call> {
        self.requests += 1;
        let tag = self.requests;
        let query = match self.floods.next_query() {
            Some(shard) => Some(Sent::Floods(shard)),
            None if self.random.one_in(ASK_ONE_IN) => self.query(),
            None => None,
        };
        if let Some(query) = query {
            self.in_flight.insert(tag, query);
            let call = self.ask(query);
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
            bytes: payload.len(),
        };
        self.in_flight.insert(tag, sent);
        Some(Call { tag, key, payload })
    }

    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged {
        let Some(sent) = self.in_flight.remove(&tag) else {
            return Judged::refused(handled(reply));
        };
        let Sent::Packet {
            inside,
            rank,
            bytes,
        } = sent
        else {
            return match self.on_answer(sent, reply) {
                Some(Facts { wrong: 0, .. }) => Judged::accepted(),
                _ => Judged::refused(handled(reply)),
            };
        };
        let key = gateway::key(inside.1);
        if !not_admitted(reply) {
            self.floods.on_outcome(&key, handled(reply));
            self.totals.on_packet(&key, handled(reply));
        }
        let Some(sealed) = answer::<Sealed>(reply) else {
            if !not_admitted(reply) {
                self.associations.on_unsure(&key);
            }
            return Judged::refused(handled(reply));
        };
        self.sequences.add(sealed.spi, sealed.sequence);
        self.translated.insert(inside);
        if let Some(counted) = rank.and_then(|rank| self.counted.get_mut(&rank)) {
            counted.sealed += 1;
        }
        let right = sealed.spi == ipsec::spi(&key) && sealed.bytes == sealed_len(bytes);
        if self.sealed.add(right) {
            Judged::accepted()
        } else {
            Judged::refused(true)
        }
    }

    fn next_check(&mut self, now: Timestamp) -> Check {
        if self.check_from.is_none() {
            // The last window must be over.
            self.check_from = Some(now + ddos::WINDOW + ddos::WINDOW / 10);
            let all = self.all_questions().into_iter();
            self.checks = Checks::new(all.map(|what| (what, self.ask(what))).collect());
        }
        match self.check_from {
            Some(from) if now < from => Check::At(from),
            _ => self.checks.next(),
        }
    }

    fn on_check(&mut self, _: Timestamp, tag: u64, reply: Option<&Reply>) {
        let asked = self.checks.asked(tag);
        let facts = asked.and_then(|asked| self.on_answer(asked, reply));
        self.checks.take(tag, facts);
    }

    fn checked(&self) -> f64 {
        self.checks.progress()
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
                "answers with the public address and port of the flow alone",
            ),
            self.hops.finding(
                "next hops",
                "next hops that an independent longest-prefix search gives",
            ),
            counts.finding(
                "flow counts",
                "estimates between the exact count and the sketch's error bound",
            ),
            self.sealed.finding(
                "ESP packets",
                "packets sealed under their key's SPI, with the length of RFC 4303",
            ),
            Score(rows.found, rows.expected)
                .finding("sequence numbers", "packets with a unique number"),
        ]);
        let (floods, totals) = (self.floods.totals(), &self.totals);
        let checks = [
            self.checks
                .of(
                    "ddos",
                    "packets that each shard has counted in its windows",
                    floods.unsure(),
                )
                .with_facts(floods.facts()),
            self.checks
                .of(
                    "flowmon",
                    "packets that each shard has counted",
                    totals.unsure(),
                )
                .with_facts(totals.facts()),
            self.checks.of("natv4", gateway::MAPPINGS, 0),
            self.checks
                .of("ipsec", ipsec::WHAT, self.associations.unsure()),
        ];
        Verified {
            rows: Rows {
                checks_failed: self.checks.unanswered(),
                ..rows
            },
            checks: checks.into(),
            findings,
        }
    }
}
