//! How long an application pauses when something fails, and what it loses.
//!
//! The caller makes the faults; this module turns what it measured into figures.

use crate::{Better, Figure};

/// What the group runs.
pub const ABOUT: &str = "\
The application `kvs` on a cluster of its own: controller and six nodes on this machine, as root in a network
namespace of its own. A fail-over is timed from the fault to the first reply to a request that was sent after it,
with a request every 2 ms for one shard at nodes that did not fail. `chaos.lost` and `chaos.repeated` are those of
`e3 chaos kvs` with all its faults. `--minutes` sets the length of that run; the search for false fail-overs takes half
of it. `--only` measures one part. Seeds and deliberate faults are scenarios of the simulator, run by the programs
`e3-nemesis` and `e3-deliberate-faults`, which must be beside `e3`; seeds that have run on the same source add up.";

/// Longest fail-over.
const FAILOVER_AIM_MS: f64 = 500.0;
/// Longest time without service while the controller is down.
const AWAY_AIM_MS: f64 = 20.0;

/// Shortest run, and shortest load without a fault, that an aim is for, in minutes.
const RUN_MIN: f64 = 60.0;
const QUIET_MIN: f64 = 30.0;
/// Part of the highest rate that must be sent in a load that is too high. Two busy loops take about half of two cores.
const SENT_MIN: f64 = 0.25;

/// Seeds that must have run on one source.
const SEEDS_AIM: u64 = 100_000;
/// On two cores.
const SEEDS_PER_MIN_AIM: f64 = 1_000.0;
/// Fewest deliberate faults.
const DELIBERATE_MIN: u64 = 20;

/// Fail-overs after one fault.
#[derive(Clone, PartialEq, Debug)]
pub struct Failovers {
    /// The fault.
    pub fault: String,
    /// Time to the first reply in milliseconds; None if there was none in time.
    pub ms: Vec<Option<f64>>,
}

/// Fail-overs under a load that is too high, though nothing failed.
#[derive(Clone, PartialEq, Debug)]
pub struct Quiet {
    /// Fail-overs.
    pub failovers: u64,
    /// Length of the load.
    pub minutes: f64,
    /// The most requests that are handled in a second when nothing else runs.
    pub highest_rps: f64,
    /// Requests that were due per second.
    pub offered_rps: f64,
    /// Requests that were sent per second. A sender waits for the answer to its request before.
    pub sent_rps: f64,
    /// Requests that were handled per second.
    pub handled_rps: f64,
}

/// A run of `e3 chaos`.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// Its length.
    pub minutes: f64,
    /// Faults that were made.
    pub faults: u64,
    /// Requests sent.
    pub sent: u64,
    /// Accepted updates that are missing, and requests without an outcome; None if no state was read back.
    pub lost: Option<u64>,
    /// Updates that took effect twice; None if no state was read back.
    pub repeated: Option<u64>,
    /// Why it failed, if it did.
    pub reasons: Vec<String>,
    /// The command that repeats it.
    pub replay: String,
}

/// Random scenarios of the simulator.
#[derive(Clone, PartialEq, Debug)]
pub struct Seeds {
    /// Seeds a minute on all cores.
    pub per_min: u64,
    /// Seeds that have run on this source.
    pub seeds: u64,
    /// Those that failed.
    pub failed: Vec<u64>,
    /// Hash of the source.
    pub source: String,
}

/// Deliberate faults.
#[derive(Clone, PartialEq, Debug)]
pub struct Deliberate {
    /// How many were found.
    pub found: u64,
    /// Those that were not.
    pub missed: Vec<String>,
    /// Most seeds that one took.
    pub seeds_max: u64,
}

/// Everything that was measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// By fault.
    pub failovers: Vec<Failovers>,
    /// Faults of the controller, and the longest time without a reply in milliseconds; None if no reply came after it.
    pub away: Vec<(String, Option<f64>)>,
    /// Without a fault.
    pub quiet: Option<Quiet>,
    /// With all of them.
    pub run: Option<Run>,
    /// Simulated scenarios.
    pub seeds: Option<Seeds>,
    /// Whether the simulator's checks find faults.
    pub deliberate: Option<Deliberate>,
    /// Faults that could not be made here, and why.
    pub missing: Option<String>,
}

/// The figures of what was measured.
pub fn figures(m: &Measured) -> Vec<Figure> {
    let mut figures = Vec::new();
    if !m.failovers.is_empty() {
        let missing = m.missing.as_deref();
        let name = "chaos.failover_ms";
        figures.push(failover_figure(
            name,
            FAILOVER_AIM_MS,
            &m.failovers,
            missing,
        ));
    }
    if !m.away.is_empty() {
        figures.push(away(&m.away));
    }
    figures.extend(m.quiet.as_ref().map(quiet));
    figures.extend(m.run.iter().flat_map(losses));
    figures.extend(m.seeds.iter().flat_map(seeds));
    figures.extend(m.deliberate.as_ref().map(deliberate));
    figures
}

fn seeds(s: &Seeds) -> [Figure; 2] {
    let (count, failed, source) = (s.seeds, s.failed.len(), &s.source);
    let mut note = format!("{failed} of {count} seeds so far on source {source}");
    if failed > 0 {
        note += &format!(": {:?}", s.failed);
    }
    let mut failures = Figure::new("chaos.failures", failed as f64, "seeds", Better::Lower);
    if count < SEEDS_AIM && failed == 0 {
        failures.value = None;
        note += &format!("; {SEEDS_AIM} are needed");
    }
    let per_min = Figure::new(
        "chaos.seeds_per_min",
        s.per_min as f64,
        "/min",
        Better::Higher,
    );
    [
        per_min.aim(SEEDS_PER_MIN_AIM).note("on all cores"),
        failures.aim(0.0).note(note),
    ]
}

fn deliberate(d: &Deliberate) -> Figure {
    let all = d.found + d.missed.len() as u64;
    let mut note = format!("of {all}; the last one after {} seeds", d.seeds_max);
    if !d.missed.is_empty() {
        note += &format!("; missed: {}", d.missed.join(", "));
    }
    let name = "chaos.mutants_caught";
    let figure = Figure::new(name, d.found as f64, "faults", Better::Higher);
    figure.aim(all.max(DELIBERATE_MIN) as f64).note(note)
}

fn losses(run: &Run) -> [Figure; 2] {
    let mut what = format!(
        "of {} sent in {} minutes with {} faults; again: {}",
        run.sent, run.minutes, run.faults, run.replay
    );
    // Of a run that failed it is not known what it would have lost.
    let is_whole = run.reasons.is_empty() && run.faults > 0;
    if !run.reasons.is_empty() {
        what += &format!("; failed: {}", run.reasons.join("; "));
    }
    let is_long = run.minutes >= RUN_MIN;
    if !is_long {
        what += &format!("; the aim is for {RUN_MIN} minutes");
    }
    let none_of = |name, value: Option<u64>, note: &str| {
        let mut figure = Figure::new(name, 0.0, "requests", Better::Lower);
        figure.value = value.filter(|v| is_whole || *v > 0).map(|v| v as f64);
        let figure = figure.note(note);
        if is_long { figure.aim(0.0) } else { figure }
    };
    [
        none_of("chaos.lost", run.lost, &what),
        none_of("chaos.repeated", run.repeated, "of the same"),
    ]
}

fn quiet(quiet: &Quiet) -> Figure {
    let name = "chaos.false_failovers";
    let figure = Figure::new(name, quiet.failovers as f64, "fail-overs", Better::Lower);
    let mut note = format!(
        "without a fault in {} minutes with two busy loops beside it; {:.0} requests/s were due, three times the \
         highest rate, {:.0} were sent and {:.0} handled",
        quiet.minutes, quiet.offered_rps, quiet.sent_rps, quiet.handled_rps
    );
    if quiet.minutes < QUIET_MIN {
        note += &format!("; the aim is for {QUIET_MIN} minutes");
        return figure.note(note);
    }
    let is_held = quiet.sent_rps >= SENT_MIN * quiet.highest_rps;
    figure.aim_under_load(0.0, is_held).note(note)
}

/// The worst fail-over; none if one never came. `missing` says which faults were not tried: then the aim, which is for
/// all of them, is neither met nor missed, unless one that was tried misses it.
pub(crate) fn failover_figure(
    name: &str,
    aim: f64,
    failovers: &[Failovers],
    missing: Option<&str>,
) -> Figure {
    let all = failovers.iter().flat_map(|f| &f.ms);
    let never = all.clone().any(Option::is_none);
    let worst = all.flatten().copied().fold(0.0, f64::max);
    let mut note: Vec<String> = failovers.iter().map(one).collect();
    note.extend(missing.map(String::from));
    let mut figure = Figure::new(name, worst, "ms", Better::Lower);
    if never {
        figure.value = None;
    }
    let mut figure = figure.aim(aim).note(note.join("; "));
    if missing.is_some() {
        figure.pass = figure.pass.filter(|pass| !pass);
    }
    figure
}

/// Median and worst of a fault.
fn one(f: &Failovers) -> String {
    let mut ms: Vec<f64> = f.ms.iter().flatten().copied().collect();
    ms.sort_by(f64::total_cmp);
    let never = f.ms.len() - ms.len();
    let (fault, count) = (&f.fault, f.ms.len());
    let mut text = match (ms.get(ms.len() / 2), ms.last()) {
        (Some(p50), Some(worst)) => {
            format!("{fault}: p50 {p50:.0} ms, worst of {count} {worst:.0} ms")
        }
        _ => format!("{fault}: {count} tries"),
    };
    if never > 0 {
        text += &format!(", {never} without a reply in time");
    }
    text
}

fn away(away: &[(String, Option<f64>)]) -> Figure {
    let worst = away.iter().filter_map(|(_, ms)| *ms).fold(0.0, f64::max);
    let each = away.iter().map(|(fault, ms)| match ms {
        Some(ms) => format!("{fault}: {ms:.0} ms"),
        None => format!("{fault}: no reply after it"),
    });
    let each: Vec<String> = each.collect();
    let mut figure = Figure::new("chaos.controller_away_ms", worst, "ms", Better::Lower);
    if away.iter().any(|(_, ms)| ms.is_none()) {
        figure.value = None;
    }
    figure
        .aim(AWAY_AIM_MS)
        .note(format!("longest time without a reply; {}", each.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        Measured {
            failovers: vec![Failovers {
                fault: "kill".into(),
                ms: vec![Some(300.0), Some(450.0), Some(200.0)],
            }],
            away: vec![("kill-controller".into(), Some(12.0))],
            quiet: Some(Quiet {
                failovers: 0,
                minutes: 30.0,
                highest_rps: 10_000.0,
                offered_rps: 30_000.0,
                sent_rps: 8_000.0,
                handled_rps: 7_000.0,
            }),
            run: Some(Run {
                minutes: 60.0,
                faults: 400,
                sent: 720_000,
                lost: Some(0),
                repeated: Some(0),
                reasons: Vec::new(),
                replay: "e3 chaos kvs".into(),
            }),
            seeds: Some(Seeds {
                per_min: 1_000,
                seeds: 100_000,
                failed: Vec::new(),
                source: "f00d".into(),
            }),
            deliberate: Some(Deliberate {
                found: 20,
                missed: Vec::new(),
                seeds_max: 400,
            }),
            missing: None,
        }
    }

    #[test]
    fn every_aim_can_be_met_and_missed() {
        assert!(figures(&measured()).iter().all(|f| f.pass == Some(true)));
        let faults: [fn(&mut Measured); 9] = [
            |m| m.failovers[0].ms[1] = Some(501.0),
            |m| m.away[0].1 = Some(21.0),
            |m| m.quiet.as_mut().unwrap().failovers = 1,
            |m| m.run.as_mut().unwrap().lost = Some(1),
            |m| m.run.as_mut().unwrap().repeated = Some(1),
            |m| m.seeds.as_mut().unwrap().per_min = 999,
            |m| m.seeds.as_mut().unwrap().failed = vec![7],
            |m| m.deliberate.as_mut().unwrap().missed = vec!["NoLeases".into()],
            |m| m.deliberate.as_mut().unwrap().found = 19,
        ];
        for (at, fault) in faults.iter().enumerate() {
            let mut m = measured();
            fault(&mut m);
            let missed: Vec<usize> = figures(&m)
                .iter()
                .enumerate()
                .filter(|(_, f)| f.pass == Some(false))
                .map(|(n, _)| n)
                .collect();
            assert_eq!(missed, [at.min(7)]);
        }
    }

    /// The verdicts on the figures from one on, so many of them.
    fn verdicts(m: &Measured, first: usize, count: usize) -> Vec<Option<bool>> {
        let figures = figures(m);
        let some = figures.iter().skip(first).take(count);
        some.map(|f| f.pass).collect()
    }

    #[test]
    fn a_run_that_failed_or_had_no_fault_shows_nothing() {
        let faults: [fn(&mut Run); 4] = [
            |r| r.reasons = vec!["it has not recovered".into()],
            |r| r.faults = 0,
            |r| (r.lost, r.repeated) = (None, None),
            |r| (r.lost, r.reasons) = (Some(3), vec!["3 updates are missing".into()]),
        ];
        for fault in faults {
            let mut m = measured();
            fault(m.run.as_mut().unwrap());
            assert_eq!(verdicts(&m, 3, 2), [Some(false); 2]);
        }
        let mut m = measured();
        m.run.as_mut().unwrap().minutes = 5.0;
        m.quiet.as_mut().unwrap().minutes = 2.5;
        assert_eq!(verdicts(&m, 2, 3), [None; 3]);
    }

    #[test]
    fn what_was_not_tried_is_not_met() {
        let mut m = measured();
        m.missing = Some("cut-peers was not tried".into());
        assert_eq!(verdicts(&m, 0, 1), [None]);
        m.failovers[0].ms.push(Some(501.0));
        assert_eq!(verdicts(&m, 0, 1), [Some(false)]);
        let mut m = measured();
        m.away[0].1 = None;
        m.quiet.as_mut().unwrap().sent_rps = 2_000.0;
        assert_eq!(verdicts(&m, 1, 2), [Some(false); 2]);
    }

    #[test]
    fn too_few_seeds_without_a_failure_show_nothing() {
        let mut m = measured();
        m.seeds.as_mut().unwrap().seeds = 99_999;
        let figure = &figures(&m)[6];
        assert_eq!(
            (figure.name.as_str(), figure.value),
            ("chaos.failures", None)
        );
    }

    #[test]
    fn what_was_not_measured_has_no_figure() {
        let only = Measured {
            away: measured().away,
            ..Measured::default()
        };
        let names: Vec<String> = figures(&only).into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["chaos.controller_away_ms"]);
    }

    #[test]
    fn a_fail_over_that_never_came_has_no_value() {
        let mut m = measured();
        m.failovers[0].ms.push(None);
        let figure = &figures(&m)[0];
        assert_eq!((figure.value, figure.pass), (None, Some(false)));
        assert!(figure.note.contains("1 without a reply"), "{}", figure.note);
    }
}
