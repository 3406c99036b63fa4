//! The workload of flow monitoring (NFV-FIN): packets are counted by flow, searched for attacks, and
//! sealed into an IPsec tunnel.
//!
//! The ESP sequence numbers of one security association must have no gap and no duplicate. Flows are the
//! same in all loads, so the counts of all three services are read before the load. At the end they are
//! read from every shard, and from every security association that was used.

use crate::inputs::Inputs;
use crate::oracles::flowmon::{self, Totals, Window};
use crate::oracles::ipsec::{self, Associations};
use crate::oracles::nids::{self, Alerts};
use crate::packets::{FLOWS, Packets, Sent, flow};
use crate::readback::checks::{Ask, Checks, Facts, WithFacts};
use crate::readback::queries::{Sequences, answer, first_answer, handled, not_admitted};
use e3_loadgen::ledger::Rows;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Check, Finding, Judged, Verified, Workload};
use e3_model::Timestamp;
use e3_wire::entry::Reply;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Flows that are looked for among the heavy ones.
const HEAVY: usize = 10;
/// Shards of the application's services, as its manifest has them.
const SHARDS: u16 = 12;

/// How a packet left.
#[derive(Deserialize)]
struct Sealed {
    spi: u64,
    sequence: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct Flows {
    #[serde(flatten)]
    window: Window,
    heavy: Vec<(String, u16, String, u16, u8, u64)>,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Flows { shard: u16, last: bool },
    Alerts,
    Sequence(u64),
}

impl Ask for Asked {
    fn service(self) -> &'static str {
        match self {
            Asked::Flows { .. } => "flowmon",
            Asked::Alerts => "nids",
            Asked::Sequence(_) => "ipsec",
        }
    }
}

#[derive(Debug)]
struct InFlight {
    rank: u32,
    len: usize,
    attack: Option<usize>,
}

/// The workload.
pub struct NfvFin {
    stream: Packets,
    in_flight: BTreeMap<u64, InFlight>,
    next_mark: u64,
    associations: Associations,
    sequences: Sequences<u64>,
    packets: Vec<u64>,
    totals: Totals,
    alerts: Alerts,
    baseline: Checks<Asked>,
    checks: Option<Checks<Asked>>,
    /// Estimates of heavy flows, by source address and port.
    heavy: BTreeMap<(String, u16), u64>,
}

fn key(rank: u32) -> Vec<u8> {
    flow(rank).canonical().to_bytes().to_vec()
}

fn flows_of(shard: u16, last: bool) -> (Asked, Call) {
    let call = flowmon::flowmon(shard, SHARDS, last);
    (Asked::Flows { shard, last }, call)
}

fn alerts_of(shard: u16) -> (Asked, Call) {
    (Asked::Alerts, nids::query(shard))
}

impl NfvFin {
    /// The packets of a seed.
    pub fn new(inputs: &Inputs) -> NfvFin {
        let associations = Associations::new((0..FLOWS).map(key));
        let shards = (0..SHARDS).flat_map(|shard| [flows_of(shard, false), alerts_of(shard)]);
        let sequences = associations
            .all()
            .map(|(spi, call)| (Asked::Sequence(spi), call));
        NfvFin {
            stream: Packets::new(inputs.seed),
            in_flight: BTreeMap::new(),
            next_mark: 0,
            baseline: Checks::new(shards.chain(sequences).collect()),
            associations,
            sequences: Sequences::default(),
            packets: vec![0; FLOWS as usize],
            totals: Totals::new(SHARDS),
            alerts: Alerts::default(),
            checks: None,
            heavy: BTreeMap::new(),
        }
    }

    fn checks(&mut self) -> &mut Checks<Asked> {
        let shards = (0..SHARDS).flat_map(|shard| {
            [
                flows_of(shard, true),
                flows_of(shard, false),
                alerts_of(shard),
            ]
        });
        let used = self.associations.sure(&self.sequences);
        let used = used.map(|(spi, call)| (Asked::Sequence(spi), call));
        self.checks
            .get_or_insert_with(|| Checks::new(shards.chain(used).collect()))
    }

    /// Holds an answer after the load against what was sent; None if it is none.
    fn read_back(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
        match asked {
            Asked::Flows { shard, last } => {
                let said: Flows = answer(reply)?;
                self.totals.on_report(shard, said.window);
                if !last {
                    let estimates = said.heavy.into_iter().map(|h| ((h.0, h.1), h.5));
                    self.heavy.extend(estimates);
                }
                Some(Facts::default())
            }
            Asked::Alerts => {
                self.alerts.on_report(answer(reply)?, false);
                Some(Facts::default())
            }
            Asked::Sequence(spi) => {
                let said: ipsec::Report = answer(reply)?;
                let known = self.sequences.expected(&spi);
                Some(Facts::one(said.spi == spi && known == Some(said.sequence)))
            }
        }
    }
}

impl Workload for NfvFin {
    fn name(&self) -> &'static str {
        "nfv-fin"
    }

    fn describe(&self) -> String {
        format!("packets of {FLOWS} flows by Zipf's law, simple IMIX, 1 % attacks")
    }

    fn probe(&mut self) -> Call {
        flows_of(0, false).1
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), String> {
        first_answer::<Flows>(reply).map(drop)
    }

    fn next_baseline(&mut self) -> Check {
        self.baseline.next()
    }

    fn on_baseline(&mut self, tag: u64, reply: Option<&Reply>) {
        let taken = match self.baseline.asked(tag) {
            Some(Asked::Flows { shard, .. }) => {
                answer::<Flows>(reply).map(|said| self.totals.begin(shard, said.window))
            }
            Some(Asked::Alerts) => answer(reply).map(|said| self.alerts.on_report(said, true)),
            Some(Asked::Sequence(spi)) => answer::<ipsec::Report>(reply)
                .map(|said| self.sequences.begin_after(spi, said.sequence)),
            None => None,
        };
        self.baseline.take(tag, taken.map(|()| Facts::one(true)));
    }

    fn baseline_unanswered(&self) -> u64 {
        self.baseline.unanswered()
    }

    fn next(&mut self) -> Option<Call> {
        let Sent {
            flow: rank,
            bytes,
            attack,
        } = self.stream.next_packet();
        self.next_mark += 1;
        let len = bytes.len();
        self.in_flight
            .insert(self.next_mark, InFlight { rank, len, attack });
        Some(Call {
            tag: self.next_mark,
            key: key(rank),
            payload: bytes,
        })
    }

    fn on_outcome(&mut self, mark: u64, reply: Option<&Reply>) -> Judged {
        let Some(sent) = self.in_flight.remove(&mark) else {
            return Judged::refused(handled(reply));
        };
        let key = key(sent.rank);
        if !not_admitted(reply) {
            self.totals.on_packet(&key, handled(reply));
            if let Some(attack) = sent.attack {
                self.alerts.on_attack(attack, handled(reply));
            }
        }
        let Some(sealed) = answer::<Sealed>(reply) else {
            if !not_admitted(reply) {
                self.associations.on_unsure(&key);
            }
            return Judged::refused(handled(reply));
        };
        if sealed.bytes <= sent.len as u64 {
            return Judged::refused(true);
        }
        self.sequences.add(sealed.spi, sealed.sequence);
        self.packets[sent.rank as usize] += 1;
        Judged::accepted()
    }

    fn next_check(&mut self, _: Timestamp) -> Check {
        self.checks().next()
    }

    fn on_check(&mut self, _: Timestamp, tag: u64, reply: Option<&Reply>) {
        let asked = self.checks().asked(tag);
        let facts = asked.and_then(|asked| self.read_back(asked, reply));
        self.checks().take(tag, facts);
    }

    fn checked(&self) -> f64 {
        self.checks.as_ref().map_or(0.0, Checks::progress)
    }

    fn verify(&self) -> Verified {
        let mut ranks: Vec<usize> = (0..self.packets.len()).collect();
        ranks.sort_by_key(|r| std::cmp::Reverse(self.packets[*r]));
        ranks.truncate(HEAVY);
        let found = ranks.iter().filter(|rank| {
            let f = flow(**rank as u32);
            let estimate = self.heavy.get(&(f.source.to_string(), f.source_port));
            // a sketch never says less than there was
            estimate.is_some_and(|e| *e >= self.packets[**rank])
        });
        let heavy = Finding {
            what: "heavy flows",
            right: found.count() as u64,
            of: ranks.len() as u64,
            how: "most frequent flows that the shards report, with no lower count than they had",
        };
        let services = self.checks.as_ref().map(|checks| {
            let (totals, alerts) = (&self.totals, &self.alerts);
            [
                checks
                    .of(
                        "flowmon",
                        "packets that each shard has counted",
                        totals.unsure(),
                    )
                    .with_facts(totals.facts()),
                checks
                    .of("nids", "alerts of each rule", alerts.unsure())
                    .with_facts(alerts.facts()),
                checks.of("ipsec", ipsec::WHAT, self.associations.unsure()),
            ]
        });
        Verified {
            rows: Rows {
                checks_failed: self.checks.as_ref().map_or(0, Checks::unanswered),
                ..self.sequences.rows()
            },
            checks: services.map_or(Vec::new(), Vec::<ServiceCheck>::from),
            findings: [heavy].into_iter().chain(self.alerts.findings()).collect(),
        }
    }
}
