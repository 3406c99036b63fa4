//! Scenarios that once found a fault. Unlike seeds they stay what they are when the generator changes.

use e3_nemesis::fleet::attempt;
use e3_sim::Scenario;
use std::path::Path;

#[test]
fn kept_scenarios() {
    std::panic::set_hook(Box::new(e3_nemesis::fleet::note_panic));
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kept");
    let files = std::fs::read_dir(dir).unwrap();
    let mut failed = Vec::new();
    for file in files.map(|f| f.unwrap().path()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let scenario: Scenario = serde_json::from_str(&text).unwrap();
        if let Err(failure) = attempt(&scenario) {
            failed.push((file, failure));
        }
    }
    drop(std::panic::take_hook());
    assert!(
        failed.is_empty(),
        "{failed:#?}\nreplay: cargo run --release -p e3-nemesis -- file FILE"
    );
}
