//! How good the placers' results are.

use super::Paper;
use crate::{Better, Figure};
use e3_model::{Application, Topology};
use e3_placement::limits::CANDIDATES_MAX;
use e3_placement::{Cluster, PLACERS, Request, Score, by_name, evaluate, with_possible_replicas};
use e3_solver::Ilp;

/// An application on a cluster.
struct Case<'a> {
    app: Application,
    topology: &'a Topology,
    /// Requests per joule of HCM.
    hcm: Score,
}

/// The part of what no placement on the candidate servers can exceed that `joules` reaches, where the solver
/// has a bound.
pub(super) fn gap(paper: &Paper, ilp: &Ilp, aim: f64) -> Figure {
    let name = "control.joules_gap";
    let (cases, mut failed) = cases(paper);
    let mut parts = Vec::new();
    for case in cases {
        let what = format!("{} on {}", case.app.name, case.topology.name);
        let request = Request::new(&case.app, &paper.profiles);
        let mut cluster = Cluster::new(case.topology);
        match ilp.solve(&request, &mut cluster) {
            Ok(solved) => match score(paper, "joules", &case.app, case.topology) {
                Ok(score) => parts.push((score.requests_per_joule * solved.bound_uj / 1e6, what)),
                Err(e) => failed.push(format!("{what} by joules: {e}")),
            },
            Err(e) => failed.push(format!("{what}: {e}")),
        }
    }
    let Some(worst) = parts.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else {
        let none = Figure::new(name, 0.0, "%", Better::Lower).note(failed.join("; "));
        return Figure {
            value: None,
            ..none
        }
        .aim(aim);
    };
    let mean = parts.iter().map(|(r, _)| r.ln()).sum::<f64>() / parts.len() as f64;
    let note = format!(
        "below the bound of the integer program over at most {CANDIDATES_MAX} candidate servers, geometric mean of {} \
         cases that it solves; most: {:.1} % ({}){}",
        parts.len(),
        (1.0 - worst.0) * 100.0,
        worst.1,
        left_out(&failed)
    );
    let gap = (1.0 - mean.exp()) * 100.0;
    Figure::new(name, gap, "%", Better::Lower)
        .aim(aim)
        .note(note)
}

/// The cases that do not count, each with the reason.
fn left_out(failed: &[String]) -> String {
    match failed {
        [] => String::new(),
        _ => format!("; left out: {}", failed.join("; ")),
    }
}

/// Each placer's requests per joule against HCM's.
pub(super) fn figures(paper: &Paper, aim: f64) -> Vec<Figure> {
    let (cases, failed) = cases(paper);
    let others = PLACERS.into_iter().filter(|p| *p != "hcm");
    let figures = others.map(|placer| {
        let name = format!("control.{}_vs_hcm", placer.replace('-', "_"));
        let figure = figure(paper, (&cases, &failed), placer, name);
        if placer == "joules" {
            figure.aim(aim)
        } else {
            figure
        }
    });
    figures.collect()
}

/// Each application on each cluster, and those that HCM does not place, with the reason.
fn cases(paper: &Paper) -> (Vec<Case<'_>>, Vec<String>) {
    let (mut cases, mut failed) = (Vec::new(), Vec::new());
    let pairs = paper
        .clusters
        .iter()
        .flat_map(|t| paper.apps.iter().map(move |app| (app, t)));
    for (app, topology) in pairs {
        let app = with_possible_replicas(app.clone(), topology);
        match score(paper, "hcm", &app, topology) {
            Ok(hcm) => cases.push(Case { app, topology, hcm }),
            Err(e) => failed.push(format!("{} on {} by hcm: {e}", app.name, topology.name)),
        }
    }
    (cases, failed)
}

/// How good a placement on an empty cluster is, or why there is none.
fn score(
    paper: &Paper,
    placer: &str,
    app: &Application,
    topology: &Topology,
) -> Result<Score, String> {
    let request = Request::new(app, &paper.profiles);
    let mut cluster = Cluster::new(topology);
    let placer = by_name(placer).expect("listed");
    let placed = placer.place(&request, &mut cluster);
    let placement = placed.map_err(|e| e.to_string())?;
    evaluate(&request, topology, &paper.profiles, &placement).map_err(|e| e.to_string())
}

fn figure(
    paper: &Paper,
    (cases, failed): (&[Case<'_>], &[String]),
    placer: &str,
    name: String,
) -> Figure {
    let (mut ratios, mut failed) = (Vec::new(), failed.to_vec());
    for case in cases {
        let what = format!("{} on {}", case.app.name, case.topology.name);
        match score(paper, placer, &case.app, case.topology) {
            Ok(score) => {
                ratios.push((score.requests_per_joule / case.hcm.requests_per_joule, what))
            }
            Err(e) => failed.push(format!("{what}: {e}")),
        }
    }
    let mean = ratios.iter().map(|(r, _)| r.ln()).sum::<f64>() / ratios.len() as f64;
    let worst = ratios.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let worst = worst.map_or_else(String::new, |(r, case)| format!("; lowest {r:.2} ({case})"));
    let note = format!(
        "geometric mean of {} cases{worst}; modelled{}",
        ratios.len(),
        left_out(&failed)
    );
    Figure::new(name, mean.exp(), "of hcm", Better::Higher).note(note)
}
