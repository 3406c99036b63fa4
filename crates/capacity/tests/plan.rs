//! Plans for the paper's applications: what must hold whatever the figures are.

use e3_capacity::closed::{Case, Lack, Subject};
use e3_capacity::limits::LOADS;
use e3_capacity::sizing::{Sized, Sizer};
use e3_capacity::{Candidate, Entrant, Plan, PlanError, Settings, plan};
use e3_hardware::{Estimate, Guesses};
use e3_model::document::{parse_application, parse_profile};
use e3_model::{Application, NodeKind, Profile};
use e3_power::paper::{profile_yaml, table1};
use std::collections::BTreeMap;

const IOT_TS: &str = include_str!("../../../apps/iot-ts.yaml");
/// Messages a request of iot-ts, from docs/applications/flows.md.
const VISITS: [f64; 5] = [1.0, 0.99, 0.61, 0.99, 0.07];

fn iot_ts() -> Application {
    parse_application("iot-ts", IOT_TS).unwrap()
}

fn profiles() -> BTreeMap<String, Profile> {
    let rows = table1();
    let profile = |row| parse_profile("profile", &profile_yaml(row)).unwrap();
    let profiles = rows.iter().map(profile);
    profiles.map(|p| (p.name.clone(), p)).collect()
}

fn entrant(name: &str) -> Entrant {
    Entrant {
        candidate: Candidate::of_type(name).unwrap(),
        profiles: profiles(),
        is_measured: false,
    }
}

fn settings(load_rps: f64) -> Settings {
    Settings {
        load_rps,
        trough_rps: None,
        p99_ms: None,
        years: 3.0,
        price_usd_kwh: Estimate::within(0.0733, 0.5, 2.0),
        carbon_g_kwh: Estimate::exact(400.0),
        pue: Estimate::exact(1.0),
        utilisation: Estimate::exact(1.0),
        grow_shards: true,
        seed: 1,
        requests: 2_000,
    }
}

fn planned(names: &[&str], settings: &Settings) -> Plan {
    let entrants: Vec<Entrant> = names.iter().map(|name| entrant(name)).collect();
    plan(&iot_ts(), &VISITS, 512, &entrants, settings).unwrap()
}

fn sized(name: &str, load_rps: f64) -> Result<Sized, Lack> {
    let (app, entrant) = (iot_ts(), entrant(name));
    let subject = Subject {
        app: &app,
        visits: &VISITS,
        request_bytes: 512,
        p99_us: 20_000.0,
        grow_shards: true,
        seed: 1,
        requests: 2_000,
    };
    let speed = |kind: NodeKind| entrant.candidate.speed(kind).estimate.value;
    let case = Case::new(&entrant.candidate, &entrant.profiles, speed);
    let sizer = Sizer::new(&subject, case, load_rps, 1);
    sizer.size(&Guesses::default(), 0).unwrap()
}

#[test]
fn more_load_never_needs_fewer_servers() {
    for name in ["Beefy", "Type1-SmartNIC"] {
        let mut before = 0;
        for load_rps in [5e3, 1e4, 2e4, 5e4, 7e4] {
            let Ok(found) = sized(name, load_rps) else {
                break;
            };
            assert!(
                found.blocks >= before && found.knee_rps >= load_rps,
                "{name} at {load_rps}: {found:?}, before {before}"
            );
            before = found.blocks;
        }
        assert!(before >= 2, "{name}: {before}");
    }
}

#[test]
fn a_plan_has_all_figures_with_ranges_and_the_same_bytes_each_time() {
    let settings = settings(40_000.0);
    let names = ["Beefy", "Type1-SmartNIC"];
    let found = planned(&names, &settings);
    for c in &found.candidates {
        let f = c.figures.as_ref().unwrap();
        for figure in [
            f.servers,
            f.watts_peak,
            f.watts_average,
            f.joules_per_request,
            f.capex_usd,
            f.electricity_usd,
            f.ownership_usd,
            f.co2_kg,
        ] {
            let e = figure.estimate;
            assert!(
                0.0 < e.low && e.low <= e.value && e.value <= e.high,
                "{e:?}"
            );
        }
        assert!(f.electricity_usd.estimate.low < f.electricity_usd.estimate.high);
        let sum = f.capex_usd.estimate.value + f.electricity_usd.estimate.value;
        assert!((f.ownership_usd.estimate.value / sum - 1.0).abs() < 1e-9);
        assert!(f.p99_ms <= 20.0 && f.knee_rps >= 40_000.0);
        // Table 1 has only a bound for ema, on hosts and on SmartNICs.
        let is_bound =
            |note: &&String| note.starts_with("ema on a ") && note.contains("is a bound");
        assert!(
            f.assumptions.iter().any(|n| is_bound(&n)),
            "{:?}",
            f.assumptions
        );
    }
    assert!(names.contains(&found.cheapest.as_deref().unwrap()));
    assert_eq!(found.by_load.len(), LOADS.len());
    assert_eq!(found.break_even.len(), 1);
    assert!(
        found
            .sensitivity
            .iter()
            .any(|r| r.input == "host_linger_us")
    );
    assert_eq!(found, planned(&names, &settings));
}

#[test]
fn a_dearer_kwh_never_makes_the_thriftier_cluster_less_attractive() {
    let found = planned(&["Beefy", "Type1-SmartNIC"], &settings(40_000.0));
    let watts = |at: usize| {
        let figures = found.candidates[at].figures.as_ref().unwrap();
        figures.watts_average.estimate.value
    };
    let thriftier = if watts(0) < watts(1) { 0 } else { 1 };
    let name = Some(found.candidates[thriftier].name.clone());
    for row in &found.by_years_and_price.rows {
        let wins: Vec<bool> = row.cheapest.iter().map(|c| *c == name).collect();
        assert!(wins.windows(2).all(|w| w[0] <= w[1]), "{row:?}");
    }
}

#[test]
fn a_day_with_less_load_at_night_draws_less_on_average() {
    let flat = planned(&["Beefy"], &settings(20_000.0));
    let day = Settings {
        trough_rps: Some(2_000.0),
        ..settings(20_000.0)
    };
    let day = planned(&["Beefy"], &day);
    let watts = |plan: &Plan| {
        let figures = plan.candidates[0].figures.clone().unwrap();
        (
            figures.watts_peak.estimate.value,
            figures.watts_average.estimate.value,
        )
    };
    let (peak, average) = watts(&day);
    assert!(average < peak, "{average} {peak}");
    assert_eq!(peak, watts(&flat).1);
    assert_eq!(day.average_rps, 11_000.0);
}

#[test]
fn a_load_that_no_number_of_servers_carries_is_said_with_its_reason() {
    let as_given = Settings {
        grow_shards: false,
        ..settings(1e8)
    };
    let found = planned(&["Type1-SmartNIC"], &as_given);
    let cannot = found.candidates[0].cannot.clone().unwrap();
    assert!(cannot.contains("a shard of service"), "{cannot}");
    assert!(found.cheapest.is_none() && found.candidates[0].figures.is_none());
    // A server of 2 GiB holds no shard that asks for 8 GiB.
    let mut app = iot_ts();
    app.spec.services[1].resources.memory = e3_model::Bytes(8 << 30);
    let found = plan(&app, &VISITS, 512, &[entrant("Wimpy")], &settings(1e4)).unwrap();
    let cannot = found.candidates[0].cannot.clone().unwrap();
    assert!(cannot.contains("memory"), "{cannot}");
}

#[test]
fn candidates_are_given_once_and_not_too_many() {
    let settings = settings(1e4);
    let refused = |names: &[&str]| {
        let entrants: Vec<Entrant> = names.iter().map(|name| entrant(name)).collect();
        plan(&iot_ts(), &VISITS, 512, &entrants, &settings).unwrap_err()
    };
    assert_eq!(refused(&[]), PlanError::Candidates(0));
    assert_eq!(
        refused(&["Beefy", "Beefy"]),
        PlanError::Twice("Beefy".into())
    );
    let late = Settings {
        years: 0.0,
        ..settings.clone()
    };
    let found = plan(&iot_ts(), &VISITS, 512, &[entrant("Beefy")], &late);
    assert!(matches!(found, Err(PlanError::Input(_))));
}
