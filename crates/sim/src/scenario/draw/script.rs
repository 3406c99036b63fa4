//! Draws a script: which faults a scenario has, when, and for how long.

use super::super::{Act, Fault, Scenario, Wire};
use super::{FAULTS_MS, offset_ms};
use e3_random::Random;

/// Fewest faults of a scenario, without what operators do.
const FAULTS_MIN: u64 = 5;
/// Most that happens in a scenario, if so few are not faults.
const FAULTS_MAX: u64 = 14;
/// The kinds that [`fault`] knows.
const KINDS: u64 = 47;
/// Least that a wrong clock is off: somewhat more than its peers tolerate.
const WRONG_MS_MIN: i64 = 800;
/// How much more it may be off.
const WRONG_MS_SPAN: u64 = 3_600_000;
/// How long the operator acts on shards that wait.
const FORGET_MS: u64 = 10_000;

/// Draws the faults and their times.
pub(super) fn script(random: &mut Random, scenario: &Scenario) -> Vec<Act> {
    let count = FAULTS_MIN + random.below(FAULTS_MAX - FAULTS_MIN + 1);
    // Half of the scenarios draw from a few kinds only, so that faults of one kind meet often.
    let kinds: Vec<u64> = if random.one_in(2) {
        (0..3).map(|_| random.below(KINDS)).collect()
    } else {
        (0..KINDS).collect()
    };
    let mut script: Vec<Act> = Vec::new();
    let (mut tries, mut faults) = (0, 0);
    while (script.len() as u64) < count || faults < FAULTS_MIN {
        tries += 1;
        let kind = match tries {
            0..200 => *random.pick(&kinds),
            _ => random.below(KINDS),
        };
        let (fault, for_ms) = fault(random, kind, scenario);
        let is_fault = !fault.is_operation();
        let has_all = script.len() as u64 >= count;
        if has_all && !is_fault || is_left_out(&fault, &script) {
            continue;
        }
        faults += u64::from(is_fault);
        let at_ms = random.below(FAULTS_MS - 1_000);
        let act = Act {
            at_ms,
            for_ms: for_ms.min(FAULTS_MS - at_ms),
            fault,
        };
        script.push(act);
    }
    script.sort_by_key(|act| act.at_ms);
    script
}

/// Whether a fault does nothing beside those that were drawn before: see [`known::may_lose_log_and_memory`].
fn is_left_out(fault: &Fault, script: &[Act]) -> bool {
    let has = |of: fn(&Fault) -> bool| script.iter().any(|act| of(&act.fault));
    match fault {
        Fault::Blackout(_) => has(|f| matches!(f, Fault::LostWrites)),
        Fault::LostWrites => has(|f| matches!(f, Fault::Blackout(_))),
        _ => false,
    }
}

/// A fault of a kind, and how long it lasts.
fn fault(random: &mut Random, kind: u64, scenario: &Scenario) -> (Fault, u64) {
    let nodes = u64::from(scenario.nodes());
    let node = random.below(nodes) as u32;
    // Below, about and above the time after which the controller takes a node for lost.
    let span_ms = *random.pick(&[50, 150, 240, 290, 400, 1_000, 3_000, 8_000]);
    let fault = match kind {
        0 => Fault::Loss(Wire {
            loss_permille: *random.pick(&[20, 50, 200, 500]),
            ..Wire::GOOD
        }),
        1 => Fault::Repetition(Wire {
            repeat_permille: *random.pick(&[20, 200, 800]),
            ..Wire::GOOD
        }),
        2 => Fault::Reordering(Wire {
            delay_us_max: *random.pick(&[2_000, 5_000, 30_000, 200_000]),
            ..Wire::GOOD
        }),
        3 => Fault::Damage(Wire {
            damage_permille: *random.pick(&[20, 200]),
            ..Wire::GOOD
        }),
        4 => Fault::Isolate(node),
        5 => Fault::CutPeers(node),
        6 | 45 => Fault::CutController(node),
        7 => Fault::OneWay(node, random.below(nodes) as u32),
        8 => Fault::Unheard(node),
        46 => Fault::Deaf(node),
        9 => {
            let side =
                |random: &mut Random| (0..nodes as u32).filter(|_| random.one_in(2)).collect();
            Fault::Split(side(random))
        }
        10 => Fault::Pause(node),
        11 => Fault::PauseAll,
        12 => Fault::Slow(node, *random.pick(&[2, 10, 100])),
        13 | 14 => Fault::Kill(node),
        15 => Fault::PowerCut(random.index(scenario.servers.len()) as u32),
        16 => Fault::Restart(node),
        17 => Fault::ClockStep(node, offset_ms(random)),
        18 => Fault::Drift(node, random.below(2_001) as i64 - 1_000),
        19 => Fault::KillController,
        20 => Fault::PauseController,
        21 => Fault::DiskFull,
        22 => Fault::DiskSlow(*random.pick(&[5, 50, 400])),
        23 => Fault::TornWrite,
        24 => Fault::ReportsLost,
        25 => Fault::ReportsLate,
        26 | 33 => {
            if random.one_in(2) {
                Fault::Move(random.next_u64())
            } else {
                Fault::MoveAndKill(random.next_u64())
            }
        }
        43 | 44 => Fault::Reshard(random.next_u64()),
        27 => Fault::Update(random.index(scenario.apps.len())),
        28 => Fault::LostWrites,
        29 => Fault::BitRot,
        30 | 34 | 35 => Fault::CutAndKill(node, random.below(nodes) as u32),
        31 => {
            let off_ms = WRONG_MS_MIN + random.below(WRONG_MS_SPAN) as i64;
            Fault::WrongClock(node, if random.one_in(2) { off_ms } else { -off_ms })
        }
        36 | 38 => Fault::Blackout(*random.pick(&[100, 3_000, 12_000])),
        39 => Fault::CutAndRestart(node, random.below(nodes) as u32),
        40 => Fault::Drain(node),
        41 => Fault::Scale(random.next_u64()),
        42 => Fault::Rollback(random.index(scenario.apps.len())),
        37 => Fault::NodeDiskSlow(node, *random.pick(&[2, 20, 300, 3_000])),
        _ => return (Fault::Forget(*random.pick(&[0, 500, 3_000])), FORGET_MS),
    };
    (fault, span_ms)
}
