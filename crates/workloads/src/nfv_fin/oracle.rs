//! What the services must answer and count: flows, alerts, sealed packets.

use super::key;
use crate::load::Oracle;
use crate::oracles::flowmon::{self, SHARDS, Totals, Window};
use crate::oracles::ipsec::Associations;
use crate::oracles::nids::{self, Alerts};
use crate::packets::{FLOWS, flow};
use crate::readback::checks::{Ask, Checks, Facts};
use crate::readback::queries::{answer, first_answer, handled, not_admitted};
use e3_loadgen::ledger::Rows;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Finding, Judged};
use e3_wire::entry::Reply;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Flows that are looked for among the heavy ones.
const HEAVY: usize = 10;

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
pub(crate) enum Asked {
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

/// A packet that was sent.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(super) rank: u32,
    pub(super) len: usize,
    pub(super) attack: Option<usize>,
}

/// What is known of the application.
pub(crate) struct Monitor {
    associations: Associations,
    packets: Vec<u64>,
    totals: Totals,
    alerts: Alerts,
    /// Estimates of heavy flows, by source address and port.
    heavy: BTreeMap<(String, u16), u64>,
}

fn flows_of(shard: u16, last: bool) -> (Asked, Call) {
    (Asked::Flows { shard, last }, flowmon::query(shard, last))
}

fn alerts_of(shard: u16) -> (Asked, Call) {
    (Asked::Alerts, nids::query(shard))
}

impl Monitor {
    pub(super) fn new() -> Monitor {
        Monitor {
            associations: Associations::new((0..FLOWS).map(key)),
            packets: vec![0; FLOWS as usize],
            totals: Totals::new(SHARDS),
            alerts: Alerts::default(),
            heavy: BTreeMap::new(),
        }
    }

    fn sequence_of(&self, spi: u64) -> (Asked, Call) {
        (Asked::Sequence(spi), self.associations.query(spi))
    }
}

impl Oracle for Monitor {
    const NAME: &'static str = "nfv-fin";
    type Sent = InFlight;
    type Asked = Asked;

    fn probe(&self) -> Call {
        flowmon::query(0, false)
    }

    fn on_probe(&self, reply: &Reply) -> Result<(), String> {
        first_answer::<Flows>(reply).map(drop)
    }

    fn baseline(&self) -> Vec<(Asked, Call)> {
        let shards = (0..SHARDS).flat_map(|shard| [flows_of(shard, false), alerts_of(shard)]);
        let sequences = self.associations.all().map(|spi| self.sequence_of(spi));
        shards.chain(sequences).collect()
    }

    fn on_baseline(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<()> {
        match asked {
            Asked::Flows { shard, .. } => {
                self.totals.begin(shard, answer::<Flows>(reply)?.window);
                Some(())
            }
            Asked::Alerts => self.alerts.on_baseline(reply),
            Asked::Sequence(spi) => self.associations.on_baseline(spi, reply),
        }
    }

    fn on_outcome(&mut self, sent: &InFlight, reply: Option<&Reply>) -> Judged {
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
        self.associations.on_sealed(sealed.spi, sealed.sequence);
        self.packets[sent.rank as usize] += 1;
        Judged::accepted()
    }

    fn checks(&self) -> Vec<(Asked, Call)> {
        let shards = (0..SHARDS).flat_map(|shard| {
            let flows = [true, false].map(|last| flows_of(shard, last));
            flows.into_iter().chain([alerts_of(shard)])
        });
        let used = self.associations.sure().map(|spi| self.sequence_of(spi));
        shards.chain(used).collect()
    }

    fn on_check(&mut self, asked: Asked, reply: Option<&Reply>) -> Option<Facts> {
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
            Asked::Alerts => self.alerts.on_check(reply),
            Asked::Sequence(spi) => self.associations.on_check(spi, reply),
        }
    }

    fn rows(&self) -> Rows {
        self.associations.rows()
    }

    fn services(&self, checks: &Checks<Asked>) -> Vec<ServiceCheck> {
        vec![
            self.totals.service(checks),
            self.alerts.service(checks),
            self.associations.service(checks),
        ]
    }

    fn findings(&self) -> Vec<Finding> {
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
        [heavy].into_iter().chain(self.alerts.findings()).collect()
    }
}
