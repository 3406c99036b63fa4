//! The workload of flow monitoring (NFV-FIN): packets are counted by flow, searched for attacks, and
//! sealed into an IPsec tunnel.
//!
//! The ESP sequence number that a packet left with is the ledger of its own: those of one security
//! association must follow each other without a gap and without a repeat. At the end the heavy flows
//! and the alerts are read from every shard.

use super::packets::{FLOWS, Packets, Sent, flow};
use super::questions::{Questions, Sequences, answer, first_answer, handled, key_of_shard, record};
use super::{Call, Check, Finding, Inputs, Judged, Verified, Workload};
use crate::LoadError;
use crate::ledger::Rows;
use e3_model::Nanos;
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Flows that are looked for among the heavy ones.
const HEAVY: usize = 10;
/// Shards of the application's services, as its manifest has them.
const SHARDS: u16 = 12;

#[derive(Serialize)]
struct Question<'a> {
    op: &'a str,
    at: &'a str,
}

/// How a packet left.
#[derive(Deserialize)]
struct Sealed {
    spi: u64,
    sequence: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct Flows {
    heavy: Vec<(String, u16, String, u16, u8, u64)>,
}

#[derive(Deserialize)]
struct Alerts {
    total: u64,
}

/// The workload.
pub struct NfvFin {
    stream: Packets,
    /// Flow, length and attack of what is under way.
    under_way: BTreeMap<u64, (u32, usize, bool)>,
    next_mark: u64,
    sequences: Sequences<u64>,
    packets: Vec<u64>,
    attacks: u64,
    questions: Questions,
    /// Estimates of heavy flows, by source address and port.
    heavy: BTreeMap<(String, u16), u64>,
    alerts: u64,
}

fn question(at: &str, shard: u16) -> Call {
    Call {
        tag: 0,
        key: key_of_shard(shard, SHARDS),
        payload: record(&Question { op: "report", at }),
    }
}

impl NfvFin {
    /// The packets of a seed.
    pub fn new(inputs: &Inputs) -> NfvFin {
        let calls = ["flowmon", "nids"]
            .into_iter()
            .flat_map(|at| (0..SHARDS).map(move |shard| question(at, shard)));
        NfvFin {
            stream: Packets::new(inputs.seed),
            under_way: BTreeMap::new(),
            next_mark: 0,
            sequences: Sequences::default(),
            packets: vec![0; FLOWS as usize],
            attacks: 0,
            questions: Questions::new(calls.collect()),
            heavy: BTreeMap::new(),
            alerts: 0,
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
        question("flowmon", 0)
    }

    fn on_probe(&mut self, reply: &Reply) -> Result<(), LoadError> {
        first_answer::<Flows>(self.name(), reply).map(drop)
    }

    fn next(&mut self) -> Option<Call> {
        let Sent {
            flow: rank,
            bytes,
            attack,
        } = self.stream.next_packet();
        self.next_mark += 1;
        self.under_way
            .insert(self.next_mark, (rank, bytes.len(), attack.is_some()));
        Some(Call {
            tag: self.next_mark,
            key: flow(rank).canonical().to_bytes().to_vec(),
            payload: bytes,
        })
    }

    fn on_outcome(&mut self, mark: u64, reply: Option<&Reply>) -> Judged {
        let sent = self.under_way.remove(&mark);
        let (Some((rank, len, attack)), Some(sealed)) = (sent, answer::<Sealed>(reply)) else {
            return Judged::refused(handled(reply));
        };
        if sealed.bytes <= len as u64 {
            return Judged::refused(true);
        }
        self.sequences.add(sealed.spi, sealed.sequence);
        self.packets[rank as usize] += 1;
        self.attacks += u64::from(attack);
        Judged::accepted()
    }

    fn next_check(&mut self, _: Nanos) -> Check {
        self.questions.next()
    }

    fn on_check(&mut self, _: Nanos, tag: u64, reply: Option<&Reply>) {
        let good = if tag < u64::from(SHARDS) {
            answer::<Flows>(reply).map(|f| {
                let estimates = f.heavy.into_iter().map(|h| ((h.0, h.1), h.5));
                self.heavy.extend(estimates);
            })
        } else {
            answer::<Alerts>(reply).map(|a| self.alerts += a.total)
        };
        self.questions.on_answer(tag, good.is_some());
    }

    fn checked(&self) -> f64 {
        self.questions.progress()
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
        Verified {
            rows: Rows {
                checks_failed: self.questions.failed(),
                ..self.sequences.rows()
            },
            spikes: None,
            findings: vec![
                Finding {
                    what: "heavy flows",
                    right: found.count() as u64,
                    of: ranks.len() as u64,
                    how: "most frequent flows that the shards name, with no less than they had",
                },
                Finding {
                    what: "alerts",
                    right: self.alerts.min(self.attacks),
                    of: self.attacks.max(self.alerts),
                    how: "attacks sent and alerts raised since the application was deployed",
                },
            ],
        }
    }
}
