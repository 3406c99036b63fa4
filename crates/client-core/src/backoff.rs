//! Waits between attempts.

use crate::limits::{RETRY_AFTER, RETRY_AFTER_MAX, RETRY_GROWTH};
use e3_model::Nanos;
use e3_random::Random;

/// The wait before the next attempt: it grows by [`RETRY_GROWTH`] up to [`RETRY_AFTER_MAX`], and from the second
/// one on up to half of it is left out by chance ("equal jitter" in Brooker, "Exponential Backoff and Jitter",
/// 2015). Requests that were sent together would come together each time otherwise, and an application that is
/// full then would refuse most of them each time.
#[derive(Clone, Copy, Debug)]
pub struct Backoff(Nanos);

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff(RETRY_AFTER)
    }
}

impl Backoff {
    /// The wait after an attempt.
    pub fn next_wait(&mut self, random: &mut Random) -> Nanos {
        let wait = self.0;
        self.0 = (wait * RETRY_GROWTH.0 / RETRY_GROWTH.1).min(RETRY_AFTER_MAX);
        match wait {
            RETRY_AFTER => wait,
            _ => Nanos(wait.0 - random.below(wait.0 / 2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_differ_from_the_second_on() {
        let mut random = Random::new(7);
        let mut backoffs = [Backoff::default(); 100];
        let mut most = RETRY_AFTER;
        for round in 0..8 {
            let waits = backoffs.each_mut().map(|b| b.next_wait(&mut random));
            if round == 0 {
                assert_eq!(waits, [RETRY_AFTER; 100]);
            } else {
                let early = waits.iter().filter(|w| **w < most * 3 / 4).count();
                assert!((25..75).contains(&early), "{early} in round {round}");
                assert!(waits.iter().all(|w| (most / 2..=most).contains(w)));
            }
            most = (most * 3 / 2).min(RETRY_AFTER_MAX);
        }
        assert_eq!(most, RETRY_AFTER_MAX);
    }
}
