//! What a script does to the cluster.

use super::wire::Wire;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A fault with its time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Act {
    /// When it begins, from the start of the phase.
    pub at_ms: u64,
    /// How long it lasts.
    pub for_ms: u64,
    /// The fault.
    pub fault: Fault,
}

/// A kind of fault.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// The network loses datagrams.
    Loss(Wire),
    /// It delivers them twice.
    Repetition(Wire),
    /// It delivers them late and out of order.
    Reordering(Wire),
    /// It damages them.
    Damage(Wire),
    /// A node is cut off from all others, the controller and the clients.
    Isolate(u32),
    /// A node is cut off from the other nodes, but not from the controller and the clients.
    CutPeers(u32),
    /// A node is cut off from the controller only.
    CutController(u32),
    /// The second node receives nothing from the first.
    OneWay(u32, u32),
    /// The second node receives nothing from the first, whose process is killed shortly after and
    /// restarts at the end: what it sent last is lost.
    CutAndKill(u32, u32),
    /// The first node and the controller do not hear each other, and soon after the second node's
    /// process restarts.
    CutAndRestart(u32, u32),
    /// The controller receives nothing from a node, but the node receives from it.
    Unheard(u32),
    /// A node receives nothing from the controller, which receives its heartbeats.
    Deaf(u32),
    /// These nodes are cut off from the others.
    Split(Vec<u32>),
    /// A node's process is paused.
    Pause(u32),
    /// The processes of all nodes are paused.
    PauseAll,
    /// A node's handlers are slower by this factor.
    Slow(u32, u64),
    /// A node's process is killed and restarts at the end.
    Kill(u32),
    /// The processes of all nodes of a server are killed and restart at the end.
    PowerCut(u32),
    /// The same for all servers of a rack.
    RackPowerCut(u32),
    /// The processes of all nodes and the controller are killed together. At the end the controller
    /// restarts, and each node within this many milliseconds.
    Blackout(u64),
    /// A node's disk takes this long, in milliseconds, to make records durable.
    NodeDiskSlow(u32, u64),
    /// A node's disk is full.
    NodeDiskFull(u32),
    /// The power of a node fails during a write to its disk, of which any sectors may be missing.
    NodeTornWrite(u32),
    /// A node's disk fails once to make records durable, and the node's process ends and restarts. At the end the
    /// power of the node fails.
    NodeSyncFails(u32),
    /// A node's process is killed, a bit of its journal flips, and it restarts at the end.
    NodeBitRot(u32),
    /// A node's disk confirms writes that it loses at the end, when the power of the node fails.
    NodeLostWrites(u32),
    /// A node's process is killed and restarts at once.
    Restart(u32),
    /// A node's wall clock steps, and its process restarts.
    ClockStep(u32, i64),
    /// A node's process restarts with a clock that is far off, and at the end with the right one.
    WrongClock(u32, i64),
    /// A node's clock drifts.
    Drift(u32, i64),
    /// The controller is killed and restarts from its log at the end.
    KillController,
    /// The controller is paused.
    PauseController,
    /// The controller's disk is full.
    DiskFull,
    /// Each write to the controller's disk takes this long.
    DiskSlow(u64),
    /// The controller's machine loses power during a write, of which any sectors may be missing.
    TornWrite,
    /// The controller's disk confirms writes that it loses when the power fails.
    LostWrites,
    /// The controller is killed, and a bit in one of its files flips.
    BitRot,
    /// Reports of nodes are lost.
    ReportsLost,
    /// Reports of nodes arrive late and out of order.
    ReportsLate,
    /// A replica moves; the number chooses which, and where to.
    Move(u64),
    /// A replica moves, and a node of its shard is killed meanwhile.
    MoveAndKill(u64),
    /// The number of shards of a service changes; the number chooses which, and to what.
    Reshard(u64),
    /// Another version of an application is deployed.
    Update(usize),
    /// A node is drained, and taken back into service at the end.
    Drain(u32),
    /// A node is cordoned, and uncordoned at the end.
    Cordon(u32),
    /// A server of this number joins, with this many SmartNICs. It stays.
    Add(u32, u8),
    /// A node is drained, and removed as soon as nothing is left on it, also after the healing.
    Remove(u32),
    /// A node's process is killed, and the node is removed if nothing is left on it before the end. Then
    /// the process restarts if it is still a node's.
    RemoveDead(u32),
    /// A service is scaled; the number chooses which, and to how many copies.
    Scale(u64),
    /// The present version of an application counts as started, the next one is rolled back.
    Rollback(usize),
    /// The operator gives up the state of every shard that has waited this long for silent nodes.
    Forget(u64),
    /// A backup of an application is taken, and again if it is cancelled.
    Backup(usize),
    /// Another application begins with the last backup of this one.
    Restore(usize),
    /// The dead letters of an application are replayed, over and over.
    Replay(usize),
    /// A version of an application is deployed that is no good: its handlers fail, or, if not that, it
    /// does not start.
    BadVersion(usize, bool),
    /// The processes of controller and nodes are replaced one by one by those of the next release, each
    /// this many milliseconds after the one before, and then the cluster's format is raised.
    Upgrade(u64),
    /// They are replaced by those of the release before, unless the format was raised.
    Downgrade(u64),
    /// The heartbeats of a SmartNIC say that requests wait there while its port is under-used. The
    /// cluster has the format of the next release from the start.
    Starve(u32),
}

impl Fault {
    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Loss(_) => "loss",
            Fault::Repetition(_) => "repetition",
            Fault::Reordering(_) => "reordering",
            Fault::Damage(_) => "damage",
            Fault::Isolate(_) => "isolate",
            Fault::CutPeers(_) => "cutPeers",
            Fault::CutController(_) => "cutController",
            Fault::OneWay(..) => "oneWay",
            Fault::CutAndKill(..) => "cutAndKill",
            Fault::CutAndRestart(..) => "cutAndRestart",
            Fault::Unheard(_) => "unheard",
            Fault::Deaf(_) => "deaf",
            Fault::Split(_) => "split",
            Fault::Pause(_) => "pause",
            Fault::PauseAll => "pauseAll",
            Fault::Slow(..) => "slow",
            Fault::Kill(_) => "kill",
            Fault::PowerCut(_) => "powerCut",
            Fault::RackPowerCut(_) => "rackPowerCut",
            Fault::Blackout(_) => "blackout",
            Fault::NodeDiskSlow(..) => "nodeDiskSlow",
            Fault::NodeDiskFull(_) => "nodeDiskFull",
            Fault::NodeTornWrite(_) => "nodeTornWrite",
            Fault::NodeSyncFails(_) => "nodeSyncFails",
            Fault::NodeBitRot(_) => "nodeBitRot",
            Fault::NodeLostWrites(_) => "nodeLostWrites",
            Fault::Restart(_) => "restart",
            Fault::ClockStep(..) => "clockStep",
            Fault::WrongClock(..) => "wrongClock",
            Fault::Drift(..) => "drift",
            Fault::KillController => "killController",
            Fault::PauseController => "pauseController",
            Fault::DiskFull => "diskFull",
            Fault::DiskSlow(_) => "diskSlow",
            Fault::TornWrite => "tornWrite",
            Fault::LostWrites => "lostWrites",
            Fault::BitRot => "bitRot",
            Fault::ReportsLost => "reportsLost",
            Fault::ReportsLate => "reportsLate",
            Fault::Move(_) => "move",
            Fault::Reshard(_) => "reshard",
            Fault::MoveAndKill(_) => "moveAndKill",
            Fault::Update(_) => "update",
            Fault::Drain(_) => "drain",
            Fault::Cordon(_) => "cordon",
            Fault::Add(..) => "add",
            Fault::Remove(_) => "remove",
            Fault::RemoveDead(_) => "removeDead",
            Fault::Scale(_) => "scale",
            Fault::Rollback(_) => "rollback",
            Fault::Forget(_) => "forget",
            Fault::Backup(_) => "backup",
            Fault::Restore(_) => "restore",
            Fault::Replay(_) => "replay",
            Fault::BadVersion(..) => "badVersion",
            Fault::Upgrade(_) => "upgrade",
            Fault::Downgrade(_) => "downgrade",
            Fault::Starve(_) => "starve",
        }
    }

    /// Whether operators or the orchestrator do this to a sound cluster, which serves meanwhile.
    pub fn is_operation(&self) -> bool {
        matches!(
            self,
            Fault::Move(_)
                | Fault::Reshard(_)
                | Fault::Update(_)
                | Fault::Drain(_)
                | Fault::Cordon(_)
                | Fault::Add(..)
                | Fault::Remove(_)
                | Fault::Scale(_)
                | Fault::Rollback(_)
                | Fault::Forget(_)
                | Fault::Backup(_)
                | Fault::Restore(_)
                | Fault::Replay(_)
                | Fault::Starve(_)
        )
    }

    /// Whether it kills a node some time after it begins, and may start this one at its end.
    pub(crate) fn may_revive(&self, node: u32) -> bool {
        match self {
            Fault::CutAndKill(killed, _) => *killed == node,
            Fault::MoveAndKill(_) => true,
            _ => false,
        }
    }

    /// The application that it acts on, if it names one.
    pub(crate) fn app_mut(&mut self) -> Option<&mut usize> {
        match self {
            Fault::Update(app)
            | Fault::Rollback(app)
            | Fault::BadVersion(app, _)
            | Fault::Backup(app)
            | Fault::Restore(app)
            | Fault::Replay(app) => Some(app),
            _ => None,
        }
    }
}

impl Act {
    /// When it ends.
    pub fn end_ms(&self) -> u64 {
        self.at_ms + self.for_ms
    }

    /// Whether the two overlap, or one follows the other within a second.
    pub fn meets(&self, other: &Act) -> bool {
        self.at_ms <= other.end_ms() + 1_000 && other.at_ms <= self.end_ms() + 1_000
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Act {
            at_ms,
            for_ms,
            fault,
        } = self;
        write!(f, "{at_ms:>6} ms, for {for_ms:>5} ms: {fault:?}")
    }
}
