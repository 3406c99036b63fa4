//! The traffic manager of a SmartNIC: one queue for all that arrives at the card's port, for its own
//! cores and for the host (E3, ATC 2019, section 3.4).
//!
//! It passes messages on in the order of their arrival. A message for the card's cores must wait while
//! as many as the guess `traffic_manager_waiting_max` wait for the cores. All messages behind it wait
//! too, those for the host included: that is the host starvation of the paper.

use crate::guesses::Guesses;

/// What the traffic manager does with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It waits in the traffic manager's queue.
    Hold,
}

/// The rule of one traffic manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrafficManager {
    waiting_max: u32,
}

impl TrafficManager {
    /// By the guess.
    pub fn new(guesses: &Guesses) -> TrafficManager {
        TrafficManager {
            waiting_max: guesses.traffic_manager_waiting_max.round() as u32,
        }
    }

    /// What happens to the message at the head. `held` messages are before it in the queue, `waiting`
    /// ones wait for the card's cores.
    #[inline]
    pub fn judge(&self, is_for_host: bool, held: u32, waiting: u32) -> Verdict {
        if held > 0 || (!is_for_host && waiting >= self.waiting_max) {
            Verdict::Hold
        } else {
            Verdict::Pass
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_for_the_host_wait_behind_one_for_busy_cores() {
        let tm = TrafficManager::new(&Guesses::default());
        assert_eq!(tm.judge(false, 0, 1023), Verdict::Pass);
        assert_eq!(tm.judge(false, 0, 1024), Verdict::Hold);
        assert_eq!(tm.judge(true, 0, 1024), Verdict::Pass);
        assert_eq!(tm.judge(true, 1, 0), Verdict::Hold);
    }
}
