//! Loads that change with time arrive as they are written, and a run in which nothing is answered says so.

mod common;

use common::{at, chain, fixed, iot_ts, racks};
use e3_perfsim::{Load, Report, Run};
use serde_json::Value;

/// Requests that arrived between two times in milliseconds.
fn sent(report: &Report, from_ms: f64, until_ms: f64) -> f64 {
    let steps = report.timeline.iter();
    let inside = steps.filter(|s| s.at_ms >= from_ms - 0.5 && s.at_ms < until_ms - 0.5);
    inside.map(|s| s.sent as f64).sum()
}

fn run(load: Load, seconds: f64) -> Report {
    let scene = iot_ts("3x-type1", "joules");
    scene.run(Run {
        load,
        warm_up: e3_model::Nanos(0),
        ..at(1.0, seconds)
    })
}

#[test]
fn steps_arrive_at_their_rates() {
    let report = run(Load::Steps(vec![(0.0, 2_000.0), (1.0, 8_000.0)]), 2.0);
    let (first, second) = (sent(&report, 0.0, 1_000.0), sent(&report, 1_000.0, 2_000.0));
    // Within four standard deviations of a Poisson count.
    assert!((first - 2_000.0).abs() < 180.0, "{first}");
    assert!((second - 8_000.0).abs() < 360.0, "{second}");
    assert!(!report.saturated);
}

#[test]
fn a_day_is_lowest_at_its_ends_and_highest_in_its_middle() {
    let report = run(
        Load::Day {
            peak_rps: 9_000.0,
            trough_rps: 1_000.0,
        },
        2.0,
    );
    // Over a quarter of a cosine around its top, the mean is 1/2 + sqrt(8)/(2 pi) of the way up.
    let part = 0.5 + 2f64.sqrt() / std::f64::consts::PI;
    let middle = sent(&report, 750.0, 1_250.0);
    assert!(
        (middle - 0.5 * (1_000.0 + 8_000.0 * part)).abs() < 260.0,
        "{middle}"
    );
    let ends = sent(&report, 0.0, 250.0) + sent(&report, 1_750.0, 2_000.0);
    assert!(
        (ends - 0.5 * (9_000.0 - 8_000.0 * part)).abs() < 130.0,
        "{ends}"
    );
    assert!((sent(&report, 0.0, 2_000.0) - 10_000.0).abs() < 400.0);
}

#[test]
fn a_trace_arrives_as_it_is() {
    let scene = fixed(
        racks(&[&[("n", "smartnic", 4, 10.0)]]),
        &[("a", "n", 1_000)],
    );
    // Three at once, nothing for a while, then one.
    let times = vec![10_500_000, 10_500_000, 10_500_000, 60_500_000];
    let report = scene.run(Run {
        load: Load::Arrivals(times),
        warm_up: e3_model::Nanos(0),
        samples: true,
        ..at(1.0, 0.1)
    });
    assert_eq!(report.offered_rps, 40.0);
    assert_eq!(
        (sent(&report, 10.0, 11.0), sent(&report, 60.0, 61.0)),
        (3.0, 1.0)
    );
    let starts: Vec<u64> = report
        .samples
        .iter()
        .map(|s| s.start_ns / 1_000_000)
        .collect();
    assert_eq!(starts, [10, 10, 10, 60]);
}

/// The longest time without an outcome, while requests were in flight.
#[test]
fn a_pause_is_measured_while_requests_are_in_flight() {
    let scene = fixed(
        racks(&[&[("n", "smartnic", 1, 10.0)]]),
        &[("a", "n", 5_000_000)],
    );
    let pause = |times: Vec<u64>, seconds: f64| {
        let report = scene.run(Run {
            load: Load::Arrivals(times),
            warm_up: e3_model::Nanos(0),
            ..at(1.0, seconds)
        });
        let in_steps = report.timeline.iter().map(|s| s.pause_ms_max);
        (report.longest_pause_ms, in_steps.fold(0.0, f64::max))
    };
    // 5 ms each; 40 ms in which nothing is in flight are no pause.
    let (longest, in_steps) = pause(vec![0, 0, 50_000_000], 0.1);
    assert!((longest - 5.0).abs() < 0.01, "{longest} ms");
    assert_eq!(longest, in_steps);
    // The pause that lasts at the end counts.
    let (longest, _) = pause(vec![0], 0.004);
    assert!((longest - 4.0).abs() < 0.01, "{longest} ms");
}

#[test]
fn no_latency_is_reported_if_no_request_was_answered() {
    let scene = chain(1, 1, 0.0);
    // A request takes a millisecond.
    let none = scene.run(at(100_000.0, 0.000_5));
    assert!(none.saturated && none.achieved_rps == 0.0 && none.in_flight > 10);
    let json = serde_json::to_value(&none).unwrap();
    assert_eq!(json["latency"], Value::Null);
    assert_eq!(json["joules_per_request"], Value::Null);
    assert!(none.latency_us_p99().is_nan());
    let some = scene.run(at(100.0, 1.0));
    assert!(serde_json::to_value(&some).unwrap()["latency"]["p99_us"].as_f64() > Some(1_000.0));
}

fn fields(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

/// What the load generator reports of a load is under the same name here.
#[test]
fn a_report_has_the_names_of_the_load_generator_s() {
    let report = serde_json::to_value(run(Load::Constant(5_000.0), 0.1)).unwrap();
    let step = serde_json::to_value(e3_loadgen::report::Step::default()).unwrap();
    let own = fields(&report["timeline"][0]);
    for field in fields(&step) {
        assert!(own.contains(&field), "{field} is not in {own:?}");
    }
    let load = e3_loadgen::LoadReport {
        verdict: e3_loadgen::Verdict::Proved,
        reasons: Vec::new(),
        checks: Vec::new(),
        cluster: None,
        stopped_early: false,
        workload: String::new(),
        senders: String::new(),
        seed: 1,
        duration_s: 1.0,
        offered_rps: 1.0,
        achieved_rps: 1.0,
        latency: e3_model::Latency::default(),
        longest_pause_ms: 1.0,
        timeline: Vec::new(),
        ledger: Default::default(),
        findings: Vec::new(),
    };
    let load = serde_json::to_value(&load).unwrap();
    assert_eq!(fields(&load["latency"]), fields(&report["latency"]));
    // The others are about what was checked, which the simulator does not do.
    let own = fields(&report);
    let shared: Vec<&str> = fields(&load)
        .into_iter()
        .filter(|f| own.contains(f))
        .collect();
    let expected = [
        "achieved_rps",
        "duration_s",
        "latency",
        "longest_pause_ms",
        "offered_rps",
        "seed",
        "timeline",
    ];
    assert_eq!(shared, expected);
}
