//! Random scenarios against the data path and the controller together: some of a kind each. Also: a run is a function
//! of its scenario.

use e3_sim::{Scenario, draw, run};

#[test]
fn the_orchestrator_moves_instances_and_no_request_is_lost() {
    let starves = |scenario: &Scenario| {
        let mut acts = scenario.script.iter();
        acts.any(|act| act.fault.kind() == "starve")
    };
    let mut moves = 0;
    for scenario in (1..).map(draw).filter(starves).take(4) {
        let seed = scenario.seed;
        match run(&scenario) {
            Ok(summary) => moves += summary.orchestrated,
            Err(failure) => panic!("seed {seed}: {failure:#?}"),
        }
    }
    assert!(moves > 0, "nothing moved");
}

#[test]
fn nodes_come_and_go_and_no_request_is_lost() {
    let changes = |scenario: &Scenario| {
        let mut acts = scenario.script.iter();
        let kinds = ["add", "remove", "removeDead"];
        acts.any(|act| kinds.contains(&act.fault.kind()))
    };
    let (mut added, mut removed) = (0, 0);
    for scenario in (1..).map(draw).filter(changes).take(6) {
        let seed = scenario.seed;
        match run(&scenario) {
            Ok(summary) => {
                added += summary.members[0];
                removed += summary.members[1];
            }
            Err(failure) => panic!("seed {seed}: {failure:#?}"),
        }
    }
    assert!(added > 0 && removed > 0, "{added} added, {removed} removed");
}

#[test]
fn one_scenario_gives_one_run() {
    let trace = |seed| run(&draw(seed)).map(|summary| (summary.trace, summary.events));
    for seed in [3, 5] {
        assert_eq!(trace(seed), trace(seed));
    }
}

#[test]
fn a_scenario_is_kept_as_a_file() {
    for seed in 1..200 {
        let scenario = draw(seed);
        let text = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&text).unwrap(), scenario);
        assert!(
            scenario.requests() >= 2_000 && scenario.script.len() >= 5,
            "seed {seed}"
        );
    }
}
