//! How the time of a decision grows with the cluster: the paper's Table 6, continued.

use super::scene::{self, Scene};
use crate::{Better, Figure};
use e3_placement::limits::CANDIDATES_MAX;
use e3_placement::{Annealing, HcmLinear, PLACERS, Placer, by_name};
use e3_solver::Ilp;
use std::time::{Duration, Instant};

/// The sizes of Table 6 and beyond.
const SERVERS: [usize; 11] = [
    100,
    200,
    400,
    600,
    800,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    scene::SERVERS_MAX,
];
/// Time for one application.
const LIMIT: Duration = Duration::from_secs(10);
/// Time that a size is measured for.
const MEASURED: Duration = Duration::from_secs(1);

/// One figure for each placer: the exponent, with the times in its note.
pub(super) fn figures(ilp: &Ilp) -> Vec<Figure> {
    let mut scenes: Vec<Scene> = SERVERS.map(|servers| Scene::new(servers, 3)).into();
    let mut figures = vec![figure("hcm-linear", &mut scenes, &HcmLinear)];
    for name in PLACERS.into_iter().filter(|p| *p != "hosts-only") {
        figures.push(match name {
            "annealing" => annealing(&mut scenes),
            _ => figure(name, &mut scenes, &*by_name(name).expect("listed")),
        });
    }
    let limited = Ilp::new(&ilp.highs.program, LIMIT);
    let ilp = figure(e3_solver::NAME, &mut scenes, &limited);
    let note = format!(
        "its program models the {CANDIDATES_MAX} candidate servers of joules at every size, not all servers; {}",
        ilp.note
    );
    figures.push(ilp.note(note));
    figures
}

fn annealing(scenes: &mut [Scene]) -> Figure {
    let times = scenes.iter_mut().map(|scene| {
        scene.time_for(MEASURED, &mut |request, cluster| {
            let end = Instant::now() + LIMIT;
            let mut more = || Instant::now() < end;
            Annealing::default().place_within(request, cluster, &mut more)
        })
    });
    summary("annealing", times.collect())
}

fn figure(name: &str, scenes: &mut [Scene], placer: &dyn Placer) -> Figure {
    let times = scenes.iter_mut();
    let times = times.map(|s| {
        s.time_for(MEASURED, &mut |request, cluster| {
            placer.place(request, cluster)
        })
    });
    summary(name, times.collect())
}

/// Times by size in microseconds, or why there is none.
fn summary(name: &str, times: Vec<Result<f64, String>>) -> Figure {
    let points: Vec<(f64, f64)> = SERVERS
        .iter()
        .zip(&times)
        .filter_map(|(servers, time)| Some(((*servers as f64).ln(), time.as_ref().ok()?.ln())))
        .collect();
    let cells = SERVERS
        .iter()
        .zip(&times)
        .map(|(servers, time)| match time {
            Ok(us) => format!("{servers}: {:.4}", us / 1e3),
            Err(why) => format!("{servers}: {why}"),
        });
    let note = format!(
        "ms a decision by servers: {}",
        cells.collect::<Vec<_>>().join(", ")
    );
    let name = format!("control.{}_growth", name.replace('-', "_"));
    let figure = Figure::new(
        name,
        slope(&points).unwrap_or(0.0),
        "exponent",
        Better::Lower,
    )
    .note(note);
    match points.len() {
        0 | 1 => Figure {
            value: None,
            ..figure
        },
        _ => figure,
    }
}

/// Least squares.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let joint: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    (spread > 0.0).then(|| joint / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_law_has_the_exponent_two() {
        let points: Vec<_> = (1..9)
            .map(|i| f64::from(i).ln())
            .map(|x| (x, 2.0 * x + 1.0))
            .collect();
        assert!((slope(&points).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(slope(&points[..1]), None);
    }
}
