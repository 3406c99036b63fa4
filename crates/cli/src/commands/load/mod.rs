//! `e3 load`: sends requests at a given rate or from a file, and judges their outcomes.

pub mod figures;
pub mod report;
mod schedule;

use crate::cluster::access::SecretsOf;
use crate::cluster::client::Client;
use crate::cluster::state_dir::StateDir;
use crate::limits::{FILE_DURATION_MIN, LOAD_DURATION_DEFAULT};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::interrupt;
use crate::ui::output::{self, Paint};
use crate::ui::text::{count, micros};
use crate::ui::values::{duration, rate, speed};
use clap::Args;
use e3_client::limits::DEADLINE;
use e3_client::{ClientError, unique};
use e3_clock::Clock;
use e3_loadgen::traffic::{self, Columns, Pace, Replay};
use e3_loadgen::{
    Config, LoadError, LoadReport, Phase, Progress, Verdict, Workload, run as run_load,
};
use e3_model::api::EndpointsView;
use e3_model::{Nanos, Timestamp};
use e3_workloads::{Inputs, WorkloadError, for_application, secrets};
use figures::Figures;
use indicatif::ProgressBar;
use schedule::Scheduled;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// `e3 load`.
#[derive(Args, Debug, Clone)]
pub struct Load {
    /// Application
    pub app: String,
    /// Requests per second
    #[arg(
        long,
        value_parser = rate,
        value_name = "RATE",
        required_unless_present = "from"
    )]
    pub rate: Option<f64>,
    /// Duration of the load [default: 15s, or the whole file]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub duration: Option<Duration>,
    /// Seed: the same seed sends the same requests [default: random]
    #[arg(long, value_name = "NUMBER", conflicts_with = "from")]
    pub seed: Option<u64>,
    /// Number of senders, such as thermostats [default: depends on the rate]
    #[arg(long, value_name = "COUNT", conflicts_with = "from")]
    pub senders: Option<u32>,
    /// Send the requests of this file: .pcap, .csv or .jsonl
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Speed relative to the times in the file [default: 1]
    #[arg(
        long,
        value_parser = speed,
        value_name = "FACTOR",
        requires = "from",
        conflicts_with = "rate"
    )]
    pub speed: Option<f64>,
    /// Column or field with the times, as seconds or as dates such as 2026-03-01T08:30:00Z
    #[arg(long, value_name = "NAME", requires = "from")]
    pub time_column: Option<String>,
    /// Column or field with the routing keys [default: the line number]
    #[arg(long, value_name = "NAME", requires = "from")]
    pub key_column: Option<String>,
    /// Directory of the application's secrets [default: that of the cluster in --dir]
    #[arg(long, value_name = "DIR")]
    pub secrets: Option<PathBuf>,
    /// Output format.
    #[command(flatten)]
    pub output: output::Output,
}

/// A load to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Application.
    pub app: String,
    /// Requests per second.
    pub rate_rps: f64,
    /// Length.
    pub duration: Duration,
    /// Seed.
    pub seed: u64,
    /// Senders; None = as many as suit.
    pub senders: Option<u32>,
    /// Where the application's secrets are.
    pub secrets: SecretsOf,
    /// Time that a request has.
    pub deadline: Duration,
    /// When it becomes true, no more requests are sent.
    pub stop: Arc<AtomicBool>,
}

/// The deadline of a request, unless another is given.
pub const DEADLINE_DEFAULT: Duration = Duration::from_nanos(DEADLINE.0);

/// The result of a load.
pub struct Ran {
    /// As the load generator saw it.
    pub load: LoadReport,
    /// As the cluster saw it.
    pub figures: Figures,
}

/// What `e3 load -o json` prints.
#[derive(Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    load: &'a LoadReport,
    messages_per_request: &'a BTreeMap<String, f64>,
}

/// `e3 load`.
pub fn run(args: &Load, settings: &Settings) -> Result<(), Failure> {
    if let Some(file) = &args.from {
        // Before the cluster is asked: a bad file is a bad file wherever it would go.
        let file = File::read(file, args)?;
        let client = Client::connect(settings)?;
        let _locked = lock(&client, args, settings)?;
        let ran = file.send(&client, &args.app, interrupt::flag()?)?;
        return show(&ran, args, settings);
    }
    let client = Client::connect(settings)?;
    let _locked = lock(&client, args, settings)?;
    let plan = Plan {
        app: args.app.clone(),
        rate_rps: args.rate.unwrap_or_default(),
        duration: args.duration.unwrap_or(LOAD_DURATION_DEFAULT),
        seed: args.seed.unwrap_or_else(fresh_seed),
        senders: args.senders,
        secrets: match &args.secrets {
            Some(dir) => SecretsOf::Dir(dir.clone()),
            None => SecretsOf::Cluster(StateDir::new(&settings.dir)),
        },
        deadline: DEADLINE_DEFAULT,
        stop: interrupt::flag()?,
    };
    show(&drive(&client, &plan)?, args, settings)
}

/// Keeps loads apart that would spoil each other's check.
fn lock(client: &Client, args: &Load, settings: &Settings) -> Result<Option<fs::File>, Failure> {
    // The name is that of an application, so it is also good as a part of a file's name.
    client.endpoints(&args.app)?;
    StateDir::new(&settings.dir).lock_load(&args.app, args.from.is_some())
}

fn show(ran: &Ran, args: &Load, settings: &Settings) -> Result<(), Failure> {
    let format = settings.format(args.output);
    let output = Output {
        load: &ran.load,
        messages_per_request: &ran.figures.messages_per_request,
    };
    output::show(format, &output, || table(ran, settings.paint()))?;
    not_failed(&ran.load)
}

/// Fails if the verdict is "failed", with the reasons.
pub fn not_failed(load: &LoadReport) -> Result<(), Failure> {
    if load.verdict != Verdict::Failed {
        return Ok(());
    }
    let message = format!("the load failed: {}", load.reasons.join("; "));
    Err(Failure::new(Exit::Check, message).hint("see: e3 get apps, e3 get dead-letters, e3 logs"))
}

/// A seed that no load of this machine had before.
pub fn fresh_seed() -> u64 {
    // Short enough to be typed.
    Clock::new().now().since(Timestamp::ZERO).as_millis() % 1_000_000_000
}

/// A file, ready to be sent.
struct File {
    workload: Replay,
    rate_rps: f64,
    duration: Duration,
}

impl File {
    fn read(path: &Path, args: &Load) -> Result<File, Failure> {
        let columns = Columns {
            time: args.time_column.clone(),
            key: args.key_column.clone(),
        };
        let name = path.display();
        std::fs::metadata(path).map_err(|e| Failure::file("read", path, &e))?;
        let traffic = traffic::read(path, &columns).map_err(failure)?;
        let pace = match args.rate {
            Some(rate) => Pace::Rate(rate),
            None => Pace::Speed(args.speed.unwrap_or(1.0)),
        };
        let times = traffic.times(pace);
        let mut times = times.map_err(|why| Failure::new(Exit::Input, format!("{name}: {why}")))?;
        if let Some(duration) = args.duration {
            times.retain(|at| u128::from(at.0) <= duration.as_nanos());
        }
        let count = times.len() as f64;
        let duration = match args.rate {
            Some(rate) => Duration::from_secs_f64(count / rate),
            None => Duration::from_nanos(times.last().map_or(0, |at| at.0)),
        };
        let duration = duration.max(FILE_DURATION_MIN);
        Ok(File {
            workload: Replay::new(traffic, times, &name.to_string()),
            rate_rps: count / duration.as_secs_f64(),
            duration,
        })
    }

    fn send(mut self, client: &Client, app: &str, stop: Arc<AtomicBool>) -> Result<Ran, Failure> {
        let plan = Plan {
            app: app.into(),
            rate_rps: self.rate_rps,
            duration: self.duration,
            seed: 0,
            senders: None,
            secrets: SecretsOf::Dir(PathBuf::new()),
            deadline: DEADLINE_DEFAULT,
            stop,
        };
        let endpoints = client.endpoints(app)?;
        drive_workload(client, &plan, endpoints, &mut self.workload)
    }
}

/// Runs a load with a progress bar.
pub fn drive(client: &Client, plan: &Plan) -> Result<Ran, Failure> {
    let endpoints = client.endpoints(&plan.app)?;
    drive_workload(client, plan, endpoints, workload(client, plan)?.as_mut())
}

/// The same with requests that are due at these times.
pub fn drive_at(
    client: &Client,
    plan: &Plan,
    times: Arc<[Nanos]>,
    mut on_phase: impl FnMut(Phase),
) -> Result<Ran, Failure> {
    let endpoints = client.endpoints(&plan.app)?;
    let workload = workload(client, plan)?;
    let mut scheduled = Scheduled { workload, times };
    drive_phases(client, plan, endpoints, &mut scheduled, &mut on_phase)
}

/// The same without the figures of the cluster, whose controller and nodes may be away.
pub fn drive_alone(
    client: &Client,
    plan: &Plan,
    on_phase: impl FnMut(Phase),
) -> Result<LoadReport, Failure> {
    let endpoints = client.endpoints(&plan.app)?;
    let mut workload = workload(client, plan)?;
    send(client, plan, endpoints, workload.as_mut(), on_phase)
}

/// What the application of a plan is sent.
fn workload(client: &Client, plan: &Plan) -> Result<Box<dyn Workload>, Failure> {
    let inputs = Inputs {
        seed: plan.seed,
        rate_rps: plan.rate_rps,
        duration: plan.duration,
        now: Clock::new().now(),
        secrets: read_secrets(client, plan)?,
        senders: plan.senders,
        run: unique().map_err(|e| failure(e.into()))?,
    };
    for_application(&plan.app, &inputs).map_err(not_made)
}

fn drive_workload(
    client: &Client,
    plan: &Plan,
    endpoints: EndpointsView,
    workload: &mut dyn Workload,
) -> Result<Ran, Failure> {
    drive_phases(client, plan, endpoints, workload, &mut |_| {})
}

fn drive_phases(
    client: &Client,
    plan: &Plan,
    endpoints: EndpointsView,
    workload: &mut dyn Workload,
    on_phase: &mut dyn FnMut(Phase),
) -> Result<Ran, Failure> {
    let mut watch = figures::Watch::begin(client, &plan.app)?;
    let mut load = send(client, plan, endpoints, workload, |phase| {
        watch.at(phase);
        on_phase(phase);
    })?;
    load.judge_with(watch.losses());
    Ok(Ran {
        figures: watch.end(load.ledger.sent),
        load,
    })
}

fn send(
    client: &Client,
    plan: &Plan,
    endpoints: EndpointsView,
    workload: &mut dyn Workload,
    mut on_phase: impl FnMut(Phase),
) -> Result<LoadReport, Failure> {
    let (refresh_client, refresh_app) = (client.clone(), plan.app.clone());
    let config = Config {
        app: plan.app.clone(),
        endpoints,
        refresh: Some(Box::new(move || {
            refresh_client.endpoints(&refresh_app).ok()
        })),
        rate_rps: plan.rate_rps,
        duration: plan.duration,
        deadline: plan.deadline,
        seed: plan.seed,
        stop: plan.stop.clone(),
    };
    let bar = output::progress(100, "load");
    let result = run_load(config, workload, |progress| {
        on_phase(progress.phase);
        draw(&bar, progress);
    });
    bar.finish_and_clear();
    result.map_err(failure)
}

fn draw(bar: &ProgressBar, p: Progress) {
    let phase = match p.phase {
        Phase::Probe => "first reply",
        Phase::Baseline => "state before",
        Phase::Load => "load",
        Phase::Drain => "last replies",
        Phase::Check => "reading back",
    };
    if bar.prefix() != phase {
        bar.set_prefix(phase);
    }
    bar.set_position((p.fraction * 100.0) as u64);
    bar.set_message(format!(
        "% {} sent, {} done, {} in flight, p50 {}",
        count(p.sent),
        count(p.done),
        count(p.in_flight as u64),
        micros(p.p50_us)
    ));
}

fn read_secrets(client: &Client, plan: &Plan) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let read = |name: &&str| {
        let value = plan.secrets.read(client, &plan.app, name)?;
        Ok((name.to_string(), value))
    };
    secrets(&plan.app).iter().map(read).collect()
}

fn failure(error: LoadError) -> Failure {
    let failure = |exit| Failure::new(exit, &error);
    match &error {
        LoadError::Client(ClientError::NoNodes { .. }) | LoadError::NoAnswer { .. } => {
            failure(Exit::Unreachable).hint("see: e3 get nodes, e3 get apps")
        }
        LoadError::NoSuchApplication { .. } => {
            failure(Exit::NotFound).hint("is it ready? see: e3 get apps")
        }
        LoadError::Rate { .. } | LoadError::Requests { .. } | LoadError::Traffic { .. } => {
            failure(Exit::Input)
        }
        _ => failure(Exit::Unexpected),
    }
}

fn not_made(error: WorkloadError) -> Failure {
    let exit = match &error {
        WorkloadError::Thermostats { .. } => Exit::Input,
        _ => Exit::Unexpected,
    };
    Failure::new(exit, error)
}

fn table(ran: &Ran, paint: Paint) -> String {
    let mut text = String::new();
    report::load(&mut text, paint, &ran.load);
    report::ledger(&mut text, paint, &ran.load);
    report::findings(&mut text, paint, &ran.load);
    text
}
