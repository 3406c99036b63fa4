//! Placers end when their time is up.

#[path = "../../placement/tests/common/paper.rs"]
mod paper;

use e3_placement::{Annealing, Cluster, Demand, Placement, Placer, Request};
use e3_solver::{Ilp, SolverError, Timed};
use paper::{app, profiles, topology};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[test]
fn annealing_without_time_gives_what_it_has_and_with_time_what_it_finds() {
    let (app, profiles) = (app("iot-ts"), profiles());
    let request = Request::new(&app, &profiles);
    let nodes = |placement: &Placement| -> Vec<_> {
        let decisions = placement.decisions.iter();
        decisions.map(|d| d.node).collect()
    };
    let placed = |placer: &dyn Placer| {
        let mut cluster = Cluster::new(&topology("4x-beefy"));
        placer.place(&request, &mut cluster).unwrap()
    };
    let limited = |limit| Timed::by_name("annealing", Some(limit), Path::new("highs")).unwrap();
    let whole = placed(&Annealing::default());
    let at_once = placed(&limited(Duration::ZERO));
    assert_ne!(nodes(&at_once), nodes(&whole));
    assert_eq!(at_once.decisions.len(), whole.decisions.len());
    let in_time = placed(&limited(Duration::from_secs(600)));
    assert_eq!(nodes(&in_time), nodes(&whole));
}

#[test]
fn only_placers_with_a_time_budget_have_one() {
    let highs = Path::new("highs");
    for name in e3_placement::PLACERS {
        let is_timed = Timed::by_name(name, None, highs).is_some();
        assert_eq!(is_timed, name == "annealing", "{name}");
    }
    let annealing = Timed::by_name("annealing", None, highs).unwrap();
    assert_eq!(annealing.limit(), Duration::from_millis(500));
    let ilp = Timed::by_name("ilp", None, highs).unwrap();
    assert_eq!((ilp.name(), ilp.limit()), ("ilp", Duration::from_secs(10)));
}

/// Held by tests that write a program and run it: a program that is open for writing cannot be started, and a
/// process that another test starts at that moment inherits the open file.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program in place of HiGHS.
fn program(dir: &Path, script: &str) -> PathBuf {
    let program = dir.join("highs");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&program, mode).unwrap();
    program
}

/// A program that writes what HiGHS 1.15 writes when its time is up: its solution so far, if it has one, and its
/// report with the bound.
fn out_of_time(dir: &Path, values: Option<&str>, bound: &str) -> Ilp {
    let found = match values {
        Some(values) => format!(
            "Feasible\nObjective 200\n# Columns {}\n{values}# Rows 0\n\n# Dual solution values\nNone\n",
            values.lines().count()
        ),
        None => "None\n\n# Dual solution values\nNone\n".to_string(),
    };
    let script = format!(
        // The fifth argument is the file of the solution.
        "cat >\"$5\" <<END\nModel status\nTime limit reached\n\n# Primal solution values\n{found}END\n\
         printf '  Status            Time limit reached\\n  Dual bound        {bound}\\n'"
    );
    Ilp::new(program(dir, &script), Duration::from_millis(1500))
}

#[test]
fn a_solver_without_a_solution_in_time_says_so() {
    let _alone = alone();
    let tmp = tempfile::tempdir().unwrap();
    let ilp = out_of_time(tmp.path(), None, "7721");
    let error = ilp.highs.solve("Minimize\nEnd\n").unwrap_err();
    let limit = Duration::from_millis(1500);
    assert!(
        matches!(error, SolverError::Time(l) if l == limit),
        "{error}"
    );
    let (app, profiles) = (app("iot-ts"), profiles());
    let request = Request::new(&app, &profiles);
    let mut cluster = Cluster::new(&topology("4x-beefy"));
    let error = ilp.solve(&request, &mut cluster).unwrap_err().to_string();
    let expected = "it found none within 1.5 s; allow more with --time-limit";
    assert!(error.contains(expected), "{error}");
    assert!(
        cluster
            .nodes()
            .all(|(_, node)| node.used == Demand::default())
    );
}

#[test]
fn a_solver_with_a_solution_when_its_time_is_up_gives_it_with_its_gap() {
    let _alone = alone();
    // All primaries on the first host, all backups on the second.
    let shards = [6, 12, 12, 12, 12];
    let lines = shards.iter().enumerate();
    let lines = lines.map(|(part, n)| format!("p_{part}_0 {n}\nq_{part}_1 {n}\n"));
    let values: String = lines.collect();
    let (app, profiles) = (app("iot-ts"), profiles());
    let request = Request::new(&app, &profiles);
    // Where it has no bound yet, all that is known is that energy is not negative.
    for (bound, bound_uj, gap) in [("150", 150.0, 0.25), ("-inf", 0.0, 1.0)] {
        let tmp = tempfile::tempdir().unwrap();
        let ilp = out_of_time(tmp.path(), Some(&values), bound);
        let mut cluster = Cluster::new(&topology("4x-beefy"));
        let solved = ilp.solve(&request, &mut cluster).unwrap();
        assert!(solved.timed_out);
        assert_eq!((solved.bound_uj, solved.gap), (bound_uj, gap));
        assert_eq!(solved.placement.decisions.len(), 108);
        for d in &solved.placement.decisions {
            let host = if d.key.replica == 0 {
                "s1-host"
            } else {
                "s2-host"
            };
            assert_eq!(cluster.node(d.node).name, host);
        }
    }
}

#[test]
fn a_solver_that_does_not_stop_is_ended() {
    let _alone = alone();
    let tmp = tempfile::tempdir().unwrap();
    let pid = tmp.path().join("pid");
    let script = format!("echo $$ >{}\nexec sleep 1000", pid.display());
    let program = program(tmp.path(), &script);
    let mut highs = Ilp::new(&program, Duration::from_millis(10)).highs;
    highs.grace = Duration::from_millis(500);
    let error = highs.solve("Minimize\nEnd\n").unwrap_err();
    assert!(matches!(error, SolverError::Hung(_)), "{error}");
    let pid = std::fs::read_to_string(pid).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists());
}
