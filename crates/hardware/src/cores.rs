//! Cores of hosts and SmartNICs.
//!
//! A host core has two hardware threads. The service times of Table 1 are cores over throughput, so a
//! core with both threads busy finishes one request per service time: each thread takes twice as long.
//! A thread alone takes `hyper_threading_gain` times the service time. Which of both applies is decided
//! when a request starts. A host core that has been idle for `host_linger_us` sleeps and needs
//! `host_wake_us` for its next request. A SmartNIC's cores have one thread and never sleep. They have no
//! double-precision unit: the service times of Table 1 contain its emulation.

use crate::guesses::Guesses;
use e3_model::NodeKind;

/// What the cores of a node are like. Times are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CoreModel {
    /// Hardware threads of a core.
    pub threads: u32,
    /// Service time of a thread alone on its core, as a factor.
    pub alone: f64,
    /// Service time of a thread beside a busy one, as a factor.
    pub beside: f64,
    /// How long an idle core stays awake; None if it never sleeps.
    pub linger: Option<u64>,
    /// Time to wake up.
    pub wake: u64,
    /// Time to switch to another service.
    pub context_switch: u64,
    /// Part by which services take longer where several share the node.
    pub contention: f64,
}

impl CoreModel {
    /// A core whose service times were measured with all that they contain: one thread that is always awake.
    pub const PLAIN: CoreModel = CoreModel {
        threads: 1,
        alone: 1.0,
        beside: 1.0,
        linger: None,
        wake: 0,
        context_switch: 0,
        contention: 0.0,
    };

    /// The cores of a kind of node. Without `sleep` host cores stay awake.
    pub fn new(kind: NodeKind, guesses: &Guesses, sleep: bool) -> CoreModel {
        let nanos = |us: f64| (us * 1e3).round() as u64;
        let context_switch = nanos(guesses.context_switch_us);
        match kind {
            NodeKind::Host => CoreModel {
                threads: 2,
                alone: guesses.hyper_threading_gain,
                beside: 2.0,
                linger: sleep.then(|| nanos(guesses.host_linger_us)),
                wake: nanos(guesses.host_wake_us),
                context_switch,
                contention: 0.0,
            },
            NodeKind::SmartNic => CoreModel {
                threads: 1,
                alone: 1.0,
                beside: 1.0,
                linger: None,
                wake: 0,
                context_switch,
                contention: guesses.smartnic_contention,
            },
        }
    }
}

/// How long something is awake: a core, or a host as long as one of its cores is. It stays awake for
/// a time after its last work. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Awake {
    busy: u16,
    /// Start of the busy period, or end of the last one; none before the first.
    since: Option<u64>,
    total: u64,
}

impl Awake {
    /// Work begins. Whether it slept until now.
    #[inline]
    pub fn begin(&mut self, now: u64, linger: u64) -> bool {
        self.busy += 1;
        if self.busy > 1 {
            return false;
        }
        let idle = self.since.map(|since| now - since);
        self.total += idle.unwrap_or(0).min(linger);
        self.since = Some(now);
        idle.is_none_or(|idle| idle > linger)
    }

    /// Work ends.
    #[inline]
    pub fn end(&mut self, now: u64) {
        self.busy -= 1;
        if self.busy == 0 {
            self.total += now - self.since.unwrap_or(now);
            self.since = Some(now);
        }
    }

    /// Pieces of work that go on.
    pub fn busy(&self) -> u16 {
        self.busy
    }

    /// Time awake until now.
    pub fn total(&self, now: u64, linger: u64) -> u64 {
        let last = now - self.since.unwrap_or(now);
        let counted = if self.busy > 0 {
            last
        } else {
            last.min(linger)
        };
        self.total + counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_sleeps_when_it_has_been_idle_for_long_enough() {
        let mut core = Awake::default();
        assert!(core.begin(100, 20), "it sleeps before its first work");
        assert!(!core.begin(105, 20));
        core.end(110);
        core.end(130);
        assert_eq!((core.busy(), core.total(140, 20)), (0, 40));
        assert!(!core.begin(150, 20));
        core.end(160);
        assert!(core.begin(181, 20));
        assert_eq!(core.total(191, 20), 30 + 20 + 10 + 20 + 10);
    }
}
