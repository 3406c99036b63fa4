//! What the instances of a placement would cost elsewhere.

use crate::common::paper::{app, profiles, topology};
use e3_model::document::parse_application;
use e3_placement::{
    Cluster, Misfit, PLACERS, Placement, Request, by_name, evaluate, fits_fully, weigh,
    with_possible_replicas,
};

#[test]
fn every_decision_of_every_placer_is_weighed_by_the_one_measure() {
    let profiles = profiles();
    // One that leaves hardly a core free, and two that leave many.
    let tight = parse_application("iot-ts", include_str!("iot-ts.yaml")).unwrap();
    let cases = [
        (tight, "3x-type1"),
        (app("iot-ts"), "3x-type1"),
        (app("nfv-fin"), "2x-beefy-2x-wimpy"),
    ];
    for (app, cluster) in cases {
        let topology = topology(cluster);
        let app = with_possible_replicas(app, &topology);
        let name = &app.name;
        let request = Request::new(&app, &profiles);
        for placer in PLACERS {
            let mut cluster = Cluster::new(&topology);
            let placed = by_name(placer).unwrap().place(&request, &mut cluster);
            let placed = placed.unwrap();
            let score = evaluate(&request, &topology, &profiles, &placed).unwrap();
            let all = weigh(&request, &topology, &profiles, &placed);
            let mut seen = vec![0; placed.decisions.len()];
            let (mut priced, mut rejected) = (0, 0);
            for group in &all {
                assert_eq!(group.nodes.len() + group.more, cluster.nodes().count());
                let last = *group.decisions.last().unwrap();
                group.decisions.iter().for_each(|at| seen[*at] += 1);
                let d = &placed.decisions[last];
                let mut without = cluster.clone();
                without.remove(&request, d.key.service, d.key.role(), d.node);
                let mut others = placed.replicas(d.key.service, d.key.shard);
                others.remove(usize::from(d.key.replica));
                for weighed in &group.nodes {
                    let here = weighed.node == d.node;
                    let fits = fits_fully(
                        &request,
                        &without,
                        d.key.service,
                        d.key.role(),
                        weighed.node,
                        &others,
                    );
                    if here {
                        let is_over = d.overcommitted.is_some();
                        assert_eq!(weighed.misfit.is_some(), is_over, "{placer}");
                    } else {
                        assert_eq!(weighed.misfit, fits.err(), "{placer}");
                    }
                    let Some(price) = weighed.price else {
                        assert!(weighed.misfit.is_some(), "{placer}");
                        rejected += 1;
                        continue;
                    };
                    priced += 1;
                    // The last of a group costs what the first does.
                    let mut there = placed.clone();
                    there.decisions[last].node = weighed.node;
                    let there = evaluate(&request, &topology, &profiles, &there).unwrap();
                    let close =
                        |one: f64, other: f64| (one / other - 1.0).abs() < 1e-9 || one == other;
                    assert!(close(price.uj, 1e6 / there.requests_per_joule), "{placer}");
                    assert!(close(price.path_us, there.latency_us), "{placer}");
                    assert!(close(price.between_us, there.communication_us), "{placer}");
                    if here {
                        assert!(close(price.uj, 1e6 / score.requests_per_joule), "{placer}");
                    }
                }
                let prices = group.nodes.iter().filter_map(|n| n.price.map(|p| p.uj));
                assert!(prices.is_sorted(), "{placer}: the cheapest first");
            }
            assert!(seen.iter().all(|count| *count == 1), "{placer}");
            println!(
                "{name} {placer}: {} groups, {priced} prices, {rejected} rejected",
                all.len()
            );
            assert!(priced > all.len() && rejected > 0, "{placer}");
        }
    }
}

#[test]
fn the_servers_of_other_replicas_are_rejected_also_for_joules() {
    let (app, profiles, topology) = (app("iot-ts"), profiles(), topology("3x-type1"));
    let request = Request::new(&app, &profiles);
    let mut cluster = Cluster::new(&topology);
    let placed: Placement = by_name("joules")
        .unwrap()
        .place(&request, &mut cluster)
        .unwrap();
    let all = weigh(&request, &topology, &profiles, &placed);
    for group in &all {
        let d = &placed.decisions[group.decisions[0]];
        let other = placed.replicas(d.key.service, d.key.shard)[usize::from(d.key.replica == 0)];
        let server = |id| cluster.node(id).server;
        for weighed in &group.nodes {
            let shares = server(weighed.node) == server(other);
            let is_named = matches!(weighed.misfit, Some(Misfit::FaultDomain { .. }));
            assert_eq!(shares, is_named, "{weighed:?}");
        }
    }
}
