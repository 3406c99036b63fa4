//! `e3 bench`: runs a group of benchmarks.

pub mod part;
mod state;

use crate::commands::chaos;
use crate::commands::demo::Stage;
use crate::commands::eval;
use crate::commands::load;
use crate::commands::twin;
use crate::documents::{Sources, builtin, flows, modules};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output, Paint, Table};
use crate::ui::text::{micros, plural, rate};
use clap::Args;
use e3_bench::control::{self, Paper};
use e3_bench::demo::{self, Load, Run};
use e3_bench::services::{self, ServicesError};
use e3_bench::{Figure, Report, engine, page};
use e3_loadgen::LoadReport;
use e3_solver::Ilp;
use part::{BenchGroup, Part};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Services that `e3-native` measures.
const SERVICES: u64 = 16;
/// The paper's applications.
const APPS: [&str; 8] = [
    "nfv-fin", "nfv-din", "nfv-ifid", "rta-ptc", "rta-sf", "rta-shm", "iot-dh", "iot-ts",
];
/// The clusters of its Table 4.
const CLUSTERS: [&str; 5] = [
    "4x-beefy",
    "4x-wimpy",
    "2x-beefy-2x-wimpy",
    "2x-type2",
    "1x-superbeefy",
];
/// Time for each integer program of the group control.
const SOLVER_LIMIT: Duration = Duration::from_secs(10);
/// How to build it.
const BUILD: &str = "build it with: cargo build --release -p e3-cli -p e3-native";

/// `e3 bench`.
#[derive(Args, Debug, Clone)]
pub struct Bench {
    /// Group of benchmarks
    #[arg(value_enum)]
    pub group: BenchGroup,
    /// Also write the section of the group into this page, such as docs/benchmarks.md; with --only, the
    /// part's figures only
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Length of the longest run of the group chaos, in minutes; the others depend on it
    #[arg(long, value_parser = chaos::minutes, default_value = "60", value_name = "MINUTES")]
    pub minutes: f64,
    /// Measure only this part of the group
    #[arg(long, value_enum, value_name = "PART")]
    pub only: Option<Part>,
    /// Migrations and fail-overs of the group state
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Length of each load of the group state in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub seconds: u64,
    /// Where modules and profiles come from.
    #[command(flatten)]
    pub sources: Sources,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

impl Bench {
    /// The parts to measure.
    pub fn parts(&self) -> Result<Vec<Part>, Failure> {
        Part::of(self.group, self.only)
    }

    /// Length of a load.
    fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// `e3 bench`.
pub fn run(args: &Bench, settings: &Settings) -> Result<(), Failure> {
    args.parts()?;
    let mut tables = Vec::new();
    let (group, about, figures) = match args.group {
        BenchGroup::Engine => ("engine", engine::ABOUT, engine::run()),
        BenchGroup::Services => {
            let figures = services(&args.sources, settings)?;
            ("services", services::ABOUT, figures)
        }
        BenchGroup::Chaos => {
            let figures = chaos::bench::run(args.minutes, &args.parts()?, &args.sources, settings)?;
            ("chaos", e3_bench::chaos::ABOUT, figures)
        }
        BenchGroup::State => ("state", e3_bench::state::ABOUT, state::run(args, settings)?),
        BenchGroup::Control => {
            let parts = args.parts()?;
            let parts: Vec<_> = parts.iter().filter_map(Part::of_control).collect();
            let (figures, behind) = control::run(&paper(&args.sources, settings)?, &parts);
            tables = behind;
            ("control", control::ABOUT, figures)
        }
        BenchGroup::Sim => (
            "sim",
            e3_bench::sim::ABOUT,
            simulator(&args.sources, settings)?,
        ),
        BenchGroup::Demo => ("demo", demo::ABOUT, demo(&args.sources, settings)?),
    };
    let report = Report::new(group, figures).tables(tables);
    let format = settings.format(args.output);
    output::show(format, &report, || table(&report, settings.paint()))?;
    if let Some(file) = &args.write {
        page::write(file, about, &report, args.only.is_some())
            .map_err(|e| Failure::file("write", file, &e))?;
    }
    match &report.missed()[..] {
        [] => Ok(()),
        missed => {
            let message = format!("missed: {}", missed.join(", "));
            Err(Failure::new(Exit::Check, message))
        }
    }
}

/// The paper's applications and clusters.
fn paper(sources: &Sources, settings: &Settings) -> Result<Paper, Failure> {
    let highs = std::env::var_os("E3_HIGHS").unwrap_or_else(|| "highs".into());
    let dir = sources.profiles.as_deref();
    let dir = dir.or(settings.file.profiles.as_deref());
    let apps = APPS.iter().map(|name| Ok(builtin::application(name)?.1));
    let clusters = CLUSTERS.iter().map(|name| Ok(builtin::topology(name)?.1));
    Ok(Paper {
        apps: apps.collect::<Result<_, Failure>>()?,
        clusters: clusters.collect::<Result<_, Failure>>()?,
        profiles: builtin::profiles(dir)?.by_name,
        ilp: Ilp::new(highs, SOLVER_LIMIT),
    })
}

/// The simulator on the thermostat application, and all experiments.
fn simulator(sources: &Sources, settings: &Settings) -> Result<Vec<Figure>, Failure> {
    let (_, app) = builtin::application("iot-ts")?;
    let dir = sources.profiles.as_deref();
    let profiles = builtin::profiles(dir.or(settings.file.profiles.as_deref()))?.by_name;
    let visits = flows::visits(&app).expect("the page of flows has the built-in application");
    let mut figures = e3_bench::sim::run(&e3_bench::sim::Thermostats {
        app: &app,
        profiles: &profiles,
        visits: &visits,
    });
    figures.extend(twin::figures("iot-ts", sources, settings)?);
    let start = Instant::now();
    let count = eval::all(sources.profiles.clone(), settings)?;
    figures.push(e3_bench::sim::evaluation(start.elapsed(), count));
    Ok(figures)
}

/// Runs the program that measures, which is beside this one.
fn services(sources: &Sources, settings: &Settings) -> Result<Vec<Figure>, Failure> {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.with_file_name("e3-native");
    if !program.is_file() {
        let message = format!(
            "{} is missing; it contains the services compiled natively",
            program.display()
        );
        return Err(Failure::new(Exit::NotFound, message).hint(BUILD));
    }
    let given = sources.services.as_deref();
    let dirs = modules::dirs(given.or(settings.file.services.as_deref()));
    let Some(dir) = dirs.iter().find(|dir| dir.join("ipsec.wasm").is_file()) else {
        let hint = "build them with: cargo xtask build-services, or give --services DIR";
        let message = "the services' modules are not found";
        return Err(Failure::new(Exit::NotFound, message).hint(hint));
    };
    let bar = output::progress(SERVICES, "services");
    let figures = services::run(&program, dir, || bar.inc(1));
    bar.finish_and_clear();
    figures.map_err(|e| {
        let exit = match e {
            ServicesError::Failed(_) => Exit::Check,
            _ => Exit::Unexpected,
        };
        Failure::new(exit, format!("{}: {e}", program.display()))
    })
}

/// Searches on a cluster of its own. Each load meets an empty application; otherwise the rows of
/// earlier loads would slow it down.
fn demo(sources: &Sources, settings: &Settings) -> Result<Vec<Figure>, Failure> {
    let stage = Stage::start(sources.clone(), None, None, settings)?;
    let mut seed = 0;
    let figures = demo::run(|load: Load| {
        seed += 1;
        let instances = stage.redeploy(load.shards_factor)?;
        let plan = stage.plan(load.rate_rps, load.duration, seed);
        output::say(&format!(
            "{} requests/s for {} s, {}",
            rate(load.rate_rps),
            load.duration.as_secs(),
            plural(instances, "instance")
        ));
        let before = stage.cpu();
        let load = load::drive(&stage.cluster.client, &plan)?.load;
        let run = measured(&load, stage.cpu().saturating_sub(before));
        output::say(&format!(
            "  {}: achieved {}, p50 {}, p99 {}",
            if run.held() { "held" } else { "not held" },
            rate(run.achieved_rps),
            micros(run.p50_us),
            micros(run.p99_us)
        ));
        Ok::<Run, Failure>(run)
    })?;
    stage.cluster.remove()?;
    Ok(figures)
}

fn measured(load: &LoadReport, cpu: Duration) -> Run {
    let (latency, ledger) = (&load.latency, &load.ledger);
    Run {
        offered_rps: load.offered_rps,
        achieved_rps: load.achieved_rps,
        duration_s: load.duration_s,
        cpu_s: cpu.as_secs_f64(),
        p50_us: latency.p50_us,
        p99_us: latency.p99_us,
        sent: ledger.sent,
        lost: ledger.unknown + ledger.rows_missing,
        repeated: ledger.rows_repeated + ledger.replies_contradictory,
    }
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
            r.unit.clone(),
            number(r.aim),
            verdict,
            r.note.clone(),
        ]);
    }
    let mut text = format!(
        "{} on this machine: {}\n{}",
        paint.bold(report.group),
        report.machine,
        table.render()
    );
    for behind in &report.tables {
        let columns = behind.columns.iter().map(|name| format!(">{name}"));
        let columns: Vec<String> = columns.collect();
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let mut table = Table::new(&columns);
        for row in &behind.rows {
            table.row(row.clone());
        }
        text += &format!(
            "\n{}\n{}{}\n",
            paint.bold(&behind.title),
            table.render(),
            behind.note
        );
    }
    text
}
