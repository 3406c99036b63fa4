//! Servers with one report in flight each.

use super::health::{HOSTS, Health, Report};
use super::messages;
use super::oracle::Monitor;
use crate::inputs::Inputs;
use crate::load::Generator;
use e3_loadgen::workload::{Call, Judged};
use e3_model::Timestamp;
use std::collections::BTreeSet;

/// Seconds between two reports of a server.
const REPORT_S: i64 = 600;

/// The reports of a seed.
pub(crate) struct Servers {
    stream: Health,
    first_s: i64,
    busy: BTreeSet<u32>,
}

impl Servers {
    pub(super) fn new(inputs: &Inputs) -> Servers {
        Servers {
            stream: Health::new(inputs.seed),
            first_s: inputs.now.since(Timestamp::ZERO).as_secs() as i64,
            busy: BTreeSet::new(),
        }
    }
}

impl Generator<Monitor> for Servers {
    fn describe(&self) -> String {
        format!("{HOSTS} servers over the day, with incidents")
    }

    fn next(&mut self, oracle: &mut Monitor) -> Option<(Call, Report)> {
        let report = self.stream.next_report(&self.busy)?;
        let time = self.first_s + report.number * REPORT_S;
        let call = messages::report(&report, oracle.number(&report), time);
        self.busy.insert(report.host);
        Some((call, report))
    }

    fn on_outcome(&mut self, report: &Report, _: Judged) {
        self.busy.remove(&report.host);
    }
}
