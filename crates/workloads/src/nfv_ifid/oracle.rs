//! What the services must answer and count: floods, flows, translations, next hops, sealed packets.

use super::Sent;
use super::counts::{Count, Counted};
use super::messages::{CountQuery, Route, RouteQuery, Sealed, sealed_len};
use crate::error::WorkloadError;
use crate::load::Oracle;
use crate::oracles::ddos::{self, Floods};
use crate::oracles::flowmon::{self, Totals};
use crate::oracles::gateway::{
    self, Flows, HOPS, Inside, Mapping, NOT_FOUND, Routes, Translations,
};
use crate::oracles::ipsec::{self, Associations};
use crate::packets::FLOWS;
use crate::readback::checks::{Ask, Checks, Facts};
use crate::readback::queries::{answer, first_answer, handled, not_admitted, record};
use crate::readback::score::Score;
use e3_loadgen::ledger::Rows;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Finding, Judged};
use e3_model::{Nanos, Timestamp};
use e3_wire::entry::{Outcome, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Flows that are counted: so many of the most frequent, and every so many-th.
const COUNTED_FIRST: u32 = 20;
const COUNTED_EVERY: u32 = 200;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Total { shard: u16, last: bool },
    Sequence(u64),
    Floods(u16),
    Mapping(Inside),
    Route(Ipv4Addr),
    Count { rank: u32, last: bool },
}

impl Ask for Asked {
    fn service(self) -> &'static str {
        match self {
            Asked::Floods(_) => "ddos",
            Asked::Total { .. } | Asked::Count { .. } => "flowmon",
            Asked::Mapping(_) | Asked::Route(_) => "natv4",
            Asked::Sequence(_) => "ipsec",
        }
    }
}

/// What is known of the gateway.
pub(crate) struct Gateway {
    routes: Routes,
    pub(super) flows: Flows,
    pub(super) floods: Floods,
    /// Inside ends with a packet that was sealed.
    pub(super) translated: BTreeSet<Inside>,
    translations: Translations,
    counted: BTreeMap<u32, Counted>,
    totals: Totals,
    associations: Associations,
    sealed: Score,
    hops: Score,
}

impl Gateway {
    pub(super) fn new() -> Result<Gateway, WorkloadError> {
        let routes = Routes::shipped()?;
        let flows = Flows::new(&routes);
        let is_counted = |rank: &u32| *rank < COUNTED_FIRST || rank.is_multiple_of(COUNTED_EVERY);
        let counted = (0..FLOWS).filter(is_counted);
        let hosts = (0..FLOWS).map(|rank| flows.of(rank).source);
        let hosts = hosts.chain((0..gateway::BOTS).map(gateway::bot));
        Ok(Gateway {
            counted: counted.map(|rank| (rank, Counted::default())).collect(),
            associations: Associations::new(hosts.map(gateway::key)),
            flows,
            routes,
            floods: Floods::default(),
            translated: BTreeSet::new(),
            translations: Translations::default(),
            totals: Totals::new(flowmon::SHARDS),
            sealed: Score::default(),
            hops: Score::default(),
        })
    }

    /// Notes a packet that is sent now.
    pub(super) fn on_sent(&mut self, key: &[u8], rank: Option<u32>, is_flood: bool) {
        if let Some(counted) = rank.and_then(|rank| self.counted.get_mut(&rank)) {
            counted.sent += 1;
        }
        self.floods.on_sent(key, is_flood);
    }

    pub(super) fn ask(&self, asked: Asked) -> Call {
        let (key, payload) = match asked {
            Asked::Floods(shard) => return ddos::query(shard),
            Asked::Mapping(inside) => return gateway::ask_mapping(inside),
            Asked::Total { shard, last } => return flowmon::query(shard, last),
            Asked::Sequence(spi) => return self.associations.query(spi),
            Asked::Count { rank, last } => {
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
            Asked::Route(address) => {
                let query = RouteQuery {
                    op: "route",
                    at: "natv4",
                    address: address.to_string(),
                };
                (gateway::key(address), record(&query))
            }
        };
        Call {
            tag: 0,
            key,
            payload,
        }
    }

    fn with_calls(&self, asked: impl Iterator<Item = Asked>) -> Vec<(Asked, Call)> {
        asked.map(|asked| (asked, self.ask(asked))).collect()
    }

    /// Judges the answer to a packet.
    fn on_packet(
        &mut self,
        inside: Inside,
        rank: Option<u32>,
        bytes: usize,
        reply: Option<&Reply>,
    ) -> Judged {
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
        self.associations.on_sealed(sealed.spi, sealed.sequence);
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
}

impl Oracle for Gateway {
    const NAME: &'static str = "nfv-ifid";
    const SETTLE: Nanos = ddos::SETTLE;
    type Sent = Sent;
    type Asked = Asked;

    fn at(&mut self, now: Timestamp) {
        self.floods.at(now);
    }

    fn probe(&self) -> Call {
        let (rank, last) = (0, false);
        self.ask(Asked::Count { rank, last })
    }

    fn on_probe(&self, reply: &Reply) -> Result<(), String> {
        first_answer::<Count>(reply).map(drop)
    }

    fn baseline(&self) -> Vec<(Asked, Call)> {
        let last = false;
        let counts = self.counted.keys();
        let counts = counts.map(|rank| Asked::Count { rank: *rank, last });
        let floods = (0..ddos::SHARDS).map(Asked::Floods);
        let totals = (0..flowmon::SHARDS).map(|shard| Asked::Total { shard, last });
        let sequences = self.associations.all().map(Asked::Sequence);
        self.with_calls(counts.chain(floods).chain(totals).chain(sequences))
    }

    fn on_baseline(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<()> {
        match asked {
            Asked::Count { rank, .. } => {
                self.counted.entry(rank).or_default().before = answer(reply)?
            }
            Asked::Floods(shard) => self.floods.on_baseline(shard, reply)?,
            Asked::Total { shard, .. } => self.totals.begin(shard, answer(reply)?),
            Asked::Sequence(spi) => self.associations.on_baseline(spi, reply)?,
            Asked::Mapping(_) | Asked::Route(_) => return None,
        }
        Some(())
    }

    fn on_outcome(&mut self, sent: &Sent, reply: Option<&Reply>) -> Judged {
        match *sent {
            Sent::Packet {
                inside,
                rank,
                bytes,
            } => self.on_packet(inside, rank, bytes, reply),
            Sent::Query(asked) => match self.on_check(asked, reply) {
                Some(Facts { wrong: 0, .. }) => Judged::accepted(),
                _ => Judged::refused(handled(reply)),
            },
        }
    }

    fn checks(&self) -> Vec<(Asked, Call)> {
        let floods = (0..ddos::SHARDS).map(Asked::Floods);
        let counts = self
            .counted
            .keys()
            .flat_map(|rank| [false, true].map(|last| Asked::Count { rank: *rank, last }));
        let totals = (0..flowmon::SHARDS)
            .flat_map(|shard| [true, false].map(|last| Asked::Total { shard, last }));
        let mappings = gateway::sample(self.translated.iter()).map(Asked::Mapping);
        let sequences = self.associations.sure().map(Asked::Sequence);
        let shards = floods.chain(counts).chain(totals);
        self.with_calls(shards.chain(mappings).chain(sequences))
    }

    fn on_check(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
        match asked {
            Asked::Floods(shard) => return self.floods.on_check(shard, reply),
            Asked::Sequence(spi) => return self.associations.on_check(spi, reply),
            Asked::Total { shard, .. } => self.totals.on_report(shard, answer(reply)?),
            Asked::Mapping(inside) => {
                let public = Mapping::of(reply)?;
                let right = public.is_some_and(|public| self.translations.add(inside, public));
                return Some(Facts::one(right));
            }
            Asked::Route(address) => {
                let none = reply.filter(|r| r.outcome == Outcome::Done && r.status == NOT_FOUND);
                let hop = match none {
                    Some(_) => None,
                    None => Some(answer::<Route>(reply)?.next_hop.0),
                };
                let right = hop == self.routes.next_hop(address);
                return Some(Facts::one(self.hops.add(right)));
            }
            Asked::Count { rank, last } => {
                let count = answer(reply)?;
                let counted = self.counted.get_mut(&rank)?;
                if last {
                    counted.last = Some(count)
                } else {
                    counted.current = Some(count)
                }
            }
        }
        Some(Facts::default())
    }

    fn rows(&self) -> Rows {
        self.associations.rows()
    }

    fn services(&self, checks: &Checks<Asked>) -> Vec<ServiceCheck> {
        vec![
            self.floods.service(checks),
            self.totals.service(checks),
            checks.of("natv4", gateway::MAPPINGS, 0),
            self.associations.service(checks),
        ]
    }

    fn findings(&self) -> Vec<Finding> {
        let rows = self.associations.rows();
        let mut counts = Score::default();
        for right in self.counted.values().filter_map(Counted::is_right) {
            counts.add(right);
        }
        let mut findings = self.floods.findings().to_vec();
        findings.extend([
            self.translations.consistent.finding(
                "translations",
                "answers with the public address and port of the flow alone",
            ),
            self.hops.finding("next hops", HOPS),
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
        findings
    }
}
