//! What the generator leaves out: holes that are known and not closed yet. Each entry names its hole
//! and goes when the hole is closed; an empty list is the aim.

use super::{Act, Fault};

/// Hole: a node whose clock is off by more answers "expired" to what it should handle, or handles
/// what it should refuse.
pub(super) const CLOCK_OFFSET_MS_MAX: u64 = 100;

/// Whether the generator leaves out this fault, given those that it has.
pub(super) fn is_avoided(act: &Act, before: &[Act]) -> bool {
    kills_on_the_way_of_a_move(act) || before.iter().any(|other| follows_on_silence(act, other))
}

/// Hole: a copy falls silent, and before the view without it has reached the primary, the primary
/// dies. The silent copy is complete and is given up all the same. Seed 1049.
fn follows_on_silence(a: &Act, b: &Act) -> bool {
    const NEAR_MS: u64 = 3_000;
    let silences = |act: &Act| match act.fault {
        Fault::Isolate(_)
        | Fault::CutController(_)
        | Fault::CutPeers(_)
        | Fault::OneWay(..)
        | Fault::Unheard(_)
        | Fault::Split(_)
        | Fault::Pause(_)
        | Fault::PauseAll => act.for_ms > 500,
        Fault::Loss(wire) => wire.loss_permille > 300,
        Fault::Slow(..) | Fault::Reordering(_) => true,
        _ => false,
    };
    let kills = |act: &Act| {
        matches!(
            act.fault,
            Fault::Kill(_) | Fault::PowerCut(_) | Fault::Restart(_) | Fault::ClockStep(..)
        )
    };
    let is_near = a.at_ms <= b.end_ms() + NEAR_MS && b.at_ms <= a.end_ms() + NEAR_MS;
    is_near && (silences(a) && kills(b) || silences(b) && kills(a))
}

/// Hole: with two copies and one kill on the way of a move, acknowledged writes are lost. Seed 139.
fn kills_on_the_way_of_a_move(act: &Act) -> bool {
    matches!(act.fault, Fault::MoveAndKill(_))
}
