//! The last sequence number that each security association of `ipsec` must have used. There is one
//! association for each slot of keys.

use crate::readback::queries::{Sequences, record};
use e3_loadgen::workload::Call;
use e3_model::Slot;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// First security association, as ipsec has it unless told otherwise; one for each slot follows.
const SPI_FIRST: u64 = 256;
/// What is compared.
pub(crate) const WHAT: &str = "last sequence number of each security association";

#[derive(Serialize)]
struct Query {
    op: &'static str,
    at: &'static str,
}

/// What ipsec says of an association.
#[derive(Deserialize)]
pub(crate) struct Report {
    pub(crate) spi: u64,
    pub(crate) sequence: u64,
}

/// The association of a key.
pub(crate) fn spi(key: &[u8]) -> u64 {
    SPI_FIRST + u64::from(Slot::of(key).0)
}

/// The associations that a load may use, with a key of each.
#[derive(Debug)]
pub(crate) struct Associations {
    keys: BTreeMap<u64, Vec<u8>>,
    unsure: BTreeSet<u64>,
}

impl Associations {
    pub(crate) fn new(keys: impl Iterator<Item = Vec<u8>>) -> Associations {
        Associations {
            keys: keys.map(|key| (spi(&key), key)).collect(),
            unsure: BTreeSet::new(),
        }
    }

    /// A query about one of them; the answer is a [`Report`].
    pub(crate) fn query(&self, spi: u64) -> Call {
        let (op, at) = ("report", "ipsec");
        Call {
            tag: 0,
            key: self.keys.get(&spi).cloned().unwrap_or_default(),
            payload: record(&Query { op, at }),
        }
    }

    /// Queries about all of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, Call)> {
        self.keys.keys().map(|spi| (*spi, self.query(*spi)))
    }

    /// Queries about those that were used, and are known to the last number.
    pub(crate) fn sure(&self, sequences: &Sequences<u64>) -> impl Iterator<Item = (u64, Call)> {
        let used: BTreeSet<u64> = sequences.highest().map(|(spi, _)| *spi).collect();
        let sure = move |spi: &u64| used.contains(spi) && !self.unsure.contains(spi);
        self.all().filter(move |(spi, _)| sure(spi))
    }

    /// A packet under this key may have used a number or not.
    pub(crate) fn on_unsure(&mut self, key: &[u8]) {
        self.unsure.insert(spi(key));
    }

    pub(crate) fn unsure(&self) -> u64 {
        self.unsure.len() as u64
    }
}
