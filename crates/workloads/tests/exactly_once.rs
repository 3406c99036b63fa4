//! The load generator against a cluster of two fake nodes on loopback that lose, repeat, contradict,
//! forget, dead-letter and refuse: the ledger must count what each of them did, and nothing else, and the
//! verdict must follow.

mod fake;

use e3_client::ClientError;
use e3_loadgen::ledger::LedgerReport;
use e3_loadgen::{ClusterChange, Config, LoadError, LoadReport, Phase, Progress, Verdict, run};
use e3_model::Timestamp;
use e3_workloads::iot_ts::{IotTs, Settings};
use e3_workloads::plain::Plain;
use fake::{Cluster, Faults, TOKEN_KEY};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SEED: u64 = 7;

fn workload(thermostats: u32) -> IotTs {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let settings = Settings {
        seed: SEED,
        thermostats,
        token_key: TOKEN_KEY.to_vec(),
        now: Timestamp::ZERO + now.into(),
        run: format!("{:x}", e3_client::unique().unwrap()),
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
        stop: Arc::default(),
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

/// Every service that can be read was read, and is right; the gate has no read operation.
#[track_caller]
fn assert_checked(report: &LoadReport) {
    assert_eq!(
        report.verdict,
        Verdict::PartlyChecked,
        "{:?}",
        report.reasons
    );
    for check in report.checks.iter().filter(|c| c.readable) {
        assert_eq!(check.wrong + check.unread + check.unsure, 0, "{check:?}");
    }
}

#[track_caller]
fn failed(report: LoadReport) -> LedgerReport {
    assert_eq!(report.verdict, Verdict::Failed, "{:?}", report.ledger);
    assert!(!report.reasons.is_empty());
    report.ledger
}

#[test]
fn a_faultless_cluster_is_checked_and_its_spikes_score() {
    let report = load(Faults::default(), 10_000);
    let l = &report.ledger;
    assert_checked(&report);
    for check in report.checks.iter().filter(|c| c.readable) {
        assert!(check.right > 0, "{check:?}");
    }
    let unread: Vec<_> = report.checks.iter().filter(|c| !c.readable).collect();
    assert_eq!((unread.len(), unread[0].service), (1, "apigw"));
    assert!(report.reasons[0].starts_with("apigw not checked: "));
    assert_eq!((l.done, l.accepted + l.unauthorized), (l.sent, l.sent));
    assert!((5..60).contains(&l.unauthorized), "{}", l.unauthorized);
    assert_eq!((l.rows_expected, l.rows_found), (l.accepted, l.accepted));
    let whats: Vec<_> = report.findings.iter().map(|f| f.what).collect();
    assert_eq!(whats, ["spikes found", "spikes right"]);
    for finding in &report.findings {
        assert!(finding.of > 0);
        assert_eq!(finding.right, finding.of, "{finding:?}");
    }
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
    assert_checked(&report);
    let l = &report.ledger;
    assert!(l.repeats > 100 && l.unknown == 0, "{l:?}");
}

#[test]
fn the_same_answer_twice_is_harmless() {
    let report = load(
        Faults {
            twice: true,
            ..Faults::default()
        },
        10_000,
    );
    assert_checked(&report);
    let l = report.ledger;
    assert!(l.replies_repeated > l.sent / 2, "{l:?}");
}

#[test]
fn contradictory_answers_are_caught() {
    let l = failed(load(
        Faults {
            contradict_one_in: 20,
            ..Faults::default()
        },
        10_000,
    ));
    assert!(l.replies_contradictory > 20, "{l:?}");
    assert_eq!((l.repeated(), l.lost()), (l.replies_contradictory, 0));
}

#[test]
fn requests_without_answer_are_lost_and_explain_their_rows() {
    let l = failed(load(
        Faults {
            mute_one_in: 50,
            ..Faults::default()
        },
        600,
    ));
    assert!(l.unknown > 0, "{l:?}");
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
    let l = failed(load(
        Faults {
            forget_one_in: 100,
            ..Faults::default()
        },
        10_000,
    ));
    assert!(l.rows_missing > 0, "{l:?}");
    assert_eq!(l.rows_found + l.rows_missing, l.rows_expected);
}

#[test]
fn updates_that_took_effect_twice_are_caught() {
    let l = failed(load(
        Faults {
            double_one_in: 100,
            ..Faults::default()
        },
        10_000,
    ));
    assert!(l.rows_repeated > 0, "{l:?}");
    assert_eq!(l.rows_found, l.rows_expected + l.rows_repeated);
}

#[test]
fn rows_of_refused_updates_and_accepted_bad_tokens_are_caught() {
    let l = failed(load(
        Faults {
            overload_one_in: 20,
            store_refused: true,
            ..Faults::default()
        },
        10_000,
    ));
    assert!(
        l.rows_unexpected > 0 && l.overloaded >= l.rows_unexpected,
        "{l:?}"
    );
    let l = failed(load(
        Faults {
            trust_everybody: true,
            ..Faults::default()
        },
        10_000,
    ));
    assert!(l.wrong > 0, "{l:?}");
}

#[test]
fn a_few_overloaded_requests_are_no_loss_and_many_fail_the_load() {
    let overloaded = |overload_one_in| {
        load(
            Faults {
                overload_one_in,
                ..Faults::default()
            },
            10_000,
        )
    };
    let report = overloaded(15);
    assert_checked(&report);
    let l = &report.ledger;
    assert!(l.overloaded > 50, "{l:?}");
    assert_eq!(l.done + l.overloaded, l.sent);
    // The queries for the state are refused as often: rarely enough that eight attempts suffice.
    let report = overloaded(5);
    assert_eq!(report.verdict, Verdict::Failed);
    let why = format!(
        "{} of 2000 requests refused, more than 10 %",
        report.ledger.overloaded
    );
    assert_eq!(report.reasons, [why]);
}

#[test]
fn dead_letters_and_expired_requests_fail_the_load() {
    let l = failed(load(
        Faults {
            dead_letter_one_in: 100,
            ..Faults::default()
        },
        10_000,
    ));
    assert!(l.failed > 5 && l.lost() + l.repeated() == 0, "{l:?}");
    let l = failed(load(
        Faults {
            expire_one_in: 100,
            ..Faults::default()
        },
        10_000,
    ));
    assert!(l.expired > 5 && l.lost() + l.repeated() == 0, "{l:?}");
}

#[test]
fn state_that_began_again_empty_fails_the_load() {
    let report = load(
        Faults {
            empty_after: 1000,
            ..Faults::default()
        },
        10_000,
    );
    assert!(report.ledger.rows_missing > 100, "{:?}", report.ledger);
    let wrong = report.checks.iter().filter(|c| c.wrong > 0);
    let wrong: Vec<_> = wrong.map(|c| c.service).collect();
    assert!(
        wrong.contains(&"sql") && wrong.contains(&"ema"),
        "{wrong:?}"
    );
    failed(report);
}

#[test]
fn effects_behind_the_service_that_answers_are_read_back() {
    // rows are all there, and answered; what comes after them is not
    let report = load(
        Faults {
            cut_off_one_in: 50,
            ..Faults::default()
        },
        10_000,
    );
    let l = &report.ledger;
    assert_eq!((l.lost(), l.repeated(), l.done), (0, 0, l.sent), "{l:?}");
    let sql = report.checks.iter().find(|c| c.service == "sql").unwrap();
    let ema = report.checks.iter().find(|c| c.service == "ema").unwrap();
    assert!(sql.wrong == 0 && ema.wrong > 0, "{sql:?} {ema:?}");
    failed(report);
}

#[test]
fn what_the_controller_lost_fails_the_load() {
    let mut report = load(Faults::default(), 10_000);
    report.judge_with(Some(ClusterChange::default()));
    assert_checked(&report);
    report.judge_with(Some(ClusterChange {
        state_lost: 18,
        ..ClusterChange::default()
    }));
    assert_eq!(report.verdict, Verdict::Failed);
    report.judge_with(Some(ClusterChange {
        dead_letters: 12_800,
        ..ClusterChange::default()
    }));
    let why = "12800 further dead letters, downstream of the service that answers";
    assert_eq!(report.reasons, [why]);
    failed(report);
}

#[test]
fn a_load_that_reads_nothing_back_is_not_checked() {
    let cluster = Cluster::start(Faults {
        echo: true,
        ..Faults::default()
    });
    let report = run(config(&cluster, 10_000), &mut Plain::new(SEED), |_| {}).unwrap();
    assert_eq!(report.verdict, Verdict::NotChecked, "{:?}", report.reasons);
    assert_eq!(report.ledger.accepted, 2000);
}

#[test]
fn a_load_that_is_stopped_early_is_checked_as_far_as_it_came() {
    let cluster = Cluster::start(Faults::default());
    let mut config = config(&cluster, 10_000);
    config.duration = Duration::from_secs(600);
    let stop = config.stop.clone();
    let progress = |p: Progress| stop.store(p.sent > 500, Ordering::Relaxed);
    let report = run(config, &mut workload(50), progress).unwrap();
    let l = &report.ledger;
    assert!(report.stopped_early && l.sent > 500, "{l:?}");
    assert_eq!((l.done, l.not_sent), (l.sent, 0));
    assert_eq!(l.rows_found, l.accepted);
    assert!(report.duration_s < 60.0, "{}", report.duration_s);
    assert!(report.achieved_rps > 0.0);
    assert_checked(&report);
    // before the first request there is nothing to report
    let cluster = Cluster::start(Faults::default());
    let config = self::config(&cluster, 10_000);
    config.stop.store(true, Ordering::Relaxed);
    let stopped = run(config, &mut workload(50), |_| {}).unwrap_err();
    assert!(matches!(stopped, LoadError::Stopped), "{stopped}");
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
    let report = run(config, &mut workload(50), |_| {}).unwrap();
    assert_checked(&report);
    assert!(report.ledger.repeats > 0, "{:?}", report.ledger);
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
        LoadError::Client(ClientError::NoNodes { .. })
    ));
    let far = |c: &mut Config| c.endpoints.nodes[0] = "192.0.2.1:1".into();
    assert!(matches!(
        fails(far),
        LoadError::Client(ClientError::NotLoopback { .. })
    ));
    let text = |c: &mut Config| c.endpoints.nodes[0] = "here".into();
    assert!(matches!(
        fails(text),
        LoadError::Client(ClientError::Address { .. })
    ));
}

#[test]
fn loads_can_be_repeated_with_the_same_seed_and_with_another() {
    let cluster = Cluster::start(Faults::default());
    for thermostats in [50, 50, 40] {
        let report = run(config(&cluster, 10_000), &mut workload(thermostats), |_| {}).unwrap();
        assert_eq!(
            report.verdict,
            Verdict::PartlyChecked,
            "{:?}",
            report.reasons
        );
        assert_eq!(report.ledger.rows_found, report.ledger.accepted);
    }
}
