//! What the generator leaves out: holes that are known and not closed yet. Each entry names its hole
//! and goes when the hole is closed; an empty list is the aim.

use super::{AppShape, Fault, Scenario};

/// Hole: if the controller's disk loses confirmed writes, and all processes end that have applied their
/// plans, a view or the id of a node may be given twice. The checker knows of views; power cuts of all nodes
/// and new nodes are left out.
pub(crate) fn may_lose_log_and_memory(scenario: &Scenario) -> bool {
    let mut acts = scenario.script.iter();
    acts.any(|act| matches!(act.fault, Fault::LostWrites))
}

/// How long after the loss of confirmed writes a node is up to date again, beside the time for a copy.
const UP_TO_DATE_MS: u64 = 3_000;

/// Share of lost datagrams from which nodes may not hear each other for so long that they count as
/// silent.
const SILENCE_LOSS_PERMILLE: u64 = 200;

/// Hole: confirmed writes that a node's disk loses leave no trace there. Until the node is up to date, it
/// may take over if the other copies end or fall silent, and nobody can tell that its own lacks something.
pub(crate) fn may_hide_losses(scenario: &Scenario, node: u32, now_ms: u64) -> bool {
    let acts = || scenario.script.iter();
    let up_to_date_ms = UP_TO_DATE_MS + scenario.copying_time().as_millis();
    let mut by_ms = now_ms + up_to_date_ms;
    for act in acts().filter(|act| holds_up(&act.fault, node)) {
        if act.at_ms <= by_ms && now_ms <= act.end_ms() {
            by_ms = by_ms.max(act.end_ms() + up_to_date_ms);
        }
    }
    let mut near = acts().filter(|act| act.at_ms <= by_ms && now_ms <= act.end_ms() + 1_000);
    near.any(|act| match act.fault {
        Fault::NodeLostWrites(other) => other != node,
        Fault::Loss(wire) => wire.loss_permille >= SILENCE_LOSS_PERMILLE,
        Fault::Isolate(_)
        | Fault::CutPeers(_)
        | Fault::CutController(_)
        | Fault::OneWay(..)
        | Fault::CutAndKill(..)
        | Fault::CutAndRestart(..)
        | Fault::Unheard(_)
        | Fault::Deaf(_)
        | Fault::Split(_)
        | Fault::Pause(_)
        | Fault::PauseAll
        | Fault::Kill(_)
        | Fault::RemoveDead(_)
        | Fault::PowerCut(_)
        | Fault::RackPowerCut(_)
        | Fault::Blackout(_)
        | Fault::NodeTornWrite(_)
        | Fault::NodeSyncFails(_)
        | Fault::NodeBitRot(_)
        | Fault::Restart(_)
        | Fault::ClockStep(..)
        | Fault::WrongClock(..)
        | Fault::MoveAndKill(_)
        | Fault::Upgrade(_)
        | Fault::Downgrade(_) => true,
        _ => false,
    })
}

/// Whether a fault keeps a node from being brought up to date. A controller that is away decides on no joins,
/// and hears of no copy that has more; a slow or full disk takes nothing.
fn holds_up(fault: &Fault, node: u32) -> bool {
    match fault {
        Fault::NodeDiskSlow(of, _) | Fault::NodeDiskFull(of) => *of == node,
        Fault::PauseController
        | Fault::KillController
        | Fault::DiskFull
        | Fault::DiskSlow(_)
        | Fault::TornWrite
        | Fault::LostWrites
        | Fault::BitRot
        | Fault::ReportsLost => true,
        _ => false,
    }
}

/// Hole: a repeat of a request with an idempotency key has a later time of sending, and so another
/// clock and other random bytes at a stateless service.
pub(super) fn may_repeat_later(scenario: &Scenario, app: &AppShape) -> bool {
    let mut clients = scenario.clients.iter();
    clients.any(|c| c.is_keyed && scenario.apps.get(c.app) == Some(app))
}

/// Hole: two processes of a stateless service, of which one was cut off or paused while the other took
/// its place, may answer one request differently: one says "expired" or fails, the other handled it.
pub(crate) fn may_contradict(app: &AppShape) -> bool {
    app.services.iter().any(|s| !s.stateful)
}
