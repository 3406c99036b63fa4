//! The checks bite: for each deliberate fault there is a kept scenario that fails with it and passes
//! without it.
//!
//! `cargo run --release -p e3-nemesis --features deliberate-faults --bin e3-deliberate-faults -- --keep
//! crates/nemesis/tests/deliberate` finds new scenarios when a change makes old ones useless.

use e3_nemesis::deliberate::Fault;
use e3_sim::Scenario;
use std::path::Path;

#[test]
fn each_deliberate_fault_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/deliberate");
    let mut missed = Vec::new();
    let faults = Fault::all();
    assert!(faults.len() >= 20);
    for fault in faults {
        let file = dir.join(format!("{}.json", fault.name()));
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let scenario = serde_json::from_str::<Scenario>(&text);
        if !scenario.is_ok_and(|s| fault.is_shown_by(&s)) {
            missed.push(fault.name());
        }
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not found: {}", missed.join(", "));
}
