//! The last sequence number that each security association of `ipsec` must have used. There is one
//! association for each slot of keys.

use crate::readback::checks::{Ask, Checks, Facts};
use crate::readback::queries::{Sequences, answer, record};
use e3_loadgen::ledger::Rows;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::Call;
use e3_model::Slot;
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// First security association, as ipsec has it by default; one for each slot follows.
const SPI_FIRST: u64 = 256;

#[derive(Serialize)]
struct Query {
    op: &'static str,
    at: &'static str,
}

/// What ipsec says of an association.
#[derive(Deserialize)]
struct Report {
    spi: u64,
    sequence: u64,
}

/// The association of a key.
pub(crate) fn spi(key: &[u8]) -> u64 {
    SPI_FIRST + u64::from(Slot::of(key).0)
}

/// The associations that a load may use, with a key of each, and the numbers that they gave.
#[derive(Debug)]
pub(crate) struct Associations {
    keys: BTreeMap<u64, Vec<u8>>,
    sequences: Sequences<u64>,
}

impl Associations {
    pub(crate) fn new(keys: impl Iterator<Item = Vec<u8>>) -> Associations {
        Associations {
            keys: keys.map(|key| (spi(&key), key)).collect(),
            sequences: Sequences::default(),
        }
    }

    /// A query about one of them.
    pub(crate) fn query(&self, spi: u64) -> Call {
        let (op, at) = ("report", "ipsec");
        Call {
            tag: 0,
            key: self.keys.get(&spi).cloned().unwrap_or_default(),
            payload: record(&Query { op, at }),
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = u64> {
        self.keys.keys().copied()
    }

    /// Those that were used, and are known to the last number.
    pub(crate) fn sure(&self) -> impl Iterator<Item = u64> {
        let sure = self.sequences.sure().map(|(spi, _)| *spi);
        sure.filter(|spi| self.keys.contains_key(spi))
    }

    /// Takes the last number of an association before the load.
    pub(crate) fn on_baseline(&mut self, spi: u64, reply: Option<&Reply>) -> Option<()> {
        let report: Report = answer(reply)?;
        self.sequences.begin_after(spi, report.sequence);
        Some(())
    }

    /// Takes the number that a packet was sealed with.
    pub(crate) fn on_sealed(&mut self, spi: u64, sequence: u64) {
        self.sequences.add(spi, sequence);
    }

    /// A packet under this key may have used a number or not.
    pub(crate) fn on_unsure(&mut self, key: &[u8]) {
        self.sequences.add_unsure(spi(key));
    }

    /// Compares the last number of an association with the packets that it sealed.
    pub(crate) fn on_check(&self, spi: u64, reply: Option<&Reply>) -> Option<Facts> {
        let report: Report = answer(reply)?;
        let known = self.sequences.expected(&spi);
        let right = report.spi == spi && known == Some(report.sequence);
        Some(Facts::one(right))
    }

    /// What was read back of ipsec.
    pub(crate) fn service<Q: Ask>(&self, checks: &Checks<Q>) -> ServiceCheck {
        checks.of(
            "ipsec",
            "last sequence number of each security association",
            self.sequences.unsure_kinds(),
        )
    }

    /// As rows: each sealed packet has one number.
    pub(crate) fn rows(&self) -> Rows {
        self.sequences.rows()
    }
}
