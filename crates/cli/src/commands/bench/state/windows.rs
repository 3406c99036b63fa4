//! Windows of time with a change and without, and what clients see in them.

use super::stage::{Stage, failed, set, submit, take};
use crate::ui::failure::{Exit, Failure};
use e3_bench::peers::{KEYS, key};
use e3_bench::state::Longest;
use e3_model::{Nanos, Timestamp};
use e3_random::Random;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two requests.
const INTERVAL: Nanos = Nanos::from_micros(500);
/// A window goes on so long after the controller has ended the change: a new primary may still start.
pub const TAIL: Duration = Duration::from_millis(300);

/// What is looked for in a window.
#[derive(Clone, Copy)]
pub enum Measure {
    /// The longest time between two replies.
    Gap,
    /// The longest time that a request waited for its reply.
    Wait,
}

/// A request of the load.
pub struct Answered {
    /// When it was due.
    due: Instant,
    /// When its reply came.
    at: Instant,
}

/// A span of time.
pub struct Window {
    begin: Instant,
    end: Instant,
}

impl Window {
    /// Lets so much time pass.
    pub fn pass(length: Duration) -> Window {
        let begin = Instant::now();
        std::thread::sleep(length);
        let end = Instant::now();
        Window { begin, end }
    }

    /// The window of a change that began then and has just ended.
    pub fn until_quiet(begin: Instant) -> Window {
        std::thread::sleep(TAIL);
        let end = Instant::now();
        Window { begin, end }
    }

    fn len(&self) -> Duration {
        self.end - self.begin
    }

    /// In milliseconds; `answered` in the order of replies.
    fn longest_ms(&self, answered: &[Answered], measure: Measure) -> f64 {
        let longest = match measure {
            Measure::Gap => self.gap(answered),
            Measure::Wait => {
                let touches = |a: &&Answered| a.due < self.end && a.at > self.begin;
                let waits = answered.iter().filter(touches).map(|a| a.at - a.due);
                waits.max()
            }
        };
        longest.unwrap_or(self.len()).as_secs_f64() * 1e3
    }

    /// The longest time between two replies that touches the window.
    fn gap(&self, answered: &[Answered]) -> Option<Duration> {
        let first = answered.partition_point(|a| a.at <= self.begin);
        let last = answered.partition_point(|a| a.at < self.end);
        let around = &answered[first.saturating_sub(1)..(last + 1).min(answered.len())];
        around.windows(2).map(|pair| pair[1].at - pair[0].at).max()
    }
}

/// Windows with a change, and without one, in turn.
#[derive(Default)]
pub struct Windows {
    changed: Vec<Window>,
    still: Vec<Window>,
    took: Vec<Duration>,
}

impl Windows {
    /// Adds the window of a change that took so long, and lets one of the same length pass.
    pub fn push(&mut self, changed: Window, took: Duration) {
        self.still.push(Window::pass(changed.len()));
        self.changed.push(changed);
        self.took.push(took);
    }

    /// The longest of each window.
    pub fn longest(&self, answered: &[Answered], measure: Measure) -> Longest {
        let of = |all: &[Window]| {
            all.iter()
                .map(|w| w.longest_ms(answered, measure))
                .collect()
        };
        Longest {
            changed: of(&self.changed),
            still: of(&self.still),
            took: self.took.iter().map(|t| t.as_secs_f64() * 1e3).collect(),
        }
    }
}

/// Does something under load; gives the requests in the order of their replies.
pub fn under_load(
    stage: &Stage,
    change: impl FnOnce() -> Result<(), Failure>,
) -> Result<Vec<Answered>, Failure> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(stage, &over));
        let changed = change();
        over.store(true, Ordering::Relaxed);
        let panicked = || Err(Failure::new(Exit::Unexpected, "a thread has panicked"));
        let answered = loading.join().unwrap_or_else(|_| panicked());
        changed.and(answered)
    })
}

/// Reads and writes in turn at set times until `over`.
fn load(stage: &Stage, over: &AtomicBool) -> Result<Vec<Answered>, Failure> {
    let mut sender = stage.sender()?;
    let mut random = Random::new(1);
    let (begin, zero) = (Instant::now(), sender.now());
    let at = |time: Timestamp| begin + Duration::from(time.since(zero));
    let (mut due, mut number, mut answered) = (zero, 0u64, Vec::new());
    while !over.load(Ordering::Relaxed) {
        while sender.now() >= due {
            let key = key(random.below(KEYS));
            number += 1;
            if number.is_multiple_of(2) {
                submit(&mut sender, set(&key))
            } else {
                submit(&mut sender, (key.clone(), format!("get {key}\r\n")))
            }
            due += INTERVAL;
        }
        sender.turn(due).map_err(failed)?;
        let done = take(&mut sender)?;
        answered.extend(done.iter().map(|c| Answered {
            due: at(c.due),
            at: at(c.at),
        }));
    }
    answered.sort_unstable_by_key(|a| a.at);
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(zero: Instant, begin: u64, end: u64) -> Window {
        let at = |ms| zero + Duration::from_millis(ms);
        Window {
            begin: at(begin),
            end: at(end),
        }
    }

    fn answered(zero: Instant, all: &[(u64, u64)]) -> Vec<Answered> {
        let at = |ms| zero + Duration::from_millis(ms);
        let answered = |&(due, replied)| Answered {
            due: at(due),
            at: at(replied),
        };
        all.iter().map(answered).collect()
    }

    #[test]
    fn a_gap_counts_for_every_window_that_it_touches() {
        let zero = Instant::now();
        let answered = answered(zero, &[0, 1, 2, 12, 13, 14].map(|at| (at, at)));
        let gap = |begin, end| window(zero, begin, end).longest_ms(&answered, Measure::Gap);
        assert_eq!(gap(0, 14), 10.0);
        // It began before, or ends after.
        assert_eq!(gap(5, 13), 10.0);
        assert_eq!(gap(1, 8), 10.0);
        assert_eq!(gap(4, 6), 10.0);
        assert_eq!(gap(0, 2), 1.0);
        assert_eq!(gap(12, 14), 1.0);
    }

    #[test]
    fn a_wait_counts_though_other_requests_are_answered_meanwhile() {
        let zero = Instant::now();
        let answered = answered(zero, &[(0, 1), (2, 3), (4, 5), (1, 9)]);
        let wait = |begin, end| window(zero, begin, end).longest_ms(&answered, Measure::Wait);
        assert_eq!(wait(0, 2), 8.0);
        assert_eq!(wait(6, 7), 8.0);
        assert_eq!(wait(9, 20), 11.0, "nothing was answered");
    }
}
