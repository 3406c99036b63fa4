//! What the tables of the experiments hold: the simulator's own figures in the columns that are named after them, and
//! ratios of the right two.

mod common;

#[path = "../../simcontrol/tests/common/pair.rs"]
mod pair;

use common::Forwards;
use e3_evaluation::{CLUSTERS, Cell, Outcome, Subject, Table, Timer, World, named};
use e3_model::document::{parse_application, parse_profile, parse_topology};
use e3_model::{Nanos, Profile, Topology};
use e3_perfsim::{
    Effort, HostPort, Input, Load, ModelError, NoController, Options, Run, Simulator, Sweep,
    sweep_with,
};
use e3_placement::{Cluster, Hcm, Request, by_name};
use e3_power::paper::{profile_yaml, table1};

const APP: &str = include_str!("../../../apps/rta-shm.yaml");
const TOPOLOGIES: [&str; CLUSTERS.len()] = [
    include_str!("../../../topologies/3x-beefy.yaml"),
    include_str!("../../../topologies/3x-type1.yaml"),
    include_str!("../../../topologies/4x-beefy.yaml"),
    include_str!("../../../topologies/4x-wimpy.yaml"),
    include_str!("../../../topologies/2x-beefy-2x-wimpy.yaml"),
    include_str!("../../../topologies/2x-type2.yaml"),
    include_str!("../../../topologies/1x-superbeefy.yaml"),
];
const SEED: u64 = 1;

struct Frozen;

impl Timer for Frozen {
    fn machine(&self) -> String {
        "no machine".into()
    }
    fn placement_ms(&self, placers: &[&str], _: usize) -> Vec<Result<f64, String>> {
        placers.iter().map(|_| Ok(1.0)).collect()
    }
    fn decision_ms(&self, _: usize) -> (f64, f64) {
        (1.0, 2.0)
    }
    fn heartbeats_ms(&self, _: usize) -> f64 {
        1.0
    }
}

/// Messages per request by docs/applications/flows.md.
fn visits(service: &str) -> f64 {
    if service == "bm25" { 0.02 } else { 1.0 }
}

/// The ends of their range.
fn ends(service: &str) -> (f64, f64) {
    if service == "bm25" {
        (0.006, 0.042)
    } else {
        (1.0, 1.0)
    }
}

fn subject() -> Subject {
    let mut app = parse_application("rta-shm", APP).unwrap();
    if let Some(load) = &mut app.spec.load {
        load.request_bytes = 512;
    }
    let services = || app.spec.services.iter().map(|s| s.name.as_str());
    Subject {
        visits: services().map(visits).collect(),
        visits_range: services().map(ends).unzip(),
        app,
    }
}

fn world() -> World<'static> {
    let profile = |row| parse_profile("profile", &profile_yaml(row)).unwrap();
    let profiles = table1();
    let profiles = profiles.iter().map(profile);
    let clusters = TOPOLOGIES.map(|text| parse_topology("topology", text).unwrap());
    World {
        subjects: vec![subject()],
        named: true,
        clusters: clusters.into_iter().map(|t| (t.name.clone(), t)).collect(),
        profiles: profiles.map(|p: Profile| (p.name.clone(), p)).collect(),
        ilp: &Hcm,
        pool: &Forwards,
        timer: &Frozen,
        seed: SEED,
        quick: true,
    }
}

fn run(name: &str) -> Outcome {
    let outcome = named(name).unwrap().run(&world()).unwrap();
    outcome.tables.iter().for_each(check_columns);
    outcome
}

/// Every column of numbers says where they come from, but for settings of the experiment.
fn check_columns(table: &Table) {
    for (at, column) in table.columns.iter().enumerate() {
        let has_numbers = table.rows.iter().any(|r| matches!(r[at], Cell::Number(_)));
        let is_said = column.provenance.is_some() || column.name == "bytes";
        assert!(is_said || !has_numbers, "{}: {}", table.title, column.name);
    }
}

/// The curve of the application on a cluster, by the simulator without the experiments.
fn sweep(cluster: &str, placer: &str, options: &Options) -> Sweep {
    let world = world();
    let (subject, topology): (_, &Topology) = (&world.subjects[0], &world.clusters[cluster]);
    let request = Request::new(&subject.app, &world.profiles);
    let placer = by_name(placer).unwrap();
    let placement = placer.place(&request, &mut Cluster::new(topology)).unwrap();
    let input = Input {
        app: &subject.app,
        profiles: &world.profiles,
        topology,
        placement: &placement,
        visits: &subject.visits,
        request_bytes: 512,
        options,
    };
    let run = Run {
        load: Load::Constant(1.0),
        duration: Nanos::from_secs(20),
        warm_up: Nanos::from_secs(2),
        seed: SEED,
        samples: false,
        spans: false,
    };
    // That of a quick run.
    let effort = Effort {
        search: 2_000.0,
        point: 4_000.0,
    };
    let one = |run| Ok::<_, ModelError>(Simulator::new(&input, run)?.run(&mut NoController));
    sweep_with(&run, effort, one).unwrap()
}

fn table<'a>(outcome: &'a Outcome, title: &str) -> &'a Table {
    let found = outcome.tables.iter().find(|t| t.title.starts_with(title));
    found.unwrap_or_else(|| panic!("no table {title:?}"))
}

/// The number in a column of the row whose first cells are these.
#[track_caller]
fn cell(table: &Table, row: &[&str], column: &str) -> f64 {
    let at = table.columns.iter().position(|c| c.name == column);
    let at = at.unwrap_or_else(|| panic!("no column {column:?}"));
    let is_it = |cells: &&Vec<Cell>| {
        let pairs = cells.iter().zip(row);
        pairs
            .into_iter()
            .all(|(cell, word)| *cell == Cell::Text((*word).into()))
    };
    let row = table.rows.iter().find(is_it);
    match &row.expect("there is such a row")[at] {
        Cell::Number(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

#[track_caller]
fn same(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} and {b}");
}

#[test]
fn efficiency_is_the_simulator_s_with_the_hosts_as_the_baseline() {
    let outcome = run("efficiency");
    let knees = ["3x-beefy", "3x-type1"].map(|cluster| {
        let knee = sweep(cluster, "joules", &Options::default()).knee;
        let table = table(&outcome, "At the knee");
        let of = |column: &str| cell(table, &["rta-shm", cluster], column);
        assert_eq!(of("requests/s"), knee.achieved_rps);
        assert_eq!(of("requests/J"), knee.requests_per_joule);
        assert_eq!(of("W"), knee.watts_total);
        assert_eq!(of("mean latency us"), knee.latency_us_avg());
        assert_eq!(of("p99 latency us"), knee.latency_us_p99());
        knee
    });
    let [beefy, type1] = &knees;
    let over = table(&outcome, "With SmartNICs over without");
    let of = |column: &str| cell(over, &["rta-shm"], column);
    same(
        of("requests/J") * beefy.requests_per_joule,
        type1.requests_per_joule,
    );
    same(of("requests/s") * beefy.achieved_rps, type1.achieved_rps);
    same(
        of("mean latency") * beefy.latency_us_avg(),
        type1.latency_us_avg(),
    );
    same(
        of("p99 latency") * beefy.latency_us_p99(),
        type1.latency_us_p99(),
    );
    let gain = cell(
        table(&outcome, "Requests/J, with"),
        &["rta-shm"],
        "as counted",
    );
    same(gain, of("requests/J"));
    // Bounds of Table 1 are said.
    let note = outcome
        .notes
        .iter()
        .find(|n| n.contains("Beyond the profiles"));
    let note = note.expect("count and ema are bounds");
    assert!(
        note.contains("ema on a smartnic: its service time is a bound"),
        "{note}"
    );
}

#[test]
fn power_is_the_simulator_s_at_each_load() {
    let outcome = run("power");
    let table_of = table(&outcome, "Power of rta-shm");
    for (cluster, idle_w, peak_w) in [
        ("3x-beefy", 3.0 * 83.0, 3.0 * 201.0),
        ("3x-type1", 3.0 * 98.0, 3.0 * 222.0),
    ] {
        let sweep = sweep(cluster, "joules", &Options::default());
        let carried = sweep.points.iter().filter(|p| !p.saturated);
        let expected: Vec<[f64; 3]> = carried
            .map(|p| [p.offered_rps, p.watts_total, p.achieved_rps / p.watts_total])
            .collect();
        let own = table_of
            .rows
            .iter()
            .filter(|r| r[0] == Cell::Text(cluster.into()));
        let found: Vec<[f64; 3]> = own
            .map(|r| {
                [1, 2, 3].map(|at| match r[at] {
                    Cell::Number(number) => number,
                    ref other => panic!("{other:?}"),
                })
            })
            .collect();
        assert_eq!(found, expected);
        assert!(
            found.iter().all(|[_, w, _]| (idle_w..=peak_w).contains(w)),
            "{found:?}"
        );
        let tenth = 0.1 * sweep.saturates_rps;
        let near = |p: &&[f64; 3]| (p[0] / tenth).ln().abs();
        let low = found
            .iter()
            .min_by(|a, b| near(a).total_cmp(&near(b)))
            .unwrap();
        let part = cell(
            table(&outcome, "Power at a tenth"),
            &[&format!("rta-shm on {cluster}")],
            "as counted",
        );
        same(part, low[1] / sweep.knee.watts_total);
    }
}

#[test]
fn the_gain_of_the_orchestrator_is_on_over_off_with_the_product_s_settings() {
    let mut world = world();
    world.profiles = pair::profiles();
    world.subjects = vec![Subject {
        app: parse_application("pair", pair::APP).unwrap(),
        visits: vec![1.0, 1.0],
        visits_range: (vec![1.0, 0.9], vec![1.0, 1.0]),
    }];
    let outcome = named("orchestrator").unwrap().run(&world).unwrap();
    outcome.tables.iter().for_each(check_columns);
    let runs = table(&outcome, "In the last quarter");
    let [off, on] = ["off", "on"].map(|mode| {
        let row = runs.rows.iter().find(|r| r[2] == Cell::Text(mode.into()));
        let row = row.unwrap().clone();
        let offered = match row[1] {
            Cell::Number(number) => number,
            ref other => panic!("{other:?}"),
        };
        match row[3] {
            Cell::Number(number) => (offered, number, row[8].clone()),
            ref other => panic!("{other:?}"),
        }
    });
    assert_eq!(runs.columns[3].name, "requests/s");
    assert_eq!(off.0, on.0, "the same load");
    assert_eq!((off.2, on.2), ("yes".into(), "no".into()), "saturated");
    // With it the load is carried, and what waited before the move too.
    assert!(
        on.1 > 0.98 * on.0 && off.1 < 0.8 * off.0,
        "{} {}",
        on.1,
        off.1
    );
    let gain = &table(&outcome, "Requests/s with the orchestrator over without").rows[0][2];
    assert_eq!(*gain, Cell::Number(on.1 / off.1));
    let cool_down = outcome
        .parameters
        .iter()
        .find(|(name, _)| name.starts_with("cool-down"));
    assert_eq!(cool_down.unwrap().1, "15 s", "the product's own");
}

#[test]
fn bandwidth_compares_ecmp_with_a_port_of_the_host() {
    let outcome = run("bandwidth");
    let ports = table(&outcome, "Host ports");
    let rates = [
        ("ECMP", HostPort::Shared),
        ("dedicated", HostPort::Dedicated),
    ]
    .map(|(name, host_port)| {
        let options = Options {
            host_port,
            ..Options::default()
        };
        let expected = sweep("2x-type2", "hosts-only", &options);
        let of = |column: &str| cell(ports, &["rta-shm", "hosts-only", name], column);
        assert_eq!(of("saturates at requests/s"), expected.saturates_rps);
        assert_eq!(of("requests/J"), expected.knee.requests_per_joule);
        expected.saturates_rps
    });
    let gains = table(&outcome, "Highest rate with ECMP over");
    same(
        cell(gains, &["rta-shm by hosts-only"], "as counted"),
        rates[0] / rates[1],
    );
}

#[test]
fn placers_are_compared_with_hcm() {
    let outcome = run("placement");
    let knees = table(&outcome, "At the knee");
    let against = table(&outcome, "Against hcm");
    for placer in ["hcm", "hcm-kind", "annealing", "ilp", "joules"] {
        for column in ["requests/J", "requests/s"] {
            let of = |placer: &str| cell(knees, &["rta-shm", placer], column);
            same(cell(against, &[placer], column), of(placer) / of("hcm"));
        }
    }
    let of = |placer: &str| cell(against, &[placer], "requests/J");
    assert_eq!(of("hcm"), 1.0);
    assert_eq!(of("ilp"), 1.0, "hcm stands in for the solver");
    assert!(of("joules") > 1.0, "{}", of("joules"));
}

#[test]
fn size_compares_smartnics_with_hosts_at_each_size() {
    let outcome = run("size");
    let sizes = table(&outcome, "At the knee");
    let of = |row: &Vec<Cell>, at: usize| match &row[at] {
        Cell::Number(number) => *number,
        other => panic!("{other:?}"),
    };
    for row in &sizes.rows {
        same(of(row, 5) * of(row, 3), of(row, 4));
        assert!(of(row, 6) <= of(row, 5) && of(row, 5) <= of(row, 7));
    }
    let names = [3, 4, 5].map(|at| sizes.columns[at].name.as_str());
    assert_eq!(
        names,
        ["requests/J on 3x-beefy", "requests/J on 3x-type1", "ratio"]
    );
    let beefy = |assumption: &str, bytes: f64| {
        let is_it =
            |r: &&Vec<Cell>| r[1] == Cell::Text(assumption.into()) && r[2] == Cell::Number(bytes);
        of(sizes.rows.iter().find(is_it).unwrap(), 3)
    };
    // A time in proportion to the bytes is shorter below 512 and longer above.
    assert!(beefy("proportional time", 64.0) > beefy("constant time", 64.0));
    assert!(beefy("proportional time", 1024.0) < beefy("constant time", 1024.0));
}

#[test]
fn clusters_cost_their_price_and_their_electricity() {
    let outcome = run("clusters");
    let knees = table(&outcome, "At the knee");
    let prices = [
        ("4x-beefy", 18_000.0),
        ("4x-wimpy", 8_836.0),
        ("2x-beefy-2x-wimpy", 13_018.0),
        ("2x-type2", 13_500.0),
        ("1x-superbeefy", 12_550.0),
    ];
    let per_usd = prices.map(|(cluster, capex_usd)| {
        let of = |column: &str| cell(knees, &["rta-shm", cluster], column);
        assert_eq!(of("CAPEX $"), capex_usd);
        same(of("requests/J"), of("requests/s") / of("W"));
        let hours = 5.0 * 8_766.0;
        let cost_usd = capex_usd + of("W") / 1e3 * hours * 0.0733;
        let found = of("million requests/$, 5 y");
        same(found, of("requests/s") * hours * 3_600.0 / cost_usd / 1e6);
        (cluster, found)
    });
    let smartnics = per_usd.iter().find(|p| p.0 == "2x-type2").unwrap().1;
    let others = per_usd.iter().filter(|p| p.0 != "2x-type2").map(|p| p.1);
    let best = others.fold(0.0, f64::max);
    let against = table(&outcome, "Requests per dollar of 2x-type2");
    same(cell(against, &["rta-shm"], "as counted"), smartnics / best);
    let expected = sweep("4x-beefy", "joules", &Options::default()).knee;
    assert_eq!(
        cell(knees, &["rta-shm", "4x-beefy"], "W"),
        expected.watts_total
    );
}
