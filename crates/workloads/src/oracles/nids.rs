//! Alerts that `nids` must have counted for each rule: its counts before and after the load are compared
//! with the attacks that were sent in between.

use crate::readback::checks::{Ask, Checks, Facts, WithFacts};
use crate::readback::queries::{answer, key_of_shard, record};
use crate::readback::score::Score;
use e3_loadgen::ledger::Rows;
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Finding};
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Shards of nids, as the manifests have them.
pub(crate) const SHARDS: u16 = 12;
/// The rule of the first attack of a stream; the others follow.
pub(crate) const FIRST_SID: u32 = 1001;

#[derive(Serialize)]
struct Query {
    op: &'static str,
    at: &'static str,
}

/// A query to a shard; the answer is a [`Report`].
pub(crate) fn query(shard: u16) -> Call {
    let (op, at) = ("report", "nids");
    Call {
        tag: 0,
        key: key_of_shard(shard, SHARDS),
        payload: record(&Query { op, at }),
    }
}

/// What a shard says of its rules: number, count, message.
#[derive(Deserialize)]
pub(crate) struct Report {
    rules: Vec<(u32, u64, String)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rule {
    before: u64,
    after: u64,
    /// Attacks that were handled.
    sent: u64,
    /// Attacks without an outcome by the application: there may be an alert or not.
    unknown: u64,
}

impl Rule {
    fn found(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    fn most(&self) -> u64 {
        self.sent + self.unknown
    }
}

/// Alerts by rule, over all shards.
#[derive(Debug, Default)]
pub(crate) struct Alerts(BTreeMap<u32, Rule>);

impl Alerts {
    /// Takes the counts of a shard before the load.
    pub(crate) fn on_baseline(&mut self, reply: Option<&Reply>) -> Option<()> {
        for (sid, count, _) in answer::<Report>(reply)?.rules {
            self.0.entry(sid).or_default().before += count;
        }
        Some(())
    }

    /// Takes the counts of a shard after the load; the facts show when all have answered.
    pub(crate) fn on_check(&mut self, reply: Option<&Reply>) -> Option<Facts> {
        for (sid, count, _) in answer::<Report>(reply)?.rules {
            self.0.entry(sid).or_default().after += count;
        }
        Some(Facts::default())
    }

    /// What was read back of nids.
    pub(crate) fn service<Q: Ask>(&self, checks: &Checks<Q>) -> ServiceCheck {
        let unsure = self.sum(|r| r.unknown);
        let check = checks.of("nids", "alerts of each rule", unsure);
        check.with_facts(self.facts())
    }

    /// Notes the outcome of an attack, by its place in its stream.
    pub(crate) fn on_attack(&mut self, attack: usize, handled: bool) {
        let rule = self.0.entry(FIRST_SID + attack as u32).or_default();
        if handled {
            rule.sent += 1
        } else {
            rule.unknown += 1
        }
    }

    fn sum(&self, of: impl Fn(&Rule) -> u64) -> u64 {
        self.0.values().map(of).sum()
    }

    /// Rules whose count is right or wrong.
    fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        for rule in self.0.values() {
            facts.add((rule.sent..=rule.most()).contains(&rule.found()));
        }
        facts
    }

    /// As rows: each attack that was handled is one alert.
    pub(crate) fn rows(&self) -> Rows {
        Rows {
            expected: self.sum(|r| r.sent),
            found: self.sum(Rule::found),
            missing: self.sum(|r| r.sent.saturating_sub(r.found())),
            repeated: self.sum(|r| r.found().saturating_sub(r.most())),
            ..Rows::default()
        }
    }

    /// Attacks with an alert, and alerts with an attack.
    pub(crate) fn findings(&self) -> [Finding; 2] {
        let (sent, found) = (self.sum(|r| r.sent), self.sum(Rule::found));
        [
            Score(self.sum(|r| r.found().min(r.sent)), sent).finding(
                "attacks found",
                "attacks in payloads that raised an alert (recall)",
            ),
            Score(self.sum(|r| r.found().min(r.most())), found).finding(
                "alerts right",
                "alerts for an attack that was sent (precision)",
            ),
        ]
    }
}
