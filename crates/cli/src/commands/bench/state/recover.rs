//! How long a node takes to serve a state again that is on its disk.

use super::stage::{APP, Stage, Store, VERSION, failed, submit, take};
use crate::cluster::process::{Process, since_boot};
use crate::commands::deploy;
use crate::documents::Sources;
use crate::limits::{DEPLOY_TIMEOUT, PROBE_INTERVAL};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use e3_bench::state::Recovery;
use e3_model::application::Durability;
use e3_model::{Bytes, Nanos};
use std::time::{Duration, Instant};

/// Bytes of values.
const BYTES: u64 = 1_000_000_000;
/// Memory of the instance.
const MEMORY: u64 = 4 << 30;
/// Recoveries.
const ROUNDS: u32 = 3;
/// Longest recovery that is measured.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// Fills a shard that has one copy, kills its node again and again, and waits for its first reply.
pub fn measure(sources: &Sources, settings: &Settings) -> Result<Recovery, Failure> {
    let store = Store {
        shards: 1,
        replicas: 1,
        durability: Durability::Disk,
        memory: Bytes(MEMORY),
    };
    let stage = Stage::start(&store, sources, settings)?;
    output::say(&format!("writing {} MB", BYTES / 1_000_000));
    let bytes = stage.fill(BYTES)?;
    let mut s = Vec::new();
    for _ in 0..ROUNDS {
        deploy::wait_ready(&stage.client, APP, VERSION, DEPLOY_TIMEOUT)?;
        let took = recover(&stage)?;
        output::say(&format!("recovered after {took:.2} s"));
        s.push(took);
    }
    Ok(Recovery { bytes, s })
}

/// Kills the node of the shard; returns the seconds from the start of its next process to the first
/// reply to a request that was sent after the kill.
fn recover(stage: &Stage) -> Result<f64, Failure> {
    let here = stage.client.instances()?.into_iter().next();
    let node = here.map(|i| i.node).unwrap_or_default();
    let gone = || Failure::new(Exit::Unexpected, format!("node {node:?} has no process"));
    let before = stage.state.process(&node).ok_or_else(gone)?;
    let address = stage.client.node(&node)?.address.unwrap_or_default();
    let mut endpoints = stage.client.endpoints(APP)?;
    // Any node takes any request: the time that a client needs to find another is not measured.
    endpoints.shards.clear();
    endpoints.nodes.retain(|n| *n != address);
    let mut sender = e3_client::Client::new(&endpoints, None).map_err(failed)?;
    before.kill();
    if !before.wait(RECOVERY_MAX) {
        return Err(gone());
    }
    let begin = Instant::now();
    let interval = Nanos::from(PROBE_INTERVAL);
    let mut due = sender.now();
    let served = loop {
        if sender.now() >= due {
            submit(&mut sender, ("probe".into(), "get f0-0\r\n".into()));
            due = sender.now() + interval;
        }
        sender.turn(due).map_err(failed)?;
        if !take(&mut sender)?.is_empty() {
            break since_boot();
        }
        if begin.elapsed() > RECOVERY_MAX {
            let waited_s = RECOVERY_MAX.as_secs();
            let message =
                format!("{APP}/{APP}/0 gave no reply for {waited_s} s after its node was killed");
            return Err(Failure::new(Exit::Timeout, message));
        }
    };
    let after = stage.state.process(&node).filter(|p| *p != before);
    let started = after.as_ref().map(Process::started).ok_or_else(gone)?;
    Ok(served.saturating_sub(started).as_secs_f64())
}
