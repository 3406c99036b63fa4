//! The report: which faults were injected, when, and their effects.

use super::inject::Injected;
use super::schedule::Planned;
use crate::commands::load::report as load_report;
use crate::ui::output::{Paint, Table};
use crate::ui::text::count;
use e3_loadgen::report::Step;
use e3_loadgen::{LoadReport, Verdict};
use serde::Serialize;
use std::time::Duration;

/// What `e3 chaos -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChaosReport {
    /// The application.
    pub app: String,
    /// The seed of schedule and load.
    pub seed: u64,
    /// Length of the load.
    pub minutes: f64,
    /// The command that repeats the same faults.
    pub replay: String,
    /// Whether nothing was lost or repeated and the application recovered from every fault.
    pub passed: bool,
    /// If not, why.
    pub reasons: Vec<String>,
    /// Accepted updates that are missing; None if no state could be read back.
    pub lost: Option<u64>,
    /// Updates that took effect twice, unexplained updates, and contradictory replies; None if no state could be
    /// read back.
    pub repeated: Option<u64>,
    /// Requests without an outcome.
    pub without_outcome: u64,
    /// Every fault.
    pub faults: Vec<Cost>,
    /// The load.
    pub load: LoadReport,
}

/// A fault and its effects, from its beginning to that of the next round.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// The fault.
    #[serde(flatten)]
    pub injected: Injected,
    /// Longest time in which no request was answered.
    pub pause_ms: f64,
    /// Longest time that a request took.
    pub latency_ms: f64,
    /// Requests that were refused, expired or dead-lettered.
    pub not_done: u64,
}

/// The effects of the faults, by the timeline of the load. The faults of one round share them.
pub fn costs(injected: Vec<Injected>, timeline: &[Step]) -> Vec<Cost> {
    let begin_of = |round: usize| {
        let of_round = injected.iter().filter(|f| f.planned.round == round);
        of_round.filter_map(|f| f.began_ms).min()
    };
    let windows: Vec<(u64, u64)> = injected
        .iter()
        .map(|fault| {
            let later = injected.iter().map(|f| f.planned.round);
            let later = later.filter(|round| *round > fault.planned.round);
            let next = later.filter_map(begin_of).min();
            (fault.began_ms.unwrap_or(u64::MAX), next.unwrap_or(u64::MAX))
        })
        .collect();
    let cost = |(fault, (from, to)): (Injected, (u64, u64))| {
        let mut cost = Cost {
            injected: fault,
            pause_ms: 0.0,
            latency_ms: 0.0,
            not_done: 0,
        };
        for step in timeline.iter().filter(|s| s.at_ms + STEP_MS > from) {
            // Everything that began before the next round is counted, whenever it ended.
            let began_in_time = |ms: f64| (step.at_ms as f64 - ms) < to as f64;
            let latency_ms = step.latency_us_max / 1e3;
            if began_in_time(step.pause_ms_max) {
                cost.pause_ms = cost.pause_ms.max(step.pause_ms_max);
            }
            if began_in_time(latency_ms) {
                cost.latency_ms = cost.latency_ms.max(latency_ms);
            }
            cost.not_done += if step.at_ms < to { step.other } else { 0 };
        }
        cost
    };
    injected.into_iter().zip(windows).map(cost).collect()
}

/// The length of a step of the timeline.
const STEP_MS: u64 = e3_loadgen::limits::TIMELINE_STEP.as_millis();

impl ChaosReport {
    /// Takes the reasons of the load, and others.
    pub fn judge(&mut self, others: impl IntoIterator<Item = String>) {
        let ledger = &self.load.ledger;
        let is_read = self.load.checks.iter().any(|c| c.right + c.wrong > 0);
        self.lost = is_read.then_some(ledger.rows_missing);
        self.repeated = is_read.then(|| ledger.repeated());
        self.without_outcome = ledger.unknown;
        if self.load.verdict == Verdict::Failed {
            self.reasons.extend(self.load.reasons.iter().cloned());
        }
        self.reasons.extend(others);
        let is_faultless = self.faults.iter().all(|c| c.injected.began_ms.is_none());
        if is_faultless {
            self.reasons.push("no fault was injected".into());
        }
        self.passed = self.reasons.is_empty();
    }

    /// As a text.
    pub fn table(&self, paint: Paint) -> String {
        let mut text = String::new();
        load_report::load(&mut text, paint, &self.load);
        load_report::ledger(&mut text, paint, &self.load);
        let source = "measured; from its beginning to that of the next round";
        load_report::heading(&mut text, paint, "Faults", source);
        let mut table = Table::new(&[
            ">AT",
            "FAULT",
            ">PAUSE",
            ">SLOWEST",
            ">NOT DONE",
            ">WHOLE AFTER",
        ])
        .indent(2);
        for cost in &self.faults {
            let fault = &cost.injected;
            let Some(began) = fault.began_ms else {
                continue;
            };
            let whole = fault.whole_ms.map(|at| seconds(at.saturating_sub(began)));
            table.row([
                seconds(began),
                fault.to_string(),
                format!("{:.0} ms", cost.pause_ms),
                format!("{:.0} ms", cost.latency_ms),
                count(cost.not_done),
                whole.unwrap_or_else(|| "never".into()),
            ]);
        }
        text += &table.render();
        for fault in self.faults.iter().map(|cost| &cost.injected) {
            if let Some(why) = &fault.refused {
                load_report::reading(&mut text, &format!("not done: {}: {why}", fault.planned));
            }
        }
        let words = if self.passed { "passed" } else { "failed" };
        text += &format!("\n{}", paint.verdict(self.passed, words));
        let without = count(self.without_outcome);
        text += &match (self.lost, self.repeated) {
            (Some(lost), Some(repeated)) => {
                let (lost, repeated) = (count(lost), count(repeated));
                format!(": {lost} lost, {repeated} repeated, {without} without outcome\n")
            }
            _ => format!(": no state was read back, {without} without outcome\n"),
        };
        for reason in &self.reasons {
            text += &format!("  {reason}\n");
        }
        text += &format!("again: {}\n", self.replay);
        text
    }
}

fn seconds(ms: u64) -> String {
    format!("{:.2} s", Duration::from_millis(ms).as_secs_f64())
}

/// The schedule, one line each.
pub fn schedule(plan: &[Planned]) -> String {
    let line = |p: &Planned| format!("{:7.2} s  {p}\n", p.at.as_secs_f64());
    plan.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fault::Fault;
    use super::*;
    use e3_loadgen::ledger::LedgerReport;
    use e3_model::Latency;

    fn fault(round: usize, began_ms: Option<u64>) -> Injected {
        Injected {
            planned: Planned {
                round,
                at: Duration::ZERO,
                fault: Fault::Kill,
                target: "a".into(),
                length: Duration::ZERO,
            },
            node: Some("a".into()),
            incarnation: None,
            began_ms,
            ended_ms: began_ms,
            whole_ms: began_ms,
            refused: None,
        }
    }

    #[test]
    fn a_fault_costs_what_happens_until_the_next_round() {
        let timeline: Vec<Step> = (0..40)
            .map(|n| Step {
                at_ms: n * STEP_MS,
                pause_ms_max: n as f64,
                latency_us_max: 1e3 * n as f64,
                other: 1,
                ..Step::default()
            })
            .collect();
        let all = vec![
            fault(0, Some(1_000)),
            fault(0, Some(1_250)),
            fault(1, None),
            fault(2, Some(3_000)),
        ];
        let costs = costs(all, &timeline);
        let pauses: Vec<f64> = costs.iter().map(|c| c.pause_ms).collect();
        // The request that ended in the last step of the round began before the next round.
        assert_eq!(pauses, [30.0, 30.0, 0.0, 39.0]);
        let not_done: Vec<u64> = costs.iter().map(|c| c.not_done).collect();
        assert_eq!(not_done, [20, 18, 0, 10]);
    }

    #[test]
    fn a_run_without_a_fault_has_not_passed_even_if_it_was_interrupted() {
        let load = LoadReport {
            verdict: Verdict::Proved,
            reasons: Vec::new(),
            checks: Vec::new(),
            cluster: None,
            stopped_early: true,
            workload: String::new(),
            senders: String::new(),
            seed: 1,
            duration_s: 1.0,
            offered_rps: 1.0,
            achieved_rps: 1.0,
            latency: Latency::default(),
            longest_pause_ms: 0.0,
            timeline: Vec::new(),
            ledger: LedgerReport::default(),
            findings: Vec::new(),
        };
        for (began_ms, passes) in [(None, false), (Some(1_000), true)] {
            let mut report = ChaosReport {
                app: "kvs".into(),
                seed: 1,
                minutes: 1.0,
                replay: String::new(),
                passed: false,
                reasons: Vec::new(),
                lost: None,
                repeated: None,
                without_outcome: 0,
                faults: costs(vec![fault(0, began_ms)], &[]),
                load: load.clone(),
            };
            report.judge([]);
            assert_eq!(report.passed, passes, "{:?}", report.reasons);
        }
    }
}
