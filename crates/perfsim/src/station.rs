//! The books of a queue: its length over time, and the times that messages spent in it.
//!
//! Little's law holds at any time for what happened until then: the integral of the length is the sum of
//! the times that those who left spent there, and of those that the others have spent so far. The
//! integral comes from the length; the times come from the messages themselves, those still there
//! found by walking the queue. All of it is in whole nanoseconds; sums wrap.
//! [`Station::obeys_little`] compares both, which finds messages that are lost, served twice or in the
//! wrong queue.

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Station {
    length: u64,
    changed_at: u64,
    area: u64,
    sojourn: u64,
}

impl Station {
    #[inline]
    fn change(&mut self, now: u64, length: u64) {
        let time = now.wrapping_sub(self.changed_at);
        self.area = self.area.wrapping_add(self.length.wrapping_mul(time));
        self.changed_at = now;
        self.length = length;
    }

    #[inline]
    pub fn enter(&mut self, now: u64) {
        self.change(now, self.length + 1);
    }

    #[inline]
    pub fn leave(&mut self, now: u64, entered: u64) {
        self.change(now, self.length.wrapping_sub(1));
        self.sojourn = self.sojourn.wrapping_add(now - entered);
    }

    /// Whether the law holds; `there` gives when each message that is there entered.
    pub fn obeys_little(&self, now: u64, there: impl Iterator<Item = u64>) -> bool {
        let time = now.wrapping_sub(self.changed_at);
        let area = self.area.wrapping_add(self.length.wrapping_mul(time));
        let so_far = there.fold(0u64, |sum, at| sum.wrapping_add(now - at));
        area == self.sojourn.wrapping_add(so_far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_holds_and_finds_what_is_wrong() {
        let mut queue = Station::default();
        queue.enter(5);
        queue.enter(7);
        assert!(queue.obeys_little(8, [5, 7].into_iter()));
        queue.leave(9, 5);
        assert!(!queue.obeys_little(10, [].into_iter()), "one is lost");
        queue.leave(20, 7);
        assert!(queue.obeys_little(100, [].into_iter()));
        queue.enter(30);
        queue.leave(40, 31);
        assert!(
            !queue.obeys_little(41, [].into_iter()),
            "left with another time than it entered"
        );
    }
}
