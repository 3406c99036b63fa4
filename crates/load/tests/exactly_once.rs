//! The load generator against a cluster of two fake nodes on loopback that lose, repeat,
//! contradict, forget: the ledger must tell what each of them did, and nothing else.

mod fake;

use e3_load::workload::{IotTs, Settings};
use e3_load::{Config, LoadError, LoadReport, Phase, Progress, run};
use e3_model::Nanos;
use fake::{Cluster, Faults, TOKEN_KEY};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SEED: u64 = 7;

fn workload(thermostats: u32) -> IotTs {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let settings = Settings {
        seed: SEED,
        thermostats,
        token_key: TOKEN_KEY.to_vec(),
        now: Nanos(now.as_nanos() as u64),
    };
    IotTs::new(settings).unwrap()
}

fn config(cluster: &Cluster, deadline_ms: u64) -> Config {
    Config {
        app: "iot-ts".into(),
        endpoints: cluster.endpoints(),
        refresh: None,
        rate_rps: 4000.0,
        duration: Duration::from_millis(500),
        deadline: Duration::from_millis(deadline_ms),
        seed: SEED,
    }
}

fn load(faults: Faults, deadline_ms: u64) -> LoadReport {
    load_by(50, faults, deadline_ms)
}

fn load_by(thermostats: u32, faults: Faults, deadline_ms: u64) -> LoadReport {
    let cluster = Cluster::start(faults);
    let mut loading = 0;
    let progress = |p: Progress| loading += u32::from(p.phase == Phase::Load);
    let report = run(
        config(&cluster, deadline_ms),
        &mut workload(thermostats),
        progress,
    )
    .unwrap();
    assert!(loading > 0);
    println!("{}", serde_json::to_string(&report.ledger).unwrap());
    assert_eq!(report.ledger.sent + report.ledger.not_sent, 2000);
    report
}

#[test]
fn a_faultless_cluster_is_proved_and_its_spikes_score() {
    let report = load(Faults::default(), 10_000);
    let l = &report.ledger;
    assert!(l.proved, "{l:?}");
    assert_eq!((l.done, l.accepted + l.unauthorized), (l.sent, l.sent));
    assert!((5..60).contains(&l.unauthorized), "{}", l.unauthorized);
    assert_eq!((l.rows_expected, l.rows_found), (l.accepted, l.accepted));
    let spikes = report.spikes.unwrap();
    assert!(spikes.injected > 0);
    assert_eq!((spikes.precision, spikes.recall), (Some(1.0), Some(1.0)));
    let latency = &report.latency;
    assert!(
        latency.p50_us > 1.0 && latency.p50_us <= latency.p99_us,
        "{latency:?}"
    );
    let longest = report
        .timeline
        .iter()
        .map(|s| s.latency_us_max)
        .fold(0.0, f64::max);
    assert!(
        (latency.max_us / longest - 1.0).abs() < 0.01,
        "{latency:?}, {longest}"
    );
    assert!(report.timeline.iter().map(|s| s.done).sum::<u64>() == l.sent);
}

#[test]
fn lost_datagrams_are_repeated_and_change_nothing() {
    // Enough thermostats that those who wait for a repeat do not hold up the others.
    let report = load_by(
        600,
        Faults {
            drop_one_in: 10,
            ..Faults::default()
        },
        10_000,
    );
    let l = &report.ledger;
    assert!(l.proved, "{l:?}");
    assert!(l.repeats > 100 && l.unknown == 0, "{l:?}");
}

#[test]
fn the_same_answer_twice_is_harmless() {
    let l = load(
        Faults {
            twice: true,
            ..Faults::default()
        },
        10_000,
    )
    .ledger;
    assert!(l.proved && l.replies_repeated > l.sent / 2, "{l:?}");
}

#[test]
fn contradictory_answers_are_caught() {
    let l = load(
        Faults {
            contradict_one_in: 20,
            ..Faults::default()
        },
        10_000,
    )
    .ledger;
    assert!(!l.proved && l.replies_contradictory > 20, "{l:?}");
    assert_eq!((l.repeated(), l.lost()), (l.replies_contradictory, 0));
}

#[test]
fn requests_without_answer_are_lost_and_explain_their_rows() {
    let l = load(
        Faults {
            mute_one_in: 50,
            ..Faults::default()
        },
        600,
    )
    .ledger;
    assert!(!l.proved && l.unknown > 0, "{l:?}");
    assert_eq!(
        (l.rows_missing, l.rows_repeated, l.rows_unexpected),
        (0, 0, 0)
    );
    assert!(
        l.rows_found > l.rows_expected,
        "they were stored without an answer"
    );
    assert_eq!(l.lost(), l.unknown);
}

#[test]
fn accepted_updates_without_a_row_are_caught() {
    let l = load(
        Faults {
            forget_one_in: 100,
            ..Faults::default()
        },
        10_000,
    )
    .ledger;
    assert!(!l.proved && l.rows_missing > 0, "{l:?}");
    assert_eq!(l.rows_found + l.rows_missing, l.rows_expected);
}

#[test]
fn updates_that_took_effect_twice_are_caught() {
    let l = load(
        Faults {
            double_one_in: 100,
            ..Faults::default()
        },
        10_000,
    )
    .ledger;
    assert!(!l.proved && l.rows_repeated > 0, "{l:?}");
    assert_eq!(l.rows_found, l.rows_expected + l.rows_repeated);
}

#[test]
fn rows_of_refused_updates_and_accepted_bad_tokens_are_caught() {
    let l = load(
        Faults {
            overload_one_in: 20,
            store_refused: true,
            ..Faults::default()
        },
        10_000,
    );
    let l = l.ledger;
    assert!(
        !l.proved && l.rows_unexpected > 0 && l.overloaded >= l.rows_unexpected,
        "{l:?}"
    );
    let l = load(
        Faults {
            trust_everybody: true,
            ..Faults::default()
        },
        10_000,
    )
    .ledger;
    assert!(!l.proved && l.wrong > 0, "{l:?}");
}

#[test]
fn overloaded_is_an_outcome_and_no_loss() {
    let l = load(
        Faults {
            overload_one_in: 10,
            ..Faults::default()
        },
        10_000,
    )
    .ledger;
    assert!(l.proved && l.overloaded > 50, "{l:?}");
    assert_eq!(l.done + l.overloaded, l.sent);
}

#[test]
fn a_node_that_fell_silent_is_a_pause_and_no_error() {
    let cluster = Cluster::start(Faults {
        silent_node: true,
        ..Faults::default()
    });
    let mut config = config(&cluster, 10_000);
    let view = cluster.endpoints_after();
    config.refresh = Some(Box::new(move || Some(view.clone())));
    let l = run(config, &mut workload(50), |_| {}).unwrap().ledger;
    assert!(l.proved && l.repeats > 0, "{l:?}");
}

#[test]
fn nobody_there_is_told_within_five_seconds() {
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let cluster = Cluster::start(Faults::default());
    let mut config = config(&cluster, 10_000);
    config.endpoints.nodes = vec![nobody.local_addr().unwrap().to_string()];
    config.endpoints.shards = config.endpoints.nodes.clone();
    let error = run(config, &mut workload(1), |_| {}).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no answer from any of 1 nodes within 5 s"
    );
}

#[test]
fn bad_input_is_told() {
    let cluster = Cluster::start(Faults {
        reject: true,
        ..Faults::default()
    });
    let fails = |change: fn(&mut Config)| {
        let mut config = config(&cluster, 10_000);
        change(&mut config);
        run(config, &mut workload(1), |_| {}).unwrap_err()
    };
    assert!(matches!(fails(|_| ()), LoadError::NoSuchApplication { .. }));
    assert!(matches!(
        fails(|c| c.rate_rps = 0.0),
        LoadError::Rate { .. }
    ));
    assert!(matches!(
        fails(|c| c.rate_rps = f64::NAN),
        LoadError::Rate { .. }
    ));
    assert!(matches!(
        fails(|c| c.duration = Duration::ZERO),
        LoadError::Requests { .. }
    ));
    assert!(matches!(
        fails(|c| c.endpoints.nodes.clear()),
        LoadError::NoNodes { .. }
    ));
    let far = |c: &mut Config| c.endpoints.nodes[0] = "192.0.2.1:1".into();
    assert!(matches!(fails(far), LoadError::NotLoopback { .. }));
    let text = |c: &mut Config| c.endpoints.nodes[0] = "here".into();
    assert!(matches!(fails(text), LoadError::Address { .. }));
}

#[test]
fn a_seed_is_used_once_on_an_application() {
    let cluster = Cluster::start(Faults::default());
    run(config(&cluster, 10_000), &mut workload(50), |_| {}).unwrap();
    let error = run(config(&cluster, 10_000), &mut workload(50), |_| {}).unwrap_err();
    assert!(
        matches!(error, LoadError::SeedUsed { seed: SEED, .. }),
        "{error}"
    );
}
