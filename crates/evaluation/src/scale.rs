//! Time for placement and decisions against the size of the cluster (section 5.6). Measured on the machine that runs
//! it, so two runs differ.

use crate::experiment::Experiment;
use crate::outcome::{Axis, Cell, Column, Comparison, Drawing, Line, Outcome, Plot, Table};
use crate::world::{EvaluationError, World};
use e3_model::profile::Provenance;
use e3_placement::limits::CANDIDATES_MAX;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "scale",
    title: "Placement and decision time against the size of the cluster",
    section: "5.6",
    about: "Racks of 40 Type2 servers (five nodes each), nine tenths full. Placement is the time for one instance of \
            applications of 2 to 12 services. A decision is one turn of the orchestrator while one SmartNIC in ten is \
            overloaded: up to eight decisions, carried out and in the log on the disk. Heartbeats are those of all nodes, \
            received by one core with their checksums verified.",
    run,
};

const SERVERS: [usize; 11] = [
    100, 200, 400, 600, 800, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000,
];
const SERVERS_QUICK: [usize; 2] = [100, 200];
/// Larger clusters are left out for the integer program: the paper's table ends there.
const ILP_SERVERS_MAX: usize = 1_000;
/// First those of the paper's table.
const PLACERS: [&str; 7] = [
    "hcm",
    "annealing",
    "ilp",
    "hcm-kind",
    "joules",
    "spread",
    "nicfirst",
];
/// Table 6: servers, and milliseconds of hcm, annealing and the integer program; None is over 1000.
const TABLE6: [(usize, [Option<f64>; 3]); 6] = [
    (100, [Some(4.85), Some(3.15), Some(7.64)]),
    (200, [Some(8.31), Some(4.73), Some(19.43)]),
    (400, [Some(19.83), Some(7.43), Some(84.83)]),
    (600, [Some(34.32), Some(15.64), Some(361.85)]),
    (800, [Some(74.39), Some(23.50), None]),
    (1_000, [Some(263.46), Some(61.42), None]),
];
const TABLE6_PLACERS: [&str; 3] = ["hcm", "annealing", "ilp"];

/// What was measured at one size, in milliseconds.
struct Size {
    servers: usize,
    /// By placer.
    placement: Vec<Option<f64>>,
    decision: (f64, f64),
    heartbeats: f64,
}

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let mut notes = vec![
        format!(
            "Measured, on {}: two runs differ. All else in this report is modelled.",
            world.timer.machine()
        ),
        format!(
            "ilp models the {CANDIDATES_MAX} candidate servers of joules at every size, so its time does not grow as that of \
             the paper's program over all servers does, and its exponent says nothing about that. It is left out above {ILP_SERVERS_MAX} servers, where the paper's \
             table ends. Its time includes the start of the solver's process and the writing of the program."
        ),
    ];
    let sizes: &[usize] = if world.quick {
        &SERVERS_QUICK
    } else {
        &SERVERS
    };
    let mut found = Vec::new();
    for &servers in sizes {
        let known = PLACERS
            .iter()
            .filter(|p| **p != "ilp" || servers <= ILP_SERVERS_MAX);
        let known: Vec<&str> = known.copied().collect();
        let times = world.timer.placement_ms(&known, servers);
        let mut by_placer = vec![None; PLACERS.len()];
        for (placer, time) in known.iter().zip(times) {
            match time {
                Ok(ms) => {
                    by_placer[PLACERS.iter().position(|p| p == placer).unwrap_or(0)] = Some(ms)
                }
                Err(why) => notes.push(format!(
                    "No value for {placer} on {servers} servers: {why}."
                )),
            }
        }
        found.push(Size {
            servers,
            placement: by_placer,
            decision: world.timer.decision_ms(servers),
            heartbeats: world.timer.heartbeats_ms(servers),
        });
    }
    Ok(Outcome {
        parameters: vec![("machine".into(), world.timer.machine())],
        tables: vec![table(&found), exponents(&found), table6()],
        plots: vec![placement_plot(&found), decision_plot(&found)],
        comparisons: comparisons(&found),
        notes,
        ..EXPERIMENT.outcome()
    })
}

fn measured(name: &str) -> Column {
    Column::modelled(name, 4).from(Provenance::Measured)
}

fn table(found: &[Size]) -> Table {
    let mut columns = vec![Column::given("servers")];
    columns.extend(PLACERS.map(|p| measured(&format!("{p} ms"))));
    columns.push(measured("decision ms, median"));
    columns.push(measured("decision ms, p99"));
    columns.push(measured("heartbeats of all nodes, ms"));
    let row = |size: &Size| {
        let mut cells = vec![Cell::Number(size.servers as f64)];
        cells.extend(size.placement.iter().map(|ms| Cell::from(*ms)));
        cells.extend([size.decision.0, size.decision.1, size.heartbeats].map(Cell::Number));
        cells
    };
    Table {
        title: "Time by size of the cluster".into(),
        columns,
        rows: found.iter().map(row).collect(),
    }
}

/// How the times grow: the slopes of the logarithms of time and servers, the paper's beside ours.
fn exponents(found: &[Size]) -> Table {
    let row = |(at, placer): (usize, &&str)| {
        let paper = TABLE6_PLACERS.iter().position(|p| p == placer);
        let paper = paper.and_then(|at| slope(TABLE6.iter().map(|(n, t)| (*n, t[at]))));
        let own = slope(found.iter().map(|s| (s.servers, s.placement[at])));
        vec![Cell::from(*placer), own.into(), paper.into()]
    };
    Table {
        title: "Exponent of the placement time in the number of servers".into(),
        columns: vec![
            Column::given("placer"),
            Column::modelled("exponent", 2).from(Provenance::Measured),
            Column::modelled("exponent of Table 6", 2).from(Provenance::Paper),
        ],
        rows: PLACERS.iter().enumerate().map(row).collect(),
    }
}

/// Least squares over the logarithms of servers and milliseconds; None of fewer than two times.
fn slope(times: impl Iterator<Item = (usize, Option<f64>)>) -> Option<f64> {
    let logarithms = |(servers, ms): (usize, Option<f64>)| Some(((servers as f64).ln(), ms?.ln()));
    let points: Vec<(f64, f64)> = times.filter_map(logarithms).collect();
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let joint: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    (spread > 0.0).then(|| joint / spread)
}

fn table6() -> Table {
    let mut columns = vec![Column::given("servers")];
    let paper = |p| Column::modelled(&format!("{p} ms"), 2).from(Provenance::Paper);
    columns.extend(TABLE6_PLACERS.map(paper));
    let row = |(servers, times): &(usize, [Option<f64>; 3])| {
        let mut cells = vec![Cell::Number(*servers as f64)];
        let cell = |ms: &Option<f64>| ms.map_or("over 1000".into(), Cell::Number);
        cells.extend(times.iter().map(cell));
        cells
    };
    Table {
        title: "Table 6 of the paper".into(),
        columns,
        rows: TABLE6.iter().map(row).collect(),
    }
}

fn placement_plot(found: &[Size]) -> Plot {
    let own = (0..PLACERS.len()).map(|at| Line {
        name: PLACERS[at].into(),
        points: points(found, |s| s.placement[at]),
    });
    let paper = [(0, "hcm in the paper"), (1, "annealing in the paper")].map(|(at, name)| Line {
        name: name.into(),
        points: TABLE6
            .iter()
            .filter_map(|(n, t)| Some((*n as f64, t[at]?)))
            .collect(),
    });
    let lines: Vec<Line> = own.chain(paper).filter(|l| !l.points.is_empty()).collect();
    Plot {
        title: "Placement time of an instance".into(),
        alt: format!(
            "Lines: milliseconds to place one instance against servers. At the largest size: {}.",
            ends(&lines)
        ),
        drawing: Drawing::Lines {
            x: Axis::log("servers"),
            y: Axis::log("ms"),
            lines,
        },
    }
}

fn decision_plot(found: &[Size]) -> Plot {
    let line = |name: &str, of: fn(&Size) -> f64| Line {
        name: name.into(),
        points: points(found, |s| Some(of(s))),
    };
    let lines = vec![
        line("decision, median", |s| s.decision.0),
        line("decision, p99", |s| s.decision.1),
        line("heartbeats of all nodes", |s| s.heartbeats),
    ];
    Plot {
        title: "Heartbeats and decisions".into(),
        alt: format!(
            "Lines: milliseconds of the orchestrator against servers. At the largest size: {}.",
            ends(&lines)
        ),
        drawing: Drawing::Lines {
            x: Axis::log("servers"),
            y: Axis::log("ms"),
            lines,
        },
    }
}

fn points(found: &[Size], of: impl Fn(&Size) -> Option<f64>) -> Vec<(f64, f64)> {
    let all = found.iter();
    all.filter_map(|s| Some((s.servers as f64, of(s)?.max(1e-6))))
        .collect()
}

fn ends(lines: &[Line]) -> String {
    let ends = lines.iter().filter_map(|l| {
        let (servers, ms) = l.points.last()?;
        Some(format!("{} {ms:.4} ms on {servers:.0}", l.name))
    });
    ends.collect::<Vec<_>>().join("; ")
}

fn comparisons(found: &[Size]) -> Vec<Comparison> {
    // The largest size that both have.
    let both = found
        .iter()
        .rev()
        .find_map(|s| Some((s, TABLE6.iter().find(|t| t.0 == s.servers)?)));
    let Some((size, (servers, paper))) = both else {
        return Vec::new();
    };
    let of = |(at, placer): (usize, &&str)| {
        let own = PLACERS.iter().position(|p| p == placer)?;
        let own = size.placement[own]?;
        Some(Comparison {
            what: format!("Placement by {placer} on {servers} servers"),
            paper: paper[at].map_or("over 1000 ms".into(), |ms| format!("{ms} ms")),
            ours: format!("{own:.4} ms"),
            why: "Other processors, other code: ours finds nodes by an index. The paper's is a time for a service, ours \
                  for an instance; its cluster's fill and its applications are not known here."
                .into(),
        })
    };
    TABLE6_PLACERS.iter().enumerate().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_need_two_times() {
        let square = [(100, Some(1.0)), (200, None), (1_000, Some(100.0))];
        assert!((slope(square.into_iter()).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(slope(square.into_iter().take(2)), None);
    }
}
