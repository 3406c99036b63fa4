//! The placers on the paper's eight applications and five clusters, by the one measure.

use crate::common::paper::{APPS, CLUSTERS, app, profiles, topology};
use e3_model::{Application, Topology};
use e3_placement::{Cluster, Request, Score, by_name, evaluate, with_possible_replicas};

fn score(placer: &str, app: &Application, topology: &Topology) -> Result<Score, String> {
    let profiles = profiles();
    let request = Request::new(app, &profiles);
    let mut cluster = Cluster::new(topology);
    let placed = by_name(placer).unwrap().place(&request, &mut cluster);
    let placed = placed.map_err(|e| e.to_string())?;
    evaluate(&request, topology, &profiles, &placed).map_err(|e| e.to_string())
}

#[test]
fn the_model_that_joules_descends_in_is_the_one_that_judges() {
    let (app, topology, profiles) = (app("iot-dh"), topology("2x-type2"), profiles());
    let request = Request::new(&app, &profiles);
    let mut cluster = Cluster::new(&topology);
    let placed = by_name("joules")
        .unwrap()
        .place(&request, &mut cluster)
        .unwrap();
    let score = evaluate(&request, &topology, &profiles, &placed).unwrap();
    let here = placed.decisions.iter().filter_map(|d| {
        let cost = d.considered.iter().find(|c| c.node == d.node)?;
        Some(1e6 / cost.uj)
    });
    let here: Vec<f64> = here.collect();
    let same = |value: &&f64| (**value / score.requests_per_joule - 1.0).abs() < 1e-9;
    // The first node of each service is the one that its costs are counted from.
    assert!(
        here.iter().filter(same).count() >= 10,
        "{} of {here:?}",
        score.requests_per_joule
    );
}

#[test]
fn joules_need_fewer_joules_than_hcm() {
    let (mut product, mut count) = (1.0_f64, 0);
    let mut worse = Vec::new();
    for (cluster, _) in CLUSTERS {
        let topology = topology(cluster);
        for (name, _) in APPS {
            let app = with_possible_replicas(app(name), &topology);
            let placers = [
                "hcm",
                "hcm-kind",
                "joules",
                "annealing",
                "spread",
                "nicfirst",
            ];
            let scores = placers.map(|p| score(p, &app, &topology));
            let line = scores.iter().map(|s| match s {
                Ok(s) => format!(
                    "{:9.0} ({} servers, {} violations, {:.1} us, {:.2})",
                    s.requests_per_joule,
                    s.servers,
                    s.violations.len(),
                    s.communication_us,
                    s.interference
                ),
                Err(e) => e.clone(),
            });
            println!(
                "{cluster:18} {name:9} {}",
                line.collect::<Vec<_>>().join("  ")
            );
            // One replica on each server leaves no application without a placement.
            let [hcm, _, joules, ..] = &scores;
            let of = |score: &Result<Score, String>| match score {
                Ok(score) => score.requests_per_joule,
                Err(error) => panic!("{name} on {cluster}: {error}"),
            };
            let (hcm, joules) = (of(hcm), of(joules));
            let ratio = joules / hcm;
            product *= ratio;
            count += 1;
            if ratio < 0.99 {
                worse.push(format!("{name} on {cluster}: {ratio:.3}"));
            }
        }
    }
    let mean = product.powf(1.0 / f64::from(count));
    println!("geometric mean of {count}: {mean:.3}");
    assert_eq!(count, 40, "cases compared");
    assert!(worse.is_empty(), "{worse:#?}");
    assert!(mean >= 1.1, "{mean}");
}
