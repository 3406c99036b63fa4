//! A score: right ones of all.

use crate::readback::checks::Facts;
use e3_loadgen::workload::Finding;

/// Right ones, of so many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Score(pub(crate) u64, pub(crate) u64);

impl Score {
    pub(crate) fn add(&mut self, right: bool) -> bool {
        self.0 += u64::from(right);
        self.1 += 1;
        right
    }

    pub(crate) fn add_facts(&mut self, facts: Facts) {
        self.0 += facts.right;
        self.1 += facts.right + facts.wrong;
    }

    pub(crate) fn finding(self, what: &'static str, how: &'static str) -> Finding {
        let Score(right, of) = self;
        Finding {
            what,
            right,
            of,
            how,
        }
    }
}
