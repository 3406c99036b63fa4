//! Packets that each shard of `flowmon` and `ddos` must have counted. Both count in windows of time, so the
//! count of the window in which the load starts is read first.

use crate::readback::checks::{Ask, Checks, Facts, WithFacts};
use crate::readback::queries::{key_of_shard, record};
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::Call;
use e3_model::Slot;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Shards of flowmon, as the manifests have them.
pub(crate) const SHARDS: u16 = 12;

#[derive(Serialize)]
struct Query {
    op: &'static str,
    at: &'static str,
    which: &'static str,
}

/// A query to a shard of flowmon about the window in progress or the one before.
pub(crate) fn query(shard: u16, last: bool) -> Call {
    Call {
        tag: 0,
        key: key_of_shard(shard, SHARDS),
        payload: record(&Query {
            op: "report",
            at: "flowmon",
            which: if last { "last" } else { "current" },
        }),
    }
}

/// What a shard says of a window.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Window {
    pub(crate) window: u64,
    pub(crate) packets: u64,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    /// Window and packets before the load.
    before: Option<(u64, u64)>,
    /// Packets by window, from that one on.
    windows: BTreeMap<u64, u64>,
    handled: u64,
    /// Packets that may have been counted or not.
    unsure: u64,
}

/// By shard of a service.
#[derive(Clone, Debug)]
pub(crate) struct Totals(Vec<Shard>);

impl Totals {
    pub(crate) fn new(shards: u16) -> Totals {
        Totals(vec![Shard::default(); usize::from(shards)])
    }

    /// Notes a packet under this key: counted, or perhaps counted.
    pub(crate) fn on_packet(&mut self, key: &[u8], handled: bool) {
        let shard = Slot::of(key).shard(self.0.len() as u16).0;
        let shard = &mut self.0[usize::from(shard)];
        if handled {
            shard.handled += 1
        } else {
            shard.unsure += 1
        }
    }

    pub(crate) fn begin(&mut self, shard: u16, said: Window) {
        self.0[usize::from(shard)].before = Some((said.window, said.packets));
    }

    pub(crate) fn on_window(&mut self, shard: u16, window: u64, packets: u64) {
        let shard = &mut self.0[usize::from(shard)];
        if shard.before.is_none_or(|(first, _)| window >= first) {
            shard.windows.insert(window, packets);
        }
    }

    pub(crate) fn on_report(&mut self, shard: u16, said: Window) {
        self.on_window(shard, said.window, said.packets);
    }

    /// What was read back of flowmon.
    pub(crate) fn service<Q: Ask>(&self, checks: &Checks<Q>) -> ServiceCheck {
        let check = checks.of(
            "flowmon",
            "packets that each shard has counted",
            self.unsure(),
        );
        check.with_facts(self.facts())
    }

    /// Shards whose count is right or wrong; not those that are not sure.
    pub(crate) fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        for s in self.0.iter().filter(|s| s.unsure == 0 && s.handled > 0) {
            let before = s.before.map_or(0, |(_, packets)| packets);
            facts.add(s.windows.values().sum::<u64>() == before + s.handled);
        }
        facts
    }

    /// Packets that may or may not have been counted.
    pub(crate) fn unsure(&self) -> u64 {
        self.0.iter().map(|s| s.unsure).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_add_up_from_the_one_in_which_the_load_began() {
        let window = |window, packets| Window { window, packets };
        let mut totals = Totals::new(1);
        totals.begin(0, window(7, 100));
        (0..30).for_each(|_| totals.on_packet(b"key", true));
        // the one before is not of the load; the last was empty so far
        totals.on_window(0, 6, 50);
        totals.on_report(0, window(7, 110));
        totals.on_report(0, window(8, 20));
        assert_eq!(totals.facts(), Facts::one(true));
        totals.on_packet(b"key", true);
        assert_eq!(totals.facts(), Facts::one(false));
        totals.on_packet(b"key", false);
        assert_eq!((totals.facts(), totals.unsure()), (Facts::default(), 1));
    }
}
