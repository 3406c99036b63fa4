//! What was judged, one after the other.

use super::Finding;

/// Right ones, of so many.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Score(pub(super) u64, pub(super) u64);

impl Score {
    pub(super) fn add(&mut self, right: bool) -> bool {
        self.0 += u64::from(right);
        self.1 += 1;
        right
    }

    pub(super) fn finding(self, what: &'static str, how: &'static str) -> Finding {
        let Score(right, of) = self;
        Finding {
            what,
            right,
            of,
            how,
        }
    }
}
