//! Placers end when their time is up.

#[path = "../../placement/tests/common/paper.rs"]
mod paper;

use e3_placement::{Annealing, Cluster, Placement, Placer, Request};
use e3_solver::{Ilp, SolverError, Timed};
use paper::{app, profiles, topology};
use std::path::Path;
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

#[test]
fn a_solver_that_does_not_stop_is_ended() {
    let tmp = tempfile::tempdir().unwrap();
    let (program, pid) = (tmp.path().join("highs"), tmp.path().join("pid"));
    let text = format!("#!/bin/sh\necho $$ >{}\nexec sleep 1000\n", pid.display());
    std::fs::write(&program, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&program, mode).unwrap();
    let mut highs = Ilp::new(&program, Duration::from_millis(10)).highs;
    highs.grace = Duration::from_millis(500);
    let error = highs.solve("Minimize\nEnd\n").unwrap_err();
    assert!(matches!(error, SolverError::Hung(_)), "{error}");
    let pid = std::fs::read_to_string(pid).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists());
}
