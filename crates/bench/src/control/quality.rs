//! How good the placers' results are.

use super::Paper;
use crate::{Better, Figure};
use e3_model::{Application, Topology};
use e3_placement::{Cluster, PLACERS, Request, Score, by_name, evaluate, with_possible_replicas};
use e3_solver::Ilp;

/// An application on a cluster.
struct Case<'a> {
    app: Application,
    topology: &'a Topology,
    /// Requests per joule of HCM.
    hcm: Score,
}

/// The part of what no placement can exceed that `joules` reaches, where the solver has a bound.
pub(super) fn gap(paper: &Paper, ilp: &Ilp, aim: f64) -> Figure {
    let name = "control.joules_gap";
    let (mut parts, mut failed) = (Vec::new(), None);
    for case in cases(paper) {
        let request = Request::new(&case.app, &paper.profiles);
        let mut cluster = Cluster::new(case.topology);
        match ilp.solve(&request, &mut cluster) {
            Ok(solved) => {
                let score = score(paper, "joules", &case.app, case.topology);
                let reached = score.map_or(0.0, |s| s.requests_per_joule) * solved.bound_uj / 1e6;
                let what = format!("{} on {}", case.app.name, case.topology.name);
                parts.push((reached, what));
            }
            Err(e) => failed = Some(e.to_string()),
        }
    }
    let Some(worst) = parts.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else {
        let why = failed.unwrap_or_default();
        let none = Figure::new(name, 0.0, "%", Better::Lower).note(why);
        return Figure {
            value: None,
            ..none
        }
        .aim(aim);
    };
    let mean = parts.iter().map(|(r, _)| r.ln()).sum::<f64>() / parts.len() as f64;
    let note = format!(
        "below the bound of the integer program, geometric mean of {} cases that it solves; most: {:.1} % ({})",
        parts.len(),
        (1.0 - worst.0) * 100.0,
        worst.1
    );
    let gap = (1.0 - mean.exp()) * 100.0;
    Figure::new(name, gap, "%", Better::Lower)
        .aim(aim)
        .note(note)
}

/// Each placer's requests per joule against HCM's.
pub(super) fn figures(paper: &Paper, aim: f64) -> Vec<Figure> {
    let cases = cases(paper);
    let others = PLACERS.into_iter().filter(|p| *p != "hcm");
    let figures = others.map(|placer| {
        let name = format!("control.{}_vs_hcm", placer.replace('-', "_"));
        let figure = figure(paper, &cases, placer, name);
        if placer == "joules" {
            figure.aim(aim)
        } else {
            figure
        }
    });
    figures.collect()
}

fn cases(paper: &Paper) -> Vec<Case<'_>> {
    let pairs = paper
        .clusters
        .iter()
        .flat_map(|t| paper.apps.iter().map(move |app| (app, t)));
    let case = |(app, topology): (&Application, _)| {
        let app = with_possible_replicas(app.clone(), topology);
        let hcm = score(paper, "hcm", &app, topology)?;
        Some(Case { app, topology, hcm })
    };
    pairs.filter_map(case).collect()
}

fn score(paper: &Paper, placer: &str, app: &Application, topology: &Topology) -> Option<Score> {
    let request = Request::new(app, &paper.profiles);
    let mut cluster = Cluster::new(topology);
    let placement = by_name(placer)?.place(&request, &mut cluster).ok()?;
    evaluate(&request, topology, &paper.profiles, &placement).ok()
}

fn figure(paper: &Paper, cases: &[Case<'_>], placer: &str, name: String) -> Figure {
    let mut ratios = Vec::new();
    for case in cases {
        if let Some(score) = score(paper, placer, &case.app, case.topology) {
            let ratio = score.requests_per_joule / case.hcm.requests_per_joule;
            ratios.push((
                ratio,
                format!("{} on {}", case.app.name, case.topology.name),
            ));
        }
    }
    let mean = ratios.iter().map(|(r, _)| r.ln()).sum::<f64>() / ratios.len() as f64;
    let worst = ratios.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let worst = worst.map_or_else(String::new, |(r, case)| format!("; lowest {r:.2} ({case})"));
    let note = format!("geometric mean of {} cases{worst}; modelled", ratios.len());
    Figure::new(name, mean.exp(), "of hcm", Better::Higher).note(note)
}
