//! How long clients get no reply while a shard moves.

use super::stage::{APP, Stage, Store, VERSION};
use super::windows::{Measure, TAIL, Window, Windows, under_load};
use crate::commands::deploy;
use crate::documents::Sources;
use crate::limits::{DEPLOY_TIMEOUT, POLL_INTERVAL};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use e3_bench::state::Moves;
use e3_model::Bytes;
use e3_model::api::{MigrateRequest, MovePhase};
use e3_model::application::Durability;
use e3_model::plan::Role;
use std::time::{Duration, Instant};

/// Longest move.
const MOVE_MAX: Duration = Duration::from_secs(60);
/// Memory of an instance, for each byte of values, and at least.
const MEMORY_FACTOR: u64 = 4;
const MEMORY_MIN: u64 = 128 << 20;

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
    let answered = under_load(&stage, || {
        Window::pass(TAIL);
        for _ in 0..rounds {
            stage.round(false, &mut live)?;
            if cold {
                stage.round(true, &mut frozen)?;
            }
        }
        Ok(())
    })?;
    Ok(Moves {
        bytes,
        live: live.longest(&answered, Measure::Gap),
        cold: frozen.longest(&answered, Measure::Gap),
    })
}

impl Stage {
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
        let moved = Window::until_quiet(begin);
        deploy::wait_ready(&self.client, APP, VERSION, DEPLOY_TIMEOUT)?;
        self.wait_left()?;
        windows.push(moved, took);
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
