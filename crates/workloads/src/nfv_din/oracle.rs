//! What the services must answer and count: floods, alerts, translated packets.

use super::{DROPPED, Fate, Packet, Sent};
use crate::error::WorkloadError;
use crate::load::Oracle;
use crate::oracles::ddos::{self, Floods};
use crate::oracles::gateway::{
    self, Address, Bytes, End, Flows, HOPS, Inside, Mapping, NOT_FOUND, Routes, Translations,
};
use crate::oracles::nids::{self, Alerts};
use crate::readback::checks::{Ask, Checks, Facts};
use crate::readback::queries::{answer, first_answer, handled, not_admitted};
use crate::readback::score::Score;
use e3_loadgen::ledger::Rows;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Finding, Judged};
use e3_model::{Nanos, Timestamp};
use e3_wire::entry::{Outcome, Reply};
use serde::Deserialize;

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
pub(crate) enum Asked {
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

/// What is known of the gateway.
pub(crate) struct Gateway {
    pub(super) routes: Routes,
    pub(super) flows: Flows,
    pub(super) floods: Floods,
    pub(super) translations: Translations,
    alerts: Alerts,
    packets: Score,
    hops: Score,
    refused: Score,
    dropped: Score,
}

impl Gateway {
    pub(super) fn new() -> Result<Gateway, WorkloadError> {
        let routes = Routes::shipped()?;
        Ok(Gateway {
            flows: Flows::new(&routes),
            routes,
            floods: Floods::default(),
            translations: Translations::default(),
            alerts: Alerts::default(),
            packets: Score::default(),
            hops: Score::default(),
            refused: Score::default(),
            dropped: Score::default(),
        })
    }

    /// Whether the answer of the last service is right.
    fn is_translated(&mut self, sent: &Packet, reply: &Reply) -> bool {
        let Some(got) = answer::<Translated>(Some(reply)) else {
            return false;
        };
        let (expected, hop) = match sent.fate {
            Fate::Nowhere => return false,
            Fate::In(address, port) => {
                let packet = gateway::readdressed(&sent.bytes, End::Destination, address, port);
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
                let packet = gateway::readdressed(&sent.bytes, End::Source, public.0, public.1);
                (packet, hop)
            }
        };
        let direction = if hop.is_some() { "out" } else { "in" };
        self.packets
            .add(got.packet.0 == expected && got.direction == direction)
    }

    /// Judges the answer to a packet.
    fn on_packet(&mut self, sent: &Packet, reply: Option<&Reply>) -> Judged {
        if !not_admitted(reply) {
            self.floods.on_outcome(&sent.key, handled(reply));
            if let Some(attack) = sent.attack {
                self.alerts.on_attack(attack, handled(reply));
            }
        }
        let Some(reply) = reply.filter(|r| r.outcome == Outcome::Done) else {
            return Judged::refused(false);
        };
        let right = if sent.attack == Some(DROPPED) {
            let sids = [nids::FIRST_SID + DROPPED as u32];
            let detected = answer::<Detected>(Some(reply));
            self.dropped
                .add(detected.is_some_and(|d| d.dropped && d.sids == sids))
        } else if sent.fate == Fate::Nowhere {
            if self.refused.add(reply.status == NOT_FOUND) {
                return Judged::refused_on_purpose();
            }
            false
        } else {
            self.is_translated(sent, reply)
        };
        if right {
            Judged::accepted()
        } else {
            Judged::refused(true)
        }
    }
}

impl Oracle for Gateway {
    const NAME: &'static str = "nfv-din";
    const SETTLE: Nanos = ddos::SETTLE;
    type Sent = Sent;
    type Asked = Asked;

    fn at(&mut self, now: Timestamp) {
        self.floods.at(now);
    }

    fn probe(&self) -> Call {
        nids::query(0)
    }

    fn on_probe(&self, reply: &Reply) -> Result<(), String> {
        first_answer::<nids::Report>(reply).map(drop)
    }

    fn baseline(&self) -> Vec<(Asked, Call)> {
        let ddos = (0..ddos::SHARDS).map(|shard| (Asked::Floods(shard), ddos::query(shard)));
        let nids = (0..nids::SHARDS).map(|shard| (Asked::Alerts, nids::query(shard)));
        ddos.chain(nids).collect()
    }

    fn on_baseline(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<()> {
        match asked {
            Asked::Floods(shard) => self.floods.on_baseline(shard, reply),
            Asked::Alerts => self.alerts.on_baseline(reply),
            Asked::Mapping(_) => None,
        }
    }

    fn on_outcome(&mut self, sent: &Sent, reply: Option<&Reply>) -> Judged {
        match sent {
            Sent::Packet(packet) => self.on_packet(packet, reply),
            Sent::Report(shard) => match self.floods.on_check(*shard, reply) {
                Some(_) => Judged::accepted(),
                None => Judged::refused(handled(reply)),
            },
        }
    }

    fn checks(&self) -> Vec<(Asked, Call)> {
        let mappings = gateway::sample(self.translations.insides());
        let mappings =
            mappings.map(|inside| (Asked::Mapping(inside), gateway::ask_mapping(inside)));
        self.baseline().into_iter().chain(mappings).collect()
    }

    fn on_check(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
        match asked {
            Asked::Floods(shard) => self.floods.on_check(shard, reply),
            Asked::Alerts => self.alerts.on_check(reply),
            Asked::Mapping(inside) => {
                let mapping = Mapping::of(reply)?;
                Some(Facts::one(mapping == self.translations.public(&inside)))
            }
        }
    }

    fn rows(&self) -> Rows {
        self.alerts.rows()
    }

    fn services(&self, checks: &Checks<Asked>) -> Vec<ServiceCheck> {
        vec![
            self.floods.service(checks),
            self.alerts.service(checks),
            checks.of("natv4", gateway::MAPPINGS, 0),
        ]
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = self.floods.findings().to_vec();
        findings.extend(self.alerts.findings());
        findings.extend([
            self.dropped
                .finding("dropped", "packets with an attack whose rule drops them"),
            self.translations.consistent.finding(
                "translations",
                "outgoing packets with the public address and port of their flow alone",
            ),
            self.packets
                .finding("packets", "translated packets that are right in every byte"),
            self.hops.finding("next hops", HOPS),
            self.refused.finding(
                "refused",
                "packets to unused ports or without a route that were refused",
            ),
        ]);
        findings
    }
}
