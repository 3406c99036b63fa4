//! The cores of an emulated node: how many handler runs occupy one, and until when.
//!
//! A handler runs here in less time than on the hardware that the node stands for. When it has run,
//! it occupies a core for the rest of its emulated service time. No thread waits for that: only the
//! time at which its effects leave is worked out.

use crate::limits::OCCUPIED_MAX;
use e3_model::{Nanos, Timestamp};
use std::collections::VecDeque;

/// The cores of an emulated node.
#[derive(Debug)]
pub(crate) struct Cores {
    count: usize,
    /// When the runs end that occupy a core now, in order.
    occupied_until: VecDeque<Timestamp>,
}

/// What a handler run took of a core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupied {
    /// How long it occupied one.
    pub(crate) time: Nanos,
    /// The part of it that is still to come.
    pub(crate) rest: Nanos,
    /// When it leaves the core; none where the node's cores are not emulated.
    pub(crate) until: Option<Timestamp>,
}

impl Occupied {
    /// Of a handler that ran for `busy` and occupies its core `factor` times as long.
    pub(crate) fn of(busy: Nanos, factor: f64) -> Occupied {
        let rest = Nanos((busy.0 as f64 * (factor - 1.0)) as u64).min(OCCUPIED_MAX);
        Occupied {
            time: busy + rest,
            rest,
            until: None,
        }
    }
}

impl Cores {
    pub(crate) fn new(count: u16) -> Cores {
        Cores {
            count: usize::from(count),
            occupied_until: VecDeque::new(),
        }
    }

    /// Cores that no run occupies, if `running` handlers have one each meanwhile.
    pub(crate) fn free(&self, now: Timestamp, running: usize) -> usize {
        let ended = self.occupied_until.partition_point(|until| *until <= now);
        let occupied = self.occupied_until.len() - ended;
        self.count.saturating_sub(occupied + running)
    }

    /// A handler has run, and occupies a core for `rest` from now; when it leaves the core. Where all
    /// are occupied, as after a handler that waited for a call, it gets the one that is free first.
    pub(crate) fn occupy(&mut self, now: Timestamp, rest: Nanos) -> Timestamp {
        while self
            .occupied_until
            .front()
            .is_some_and(|until| *until <= now)
        {
            self.occupied_until.pop_front();
        }
        let begin = if self.occupied_until.len() < self.count {
            now
        } else {
            self.occupied_until.pop_front().unwrap_or(now)
        };
        let until = begin + rest;
        if until > now {
            let at = self.occupied_until.partition_point(|other| *other <= until);
            self.occupied_until.insert(at, until);
        }
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_runs_as_there_are_cores_go_on_at_once_and_more_follow_them() {
        let mut cores = Cores::new(2);
        let now = Timestamp(100);
        assert_eq!(cores.free(now, 0), 2);
        assert_eq!(cores.occupy(now, Nanos(50)), Timestamp(150));
        assert_eq!(cores.free(now, 0), 1);
        assert_eq!(cores.free(now, 1), 0);
        assert_eq!(cores.occupy(now, Nanos(10)), Timestamp(110));
        assert_eq!(cores.free(now, 0), 0);
        assert_eq!(cores.occupy(now, Nanos(50)), Timestamp(160));
        assert_eq!(cores.free(Timestamp(149), 0), 0);
        assert_eq!(cores.free(Timestamp(150), 0), 1);
        assert_eq!(cores.free(Timestamp(160), 3), 0);
        assert_eq!(cores.occupy(Timestamp(160), Nanos::ZERO), Timestamp(160));
        assert_eq!(cores.free(Timestamp(160), 0), 2);
    }

    #[test]
    fn a_run_occupies_its_core_by_the_factor_longer_and_never_for_ever() {
        let run = Occupied::of(Nanos(100), 20.0);
        assert_eq!((run.time, run.rest), (Nanos(2_000), Nanos(1_900)));
        let run = Occupied::of(Nanos(100), 1.0);
        assert_eq!((run.time, run.rest), (Nanos(100), Nanos::ZERO));
        let run = Occupied::of(Nanos::from_secs(1), f64::INFINITY);
        assert_eq!(run.rest, OCCUPIED_MAX);
    }
}
