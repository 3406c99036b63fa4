//! `e3 sim` as its users run it.

use crate::common::E3;

const SHORT: [&str; 4] = ["--load", "20000", "--duration", "200ms"];

fn words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["sim", "iot-ts"];
    words.extend(SHORT);
    words.extend(more);
    words
}

#[test]
fn a_prediction_has_rate_latency_and_joules_and_the_same_bytes_each_time() {
    let e3 = E3::new();
    let view = e3.json(&words(&[]));
    assert_eq!(view["provenance"], "modelled");
    assert_eq!(view["saturated"], false);
    let near = |field: &str, expected: f64| {
        let value = view[field].as_f64().unwrap();
        assert!((value / expected - 1.0).abs() < 0.1, "{field} {value}");
    };
    near("offered_rps", 20_000.0);
    near("achieved_rps", 20_000.0);
    assert!(view["latency"]["p99_us"].as_f64() > view["latency"]["p50_us"].as_f64());
    assert!(view["joules_per_request"].as_f64().unwrap() > 0.0);
    assert_eq!(view["nodes"].as_array().unwrap().len(), 6);
    let run = || e3.good(&words(&["-o", "json"]));
    assert_eq!(run(), run());
    let text = e3.good(&words(&[]));
    for part in ["modelled", "carried", "most used", "s1-nic0", "recommend"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_full_fidelity_answers_with_the_same_report() {
    let e3 = E3::new();
    let of = |fidelity: &str| {
        let words = ["sim", "iot-ts", "--load", "5000", "--duration", "100ms"];
        e3.json(&[&words[..], &["--fidelity", fidelity]].concat())
    };
    let (fast, full) = (of("fast"), of("full"));
    assert_eq!(
        (&fast["fidelity"], &full["fidelity"]),
        (&"fast".into(), &"full".into())
    );
    let fields = |view: &serde_json::Value| -> Vec<String> {
        view.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(fields(&fast), fields(&full));
    let joules = |view: &serde_json::Value| view["joules_per_request"].as_f64().unwrap();
    let ratio = joules(&full) / joules(&fast);
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
    assert_ne!(fast["events"], full["events"]);
}

#[test]
fn a_sweep_finds_the_knee() {
    let e3 = E3::new();
    let view = e3.json(&["sim", "nfv-fin", "--sweep", "--duration", "20ms"]);
    let saturates = view["saturates_rps"].as_f64().unwrap();
    let knee = view["knee"]["offered_rps"].as_f64().unwrap();
    assert!(0.0 < knee && knee < saturates, "{knee} {saturates}");
    let text = e3.good(&["sim", "nfv-fin", "--sweep", "--duration", "20ms"]);
    assert!(
        text.contains("knee") && text.contains("saturated"),
        "{text}"
    );
}

#[test]
fn files_have_the_samples_and_the_trace() {
    let e3 = E3::new();
    let (raw, trace) = (e3.file("raw.csv", ""), e3.file("trace.json", ""));
    let view = e3.json(&words(&["--raw", &raw, "--trace", &trace]));
    let raw = std::fs::read_to_string(raw).unwrap();
    let mut lines = raw.lines();
    assert_eq!(lines.next(), Some("start_ns,latency_ns,joules"));
    let joules = lines.map(|l| l.rsplit(',').next().unwrap().parse::<f64>().unwrap());
    let sum: f64 = joules.sum();
    let expected = view["energy"]["requests_j"].as_f64().unwrap();
    assert!((sum / expected - 1.0).abs() < 1e-6, "{sum} J, {expected} J");
    let trace = std::fs::read_to_string(trace).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let is_span = |e: &&serde_json::Value| e["ph"] == "X" && e["dur"].as_f64() > Some(0.0);
    assert!(events.iter().filter(is_span).count() > 10_000);
}

#[test]
fn mechanisms_can_be_switched_off() {
    let e3 = E3::new();
    let watts = |more: &[&str]| e3.json(&words(more))["watts_total"].as_f64().unwrap();
    let beefy = ["--topology", "3x-beefy"];
    let awake = ["--topology", "3x-beefy", "--no-sleep"];
    assert!(watts(&beefy) < watts(&awake));
    let hcm = ["--placer", "hcm", "--no-topology-awareness"];
    let view = e3.json(&words(&hcm));
    assert_eq!(
        (&view["placer"], &view["topology_aware"]),
        (&"hcm".into(), &false.into())
    );
    let text = e3.good(&words(&hcm));
    assert!(text.contains("by hcm without topology awareness"), "{text}");
    let p50 = |more: &[&str]| e3.json(&words(more))["latency"]["p50_us"].as_f64().unwrap();
    let roce = ["--topology", "3x-beefy", "--interconnect", "roce"];
    assert!(p50(&roce) < p50(&beefy));
}

#[test]
fn a_load_beyond_the_capacity_is_saturated() {
    let e3 = E3::new();
    let view = e3.json(&["sim", "iot-ts", "--load", "2e6", "--duration", "50ms"]);
    assert_eq!(view["saturated"], true);
    assert!(view["achieved_rps"].as_f64().unwrap() < 1e6);
}

#[test]
fn what_cannot_be_predicted_is_refused_in_one_line() {
    let e3 = E3::new();
    for (more, says) in [
        (
            &["--load", "-5"][..],
            "rate -5 requests/s: must be a finite number, 0 or more",
        ),
        (&["--load", "trace:/missing.csv"], "/missing.csv"),
        (&["--load", "10", "--duration", "0s"], "duration is 0 ns"),
        (
            &["--load", "10", "--request-bytes", "1024"],
            "not of 1024; they are not extrapolated",
        ),
        (
            &["--load", "10", "--guess", "luck=1"],
            "no guess is named \"luck\"",
        ),
        (
            &["--load", "10", "--guess", "host_wake_us=1e9"],
            "must be 2..=133",
        ),
        (
            &["--load", "10", "--load-scale", "0"],
            "--load-scale is 0, must be above 0",
        ),
        (
            &["--load", "10", "--fail", "s9@1"],
            "node \"s9\" is not in topology \"3x-type1\"",
        ),
        (
            &["--load", "10", "--fail", "s1-nic0@2..1"],
            "must be later than its beginning at 2 s",
        ),
        (
            &["--load", "10", "--no-batching"],
            "--no-batching has no effect",
        ),
    ] {
        let mut words = vec!["sim", "iot-ts"];
        words.extend(more);
        let ended = e3.run(&words);
        assert_ne!(ended.code, 0, "{more:?}");
        let first = ended.err.lines().next().unwrap();
        assert!(first.contains(says), "{more:?}: {first}");
        assert_eq!(ended.out, "");
    }
    let ended = e3.run(&["sim", "hello", "--load", "10", "--topology", "1x-type1"]);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.err.contains("there is no profile"), "{ended:?}");
}

#[test]
fn small_requests_are_predicted_with_a_note_and_a_range() {
    let e3 = E3::new();
    let words = ["sim", "rta-shm", "--load", "500", "--range"];
    let view = e3.json(&words);
    let note = view["assumptions"][0].as_str().unwrap();
    assert!(
        note.contains("measured with 512 bytes, not with 256"),
        "{note}"
    );
    let joules = |end: &str| view["range"][end]["joules_per_request"].as_f64().unwrap();
    assert!(joules("low") <= joules("central") && joules("central") <= joules("high"));
    let text = e3.good(&words);
    assert!(
        text.contains("bm25: 0.006 to 0.042 messages a request"),
        "{text}"
    );
    let certain = e3.good(&["sim", "nfv-fin", "--load", "500", "--range"]);
    assert!(
        certain.contains("Nothing of messages and sizes is uncertain"),
        "{certain}"
    );
}

#[test]
fn the_orchestrator_acts_on_a_smartnic_that_is_overloaded() {
    let e3 = E3::new();
    let run = |mode: &str| {
        let words = ["sim", "iot-ts", "--placer", "nicfirst", "--load", "16000"];
        let more = ["--duration", "4s", "--orchestrator", mode];
        e3.json(&[&words[..], &more[..]].concat())
    };
    assert!(run("off")["controller"].is_null());
    let on = run("on");
    let events = on["controller"]["events"].as_array().unwrap();
    let moved = events.iter().find(|e| e["kind"] == "orchestrator-move");
    assert!(
        moved.unwrap()["why"]
            .as_str()
            .unwrap()
            .starts_with("starvation")
    );
    assert!(on["disruption"]["moves"].as_u64() >= Some(1));
    let dry = run("dry-run");
    assert_eq!(dry["disruption"]["moves"], 0);
}

#[test]
fn a_node_that_fails_is_reported_with_what_it_did_to_requests() {
    let e3 = E3::new();
    let words = ["sim", "iot-ts", "--load", "1000", "--duration", "3s"];
    let words = [&words[..], &["--fail", "s1-nic0@1..2"]].concat();
    let view = e3.json(&words);
    let disruption = &view["disruption"];
    assert!(
        disruption["messages_lost"].as_u64() > Some(0),
        "{disruption}"
    );
    assert!(
        disruption["requests_late"].as_u64() > Some(0),
        "{disruption}"
    );
    assert_eq!(disruption["requests_failed"], 0);
    let text = e3.good(&words);
    assert!(
        text.contains("node-lost") && text.contains("node-joined"),
        "{text}"
    );
    assert_eq!(text, e3.good(&words));
}

#[test]
fn hosts_can_use_linux_sockets() {
    let e3 = E3::new();
    let per_joule = |more: &[&str]| {
        let all = [&["--topology", "3x-beefy"], more].concat();
        e3.json(&words(&all))["requests_per_joule"]
            .as_f64()
            .unwrap()
    };
    assert!(per_joule(&["--stack", "linux"]) < per_joule(&[]));
}

/// A range in the full fidelity is one of the full fidelity: its middle is the run itself.
#[test]
fn a_range_is_in_the_fidelity_of_the_run() {
    let e3 = E3::new();
    let words = ["sim", "rta-shm", "--load", "5000", "--duration", "50ms"];
    for fidelity in ["fast", "full"] {
        let more = ["--range", "--fidelity", fidelity];
        let view = e3.json(&[&words[..], &more].concat());
        let (central, latency) = (&view["range"]["central"], &view["latency"]);
        assert_eq!(central["latency_us_p99"], latency["p99_us"], "{fidelity}");
        assert_eq!(central["joules_per_request"], view["joules_per_request"]);
    }
}

#[test]
fn a_load_past_every_capacity_has_no_latency_and_a_low_one_is_not_zero() {
    let e3 = E3::new();
    let words = ["sim", "iot-ts", "--load", "1e8", "--duration", "20us"];
    let view = e3.json(&words);
    assert_eq!(view["achieved_rps"], 0.0);
    assert!(view["latency"].is_null(), "{view}");
    let text = e3.good(&words);
    assert!(text.contains("- (no request was answered)"), "{text}");
    let text = e3.good(&["sim", "iot-ts", "--load", "0.2", "--duration", "300s"]);
    assert!(!text.contains(" 0 requests/"), "{text}");
}

#[test]
fn loads_that_change_are_played() {
    let e3 = E3::new();
    let sent = |load: &str, duration: &[&str]| -> Vec<u64> {
        let view = e3.json(
            &[
                &["sim", "iot-ts", "--warm-up", "0s", "--load", load][..],
                duration,
            ]
            .concat(),
        );
        let steps = view["timeline"].as_array().unwrap().iter();
        let sent: Vec<u64> = steps.map(|s| s["sent"].as_u64().unwrap()).collect();
        // The run in ten parts.
        sent.chunks(10).map(|part| part.iter().sum()).collect()
    };
    let steps = sent("steps:0s=1000,500ms=9000", &["--duration", "1s"]);
    assert!(
        steps[..5].iter().all(|n| (50..200).contains(n)),
        "{steps:?}"
    );
    assert!(
        steps[5..].iter().all(|n| (650..1_050).contains(n)),
        "{steps:?}"
    );
    let day = sent("day:9000,1000", &["--duration", "1s"]);
    assert!(day[5] > 3 * day[0] && day[4] > 3 * day[9], "{day:?}");
    // A tenth of a second with 50 requests, one with 200, and eight with none.
    let counts = e3.file(
        "counts.csv",
        "time_s,requests\n0,50\n0.1,200\n0.2,0\n0.9,0\n0.95,0\n",
    );
    let trace = sent(&format!("trace:{counts}"), &[]);
    assert!(
        (30..75).contains(&trace[0]) && (150..260).contains(&trace[1]),
        "{trace:?}"
    );
    assert_eq!(trace[2..].iter().sum::<u64>(), 0);
    let arrivals = e3.file("arrivals.csv", "time_s\n5\n5.01\n5.02\n5.98\n6\n");
    let trace = sent(&format!("trace:{arrivals}"), &["--duration", "1.1s"]);
    assert_eq!((trace[0], trace[8], trace[9]), (3, 1, 1), "{trace:?}");
}
