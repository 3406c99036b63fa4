//! Experiments without a program around them: one thread, no clock.

mod common;

use common::Forwards;
use e3_evaluation::{Cell, EvaluationError, Outcome, Pool, Timer, World, named};
use e3_model::document::parse_topology;
use e3_placement::Hcm;
use std::collections::BTreeMap;

/// Runs jobs one after the other, the last one first.
struct Backwards;

impl Pool for Backwards {
    fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..count).rev().for_each(job);
    }
}

/// Measures nothing: every time is that of its size.
struct Frozen;

impl Timer for Frozen {
    fn machine(&self) -> String {
        "no machine".into()
    }
    fn placement_ms(&self, placers: &[&str], servers: usize) -> Vec<Result<f64, String>> {
        let time = |placer: &&str| match *placer {
            "ilp" => Err("there is no solver".to_string()),
            _ => Ok(servers as f64),
        };
        placers.iter().map(time).collect()
    }
    fn decision_ms(&self, servers: usize) -> (f64, f64) {
        (servers as f64, 2.0 * servers as f64)
    }
    fn heartbeats_ms(&self, servers: usize) -> f64 {
        servers as f64
    }
}

fn world(pool: &dyn Pool) -> World<'_> {
    let texts = [
        include_str!("../../../topologies/3x-type1.yaml"),
        include_str!("../../../topologies/2x-type2.yaml"),
    ];
    let clusters = texts.map(|text| parse_topology("topology", text).unwrap());
    World {
        subjects: Vec::new(),
        named: false,
        clusters: clusters.into_iter().map(|t| (t.name.clone(), t)).collect(),
        profiles: BTreeMap::new(),
        ilp: &Hcm,
        pool,
        timer: &Frozen,
        seed: 1,
        quick: true,
    }
}

fn run(name: &str, world: &World<'_>) -> Outcome {
    named(name).unwrap().run(world).unwrap()
}

fn number(cell: &Cell) -> f64 {
    match cell {
        Cell::Number(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

#[test]
fn round_trips_are_in_the_order_of_fig_3() {
    let outcome = run("hops", &world(&Forwards));
    let rows = &outcome.tables[0].rows;
    // Five kinds of hop with three sizes each, the slowest first.
    let parts: Vec<f64> = rows.iter().step_by(3).map(|r| number(&r[3])).collect();
    assert_eq!(parts[0], 1.0);
    assert!(parts[1] > parts[2] && parts[2] > parts[3], "{parts:?}");
    // Half of Fig. 3's ratio in each direction, and the bytes on the ports.
    assert!((0.138..0.15).contains(&parts[3]), "{parts:?}");
    assert!((0.167..0.19).contains(&parts[2]), "{parts:?}");
    let unit_us = number(&rows[0][2]);
    assert!((20.0..22.0).contains(&unit_us), "{unit_us}");
}

#[test]
fn the_order_in_which_jobs_run_changes_nothing() {
    assert_eq!(
        run("hops", &world(&Backwards)),
        run("hops", &world(&Forwards))
    );
}

#[test]
fn a_placer_without_a_time_leaves_a_gap_and_a_note() {
    let outcome = run("scale", &world(&Forwards));
    let table = &outcome.tables[0];
    let ilp = table
        .columns
        .iter()
        .position(|c| c.name == "ilp ms")
        .unwrap();
    assert!(table.rows.iter().all(|r| r[ilp] == Cell::None));
    let says = |note: &&String| note.contains("ilp on 100 servers: there is no solver");
    assert_eq!(outcome.notes.iter().filter(says).count(), 1);
}

#[test]
fn a_topology_that_is_missing_is_named() {
    let mut world = world(&Forwards);
    world.clusters.clear();
    let error = named("hops").unwrap().run(&world).unwrap_err();
    assert_eq!(error, EvaluationError::Topology("3x-type1".into()));
    assert!(error.to_string().contains("3x-type1"));
}
