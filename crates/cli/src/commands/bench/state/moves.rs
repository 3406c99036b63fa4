//! How long clients get no reply while a shard moves.

use super::stage::{APP, Stage, Store, VERSION, failed, set, submit, take};
use crate::commands::deploy;
use crate::documents::Sources;
use crate::limits::{DEPLOY_TIMEOUT, POLL_INTERVAL};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use e3_bench::peers::{KEYS, key};
use e3_bench::state::{Gaps, Moves};
use e3_model::api::{MigrateRequest, MovePhase};
use e3_model::application::Durability;
use e3_model::plan::Role;
use e3_model::{Bytes, Nanos, Timestamp};
use e3_random::Random;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two requests.
const INTERVAL: Nanos = Nanos::from_micros(500);
/// A window goes on so long after the controller has ended the move: the new primary may still start.
const TAIL: Duration = Duration::from_millis(300);
/// Longest move.
const MOVE_MAX: Duration = Duration::from_secs(60);
/// Memory of an instance, for each byte of values, and at least.
const MEMORY_FACTOR: u64 = 4;
const MEMORY_MIN: u64 = 128 << 20;

/// A window in which the longest gap is looked for.
struct Window {
    begin: Instant,
    end: Instant,
}

impl Window {
    fn len(&self) -> Duration {
        self.end - self.begin
    }

    /// The longest time between two replies that touches the window, in milliseconds.
    fn gap_ms(&self, replies: &[Instant]) -> f64 {
        let first = replies.partition_point(|r| *r <= self.begin);
        let last = replies.partition_point(|r| *r < self.end);
        let around = &replies[first.saturating_sub(1)..(last + 1).min(replies.len())];
        let gaps = around.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap_or(self.len()).as_secs_f64() * 1e3
    }
}

/// Windows with a move, and without one, in turn.
#[derive(Default)]
struct Windows {
    moved: Vec<Window>,
    still: Vec<Window>,
    took: Vec<Duration>,
}

impl Windows {
    fn gaps(&self, replies: &[Instant]) -> Gaps {
        let gaps = |all: &[Window]| all.iter().map(|w| w.gap_ms(replies)).collect();
        Gaps {
            moved: gaps(&self.moved),
            still: gaps(&self.still),
            took: self.took.iter().map(|t| t.as_secs_f64() * 1e3).collect(),
        }
    }
}

/// Moves a shard with so many bytes of values to and fro; with `cold`, each time also cold.
pub fn measure(
    bytes: u64,
    cold: bool,
    rounds: u32,
    sources: &Sources,
    settings: &Settings,
) -> Result<Moves, Failure> {
    let store = Store {
        shards: 1,
        replicas: 2,
        durability: Durability::Memory,
        memory: Bytes((MEMORY_FACTOR * bytes).max(MEMORY_MIN)),
    };
    let stage = Stage::start(&store, sources, settings)?;
    let bytes = stage.fill(bytes)?;
    output::say(&format!("moving {} MB, {rounds} times", bytes / 1_000_000));
    let (mut live, mut frozen) = (Windows::default(), Windows::default());
    let over = AtomicBool::new(false);
    let replies = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(&stage, &over));
        let moved = (|| {
            stage.window(TAIL);
            for _ in 0..rounds {
                stage.round(false, &mut live)?;
                if cold {
                    stage.round(true, &mut frozen)?;
                }
            }
            Ok(())
        })();
        over.store(true, Ordering::Relaxed);
        let replies = loading.join();
        moved.and_then(|()| {
            replies.unwrap_or_else(|_| Err(Failure::new(Exit::Unexpected, "a thread has panicked")))
        })
    })?;
    Ok(Moves {
        bytes,
        live: live.gaps(&replies),
        cold: frozen.gaps(&replies),
    })
}

impl Stage {
    /// A window without a move.
    fn window(&self, length: Duration) -> Window {
        let begin = Instant::now();
        std::thread::sleep(length);
        let end = Instant::now();
        Window { begin, end }
    }

    /// A move, and a window of the same length without one.
    fn round(&self, cold: bool, windows: &mut Windows) -> Result<(), Failure> {
        let instance = format!("{APP}/{APP}/0");
        let here = self.client.instances()?;
        let mut nodes = self.client.nodes()?.into_iter().map(|n| n.name);
        let to = nodes.find(|n| here.iter().all(|i| i.node != *n));
        let none = || Failure::new(Exit::Unexpected, "every node has a copy of the shard");
        let to = to.ok_or_else(none)?;
        let begin = Instant::now();
        let request = MigrateRequest { instance, to, cold };
        let id = self.client.migrate(&request)?.id;
        self.wait_moved(id, begin)?;
        let took = begin.elapsed();
        std::thread::sleep(TAIL);
        let end = Instant::now();
        let moved = Window { begin, end };
        deploy::wait_ready(&self.client, APP, VERSION, DEPLOY_TIMEOUT)?;
        self.wait_left()?;
        windows.still.push(self.window(moved.len()));
        windows.moved.push(moved);
        windows.took.push(took);
        Ok(())
    }

    fn wait_moved(&self, id: u64, begin: Instant) -> Result<(), Failure> {
        loop {
            let app = self.client.app(APP)?;
            let found = app.moves.iter().find(|m| m.id == id);
            match found.map(|m| m.phase) {
                Some(MovePhase::Done) => return Ok(()),
                Some(phase) => {
                    let message = format!("a move of {APP}/{APP}/0 ended as {}", phase.name());
                    return Err(Failure::new(Exit::Check, message));
                }
                None if begin.elapsed() > MOVE_MAX => {
                    let message =
                        format!("{APP}/{APP}/0 moves for more than {} s", MOVE_MAX.as_secs());
                    return Err(Failure::new(Exit::Timeout, message));
                }
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Waits until the copy that the shard has left is gone.
    fn wait_left(&self) -> Result<(), Failure> {
        let begin = Instant::now();
        loop {
            let instances = self.client.instances()?;
            let is_settled = |role| instances.iter().filter(|i| i.role == role).count() == 1;
            if instances.len() == 2 && is_settled(Role::Primary) && is_settled(Role::Backup) {
                return Ok(());
            }
            if begin.elapsed() > MOVE_MAX {
                let message = format!("{APP}/{APP}/0 has {} copies, not 2", instances.len());
                return Err(Failure::new(Exit::Timeout, message));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Reads and writes in turn at set times until `over`; gives when each reply came.
fn load(stage: &Stage, over: &AtomicBool) -> Result<Vec<Instant>, Failure> {
    let mut sender = stage.sender()?;
    let mut random = Random::new(1);
    let (begin, zero) = (Instant::now(), sender.now());
    let at = |time: Timestamp| begin + Duration::from(time.since(zero));
    let (mut due, mut number, mut replies) = (zero, 0u64, Vec::new());
    while !over.load(Ordering::Relaxed) {
        while sender.now() >= due {
            let key = key(random.below(KEYS));
            number += 1;
            match number.is_multiple_of(2) {
                true => submit(&mut sender, set(&key)),
                false => submit(&mut sender, (key.clone(), format!("get {key}\r\n"))),
            }
            due += INTERVAL;
        }
        sender.turn(due).map_err(failed)?;
        replies.extend(take(&mut sender)?.iter().map(|c| at(c.at)));
    }
    replies.sort_unstable();
    Ok(replies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_counts_for_every_window_that_it_touches() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let replies = [at(0), at(1), at(2), at(12), at(13), at(14)];
        let gap = |begin, end| {
            let window = Window {
                begin: at(begin),
                end: at(end),
            };
            window.gap_ms(&replies)
        };
        assert_eq!(gap(0, 14), 10.0);
        // It began before, or ends after.
        assert_eq!(gap(5, 13), 10.0);
        assert_eq!(gap(1, 8), 10.0);
        assert_eq!(gap(4, 6), 10.0);
        assert_eq!(gap(0, 2), 1.0);
        assert_eq!(gap(12, 14), 1.0);
    }
}
