//! The demonstration of a day: the placement follows the load, needs less energy than a fixed one by the
//! model, and loses nothing.

use crate::common::E3;

#[test]
fn the_demonstration_of_a_day_saves_energy_and_loses_nothing() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let report = e3.json(&["demo", "day", "--seconds", "24"]);
    let days = report["days"].as_array().unwrap();
    let [fixed, adaptive] = &days[..] else {
        panic!("{report}");
    };
    let of = |day: &serde_json::Value, name: &str| day[name].as_f64().unwrap();
    for day in [fixed, adaptive] {
        assert!(of(day, "sent") > 0.0, "{report}");
        assert_eq!(
            (of(day, "lost"), of(day, "repeated")),
            (0.0, 0.0),
            "{report}"
        );
    }
    assert_eq!(of(fixed, "moves"), 0.0, "{report}");
    assert!(of(adaptive, "moves") > 0.0, "{report}");
    assert!(of(adaptive, "joules") < of(fixed, "joules"), "{report}");
    let hours = report["hours"].as_array().unwrap();
    assert_eq!(hours.len(), 12, "{report}");
    let servers = |row: usize| hours[row]["adaptive"]["servers"].as_f64();
    let fewest = (0..12).filter_map(servers).fold(3.0, f64::min);
    assert!(fewest < 3.0, "at night a server sleeps: {report}");
    let events = report["events"].as_array().unwrap();
    let first = events.first().expect("it has moved");
    assert_eq!(first["kind"], "orchestrator-follow");
    assert!(
        first["figures"]["powerBeforeMilliwatts"].is_u64(),
        "{first}"
    );
}
