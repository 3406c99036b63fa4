//! `e3 twin` as its users run it. The figures are those of a busy machine, so only form and direction are checked.

use crate::common::E3;

/// Other tests run beside this one: it tries again if they left too little of the machine to measure.
const TRIES: usize = 3;

#[test]
fn a_twin_compares_five_loads_with_profiles_of_services_alone() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let words = ["twin", "rta-ptc", "--seconds", "1", "-o", "json"];
    let tried = (0..TRIES).map(|_| e3.run(&words));
    let mut measured = tried.skip_while(|ended| ended.err.contains("is this machine busy?"));
    let ended = measured.next().expect("a machine with time for it");
    assert_eq!(ended.code, 0, "{ended:?}");
    let view: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (&view["app"], &view["topology"]),
        (&"rta-ptc".into(), &"twin-host".into())
    );
    let services = view["services"].as_array().unwrap();
    assert_eq!(services.len(), 3);
    for service in services {
        assert!(service["messages"].as_u64() > Some(0), "{service}");
        let handler = service["handlerUs"].as_f64().unwrap();
        let message = service["messageUs"]["host"].as_f64().unwrap();
        assert!(0.0 < handler && handler < message, "{service}");
    }
    let node = &view["nodes"]["host"];
    assert!(node["requestNs"].as_f64() > Some(0.0) && node["roundTripNs"].as_f64() > Some(0.0));
    assert_eq!(view["hop"], serde_json::Value::Null);
    let loads = view["loads"].as_array().unwrap();
    assert_eq!(loads.len(), 5);
    let of = |load: &serde_json::Value, side: &str, what: &str| load[side][what].as_f64().unwrap();
    for load in loads {
        for side in ["measured", "predicted"] {
            let (p50, p99) = (of(load, side, "p50_us"), of(load, side, "p99_us"));
            assert!(0.0 < p50 && p50 <= p99, "{load}");
        }
    }
    let p50 = |load| of(load, "predicted", "p50_us");
    assert!(
        p50(&loads[0]) < p50(&loads[4]),
        "latency grows with the load"
    );
    let knee = &view["knee"];
    let (measured, predicted) = (&knee["measuredRps"], &knee["predictedRps"]);
    assert!(
        measured.as_f64() > Some(0.0) && predicted.as_f64() > Some(0.0),
        "{knee}"
    );
}

#[test]
fn what_a_twin_cannot_compare_is_refused_in_one_line() {
    let e3 = E3::new();
    for (words, says) in [
        (
            &["rta-ptc", "--topology", "3x-type1"][..],
            "must have a host, or a host and a SmartNIC",
        ),
        (&["nothing"], "nothing"),
        (&["rta-ptc", "--seconds", "0"], "0 is not in 1..=20"),
    ] {
        let ended = e3.run(&[&["twin"], words].concat());
        assert_ne!(ended.code, 0, "{words:?}");
        assert!(ended.err.contains(says), "{words:?}: {}", ended.err);
        assert_eq!(ended.out, "");
    }
}
