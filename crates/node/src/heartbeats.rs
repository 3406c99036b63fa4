//! The thread that sends heartbeats. It has a higher priority than the loop, so that a node with much
//! to do is not taken for lost. If the loop makes no turns, the heartbeats end.

use crate::agent::LatestKey;
use crate::config::NodeError;
use crate::essential;
use e3_model::plan::NodeWelcome;
use e3_model::timing::{HEARTBEAT_INTERVAL, STUCK_AFTER};
use e3_model::{Address, Format};
use e3_net::Sender;
use e3_wire::heartbeat::{self, Heartbeat};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Periods without a turn of the loop after which no heartbeat is sent.
const PERIODS_STUCK: u64 = STUCK_AFTER.0 / HEARTBEAT_INTERVAL.0;

/// Sends heartbeats until it is dropped.
pub(crate) struct Heartbeats {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Turns of the loop so far.
    turns: AtomicU64,
    /// What the loop said last, and the format to say it in.
    latest: Mutex<(Format, Heartbeat)>,
    stop: AtomicBool,
}

impl Heartbeats {
    /// Starts the thread. The first heartbeat leaves when the loop has made a turn and, if its format has
    /// tags, the key is there.
    pub(crate) fn start(
        sender: Sender,
        controller: Address,
        welcome: NodeWelcome,
        key: LatestKey,
    ) -> Result<Heartbeats, NodeError> {
        let NodeWelcome {
            cluster,
            node,
            incarnation,
            format,
            ..
        } = welcome;
        let shared = Arc::new(Shared {
            latest: Mutex::new((format, Heartbeat::default())),
            ..Shared::default()
        });
        let of_thread = shared.clone();
        let beat = move || {
            e3_engine::raise_thread_priority();
            let (mut latest_key, mut sequence) = (None, 0);
            of_thread.run(|format, beat| {
                if let Ok(key) = key.try_lock() {
                    latest_key = *key;
                }
                let mut bytes = heartbeat::encode(format, cluster, node, incarnation, beat);
                if format >= Format::HEARTBEAT_TAGS {
                    // It comes with the first plan.
                    let Some(key) = &latest_key else { return };
                    sequence += 1;
                    heartbeat::authenticate(format, &mut bytes, key, sequence);
                }
                sender.send(controller, &bytes);
            });
        };
        let thread = essential::spawn("e3-heartbeats", beat)?;
        Ok(Heartbeats {
            shared,
            thread: Some(thread),
        })
    }

    /// The loop makes a turn.
    pub(crate) fn on_turn(&self) {
        self.shared.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes what heartbeats say. What confirms a plan is sent at once.
    pub(crate) fn set(&self, format: Format, beat: Heartbeat) {
        let latest = self.shared.latest.lock();
        let mut latest = latest.unwrap_or_else(PoisonError::into_inner);
        let is_new = latest.1.plan_version_low != beat.plan_version_low;
        *latest = (format, beat);
        drop(latest);
        if is_new && let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, mut send: impl FnMut(Format, &Heartbeat)) {
        let (mut format, mut beat) = <(Format, Heartbeat)>::default();
        let mut pulse = Pulse::default();
        while !self.stop.load(Ordering::Relaxed) {
            // It does not wait for the loop, which may hold the lock while it waits for a processor.
            if let Ok(latest) = self.latest.try_lock() {
                (format, beat) = *latest;
            }
            if pulse.on_period(self.turns.load(Ordering::Relaxed)) {
                send(format, &beat);
            }
            thread::park_timeout(HEARTBEAT_INTERVAL.into());
        }
    }
}

/// Whether the loop makes turns. It counts periods, since a paused process makes no turns either.
#[derive(Default)]
struct Pulse {
    turns: u64,
    /// Since the last turn.
    periods: u64,
}

impl Pulse {
    /// Whether a heartbeat is due in a period that begins after so many turns.
    fn on_period(&mut self, turns: u64) -> bool {
        let stands = turns == self.turns;
        self.periods = if stands { self.periods + 1 } else { 0 };
        self.turns = turns;
        turns > 0 && self.periods < PERIODS_STUCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_begin_with_the_first_turn_and_end_with_the_last() {
        let mut pulse = Pulse::default();
        assert!(!pulse.on_period(0));
        assert!(pulse.on_period(3));
        for _ in 1..PERIODS_STUCK {
            assert!(pulse.on_period(3), "a turn may take a while");
        }
        for _ in 0..100 {
            assert!(!pulse.on_period(3));
        }
        assert!(pulse.on_period(4));
    }
}
