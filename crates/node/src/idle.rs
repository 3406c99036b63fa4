//! What the loop does when it has nothing to do.
//!
//! A sleep costs as much as the work on several messages: a timer is set, the core is switched, the
//! sender of the next message has to wake the loop. Where other threads want the core, the loop
//! yields instead, and finds what came meanwhile. It sleeps when a yield returned at once, since the
//! core is then idle, and when several in a row brought nothing.

use crate::limits::{YIELD_MIN, YIELDS_MAX};
use std::thread;
use std::time::Instant;

/// Yields since there was something to do.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    yields: u32,
}

impl Idle {
    /// The loop had something to do.
    pub(crate) fn on_work(&mut self) {
        self.yields = 0;
    }

    /// Yields the core; false if the loop should sleep.
    pub(crate) fn yields(&mut self) -> bool {
        self.yields_by(|| {
            let begun = Instant::now();
            thread::yield_now();
            begun.elapsed() >= YIELD_MIN
        })
    }

    /// The same; `others_ran` yields, and says whether another thread ran meanwhile.
    fn yields_by(&mut self, others_ran: impl FnOnce() -> bool) -> bool {
        if self.yields >= YIELDS_MAX {
            self.yields = 0;
            return false;
        }
        self.yields += 1;
        others_ran()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_without_work_sleeps_after_some_yields() {
        let mut idle = Idle::default();
        let in_a_row = |idle: &mut Idle| (0..).take_while(|_| idle.yields_by(|| true)).count();
        assert_eq!(in_a_row(&mut idle), YIELDS_MAX as usize);
        // As many follow on work, whatever was before it.
        assert!(idle.yields_by(|| true));
        idle.on_work();
        assert_eq!(in_a_row(&mut idle), YIELDS_MAX as usize);
    }

    #[test]
    fn a_loop_sleeps_where_no_other_thread_wants_the_core() {
        assert!(!Idle::default().yields_by(|| false));
    }
}
