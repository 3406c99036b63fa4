//! How long clients wait for a reply while a service gets another number of shards.

use super::stage::{APP, Stage, Store, VERSION};
use super::windows::{Measure, TAIL, Window, Windows, under_load};
use crate::commands::{deploy, scale};
use crate::documents::Sources;
use crate::limits::DEPLOY_TIMEOUT;
use crate::settings::Settings;
use crate::ui::failure::Failure;
use crate::ui::output;
use e3_bench::state::Reshards;
use e3_model::Bytes;
use e3_model::application::Durability;
use std::time::Instant;

/// Keys that are stored.
const KEYS: u64 = 1_000_000;
const FEW: u16 = 12;
const MANY: u16 = 24;
/// Memory of an instance.
const MEMORY: Bytes = Bytes(512 << 20);

/// Splits and merges the shards of a store with many keys, so many times.
pub fn measure(rounds: u32, sources: &Sources, settings: &Settings) -> Result<Reshards, Failure> {
    let store = Store {
        shards: FEW,
        replicas: 2,
        durability: Durability::Memory,
        memory: MEMORY,
    };
    let stage = Stage::start(&store, sources, settings)?;
    let keys = stage.fill_keys(KEYS)?;
    output::say(&format!(
        "{FEW} to {MANY} shards and back with {keys} keys, {rounds} times"
    ));
    let (mut splits, mut merges) = (Windows::default(), Windows::default());
    let answered = under_load(&stage, || {
        Window::pass(TAIL);
        for _ in 0..rounds {
            stage.reshard(MANY, &mut splits)?;
            stage.reshard(FEW, &mut merges)?;
        }
        Ok(())
    })?;
    Ok(Reshards {
        keys,
        splits: splits.longest(&answered, Measure::Wait),
        merges: merges.longest(&answered, Measure::Wait),
    })
}

impl Stage {
    fn reshard(&self, shards: u16, windows: &mut Windows) -> Result<(), Failure> {
        let begin = Instant::now();
        scale::reshard(&self.client, APP, APP, shards, DEPLOY_TIMEOUT)?;
        let took = begin.elapsed();
        let changed = Window::until_quiet(begin);
        deploy::wait_ready(&self.client, APP, VERSION, DEPLOY_TIMEOUT)?;
        windows.push(changed, took);
        Ok(())
    }
}
