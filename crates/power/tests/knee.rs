//! The modelled knee, by hand on a small case and by comparison on IOT-TS.

use e3_model::document::{parse_application, parse_profile, parse_topology};
use e3_model::plan::Role;
use e3_model::profile::Provenance;
use e3_model::{Application, NodeId, NodeKind, Profile, ServiceId, ShardId, Topology};
use e3_placement::limits::BACKUP_CPU_FRACTION;
use e3_placement::{Cluster, Request, by_name};
use e3_power::limits::KNEE_UTILISATION;
use e3_power::{Bottleneck, IdleServers, Instance, Knee, KneeInput, PowerModel, knee};
use std::collections::BTreeMap;

fn profiles() -> BTreeMap<String, Profile> {
    let texts = [
        include_str!("../../../profiles/paper/apigw.yaml"),
        include_str!("../../../profiles/paper/sql.yaml"),
        include_str!("../../../profiles/paper/ema.yaml"),
        include_str!("../../../profiles/paper/spike.yaml"),
        include_str!("../../../profiles/paper/recommend.yaml"),
    ];
    let parse = |text: &&str| parse_profile("profile", text).unwrap();
    texts
        .iter()
        .map(parse)
        .map(|p| (p.name.clone(), p))
        .collect()
}

const TYPE1: &str = include_str!("../../../topologies/3x-type1.yaml");
const BEEFY: &str = include_str!("../../../topologies/3x-beefy.yaml");

/// Kleinrock's power, throughput over latency, of a queue M/M/`cores` at a utilisation.
fn kleinrock_power(cores: u32, utilisation: f64) -> f64 {
    let offered = utilisation * f64::from(cores);
    // Erlang B by recurrence, Erlang C from it.
    let b = (1..=cores).fold(1.0, |b, k| offered * b / (f64::from(k) + offered * b));
    let waits = b / (1.0 - utilisation + utilisation * b);
    let latency = 1.0 + waits / (f64::from(cores) * (1.0 - utilisation));
    utilisation / latency
}

#[test]
fn the_knee_is_where_throughput_over_latency_is_largest() {
    let best = (1..1000).map(|i| f64::from(i) / 1000.0);
    let best = best.max_by(|a, b| kleinrock_power(12, *a).total_cmp(&kleinrock_power(12, *b)));
    assert!((best.unwrap() - KNEE_UTILISATION).abs() < 0.02, "{best:?}");
}

/// One stateless or stateful service named `sql` with so many shards on the first host.
fn single(stateful: bool, shards: u16) -> (Application, Vec<Instance>) {
    let text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: one}}\nspec:\n  objective: {{latency: 5ms}}\n  ingress: sql\n  services:\n    - {{name: sql, module: m, stateful: {stateful}, shards: {shards}, resources: {{cpu: 1, memory: 1Mi}}}}\n"
    );
    let instance = |shard| Instance {
        service: ServiceId(0),
        shard: ShardId(shard),
        role: Role::Primary,
        node: NodeId(0),
    };
    (
        parse_application("one", &text).unwrap(),
        (0..shards).map(instance).collect(),
    )
}

fn model<'a>(
    app: &'a Application,
    profiles: &'a BTreeMap<String, Profile>,
    topology: &'a Topology,
    instances: &'a [Instance],
    visits: &'a [f64],
    power: &'a PowerModel,
) -> KneeInput<'a> {
    KneeInput {
        app,
        profiles,
        topology,
        idle_servers: IdleServers::On,
        instances,
        visits,
        request_bytes: 512,
        backup_cpu_fraction: BACKUP_CPU_FRACTION,
        power,
        knee_utilisation: KNEE_UTILISATION,
    }
}

/// The rate at the knee of a service on a host of 12 cores that is emulated at this speed, and what it
/// adds in watts.
fn at_speed(speed: f64, stateful: bool) -> (f64, f64) {
    let (profiles, power) = (profiles(), PowerModel::paper());
    let emulated = format!("bandwidthGbps: 20, emulated: true, emulation: {{speed: {speed}}}}}");
    let topology = BEEFY.replace("bandwidthGbps: 20}", &emulated);
    let topology = parse_topology("t", &topology).unwrap();
    let (app, instances) = single(stateful, 2);
    let input = model(&app, &profiles, &topology, &instances, &[1.0], &power);
    let found = knee::knee(&input).unwrap();
    (found.rate_rps, found.nodes[0].watts.0)
}

#[test]
fn a_node_at_a_smaller_scale_takes_as_much_less_and_draws_as_much() {
    for stateful in [false, true] {
        let (rate, watts) = at_speed(1.0, stateful);
        let (scaled_rate, scaled_watts) = at_speed(0.05, stateful);
        assert!((scaled_rate / rate - 0.05).abs() < 1e-9);
        assert!((scaled_watts / watts - 1.0).abs() < 1e-9);
    }
}

#[test]
fn one_service_on_one_host_is_as_fast_as_the_table_says() {
    let (profiles, power) = (profiles(), PowerModel::paper());
    let topology = parse_topology("t", BEEFY).unwrap();
    let (app, instances) = single(false, 1);
    let input = model(&app, &profiles, &topology, &instances, &[1.0], &power);
    let found = knee::knee(&input).unwrap();
    assert_eq!(found.provenance, Provenance::Modelled);
    assert_eq!(found.bottleneck, Bottleneck::Cores { node: NodeId(0) });
    assert!((found.rate_rps / (528_000.0 * KNEE_UTILISATION) - 1.0).abs() < 1e-3);
    assert!((found.nodes[0].utilisation - KNEE_UTILISATION).abs() < 1e-9);
    // Two servers idle; the third between idle and peak.
    assert_eq!(
        (found.servers[1].watts.0, found.servers[2].watts.0),
        (83.0, 83.0)
    );
    assert!((83.0..201.0).contains(&found.servers[0].watts.0));
    let total = found.watts_total.0;
    assert!((found.requests_per_joule - found.rate_rps / total).abs() < 1e-9);
    // The same, stateful: two shards have two cores, not twelve.
    let (app, instances) = single(true, 2);
    let input = model(&app, &profiles, &topology, &instances, &[1.0], &power);
    let sharded = knee::knee(&input).unwrap();
    assert!(matches!(sharded.bottleneck, Bottleneck::Shard { .. }));
    assert!((sharded.rate_rps * 6.0 / found.rate_rps - 1.0).abs() < 1e-3);
    // Half the rate costs less power, but more joules a request.
    let half = knee::power_at(&input, sharded.rate_rps / 2.0).unwrap();
    assert!(half.watts_total.0 < sharded.watts_total.0);
    assert!(half.requests_per_joule < sharded.requests_per_joule);
    assert!((half.bottleneck_utilisation - KNEE_UTILISATION / 2.0).abs() < 1e-9);
}

#[test]
fn a_port_can_be_what_bounds() {
    let (profiles, power) = (profiles(), PowerModel::paper());
    let slow = BEEFY.replace("bandwidthGbps: 20", "bandwidthGbps: 0.1");
    let topology = parse_topology("t", &slow).unwrap();
    let (app, instances) = single(false, 1);
    let input = model(&app, &profiles, &topology, &instances, &[1.0], &power);
    let found = knee::knee(&input).unwrap();
    assert_eq!(found.bottleneck, Bottleneck::Port { node: NodeId(0) });
    let wire_bits = f64::from(512 + e3_power::limits::WIRE_OVERHEAD_BYTES) * 8.0;
    assert!((found.rate_rps * wire_bits / (0.1e9 * KNEE_UTILISATION) - 1.0).abs() < 1e-9);
}

#[test]
fn what_is_missing_is_named() {
    let (mut profiles, power) = (profiles(), PowerModel::paper());
    let topology = parse_topology("t", BEEFY).unwrap();
    let (app, instances) = single(false, 1);
    let text = |profiles: &BTreeMap<String, Profile>, instances: &[Instance], visits: &[f64]| {
        let input = model(&app, profiles, &topology, instances, visits, &power);
        knee::knee(&input).unwrap_err().to_string()
    };
    assert_eq!(
        text(&profiles, &instances, &[]),
        "0 visit ratios for 1 services"
    );
    assert_eq!(
        text(&profiles, &[], &[1.0]),
        "application \"one\": no instance handles anything"
    );
    let lost = [Instance {
        node: NodeId(9),
        ..instances[0]
    }];
    assert_eq!(
        text(&profiles, &lost, &[1.0]),
        "n9 is not in topology \"3x-beefy\""
    );
    profiles.remove("sql");
    assert_eq!(
        text(&profiles, &instances, &[1.0]),
        "service \"sql\": profile \"sql\" gives no service time on a host"
    );
}

/// Places IOT-TS by a placer and models its knee, with a share of the readings triggering each of
/// the three services behind the database.
fn iot_ts(placer: &str, topology: &str, triggers: [f64; 3]) -> (Knee, usize) {
    let text = include_str!("../../placement/tests/iot-ts.yaml");
    let app = parse_application("iot-ts.yaml", text).unwrap();
    let (profiles, power) = (profiles(), PowerModel::paper());
    let topology = parse_topology("t", topology).unwrap();
    let request = Request::new(&app, &profiles);
    let cluster = Cluster::new(&topology);
    let placement = by_name(placer)
        .unwrap()
        .place(&request, &mut cluster.clone())
        .unwrap();
    let instances: Vec<Instance> = placement
        .decisions
        .iter()
        .map(|d| Instance {
            service: d.key.service,
            shard: d.key.shard,
            role: if d.key.replica == 0 {
                Role::Primary
            } else {
                Role::Backup
            },
            node: d.node,
        })
        .collect();
    let visits = [1.0, 1.0, triggers[0], triggers[1], triggers[2]];
    let input = model(&app, &profiles, &topology, &instances, &visits, &power);
    let on_smartnics = placement
        .decisions
        .iter()
        .filter(|d| cluster.node(d.node).kind == NodeKind::SmartNic);
    (knee::knee(&input).unwrap(), on_smartnics.count())
}

#[test]
fn iot_ts_has_a_knee_on_every_cluster() {
    for triggers in [[1.0, 1.0, 0.05], [0.3, 0.3, 0.1]] {
        for (placer, topology) in [
            ("hcm-kind", TYPE1),
            ("hosts-only", TYPE1),
            ("hosts-only", BEEFY),
        ] {
            let (knee, on_smartnics) = iot_ts(placer, topology, triggers);
            assert!((knee.bottleneck_utilisation - KNEE_UTILISATION).abs() < 1e-9);
            for node in &knee.nodes {
                assert!(node.utilisation <= KNEE_UTILISATION + 1e-9, "{node:?}");
                assert!(node.port_utilisation <= KNEE_UTILISATION + 1e-9, "{node:?}");
            }
            let watts: f64 = knee.servers.iter().map(|s| s.watts.0).sum();
            assert!((watts - knee.watts_total.0).abs() < 1e-9);
            assert_eq!(on_smartnics > 0, placer == "hcm-kind");
        }
    }
}
