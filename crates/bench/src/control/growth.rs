//! How the time of a decision grows with the cluster: the paper's Table 6, continued.

use super::scene::{self, Scene};
use crate::{Better, Figure, Table};
use e3_placement::limits::CANDIDATES_MAX;
use e3_placement::{Annealing, Hcm, HcmLinear, PLACERS, Placer, by_name};
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

/// Times of a placer by size in microseconds, or why there is none.
struct Times {
    placer: &'static str,
    us: Vec<Result<f64, String>>,
}

/// One figure for each placer: the exponent. And all times as a table, with the paper's columns first.
pub(super) fn figures(ilp: &Ilp) -> (Vec<Figure>, Table) {
    let mut scenes: Vec<Scene> = SERVERS.map(|servers| Scene::new(servers, 3)).into();
    let limited = Ilp::new(&ilp.highs.program, LIMIT);
    let mut all = vec![
        times("hcm", &mut scenes, &Hcm),
        annealing(&mut scenes),
        times(e3_solver::NAME, &mut scenes, &limited),
        times("hcm-linear", &mut scenes, &HcmLinear),
    ];
    // Hosts alone cannot carry these applications.
    let is_new = |name: &&str| !["hcm", "annealing", "hosts-only"].contains(name);
    for name in PLACERS.into_iter().filter(is_new) {
        all.push(times(name, &mut scenes, &*by_name(name).expect("listed")));
    }
    (all.iter().map(Times::figure).collect(), table(&all))
}

fn annealing(scenes: &mut [Scene]) -> Times {
    let times = scenes.iter_mut().map(|scene| {
        scene.time_for(MEASURED, &mut |request, cluster| {
            let end = Instant::now() + LIMIT;
            let mut more = || Instant::now() < end;
            Annealing::default().place_within(request, cluster, &mut more)
        })
    });
    Times {
        placer: "annealing",
        us: times.collect(),
    }
}

fn times(name: &'static str, scenes: &mut [Scene], placer: &dyn Placer) -> Times {
    let times = scenes.iter_mut();
    let times = times.map(|s| {
        s.time_for(MEASURED, &mut |request, cluster| {
            placer.place(request, cluster)
        })
    });
    Times {
        placer: name,
        us: times.collect(),
    }
}

impl Times {
    fn name(&self) -> String {
        self.placer.replace('-', "_")
    }

    /// The exponent, if two sizes were measured.
    fn exponent(&self) -> Option<f64> {
        let times = SERVERS.iter().zip(&self.us);
        let points = times
            .filter_map(|(servers, us)| Some(((*servers as f64).ln(), us.as_ref().ok()?.ln())));
        slope(&points.collect::<Vec<_>>())
    }

    fn figure(&self) -> Figure {
        let name = format!("control.{}_growth", self.name());
        let exponent = self.exponent();
        let figure = Figure::new(name, 0.0, "exponent", Better::Lower);
        let mut notes = vec!["the times are in the table".to_string()];
        if self.placer == e3_solver::NAME {
            notes.push(ilp_note());
        }
        let failed = SERVERS.iter().zip(&self.us);
        let failed = failed.filter_map(|(servers, us)| Some((servers, us.as_ref().err()?)));
        notes.extend(failed.map(|(servers, why)| format!("{servers} servers: {why}")));
        Figure {
            value: exponent,
            ..figure.note(notes.join("; "))
        }
    }
}

fn ilp_note() -> String {
    format!(
        "its program models the {CANDIDATES_MAX} candidate servers of joules at every size, not all servers, so that its \
         exponent says nothing about programs over all servers"
    )
}

/// A column for each placer, a row for each size, and one for the exponents.
fn table(all: &[Times]) -> Table {
    let mut columns = vec!["servers".to_string()];
    columns.extend(all.iter().map(|t| format!("{}_ms", t.name())));
    let cell = |value: Option<f64>, digits| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "none".into(),
    };
    let row = |(at, servers): (usize, &usize)| {
        let mut cells = vec![servers.to_string()];
        let times = all
            .iter()
            .map(|t| t.us[at].as_ref().ok().map(|us| us / 1e3));
        cells.extend(times.map(|ms| cell(ms, 4)));
        cells
    };
    let mut rows: Vec<Vec<String>> = SERVERS.iter().enumerate().map(row).collect();
    let mut exponents = vec!["exponent".to_string()];
    exponents.extend(all.iter().map(|t| cell(t.exponent(), 2)));
    rows.push(exponents);
    Table {
        title: "Placement time of an instance in milliseconds by servers".into(),
        columns,
        rows,
        note: format!(
            "An application has {} s. The exponent is the slope of the logarithms of time and servers. ilp: {}.",
            LIMIT.as_secs(),
            ilp_note()
        ),
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

    #[test]
    fn the_table_has_a_row_for_each_size_and_one_for_the_exponents() {
        let us = SERVERS.map(|servers| Ok(servers as f64));
        let mut gap = us.clone();
        gap[1] = Err("no room".into());
        let [linear, gap] =
            [("hcm-linear", us), (e3_solver::NAME, gap)].map(|(placer, us)| Times {
                placer,
                us: us.into(),
            });
        let note = gap.figure().note;
        assert!(note.ends_with("200 servers: no room"), "{note}");
        let table = table(&[linear, gap]);
        assert_eq!(table.columns, ["servers", "hcm_linear_ms", "ilp_ms"]);
        assert_eq!(table.rows.len(), SERVERS.len() + 1);
        assert_eq!(table.rows[1], ["200", "0.2000", "none"]);
        assert_eq!(table.rows[SERVERS.len()], ["exponent", "1.00", "1.00"]);
    }
}
