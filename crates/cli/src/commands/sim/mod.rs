//! `e3 sim`: predicts what an application on a cluster can carry, how long its requests take, and what
//! they cost in joules, by the performance simulator.

mod azure;
mod faults;
mod files;
mod load;
mod range;
mod switches;
mod view;

use crate::commands::place::{PlacerArgs, not_admitted};
use crate::documents::{builtin, flows};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output};
use crate::ui::values::duration;
use clap::{Args, ValueEnum};
use e3_fullsim::{SimulateError, simulate, simulator, sweep};
use e3_hardware::service_time::ServiceTimeError;
use e3_model::document::check_fit;
use e3_model::{Application, Nanos, Profile, Topology};
use e3_perfsim::{Input, Load, ModelError, Options, Report, Run, Sweep};
use e3_placement::{Cluster, Placement, Request};
use e3_simcontrol::Summary;
use range::{Range, Uncertain};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use switches::{Changes, Orchestrate, Switches};

/// Length of a run if nothing says otherwise.
const DURATION_DEFAULT: Duration = Duration::from_secs(1);
/// Part of a run that is not measured, if nothing says otherwise.
const WARM_UP_PART: u64 = 10;

/// `e3 sim`.
#[derive(Args, Debug, Clone)]
pub struct Sim {
    /// Manifest: a file or a built-in one such as iot-ts
    #[arg(value_name = "FILE|NAME")]
    pub app: String,
    /// Topology: a file or a built-in one [default: 3x-type1]
    #[arg(long, env = "E3_TOPOLOGY", value_name = "FILE|NAME")]
    pub topology: Option<String>,
    /// Requests per second, or steps:0s=1000,2s=5000, day:PEAK,TROUGH, trace:FILE.csv
    #[arg(
        long,
        required_unless_present = "sweep",
        conflicts_with = "sweep",
        allow_hyphen_values = true
    )]
    pub load: Option<String>,
    /// Run at many rates and find the knee of latency against throughput
    #[arg(long, conflicts_with_all = ["trace", "raw"])]
    pub sweep: bool,
    /// Length of a run in simulated time [default: 1s, of a trace its length]
    #[arg(long, value_parser = duration)]
    pub duration: Option<Duration>,
    /// Part of the run before it is measured [default: a tenth]
    #[arg(long, value_parser = duration)]
    pub warm_up: Option<Duration>,
    /// How closely nodes are simulated
    #[arg(long, value_enum, default_value_t = Fidelity::Fast)]
    pub fidelity: Fidelity,
    /// The same seed gives the same bytes
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Size of a request in bytes [default: that of the manifest's load, else 512]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_000))]
    pub request_bytes: Option<u32>,
    /// Directory of profiles [default: the built-in ones, from the paper]
    #[arg(long, env = "E3_PROFILES", value_name = "DIR")]
    pub profiles: Option<PathBuf>,
    /// Multiply the rates of the load by this factor
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        allow_hyphen_values = true
    )]
    pub load_scale: f64,
    /// Play the load this many times as fast, at the same rates
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        allow_hyphen_values = true
    )]
    pub load_speed: f64,
    /// Also give the result at both ends of what is plausible for messages per request, and for
    /// requests smaller than those that were measured
    #[arg(long, conflicts_with_all = ["trace", "raw"])]
    pub range: bool,
    /// How it is placed.
    #[command(flatten)]
    pub placer: PlacerArgs,
    /// What is switched.
    #[command(flatten)]
    pub switches: Switches,
    /// What moves and fails in the run.
    #[command(flatten)]
    pub changes: Changes,
    /// Write when each message ran, for chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write latency and joules of each request as CSV
    #[arg(long, value_name = "FILE")]
    pub raw: Option<PathBuf>,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// How closely nodes are simulated.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fidelity {
    /// By a table of messages per request
    Fast,
    /// By the product's data plane, about 40 times slower
    Full,
}

impl From<Fidelity> for e3_fullsim::Fidelity {
    fn from(fidelity: Fidelity) -> e3_fullsim::Fidelity {
        match fidelity {
            Fidelity::Fast => e3_fullsim::Fidelity::Fast,
            Fidelity::Full => e3_fullsim::Fidelity::Full,
        }
    }
}

/// What `e3 sim -o json` prints.
#[derive(Serialize)]
pub struct SimView {
    /// Application.
    pub app: String,
    /// Topology.
    pub topology: String,
    /// Placer.
    pub placer: String,
    /// The placer sees how far nodes are from each other.
    pub topology_aware: bool,
    /// Instances that do not fit by their reservations.
    pub overcommitted: usize,
    /// Where the messages per request come from.
    pub visits_from: String,
    /// What the controller did, if it was part of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<Summary>,
    /// The same at both ends of what is plausible, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// How closely nodes are simulated.
    pub fidelity: Fidelity,
    /// The prediction.
    #[serde(flatten)]
    pub report: Report,
}

/// What `e3 sim --sweep -o json` prints.
#[derive(Serialize)]
pub struct SweepView {
    /// Application.
    pub app: String,
    /// Topology.
    pub topology: String,
    /// Placer.
    pub placer: String,
    /// The placer sees how far nodes are from each other.
    pub topology_aware: bool,
    /// The knee at both ends of what is plausible, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// How closely nodes are simulated.
    pub fidelity: Fidelity,
    /// The curve.
    #[serde(flatten)]
    pub sweep: Sweep,
}

/// What is simulated.
struct Subject {
    app: Application,
    topology: Topology,
    profiles: BTreeMap<String, Profile>,
    placer: PlacerArgs,
    placement: Placement,
    visits: Vec<f64>,
    visits_from: String,
    uncertain: Uncertain,
    request_bytes: u32,
    options: Options,
}

impl Subject {
    fn read(args: &Sim, settings: &Settings) -> Result<Subject, Failure> {
        let mut options = args.switches.options()?;
        let (text, mut app) = builtin::application(&args.app)?;
        let wanted = args.topology.as_deref();
        let wanted = wanted.or(settings.file.topology.as_deref());
        let (_, topology) = builtin::topology(wanted.unwrap_or(builtin::TOPOLOGY_DEFAULT))?;
        let dir = args.profiles.as_deref();
        let dir = dir.or(settings.file.profiles.as_deref());
        let profiles = builtin::profiles(dir)?.by_name;
        check_fit(&text.file, &text.text, &app, &topology)?;
        options.faults = faults::parse(&args.changes.nodes, &args.changes.links, &topology)?;
        if let (Some(bytes), Some(load)) = (args.request_bytes, &mut app.spec.load) {
            load.request_bytes = bytes;
        }
        let placer = args.placer.clone();
        let request =
            Request::new(&app, &profiles).with_knee_utilisation(options.guesses.knee_utilisation);
        let mut cluster = Cluster::new(&topology);
        if args.switches.no_topology_awareness {
            cluster = cluster.without_levels();
        }
        let placed = placer.place(&request, &mut cluster);
        let (placement, _) = placed.map_err(|e| not_admitted(&text.file, &e.into()))?;
        let (visits, visits_from) = match flows::visits(&app) {
            Some(visits) => (visits, "docs/applications/flows.md"),
            None => (
                request.services().map(|s| request.visits(s)).collect(),
                "the profiles, or else the manifest's bounds",
            ),
        };
        let request_bytes = args.request_bytes.unwrap_or(request.request_bytes());
        Ok(Subject {
            uncertain: Uncertain::new(&app, &profiles, &visits, request_bytes),
            request_bytes,
            visits,
            visits_from: visits_from.into(),
            placement,
            app,
            topology,
            profiles,
            placer,
            options,
        })
    }

    /// Runs it, with the product's controller if something can move.
    fn simulate(
        &self,
        fidelity: Fidelity,
        input: &Input<'_>,
        run: Run,
        orchestrate: Orchestrate,
    ) -> Result<(Report, Option<Summary>), Failure> {
        if orchestrate == Orchestrate::Off && self.options.faults.is_empty() {
            let report = simulate(fidelity.into(), input, run);
            return Ok((report.map_err(|e| not_simulated(&e))?, None));
        }
        let simulator = simulator(fidelity.into(), input, run, orchestrate.settings());
        let (simulator, mut controller) = simulator.map_err(|e| not_simulated(&e))?;
        let report = simulator.run(&mut controller);
        Ok((report, Some(controller.summary())))
    }

    fn input(&self) -> Input<'_> {
        self.input_with(&self.visits, &self.options)
    }

    fn input_with<'a>(&'a self, visits: &'a [f64], options: &'a Options) -> Input<'a> {
        Input {
            app: &self.app,
            profiles: &self.profiles,
            topology: &self.topology,
            placement: &self.placement,
            visits,
            request_bytes: self.request_bytes,
            options,
        }
    }
}

/// `e3 sim`.
pub fn run(args: &Sim, settings: &Settings) -> Result<(), Failure> {
    let parsed = match &args.load {
        Some(text) => load::parse(text)?.scaled(args.load_scale, args.load_speed)?,
        None => load::Parsed {
            load: Load::Constant(1.0),
            duration: None,
        },
    };
    let subject = Subject::read(args, settings)?;
    let nanos = |d: Duration| Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    let length = nanos(
        args.duration
            .or(parsed.duration)
            .unwrap_or(DURATION_DEFAULT),
    );
    let run = Run {
        load: parsed.load,
        duration: length,
        warm_up: args.warm_up.map_or(Nanos(length.0 / WARM_UP_PART), nanos),
        seed: args.seed,
        samples: args.raw.is_some(),
        spans: args.trace.is_some(),
    };
    let format = settings.format(args.output);
    if args.sweep {
        let range = args
            .range
            .then(|| range::of_sweeps(&subject, args.fidelity, &run));
        let view = SweepView {
            range: range.transpose()?,
            app: subject.app.name.clone(),
            topology: subject.topology.name.clone(),
            placer: subject.placer.placer.clone(),
            topology_aware: !args.switches.no_topology_awareness,
            fidelity: args.fidelity,
            sweep: sweep(args.fidelity.into(), &subject.input(), &run)
                .map_err(|e| not_simulated(&e))?,
        };
        return output::show(format, &view, || view::sweep(&view, settings.paint()));
    }
    let range = args
        .range
        .then(|| range::of_runs(&subject, args.fidelity, &run, &args.changes));
    let range = range.transpose()?;
    let (fidelity, orchestrate) = (args.fidelity, args.changes.orchestrator);
    let (report, controller) = subject.simulate(fidelity, &subject.input(), run, orchestrate)?;
    if let Some(path) = &args.trace {
        files::trace(path, &subject.app, &subject.topology, &report)?;
    }
    if let Some(path) = &args.raw {
        files::samples(path, &report)?;
    }
    let view = SimView {
        app: subject.app.name.clone(),
        topology: subject.topology.name.clone(),
        placer: subject.placer.placer.clone(),
        topology_aware: !args.switches.no_topology_awareness,
        overcommitted: subject.placement.overcommitted().count(),
        visits_from: subject.visits_from.clone(),
        controller,
        range,
        fidelity: args.fidelity,
        report,
    };
    output::show(format, &view, || view::run(&view, settings.paint()))
}

/// The same in any fidelity.
fn not_simulated(error: &SimulateError) -> Failure {
    match error {
        SimulateError::Model(error) => refused(error),
        SimulateError::Plan { .. } => {
            Failure::new(Exit::Check, error).hint("choose another --placer or --topology")
        }
        error => Failure::new(Exit::Input, error),
    }
}

/// An application that cannot be simulated, and what to do about it.
pub fn refused(error: &ModelError) -> Failure {
    let failure = Failure::new(Exit::Input, error);
    let measure = "measure the service with e3 profile, and name the directory with --profiles";
    match error {
        ModelError::ServiceTime {
            source: ServiceTimeError::Size { high, .. },
            ..
        } => failure.hint(format!(
            "predict for requests that were measured: --request-bytes {high}; or {measure}"
        )),
        ModelError::ServiceTime { .. } | ModelError::Profile { .. } => failure.hint(measure),
        _ => failure,
    }
}
