//! How far `joules` is from what no placement can beat. It needs HiGHS, which `scripts/setup --checks` installs, and
//! fails without, unless `E3_WITHOUT_HIGHS` says that the machine has none. `make test` says so if the set-up
//! could not install it.

#[path = "../../placement/tests/common/paper.rs"]
mod paper;

use e3_placement::{Cluster, Joules, Placement, Placer, Request, evaluate};
use e3_solver::Ilp;
use paper::{APPS, app, profiles, topology};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Part of what no placement can exceed that `joules` must reach on average.
const REACHED_MIN: f64 = 0.95;

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// The solver that the set-up installs, or that of the environment. None if the machine has none and says so.
fn highs() -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = named("E3_HIGHS") {
        return Some(named.into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| file("target"), PathBuf::from);
    let installed = target.join("checks/bin/highs");
    if installed.is_file() {
        return Some(installed);
    }
    assert!(
        named("E3_WITHOUT_HIGHS").is_some(),
        "{} does not exist; install HiGHS with scripts/setup --checks, name its program in E3_HIGHS, or set \
         E3_WITHOUT_HIGHS=1 to go without",
        installed.display()
    );
    None
}

#[test]
fn joules_come_close_to_what_no_placement_can_exceed() {
    let Some(highs) = highs() else {
        println!("SKIPPED: HiGHS is not installed (scripts/setup --checks)");
        return;
    };
    let ilp = Ilp::new(highs, Duration::from_secs(20));
    let profiles = profiles();
    let (mut product, mut count) = (1.0_f64, 0);
    for cluster in ["2x-type2", "2x-beefy-2x-wimpy", "4x-beefy"] {
        let topology = topology(cluster);
        for (name, _) in APPS {
            let app = app(name);
            let request = Request::new(&app, &profiles);
            let mut empty = Cluster::new(&topology);
            let score = |p: &Placement| {
                let score = evaluate(&request, &topology, &profiles, p).unwrap();
                assert_eq!(score.violations, [""; 0], "{name} on {cluster}");
                score.requests_per_joule
            };
            let joules = empty.try_out(|c| Joules.place(&request, c)).unwrap();
            let solved = empty.try_out(|c| ilp.solve(&request, c)).unwrap();
            let bound = 1e6 / solved.bound_uj;
            let (joules, best) = (score(&joules), score(&solved.placement));
            println!(
                "{cluster:18} {name:9} joules {joules:6.0}, ilp {best:6.0}, at most {bound:6.0} requests/J"
            );
            assert!(
                joules <= bound * 1.001 && best <= bound * 1.001,
                "{name} on {cluster}"
            );
            product *= joules / bound;
            count += 1;
        }
    }
    let reached = product.powf(1.0 / f64::from(count));
    println!("joules reach {reached:.3} of the bound");
    assert!(reached >= REACHED_MIN, "{reached}");
}

#[test]
fn a_missing_solver_is_named_with_what_to_do() {
    let (app, profiles) = (app("iot-ts"), profiles());
    let request = Request::new(&app, &profiles);
    let mut cluster = Cluster::new(&topology("2x-type2"));
    let ilp = Ilp::new("/nowhere/highs", Duration::from_secs(1));
    let error = ilp.solve(&request, &mut cluster).unwrap_err().to_string();
    assert!(
        error.contains("/nowhere/highs cannot be started"),
        "{error}"
    );
    assert!(error.contains("E3_HIGHS"), "{error}");
    assert!(
        cluster
            .nodes()
            .all(|(_, n)| n.used == e3_placement::Demand::default())
    );
}
