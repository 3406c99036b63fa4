//! Host traffic over the ports of all SmartNICs, against a port of the host's own (section 5.3).

use crate::experiment::Experiment;
use crate::outcome::{Axis, Bars, Column, Drawing, Outcome, Plot, Table};
use crate::range::{Headline, RANGE_NOTE, Ranged, headlines};
use crate::words::assumed;
use crate::world::{Case, EvaluationError, World};
use e3_hardware::Estimate;
use e3_perfsim::{HostPort, Sweep};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "bandwidth",
    title: "Host traffic over all SmartNIC ports, against a port of its own",
    section: "5.3",
    about: "Two Type2-SmartNIC servers, each with 40 Gb/s. With ECMP the host's traffic is spread over the ports of \
            all four SmartNICs; with a dedicated port the host has a fifth of the bandwidth for itself. Once with \
            all services on the hosts, and once where the placer joules puts them.",
    run,
};

const APPS: [&str; 4] = ["nfv-fin", "nfv-din", "nfv-ifid", "rta-shm"];
const CLUSTER: &str = "2x-type2";
const PLACERS: [&str; 2] = ["hosts-only", "joules"];
const PORTS: [(HostPort, &str); 2] = [
    (HostPort::Shared, "ECMP"),
    (HostPort::Dedicated, "dedicated"),
];

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let mut cases = Vec::new();
    for subject in world.among(&APPS) {
        for placer in PLACERS {
            for (host_port, _) in PORTS {
                let mut case = world.case(subject, world.cluster(CLUSTER)?, placer);
                case.options.host_port = host_port;
                cases.push(case);
            }
        }
    }
    let sweeps = world.ranged_sweeps(&cases)?;
    let gain: Vec<Headline> = cases
        .chunks(PORTS.len())
        .zip(sweeps.chunks(PORTS.len()))
        .map(|(case, pair)| {
            let of = format!("{} by {}", case[0].subject.app.name, case[0].placer);
            (
                of,
                Some(pair[1].figure_of(&pair[0], |own, all| all.saturates_rps / own.saturates_rps)),
            )
        })
        .collect();
    let mut notes = vec![
            "The reference that this is compared with states no figure for this experiment.".into(),
            "Where cores or threads are exhausted before the ports, both give the same rate; differences of a few percent are \
             then chance: the search knows the highest rate to 2 %, and the knee is one of few rates. The tables say what is \
             most used."
                .into(),
            RANGE_NOTE.into(),
    ];
    notes.extend(assumed(sweeps.iter().map(|s| &s.usual.knee)));
    Ok(Outcome {
        parameters: world.parameters(),
        tables: vec![
            table(&cases, &sweeps),
            headlines(
                "Highest rate with ECMP over that with a dedicated port",
                2,
                &gain,
            ),
        ],
        plots: vec![
            plot(
                &cases,
                &sweeps,
                "Highest rate",
                "requests/s at which the cluster saturates",
                |s| s.saturates_rps,
            ),
            plot(
                &cases,
                &sweeps,
                "Requests per joule at the knee",
                "requests/J",
                |s| s.knee.requests_per_joule,
            ),
        ],
        notes,
        ..EXPERIMENT.outcome()
    })
}

fn port_name(case: &Case<'_>) -> &'static str {
    let found = PORTS
        .iter()
        .find(|(port, _)| *port == case.options.host_port);
    found.map_or("", |(_, name)| name)
}

fn table(cases: &[Case<'_>], sweeps: &[Ranged<Sweep>]) -> Table {
    let row = |(case, sweep): (&Case<'_>, &Ranged<Sweep>)| {
        let sweep = &sweep.usual;
        let most = &sweep.knee.bottleneck;
        vec![
            case.subject.app.name.as_str().into(),
            case.placer.into(),
            port_name(case).into(),
            sweep.saturates_rps.into(),
            sweep.knee.achieved_rps.into(),
            sweep.knee.requests_per_joule.into(),
            sweep.knee.latency_us_avg().into(),
            sweep.knee.latency_us_p99().into(),
            most.what.words().into(),
            (most.utilisation * 100.0).into(),
        ]
    };
    Table {
        title: "Host ports on 2x-type2".into(),
        columns: vec![
            Column::given("application"),
            Column::given("placer"),
            Column::given("host port"),
            Column::modelled("saturates at requests/s", 0),
            Column::modelled("knee requests/s", 0),
            Column::modelled("requests/J", 1),
            Column::modelled("mean latency us", 1),
            Column::modelled("p99 latency us", 1),
            Column::given("most used"),
            Column::modelled("use %", 0),
        ],
        rows: cases.iter().zip(sweeps).map(row).collect(),
    }
}

fn plot(
    cases: &[Case<'_>],
    sweeps: &[Ranged<Sweep>],
    title: &str,
    unit: &str,
    of: fn(&Sweep) -> f64,
) -> Plot {
    let group = |case: &Case<'_>| format!("{} {}", case.subject.app.name, case.placer);
    let groups: Vec<String> = cases.iter().step_by(PORTS.len()).map(group).collect();
    let bars = PORTS.iter().enumerate().map(|(at, (_, name))| {
        let own = sweeps.iter().skip(at).step_by(PORTS.len());
        let values: Vec<Option<Estimate>> = own.map(|s| Some(s.figure(of))).collect();
        Bars::ranged(name, &values)
    });
    let bars: Vec<Bars> = bars.collect();
    let words = groups.iter().zip(sweeps.chunks(PORTS.len()));
    let words: Vec<String> = words
        .map(|(group, pair)| {
            format!(
                "{group} {:.0} and {:.0}",
                of(&pair[0].usual),
                of(&pair[1].usual)
            )
        })
        .collect();
    Plot {
        title: format!("{title}: ECMP and dedicated port"),
        alt: format!(
            "Bars: {unit}, with ECMP and with a dedicated port. {}.",
            words.join("; ")
        ),
        drawing: Drawing::Bars {
            x: Axis::linear(unit),
            groups,
            bars,
        },
    }
}
