//! What the controller needs in memory for the largest cluster: state, index, plans, what it knows of nodes,
//! and a snapshot that is being written.

use super::plans::Large;
use super::scene::{NODES_PER_SERVER, SERVERS_MAX};
use crate::{Better, Figure};
use e3_control::{
    Control, Hearing, InstanceLoad, Membership, NodeLoad, Orchestrator, Pulse, Sender,
};
use e3_model::plan::{
    BackupReport, ChannelReport, InstanceReport, NodeReport, NodeStats, Role, ShardCounts,
};
use e3_model::timing::HEARTBEAT_TIMEOUT;
use e3_model::{Nanos, NodeId, ShardKey, Timestamp};
use e3_store::Store;
use std::collections::BTreeMap;
use std::fs;

const AIM_GB: f64 = 4.0;
const AT: Timestamp = Timestamp(1_000_000_000);

/// The peak, with a note of its parts.
pub(super) fn figure(apps: usize) -> Figure {
    measure(SERVERS_MAX, apps, 50).aim(AIM_GB)
}

fn measure(servers: usize, apps: usize, shards: u64) -> Figure {
    forget_peak();
    let before_gb = status_gb("VmRSS");
    let used_gb = || status_gb("VmRSS") - before_gb;
    let large = Large::new(servers, apps, shards);
    let control = &large.control;
    let state_gb = used_gb();
    let membership = Membership::new(AT, HEARTBEAT_TIMEOUT);
    let mut hearing = Hearing::new(membership, Orchestrator::new(control));
    hear(&mut hearing, control, servers);
    let mut reports = BTreeMap::new();
    for node in control.members.keys() {
        let report = report(control, *node);
        take(&mut hearing.orchestrator, &report);
        reports.insert(*node, (AT, report));
    }
    let known_gb = used_gb() - state_gb;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (mut store, _) = Store::open(dir.path()).expect("an empty directory");
    let bytes = serde_json::to_vec(control).expect("state has text keys only");
    let written = store.snapshot(&bytes);
    let peak_gb = status_gb("VmHWM") - before_gb;
    let snapshot = match written {
        Ok(()) => format!("{:.2} GB long", bytes.len() as f64 / 1e9),
        Err(e) => format!("not written: {e}"),
    };
    let note = format!(
        "peak while a snapshot is written ({snapshot}), {} nodes and {} instances: {state_gb:.2} GB are the state, its index \
         and the last version of the plan, {known_gb:.2} GB the table of heartbeats, the orchestrator and {} reports of nodes, \
         {:.2} GB the snapshot; without the counters of the API's views",
        control.members.len(),
        large.instances(),
        reports.len(),
        peak_gb - known_gb - state_gb,
    );
    Figure::new("control.memory_gb", peak_gb, "GB", Better::Lower).note(note)
}

/// A line of the process's status.
fn status_gb(name: &str) -> f64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let kb = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kb.unwrap_or(0.0) * 1024.0 / 1e9
}

/// The peak counts from now on.
fn forget_peak() {
    // proc(5): 5 resets the peak of the resident memory. Without it the peak is that of an earlier part.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// A heartbeat of every node.
fn hear(hearing: &mut Hearing, control: &Control, servers: usize) {
    let pulse = |node| Pulse {
        cluster: control.cluster,
        node: NodeId::of_index(node),
        incarnation: 1,
        sequence: 1,
        load: NodeLoad::default(),
        plan_version_low: control.version as u32,
    };
    let pulses: Vec<Pulse> = (0..servers * NODES_PER_SERVER).map(pulse).collect();
    let mut heard = Vec::new();
    hearing.on_pulses(AT, control, &pulses, &mut heard);
    assert!(heard.iter().all(|h| h.sender == Sender::Present));
}

fn take(orchestrator: &mut Orchestrator, report: &NodeReport) {
    let loads = report.counts.iter().map(|c| InstanceLoad {
        key: c.key,
        handled: c.handled,
        busy: c.busy,
        state_bytes: 0,
    });
    orchestrator.on_report(AT, report.node, report.incarnation, 1, loads);
}

/// What a node reports of its instances: each primary replicates to a backup, and sends to one other shard.
fn report(control: &Control, node: NodeId) -> NodeReport {
    let keys = control.shards_on(node);
    let primaries = keys.iter().filter(|key| is_primary(control, **key, node));
    let counts = primaries.clone().map(|key| ShardCounts {
        key: *key,
        handled: 1_000,
        failed: 0,
        dead_lettered: 0,
        expired: 0,
        calls: 0,
        busy: Nanos::from_millis(100),
    });
    let channel = |key: &ShardKey, name: &str| ChannelReport {
        app: key.app,
        name: name.into(),
        from: control.shard_name(*key),
        to: control.shard_name(*key),
        sent: 1_000,
        durable: 1_000,
        waiting: 0,
    };
    let channels = primaries
        .clone()
        .flat_map(|key| ["replication", "s0-s1"].map(|name| channel(key, name)));
    NodeReport {
        node,
        incarnation: 1,
        plan_version: control.version,
        events: Vec::new(),
        instances: keys
            .iter()
            .map(|key| instance(control, *key, node))
            .collect(),
        unreachable: Vec::new(),
        counts: counts.collect(),
        pending: None,
        stats: NodeStats {
            channels: channels.collect(),
            ..NodeStats::default()
        },
    }
}

fn is_primary(control: &Control, key: ShardKey, node: NodeId) -> bool {
    let shard = control.apps[&key.app].shard(key);
    shard.is_some_and(|s| s.primary == node)
}

fn instance(control: &Control, key: ShardKey, node: NodeId) -> InstanceReport {
    let shard = control.apps[&key.app].shard(key).expect("it is there");
    let is_primary = shard.primary == node;
    let backup = |node: &NodeId| BackupReport {
        node: *node,
        acked: 1_000,
        synced: true,
        required: true,
        leased: true,
    };
    InstanceReport {
        key,
        role: if is_primary {
            Role::Primary
        } else {
            Role::Backup
        },
        view: shard.view,
        op: 1_000,
        commit: 1_000,
        queue: 0,
        dead_letters: 0,
        timers: 0,
        preemptions: 0,
        serving: is_primary,
        clock_off: false,
        stalled: Nanos::default(),
        backups: match is_primary {
            true => shard.backups.iter().map(backup).collect(),
            false => Vec::new(),
        },
        memory_bytes: 1 << 20,
        code_version: 1,
        error: None,
        last_failure: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_cluster_needs_some_memory() {
        let figure = measure(20, 5, 1);
        assert!(figure.value.is_some(), "{figure:?}");
        let note = "100 nodes and 100 instances";
        assert!(figure.note.contains(note), "{}", figure.note);
    }
}
