//! Replicated writes of 64 bytes, in turn with those of a peer.

use super::stage::{APP, Stage, Store};
use crate::documents::Sources;
use crate::limits::REPORTS_SETTLE;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use e3_bench::median;
use e3_bench::peers::etcd::Etcd;
use e3_bench::peers::redis::Redis;
use e3_bench::peers::{self, PeerError, VALUE_LEN};
use e3_bench::state::{Against, Peer, Sharing};
use e3_model::Bytes;
use e3_model::application::Durability;
use e3_model::plan::Role;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Clients of E3 and of the peer.
const CLIENTS: usize = 256;
/// Clients of the group commit: enough that some always wait.
const SHARING_CLIENTS: usize = 16;
/// Loads of each.
const LOADS: u32 = 3;
/// The first load of each is not counted.
const WARM_UP: Duration = Duration::from_secs(1);
/// Copies on disk.
const COPIES: u16 = 3;
/// Bare waits for the disk after each load.
const SYNCS: usize = 500;

fn store(replicas: u16, durability: Durability) -> Store {
    Store {
        shards: 3,
        replicas,
        durability,
        memory: Bytes(256 << 20),
    }
}

/// `durability: disk` with three copies against etcd with three members.
pub fn against_etcd(
    length: Duration,
    sources: &Sources,
    settings: &Settings,
) -> Result<Against, Failure> {
    let stage = Stage::start(&store(COPIES, Durability::Disk), sources, settings)?;
    against(&stage, length, Etcd::start)
}

/// `durability: memory` with two copies against Redis with a replica.
pub fn against_redis(
    length: Duration,
    sources: &Sources,
    settings: &Settings,
) -> Result<Against, Failure> {
    let stage = Stage::start(&store(2, Durability::Memory), sources, settings)?;
    against(&stage, length, Redis::start)
}

fn against<P: peers::Peer>(
    stage: &Stage,
    length: Duration,
    start: fn(&Path) -> Result<P, PeerError>,
) -> Result<Against, Failure> {
    let dir = directory()?;
    stage.write(CLIENTS, WARM_UP)?;
    let mut peer = start(dir.path()).and_then(|mut peer| {
        peer.load(CLIENTS, WARM_UP)?;
        Ok((peer, Vec::new()))
    });
    let mut e3 = Vec::new();
    for _ in 0..LOADS {
        let load = stage.write(CLIENTS, length)?;
        output::say(&format!(
            "E3: {:.0} writes/s, p99 {:.0} us",
            load.rps, load.p99_us
        ));
        e3.push(load);
        peer = peer.and_then(|(mut peer, mut loads)| {
            let load = peer.load(CLIENTS, length)?;
            output::say(&format!(
                "peer: {:.0} writes/s, p99 {:.0} us",
                load.rps, load.p99_us
            ));
            loads.push(load);
            Ok((peer, loads))
        });
    }
    Ok(Against {
        clients: CLIENTS,
        e3,
        peer: peer
            .map(|(peer, loads)| Peer {
                about: peer.about(),
                loads,
            })
            .map_err(|e| e.to_string()),
    })
}

/// How many commits share a wait for the disk.
pub fn sharing(
    length: Duration,
    sources: &Sources,
    settings: &Settings,
) -> Result<Sharing, Failure> {
    let stage = Stage::start(&store(COPIES, Durability::Disk), sources, settings)?;
    let dir = directory()?;
    stage.write(SHARING_CLIENTS, WARM_UP)?;
    let (commits, syncs) = counts(&stage)?;
    let (mut loads, mut fdatasync_us) = (Vec::new(), Vec::new());
    for _ in 0..LOADS {
        loads.push(stage.write(SHARING_CLIENTS, length)?);
        fdatasync_us.push(bare_sync_us(dir.path())?);
    }
    let (commits_after, syncs_after) = counts(&stage)?;
    Ok(Sharing {
        clients: SHARING_CLIENTS,
        copies: COPIES.into(),
        commits: commits_after - commits,
        syncs: syncs_after - syncs,
        loads,
        fdatasync_us,
    })
}

/// Commits of all shards, and waits for the disk of all nodes, when reports of both have come.
fn counts(stage: &Stage) -> Result<(u64, u64), Failure> {
    std::thread::sleep(REPORTS_SETTLE);
    let instances = stage.client.instances()?;
    let ours = instances.iter().filter(|i| i.instance.starts_with(APP));
    let primaries = ours.filter(|i| i.role == Role::Primary);
    let nodes = stage.client.nodes()?;
    Ok((
        primaries.map(|i| i.commit).sum(),
        nodes.iter().map(|n| n.journal_syncs).sum(),
    ))
}

/// The median of writing 64 bytes to the end of a file and waiting for the disk, in microseconds.
fn bare_sync_us(dir: &Path) -> Result<f64, Failure> {
    let path = dir.join("bare");
    let io = |e: std::io::Error| Failure::file("write", &path, &e);
    let mut file = File::create(&path).map_err(io)?;
    let mut all = Vec::new();
    for _ in 0..SYNCS {
        let begin = Instant::now();
        file.write_all(&[0; VALUE_LEN]).map_err(io)?;
        file.sync_data().map_err(io)?;
        all.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(all))
}

/// A directory beside those of the clusters, on the same disk.
fn directory() -> Result<tempfile::TempDir, Failure> {
    let made = tempfile::Builder::new().prefix("e3-bench-").tempdir();
    made.map_err(|e| Failure::new(Exit::Unexpected, format!("temporary directory: {e}")))
}
