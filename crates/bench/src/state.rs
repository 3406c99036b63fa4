//! What the state layer promises: short pauses, quick fail-over and recovery, and replicated writes
//! faster than those of systems that do the same.
//!
//! The caller runs clusters and peers; this module turns what it measured into figures.

use crate::chaos::{Failovers, failover_figure};
use crate::peers::Load;
use crate::{Better, Figure, median};

/// What the group runs.
pub const ABOUT: &str = "\
The service `kvs` on clusters of its own: a controller and three nodes on this machine (six for the fail-overs). A
pause is the longest gap between two replies while one shard moves under load, with a request every 0.5 ms; the
figure is the median over all moves, less the median of windows of the same length without a move, which alternate with
them. Fail-overs are those of `e3 bench chaos --only failover`. Writes have 64 bytes; E3 and the peer take turns with as
many clients that each wait for their answer, and all journals are on one disk. `--rounds` sets how many moves and
fail-overs there are, `--seconds` the length of a load, `--only` measures one part.";

/// Longest pause of a move of 16 MB.
const PAUSE_16MB_AIM_MS: f64 = 5.0;
/// The same of 256 MB.
const PAUSE_256MB_AIM_MS: f64 = 10.0;
/// How many times longer a cold move pauses.
const LIVE_VS_COLD_AIM: f64 = 20.0;
/// Pauses shorter than the time between two requests cannot be distinguished.
const PAUSE_MIN_MS: f64 = 0.5;
/// Longest fail-over.
const FAILOVER_AIM_MS: f64 = 300.0;
/// What is longest in a move.
const GAP: &str = "gap between replies";
/// Longest pause when a service gets more shards.
const RESHARD_AIM_MS: f64 = 20.0;
/// Throughput on disk relative to etcd's, and in memory relative to Redis's.
const VS_ETCD_AIM: f64 = 10.0;
const VS_REDIS_AIM: f64 = 2.0;
/// p99 relative to that of a peer.
const P99_AIM: f64 = 1.0;
/// Fewest commits that share a wait for the disk.
const COMMITS_PER_FSYNC_AIM: f64 = 5.0;
/// Median commit relative to a bare fdatasync.
const COMMIT_VS_FDATASYNC_AIM: f64 = 2.0;
/// Longest recovery of 1 GB.
const RECOVERY_AIM_S: f64 = 5.0;

/// The longest that clients went without a reply, in milliseconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Longest {
    /// In windows with a change.
    pub changed: Vec<f64>,
    /// In windows of the same lengths without one.
    pub still: Vec<f64>,
    /// How long the changes took.
    pub took: Vec<f64>,
}

/// Changes of the number of shards of a service.
#[derive(Clone, PartialEq, Debug)]
pub struct Reshards {
    /// Keys of its state.
    pub keys: u64,
    /// Twice as many shards.
    pub splits: Longest,
    /// Half as many.
    pub merges: Longest,
}

/// Moves of a shard of some size.
#[derive(Clone, PartialEq, Debug)]
pub struct Moves {
    /// Bytes of its values.
    pub bytes: u64,
    /// Pre-copy. Times between two replies.
    pub live: Longest,
    /// The shard stops first. Empty if that was not tried.
    pub cold: Longest,
}

/// E3 against a peer, a load each in turn.
#[derive(Clone, PartialEq, Debug)]
pub struct Against {
    /// Clients.
    pub clients: usize,
    /// E3.
    pub e3: Vec<Load>,
    /// The peer; or why there is none.
    pub peer: Result<Peer, String>,
}

/// Loads of a peer.
#[derive(Clone, PartialEq, Debug)]
pub struct Peer {
    /// What it is.
    pub about: String,
    /// Its loads.
    pub loads: Vec<Load>,
}

/// How commits share the waits for the disk.
#[derive(Clone, PartialEq, Debug)]
pub struct Sharing {
    /// Clients.
    pub clients: usize,
    /// Copies of each commit.
    pub copies: u64,
    /// Commits.
    pub commits: u64,
    /// Waits for the disk on all nodes.
    pub syncs: u64,
    /// Loads.
    pub loads: Vec<Load>,
    /// Median of a write of 64 bytes and fdatasync alone, after each load, in microseconds.
    pub fdatasync_us: Vec<f64>,
}

/// Recovery of a state from the disk.
#[derive(Clone, PartialEq, Debug)]
pub struct Recovery {
    /// Bytes of its values.
    pub bytes: u64,
    /// From the start of the process to the first reply, each time.
    pub s: Vec<f64>,
}

/// Everything that was measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// Of 16 MB.
    pub small: Option<Moves>,
    /// Of 256 MB.
    pub large: Option<Moves>,
    /// By fault.
    pub failovers: Vec<Failovers>,
    /// Faults that could not be made here, and why.
    pub missing: Option<String>,
    /// Re-sharding.
    pub reshard: Option<Reshards>,
    /// `durability: disk` with three copies.
    pub etcd: Option<Against>,
    /// `durability: memory` with two copies.
    pub redis: Option<Against>,
    /// Group commit.
    pub sharing: Option<Sharing>,
    /// Of 1 GB.
    pub recovery: Option<Recovery>,
}

/// The figures of what was measured.
pub fn figures(m: &Measured) -> Vec<Figure> {
    let mut figures = Vec::new();
    if let Some(moves) = &m.small {
        figures.push(pause(
            "state.migrate_16mb_pause_ms",
            PAUSE_16MB_AIM_MS,
            moves,
        ));
        figures.push(live_vs_cold(moves));
    }
    if let Some(moves) = &m.large {
        figures.push(pause(
            "state.migrate_256mb_pause_ms",
            PAUSE_256MB_AIM_MS,
            moves,
        ));
    }
    if !m.failovers.is_empty() {
        let missing = m.missing.as_deref();
        let name = "state.failover_ms";
        figures.push(failover_figure(
            name,
            FAILOVER_AIM_MS,
            &m.failovers,
            missing,
        ));
    }
    figures.extend(m.reshard.as_ref().map(reshard));
    let disk = "durability: disk, 3 copies";
    figures.extend(
        m.etcd
            .iter()
            .flat_map(|a| against("state.vs_etcd", VS_ETCD_AIM, disk, a)),
    );
    let memory = "durability: memory, 2 copies";
    let redis = |a| against("state.vs_redis_wait", VS_REDIS_AIM, memory, a);
    figures.extend(m.redis.iter().flat_map(redis));
    figures.extend(m.sharing.iter().flat_map(sharing));
    figures.extend(m.recovery.as_ref().map(recovery));
    figures
}

impl Longest {
    /// The median of the windows with a change, less that of those without.
    fn pause_ms(&self) -> f64 {
        median(self.changed.clone()) - median(self.still.clone())
    }

    /// `what` is the longest, and which `change` was made.
    fn note(&self, what: &str, change: &str) -> String {
        let worst = self.changed.iter().copied().fold(0.0, f64::max);
        format!(
            "longest {what}: median of {} {change}s {:.1} ms, worst {worst:.1} ms; without a {change} {:.1} ms; \
             a {change} took {:.0} ms",
            self.changed.len(),
            median(self.changed.clone()),
            median(self.still.clone()),
            median(self.took.clone())
        )
    }
}

/// A figure without a value.
fn none(name: &str, unit: &str, better: Better, aim: f64, why: &str) -> Figure {
    let mut figure = Figure::new(name, 0.0, unit, better);
    figure.value = None;
    figure.aim(aim).note(why)
}

fn pause(name: &str, aim: f64, moves: &Moves) -> Figure {
    let figure = Figure::new(name, moves.live.pause_ms(), "ms", Better::Lower);
    figure.aim(aim).note(moves.live.note(GAP, "move"))
}

fn reshard(r: &Reshards) -> Figure {
    let wait = "wait for a reply";
    let (splits, merges) = (r.splits.note(wait, "split"), r.merges.note(wait, "merge"));
    Figure::new(
        "state.reshard_pause_ms",
        r.splits.pause_ms(),
        "ms",
        Better::Lower,
    )
    .aim(RESHARD_AIM_MS)
    .note(format!(
        "12 to 24 shards with {} keys; {splits}; back: {merges}",
        r.keys
    ))
}

fn live_vs_cold(moves: &Moves) -> Figure {
    let ratio = moves.cold.pause_ms() / moves.live.pause_ms().max(PAUSE_MIN_MS);
    let figure = Figure::new("state.live_vs_cold", ratio, "times", Better::Higher);
    figure.aim(LIVE_VS_COLD_AIM).note(format!(
        "pause of a cold move relative to a live one, which counts as {PAUSE_MIN_MS} ms at least; cold: {}",
        moves.cold.note(GAP, "move")
    ))
}

fn mid(loads: &[Load], of: fn(&Load) -> f64) -> f64 {
    median(loads.iter().map(of).collect())
}

fn describe(loads: &[Load]) -> String {
    format!(
        "{:.0} writes/s, p50 {:.0} us, p99 {:.0} us",
        mid(loads, |l| l.rps),
        mid(loads, |l| l.p50_us),
        mid(loads, |l| l.p99_us)
    )
}

fn against(name: &str, aim: f64, ours: &str, a: &Against) -> [Figure; 2] {
    let p99_name = format!("{name}_p99");
    let unit = "of the peer's";
    let e3 = format!("E3 ({ours}): {}", describe(&a.e3));
    let peer = match &a.peer {
        Ok(peer) => peer,
        Err(why) => {
            return [
                none(name, unit, Better::Higher, aim, &format!("{why}; {e3}")),
                none(&p99_name, unit, Better::Lower, P99_AIM, why),
            ];
        }
    };
    let ratio = |of: fn(&Load) -> f64| mid(&a.e3, of) / mid(&peer.loads, of);
    let note = format!(
        "{e3}; {}: {}; {} clients, {} alternating loads",
        peer.about,
        describe(&peer.loads),
        a.clients,
        a.e3.len()
    );
    [
        Figure::new(name, ratio(|l| l.rps), unit, Better::Higher)
            .aim(aim)
            .note(note),
        Figure::new(p99_name, ratio(|l| l.p99_us), unit, Better::Lower)
            .aim(P99_AIM)
            .note("99th percentile of the same writes"),
    ]
}

fn sharing(s: &Sharing) -> [Figure; 2] {
    let each = (s.commits * s.copies) as f64 / s.syncs.max(1) as f64;
    let bare = median(s.fdatasync_us.clone());
    let note = format!(
        "{} commits on {} copies with {} waits for the disk; {} clients: {}",
        s.commits,
        s.copies,
        s.syncs,
        s.clients,
        describe(&s.loads)
    );
    let p50 = mid(&s.loads, |l| l.p50_us) / bare;
    [
        Figure::new("state.commits_per_fsync", each, "commits", Better::Higher)
            .aim(COMMITS_PER_FSYNC_AIM)
            .note(note),
        Figure::new("state.commit_vs_fdatasync", p50, "times", Better::Lower)
            .aim(COMMIT_VS_FDATASYNC_AIM)
            .note(format!(
                "median write of the same load, relative to a bare fdatasync after 64 bytes on the same disk: {bare:.0} us"
            )),
    ]
}

fn recovery(r: &Recovery) -> Figure {
    let each: Vec<String> = r.s.iter().map(|s| format!("{s:.2}")).collect();
    Figure::new(
        "state.recover_1gb_s",
        median(r.s.clone()),
        "s",
        Better::Lower,
    )
    .aim(RECOVERY_AIM_S)
    .note(format!(
        "from the start of the node's process to the first reply, {} MB of values: {} s",
        r.bytes / 1_000_000,
        each.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(ms: f64) -> Longest {
        Longest {
            changed: vec![ms + 2.0; 3],
            still: vec![2.0; 3],
            took: vec![200.0; 3],
        }
    }

    fn load(rps: f64, p99_us: f64) -> Load {
        Load {
            rps,
            p50_us: p99_us / 2.0,
            p99_us,
        }
    }

    fn against(rps: f64) -> Option<Against> {
        Some(Against {
            clients: 64,
            e3: vec![load(rps, 100.0)],
            peer: Ok(Peer {
                about: "peer 1.0".into(),
                loads: vec![load(1_000.0, 100.0)],
            }),
        })
    }

    fn measured() -> Measured {
        Measured {
            small: Some(Moves {
                bytes: 16_000_000,
                live: longest(5.0),
                cold: longest(100.0),
            }),
            large: Some(Moves {
                bytes: 256_000_000,
                live: longest(10.0),
                cold: Longest::default(),
            }),
            failovers: vec![Failovers {
                fault: "kill".into(),
                ms: vec![Some(300.0)],
            }],
            missing: None,
            reshard: Some(Reshards {
                keys: 1_000_000,
                splits: longest(20.0),
                merges: longest(100.0),
            }),
            etcd: against(10_000.0),
            redis: against(2_000.0),
            sharing: Some(Sharing {
                clients: 16,
                copies: 3,
                commits: 5_000,
                syncs: 3_000,
                loads: vec![load(1.0, 400.0)],
                fdatasync_us: vec![100.0],
            }),
            recovery: Some(Recovery {
                bytes: 1_000_000_000,
                s: vec![1.0, 5.0, 6.0],
            }),
        }
    }

    #[test]
    fn every_aim_can_be_met_and_missed() {
        let good = figures(&measured());
        assert!(good.iter().all(|f| f.pass == Some(true)), "{good:#?}");
        type Change = fn(&mut Measured);
        let faults: [(&str, Change); 9] = [
            ("state.migrate_16mb_pause_ms", |m| {
                m.small.as_mut().unwrap().live = longest(5.1);
                m.small.as_mut().unwrap().cold = longest(200.0);
            }),
            ("state.live_vs_cold", |m| {
                m.small.as_mut().unwrap().cold = longest(99.0);
            }),
            ("state.migrate_256mb_pause_ms", |m| {
                m.large.as_mut().unwrap().live = longest(10.1);
            }),
            ("state.failover_ms", |m| m.failovers[0].ms.push(Some(301.0))),
            ("state.reshard_pause_ms", |m| {
                m.reshard.as_mut().unwrap().splits = longest(20.1)
            }),
            ("state.vs_etcd", |m| m.etcd = against(9_999.0)),
            ("state.vs_redis_wait_p99", |m| {
                m.redis.as_mut().unwrap().e3[0].p99_us = 101.0;
            }),
            ("state.commits_per_fsync", |m| {
                m.sharing.as_mut().unwrap().commits = 4_999
            }),
            ("state.recover_1gb_s", |m| {
                m.recovery.as_mut().unwrap().s[0] = 7.0
            }),
        ];
        for (name, fault) in faults {
            let mut m = measured();
            fault(&mut m);
            let missed = figures(&m).into_iter().filter(|f| f.pass == Some(false));
            let missed: Vec<String> = missed.map(|f| f.name).collect();
            assert_eq!(missed, [name]);
        }
    }

    #[test]
    fn a_peer_that_is_missing_has_no_figure_and_says_why() {
        let mut m = measured();
        m.etcd.as_mut().unwrap().peer = Err("etcd is not installed".into());
        let all = figures(&m);
        for name in ["state.vs_etcd", "state.vs_etcd_p99"] {
            let figure = all.iter().find(|f| f.name == name).unwrap();
            assert_eq!((figure.value, figure.pass), (None, Some(false)));
            assert!(figure.note.starts_with("etcd is not installed"));
        }
    }

    #[test]
    fn what_was_not_measured_has_no_figure() {
        assert!(figures(&Measured::default()).is_empty());
    }
}
