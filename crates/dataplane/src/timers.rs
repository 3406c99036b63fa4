//! The worker's timer queue: a binary heap. Nothing is removed before its time; whoever set a timer
//! looks whether it still means something when it fires.

use crate::app::ReplicaId;
use crate::ends::EndId;
use e3_model::Timestamp;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What becomes due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// The acknowledgement of a receiving end.
    Ack(EndId),
    /// The retransmission of a sending end.
    Retransmit(EndId),
    /// Something that a replica waits for.
    Replica(ReplicaId),
    /// The repeat of a call, by its token.
    Call(u64),
    /// A core of an emulated node, which is free then.
    Core,
    /// The notices to backups of what was released.
    Released,
    /// The probes of the ways to peers.
    Probes,
    /// The next pieces of a checkpoint.
    Checkpoint,
    /// The requests for leases.
    Leases,
}

/// All timers of a worker.
#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(Timestamp, Timer)>>);

impl Timers {
    /// Sets a timer.
    pub(crate) fn set(&mut self, at: Timestamp, timer: Timer) {
        self.0.push(Reverse((at, timer)));
    }

    /// The next timer that is due.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Timer> {
        let Reverse((at, timer)) = *self.0.peek()?;
        (at <= now).then(|| {
            self.0.pop();
            timer
        })
    }

    /// When the next timer fires.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }
}
