//! `e3 bench`: measures and prints; with `--json` one object that programs can compare.

mod page;
mod services;

use crate::commands::demo::Stage;
use crate::commands::load;
use crate::documents::Sources;
use crate::machine::Machine;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output, Paint, Table};
use crate::ui::text::{micros, rate};
use clap::{Args, ValueEnum};
use e3_engine::bench::BenchResult;
use e3_load::LoadReport;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// A rate is held if at least this part of the offered requests is handled in time.
const HELD_PART: f64 = 0.99;
/// And if 99 of 100 requests take no longer than this.
const HELD_P99: Duration = Duration::from_millis(500);
/// Where the search begins and ends.
const RATES_RPS: (f64, f64) = (500.0, 256_000.0);
/// The search ends when the highest rate that was held and the lowest that was not are this close.
const SEARCH_RATIO: f64 = 1.15;
/// Length of a run of the search.
const SEARCH_RUN: Duration = Duration::from_secs(3);
/// Length of the measured run.
const MEASURED_RUN: Duration = Duration::from_secs(10);
/// A measured run that did not hold is repeated at this part of its rate, since a longer run holds
/// less than a short one.
const MEASURED_STEP: f64 = 0.85;
/// Measured runs at most.
const MEASURED_TRIES: u32 = 8;

/// Groups of benchmarks.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BenchGroup {
    /// Requests through one core: WebAssembly calls, collections, preemption
    Engine,
    /// Each service on one core, in WebAssembly and compiled natively
    Services,
    /// The thermostat application at the highest rate that this machine holds
    Demo,
}

/// `e3 bench`.
#[derive(Args, Debug, Clone)]
pub struct Bench {
    /// Group
    #[arg(value_enum)]
    pub group: BenchGroup,
    /// Also write the group's section into this page, such as docs/benchmarks.md
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Where modules and profiles come from.
    #[command(flatten)]
    pub sources: Sources,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// What `engine` runs.
const ENGINE: &str = "\
One engine on one core, in process. A bare call is wasmtime's call of an empty function, measured in
rounds that alternate with those of the requests. A request is made, queued, run, taken, its reply read
and its buffers given back.";
/// What `demo` runs.
const DEMO: &str = "\
The thermostat application as in `e3 demo`, on a cluster of its own: clients, controller and six nodes on
this machine. The rate is doubled until it does not hold, then closed in on by bisection in runs of 3 s,
each on an empty application; the highest that held is measured for 10 s.";

/// One run of a group.
#[derive(Serialize)]
pub struct Report {
    /// Its name.
    pub group: &'static str,
    /// The program's.
    pub version: &'static str,
    /// Where it ran.
    pub machine: Machine,
    /// What came of it.
    pub results: Vec<Line>,
}

/// A figure.
#[derive(Serialize)]
pub struct Line {
    /// Such as `engine.echo_64b`.
    pub name: String,
    /// None if it could not be measured; the note says why.
    pub value: Option<f64>,
    /// Unit.
    pub unit: &'static str,
    /// `higher` or `lower`.
    pub better: &'static str,
    /// None if there is no aim but to know it.
    pub aim: Option<f64>,
    /// Whether the aim is met.
    pub pass: Option<bool>,
    /// What was run, absolute figures, or why there is no value.
    pub note: String,
}

impl From<BenchResult> for Line {
    fn from(r: BenchResult) -> Line {
        Line {
            name: r.name.to_string(),
            value: r.value,
            unit: r.unit,
            better: r.better,
            aim: Some(r.aim),
            pass: Some(r.pass),
            note: r.note,
        }
    }
}

/// `e3 bench`.
pub fn run(args: &Bench, settings: &Settings) -> Result<(), Failure> {
    let (group, about, results) = match args.group {
        BenchGroup::Engine => {
            let results = e3_engine::bench::run();
            let results = results.into_iter().map(Line::from).collect();
            ("engine", ENGINE, results)
        }
        BenchGroup::Services => {
            let results = services::run(args.sources.services.as_deref(), settings)?;
            ("services", services::ABOUT, results)
        }
        BenchGroup::Demo => ("demo", DEMO, demo(&args.sources, settings)?),
    };
    let report = Report {
        group,
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(),
        results,
    };
    let format = settings.format(args.output);
    output::show(format, &report, || table(&report, settings.paint()))?;
    if let Some(file) = &args.write {
        page::write(file, about, &report)?;
    }
    let missed = report.results.iter().filter(|r| r.pass == Some(false));
    let missed: Vec<&str> = missed.map(|r| &*r.name).collect();
    match missed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(
            Exit::Check,
            format!("missed: {}", missed.join(", ")),
        )),
    }
}

fn demo(sources: &Sources, settings: &Settings) -> Result<Vec<Line>, Failure> {
    let stage = Stage::set(sources.clone(), None, None, settings)?;
    let mut seed = 0;
    let mut run = |rate_rps: f64, length: Duration| {
        seed += 1;
        // Otherwise a run would be slower for the rows of those before it.
        stage.renew()?;
        let plan = stage.plan(rate_rps, length, seed);
        output::say(&format!(
            "{} requests/s for {} s",
            rate(rate_rps),
            length.as_secs()
        ));
        let load = load::drive(&stage.client, &plan)?.load;
        let latency = &load.latency;
        let held = if held(&load) { "held" } else { "not held" };
        output::say(&format!(
            "  {held}: achieved {}, p50 {}, p99 {}",
            rate(load.achieved_rps),
            micros(latency.p50_us),
            micros(latency.p99_us)
        ));
        Ok::<LoadReport, Failure>(load)
    };
    let mut low = RATES_RPS.0;
    let mut high = RATES_RPS.0;
    while high < RATES_RPS.1 && held(&run(high, SEARCH_RUN)?) {
        low = high;
        high *= 2.0;
    }
    while high / low > SEARCH_RATIO {
        let middle = (low * high).sqrt();
        match held(&run(middle, SEARCH_RUN)?) {
            true => low = middle,
            false => high = middle,
        }
    }
    let mut load = run(low, MEASURED_RUN)?;
    for _ in 1..MEASURED_TRIES {
        if held(&load) {
            break;
        }
        low *= MEASURED_STEP;
        load = run(low, MEASURED_RUN)?;
    }
    stage.strike()?;
    Ok(results(&load))
}

/// Whether the machine holds this rate.
fn held(load: &LoadReport) -> bool {
    let p99 = Duration::from_secs_f64(load.latency.p99_us / 1e6);
    load.achieved_rps >= HELD_PART * load.offered_rps && p99 <= HELD_P99
}

fn results(load: &LoadReport) -> Vec<Line> {
    let l = &load.ledger;
    let figure = |name: &str, value, unit, better, note: &str| Line {
        name: name.to_string(),
        value: Some(value),
        unit,
        better,
        aim: None,
        pass: None,
        note: note.to_string(),
    };
    let none_of = |name: &str, value: u64, note: &str| Line {
        aim: Some(0.0),
        pass: Some(value == 0),
        ..figure(name, value as f64, "requests", "lower", note)
    };
    let verdict = if held(load) {
        "held"
    } else {
        "NOT held, as no rate was"
    };
    let how = format!(
        "offered {} requests/s for {:.0} s, {verdict} (99 % handled in time, p99 at most {} ms)",
        rate(load.offered_rps),
        load.duration_s,
        HELD_P99.as_millis()
    );
    let due = "from the time that a request was due";
    let sent = format!("of {} sent; ledger and state read back", l.sent);
    let (lost, twice) = (
        l.unknown + l.rows_missing,
        l.rows_repeated + l.replies_contradictory,
    );
    vec![
        figure("demo.rps", load.achieved_rps, "requests/s", "higher", &how),
        figure("demo.p50_us", load.latency.p50_us, "us", "lower", due),
        figure("demo.p99_us", load.latency.p99_us, "us", "lower", due),
        none_of("demo.lost", lost, &sent),
        none_of("demo.repeated", twice, &sent),
    ]
}

fn table(report: &Report, paint: Paint) -> String {
    let mut table = Table::new(&["NAME", ">VALUE", "UNIT", ">AIM", "", "NOTE"]);
    for r in &report.results {
        let number = |v: Option<f64>| v.map_or_else(|| "-".into(), |v| format!("{v:.2}"));
        let verdict = match r.pass {
            Some(good) => paint.verdict(good, if good { "pass" } else { "MISS" }),
            None => String::new(),
        };
        table.row([
            r.name.clone(),
            number(r.value),
            r.unit.to_string(),
            number(r.aim),
            verdict,
            r.note.to_string(),
        ]);
    }
    format!(
        "{} on {}\n{}",
        paint.bold(report.group),
        report.machine,
        table.render()
    )
}
