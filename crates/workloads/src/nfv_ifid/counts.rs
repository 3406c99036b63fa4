//! Counts of a flow by a count-min sketch against exact ones (Cormode, Muthukrishnan: "An Improved Data
//! Stream Summary: The Count-Min Sketch and its Applications", 2005).

use serde::Deserialize;

/// Counters of a row of the sketches, as flowmon has them by default.
const WIDTH: f64 = 2048.0;

/// What a shard of flowmon says of a flow in a window.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Count {
    window: u64,
    packets: u64,
    estimate: u64,
}

/// A flow that is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) before: Count,
    pub(super) last: Option<Count>,
    pub(super) current: Option<Count>,
    /// Packets that were sealed.
    pub(super) sealed: u64,
    /// Packets that were sent.
    pub(super) sent: u64,
}

impl Counted {
    /// Whether the estimate is no less than the exact count, and too high by no more than a
    /// count-min sketch is (with a probability of 1 - e^-4). None if that cannot be said: the load
    /// was longer than a window.
    pub(super) fn is_right(&self) -> Option<bool> {
        let (current, last) = (self.current?, self.last?);
        let of_before = |c: &Count| c.window == self.before.window;
        let (estimate, packets) = match (of_before(&current), of_before(&last)) {
            (true, _) => (current.estimate, current.packets),
            (false, true) => (
                current.estimate + last.estimate,
                current.packets + last.packets,
            ),
            (false, false) => return None,
        };
        let error = (std::f64::consts::E / WIDTH * packets as f64) as u64;
        let most = self.before.estimate + self.sent + error;
        Some((self.sealed..=most).contains(&estimate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_right_within_the_bound() {
        let count = |window, packets, estimate| Count {
            window,
            packets,
            estimate,
        };
        let mut c = Counted {
            before: count(7, 100, 3),
            last: Some(count(6, 50, 9)),
            current: Some(count(7, 2000, 13)),
            sealed: 10,
            sent: 10,
        };
        // 3 before, and at most e / 2048 of 2000 packets too many
        for (estimate, right) in [(9, false), (10, true), (15, true), (16, false)] {
            c.current = Some(count(7, 2000, estimate));
            assert_eq!(c.is_right(), Some(right), "{estimate}");
        }
        // the hour has turned
        c.last = Some(count(7, 1000, 6));
        c.current = Some(count(8, 1000, 4));
        assert_eq!(c.is_right(), Some(true));
        c.current = Some(count(8, 1000, 3));
        assert_eq!(c.is_right(), Some(false));
        c.last = Some(count(8, 1000, 6));
        c.current = Some(count(9, 1000, 4));
        assert_eq!(c.is_right(), None);
    }
}
