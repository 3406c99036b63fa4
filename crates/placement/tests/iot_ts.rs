//! An application shaped like IOT-TS on the cluster of the demo.

use crate::common::paper::{self, profiles};
use e3_model::document::parse_application;
use e3_model::plan::Role;
use e3_model::{Application, NodeId, NodeKind, ServiceId, ShardId, Topology};
use e3_placement::{
    Cluster, Decision, Level, Misfit, Placement, Preference, Request, Rule, by_name, fits,
    pick_backup, pick_primary,
};
use std::collections::BTreeSet;

const APP: &str = include_str!("iot-ts.yaml");

fn app(text: &str) -> Application {
    parse_application("iot-ts.yaml", text).unwrap()
}

fn topology() -> Topology {
    paper::topology("3x-type1")
}

fn kinds(placement: &Placement, cluster: &Cluster, service: u16) -> BTreeSet<NodeKind> {
    let of = |d: &&Decision| d.key.service == ServiceId(service) && d.key.replica == 0;
    let found = placement.decisions.iter().filter(of);
    found.map(|d| cluster.node(d.node).kind).collect()
}

#[test]
fn every_service_runs_where_a_request_costs_the_fewest_joules() {
    let (app, profiles, topology) = (app(APP), profiles(), topology());
    let request = Request::new(&app, &profiles);
    let cluster = Cluster::new(&topology);
    let placement = by_name("hcm-kind")
        .unwrap()
        .place(&request, &mut cluster.clone())
        .unwrap();
    assert_eq!(placement.decisions.len(), 108);
    assert_eq!(placement.overcommitted().count(), 0);
    // Table 1: gateway and database cost less on the host, the other three on the SmartNIC.
    for (service, kind) in [
        (0, NodeKind::Host),
        (1, NodeKind::Host),
        (2, NodeKind::SmartNic),
        (3, NodeKind::SmartNic),
        (4, NodeKind::SmartNic),
    ] {
        assert_eq!(
            kinds(&placement, &cluster, service),
            [kind].into(),
            "s{service}"
        );
        assert_eq!(request.preference(ServiceId(service)).kind(), Some(kind));
    }
    let Preference::Joules { uj, uj_other, .. } = request.preference(ServiceId(1)) else {
        panic!("sql is known on both kinds");
    };
    // The inverse of Table 1's requests per joule.
    assert!((1e6 / uj - 528_000.0 / 113.0).abs() < 5.0, "{uj}");
    assert!((1e6 / uj_other - 39_500.0 / 18.8).abs() < 2.0, "{uj_other}");
    let near = |d: &&Decision| d.key.service == ServiceId(2) && d.key.replica == 0;
    let close = placement.decisions.iter().filter(near);
    let close = close.filter(|d| d.level == Some(Level::SameServer)).count();
    assert!(
        close >= 8,
        "only {close} of 12 shards of ema share a server with their sql"
    );
}

#[test]
fn backups_are_in_other_servers_and_spread() {
    let (app, profiles, topology) = (app(APP), profiles(), topology());
    let request = Request::new(&app, &profiles);
    let cluster = Cluster::new(&topology);
    for name in ["hcm-kind", "hosts-only"] {
        let placement = by_name(name)
            .unwrap()
            .place(&request, &mut cluster.clone())
            .unwrap();
        for d in &placement.decisions {
            let replicas = placement.replicas(d.key.service, d.key.shard);
            let servers: BTreeSet<_> = replicas.iter().map(|n| cluster.node(*n).server).collect();
            assert_eq!(servers.len(), 2);
        }
        if name == "hosts-only" {
            continue;
        }
        // Whichever server is lost, the others have cores for its services.
        for lost in 0..3 {
            let server = |d: &Decision| cluster.node(d.node).server;
            let mut after = cluster.clone();
            for d in placement.decisions.iter().filter(|d| server(d) != lost) {
                let primary = placement.replicas(d.key.service, d.key.shard)[0];
                if d.key.replica == 0 || cluster.node(primary).server == lost {
                    after.add(&request, d.key.service, Role::Primary, d.node);
                }
            }
            assert!(after.within_capacity(), "server {lost} lost: {after:?}");
        }
    }
}

#[test]
fn the_baseline_uses_no_smartnic_even_if_pinned() {
    let pinned = APP.replace("c.wasm,", "c.wasm, pin: {kind: smartnic},");
    let (app, profiles, topology) = (app(&pinned), profiles(), topology());
    let request = Request::new(&app, &profiles);
    let cluster = Cluster::new(&topology);
    let placement = by_name("hosts-only")
        .unwrap()
        .place(&request, &mut cluster.clone())
        .unwrap();
    for d in &placement.decisions {
        assert_eq!(cluster.node(d.node).kind, NodeKind::Host);
    }
}

#[test]
fn a_full_cluster_gets_flagged_decisions() {
    let (app, profiles, topology) = (
        app(&APP.replace("cpu: 1,", "cpu: 9,")),
        profiles(),
        topology(),
    );
    let request = Request::new(&app, &profiles);
    let cluster = Cluster::new(&topology);
    let placement = by_name("hcm-kind")
        .unwrap()
        .place(&request, &mut cluster.clone())
        .unwrap();
    let flagged: Vec<_> = placement.overcommitted().collect();
    assert!(
        flagged
            .iter()
            .any(|d| d.rule == Rule::Closest && d.key.replica == 0)
    );
    let text = flagged[0].explain(&request, &cluster).to_string();
    assert!(text.contains("nothing fits, closest to fitting"), "{text}");
    assert!(text.contains("OVERCOMMITTED: needs 9.00 cores, "), "{text}");
}

#[test]
fn explanations_say_where_how_and_why_not_elsewhere() {
    let (app, profiles, topology) = (app(APP), profiles(), topology());
    let request = Request::new(&app, &profiles);
    let cluster = Cluster::new(&topology);
    let placement = by_name("hcm-kind")
        .unwrap()
        .place(&request, &mut cluster.clone())
        .unwrap();
    let text = |d: &Decision| d.explain(&request, &cluster).to_string();
    assert_eq!(
        text(&placement.decisions[0]),
        "apigw/0 primary -> s1-host: first fit; prefers host: 69.8 uJ a request against 198.4 (modelled, profile: paper)"
    );
    let sql: Vec<String> = placement.decisions[6..18].iter().map(text).collect();
    assert_eq!(
        sql[0],
        "sql/0 primary -> s1-host: level 1 (same node as apigw/0), best fit; \
         prefers host: 214.0 uJ a request against 475.9 (modelled, profile: paper)"
    );
    let next = "sql/6 primary -> s2-host: level 4 (host in the same rack as apigw/3), best fit; \
                prefers host: 214.0 uJ a request against 475.9 (modelled, profile: paper); \
                s1-host rejected: needs 1.00 cores, 0.00 free; \
                s1-nic0 rejected: needs 13.37 cores, but a stateful shard uses at most 1.00";
    assert!(sql.contains(&next.to_string()), "{sql:#?}");
}

#[test]
fn single_instances_follow_the_same_rules() {
    let (app, profiles, topology) = (app(APP), profiles(), topology());
    let request = Request::new(&app, &profiles);
    let mut cluster = Cluster::new(&topology);
    let (sql, ema, shard) = (ServiceId(1), ServiceId(2), ShardId(0));
    let (host1, nic1, host2, nic2) = (NodeId(0), NodeId(1), NodeId(2), NodeId(3));
    let near = pick_primary(&request, &cluster, ema, shard, &[host2; 12], &[]).unwrap();
    assert_eq!((near.node, near.level), (nic2, Some(Level::SameServer)));
    let source = pick_primary(&request, &cluster, ServiceId(0), shard, &[], &[]).unwrap();
    assert_eq!((source.node, source.rule), (host1, Rule::FirstFit));

    cluster.set_member(host2, false);
    cluster.set_outstanding(NodeId(4), 12 * 64 + 1);
    let backup = pick_backup(&request, &cluster, sql, shard, &[host1]).unwrap();
    assert_eq!(
        backup.rule,
        Rule::Closest,
        "the last host has too many requests"
    );
    assert_eq!(
        backup.overcommitted,
        Some(Misfit::Outstanding {
            outstanding: 769,
            bound: 768
        })
    );
    cluster.set_outstanding(NodeId(4), 0);
    let backup = pick_backup(&request, &cluster, sql, shard, &[host1]).unwrap();
    assert_eq!(
        (backup.node, backup.rule, backup.key.replica),
        (NodeId(4), Rule::Spread, 1)
    );

    let check = |role, to, others: &[NodeId]| fits(&request, &cluster, sql, role, to, others);
    assert_eq!(
        check(Role::Primary, nic1, &[nic2]),
        Ok(()),
        "cores are the operator's risk"
    );
    assert_eq!(check(Role::Primary, host2, &[]), Err(Misfit::NotMember));
    assert_eq!(
        check(Role::Backup, NodeId(99), &[]),
        Err(Misfit::Unknown(NodeId(99)))
    );
    let near = check(Role::Backup, nic1, &[host1]).unwrap_err().to_string();
    assert_eq!(
        near,
        "its server already holds a replica of this shard, on s1-host"
    );
    for _ in 0..16 {
        cluster.add(&request, sql, Role::Backup, nic1);
    }
    let full = fits(&request, &cluster, sql, Role::Backup, nic1, &[]).unwrap_err();
    assert_eq!(full.to_string(), "needs 256Mi of memory, 0 free");
    cluster.remove(&request, sql, Role::Backup, nic1);
    assert_eq!(
        fits(&request, &cluster, sql, Role::Backup, nic1, &[]),
        Ok(())
    );
}

#[test]
fn too_few_fault_domains_is_an_error() {
    let (app, profiles, topology) = (app(APP), profiles(), topology());
    let request = Request::new(&app, &profiles);
    let mut cluster = Cluster::new(&topology);
    (2..6).for_each(|n| cluster.set_member(NodeId(n), false));
    let error = by_name("hcm-kind")
        .unwrap()
        .place(&request, &mut cluster.clone())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "service \"apigw\": 2 replicas need 2 fault domains (servers), usable: 1"
    );
    (0..2).for_each(|n| cluster.set_member(NodeId(n), false));
    let error = by_name("hcm-kind")
        .unwrap()
        .place(&request, &mut cluster.clone())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "service \"apigw\": none of 6 nodes can run it; a node must be up, in service, and match its pin"
    );
}

#[test]
fn the_latency_objective_goes_before_joules() {
    // recommend takes 2.9 ms on a host and 0.94 ms on a SmartNIC.
    let tight = app(&APP.replace("latency: 20ms", "latency: 1ms"));
    let profiles = profiles();
    let request = Request::new(&tight, &profiles);
    let kind = NodeKind::SmartNic;
    assert_eq!(
        request.preference(ServiceId(4)),
        Preference::Latency { kind }
    );
    // With the gateway on a SmartNIC the path would take too long, with ema there it does not.
    assert_eq!(
        request.preference(ServiceId(0)),
        Preference::Latency {
            kind: NodeKind::Host
        }
    );
    assert!(matches!(
        request.preference(ServiceId(2)),
        Preference::Joules { .. }
    ));
}
