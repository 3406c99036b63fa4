//! `e3 sim`: predicts what an application on a cluster can carry, how long its requests take, and what
//! they cost in joules, by the performance simulator.

mod files;
mod load;
mod view;

use crate::commands::place::{PlacerArgs, not_admitted};
use crate::documents::{builtin, flows};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output};
use crate::ui::values::duration;
use clap::{Args, ValueEnum};
use e3_fullsim::{SimulateError, simulate, sweep};
use e3_hardware::interconnect::Interconnect;
use e3_hardware::service_time::ServiceTimeError;
use e3_model::document::check_fit;
use e3_model::{Application, Nanos, Profile, Topology};
use e3_perfsim::{
    HostPort, Input, Load, ModelError, NoController, Options, Report, Run, Steering, Sweep,
};
use e3_placement::{Cluster, Placement, Request};
use e3_power::IdleServers;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Length of a run if nothing says otherwise.
const DURATION_DEFAULT: Duration = Duration::from_secs(1);
/// Part of a run that is not measured, if nothing says otherwise.
const WARM_UP_PART: u64 = 10;
/// Placer that ignores where nodes are.
const PLACER_UNAWARE: &str = "annealing";

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
    /// How closely nodes are simulated: fast, by the table of visits, or full, by the product's data plane
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
    /// How it is placed.
    #[command(flatten)]
    pub placer: PlacerArgs,
    /// What is switched.
    #[command(flatten)]
    pub switches: Switches,
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

/// Mechanisms and hardware.
#[derive(Args, Debug, Clone)]
pub struct Switches {
    /// Place without regard to where nodes are: by annealing
    #[arg(long, conflicts_with = "placer")]
    pub no_topology_awareness: bool,
    /// Idle cores of hosts stay awake
    #[arg(long)]
    pub no_sleep: bool,
    /// Links between servers
    #[arg(long, value_enum, default_value_t = Wire::Ethernet)]
    pub interconnect: Wire,
    /// RoCE without hardware-assisted batching
    #[arg(long)]
    pub no_batching: bool,
    /// How a host with SmartNICs reaches the network
    #[arg(long, value_enum, default_value_t = Port::Shared)]
    pub host_port: Port,
    /// Which hardware thread a message of a stateless service takes
    #[arg(long, value_enum, default_value_t = Steer::RoundRobin)]
    pub steering: Steer,
    /// What servers without an instance do
    #[arg(long, value_enum, default_value_t = Idle::On)]
    pub idle_servers: Idle,
    /// Another value for a parameter that is a guess
    #[arg(long = "guess", value_name = "NAME=VALUE")]
    pub guesses: Vec<String>,
}

/// How closely nodes are simulated.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fidelity {
    /// Messages by the table of visits
    Fast,
    /// The product's data plane
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

/// Links between servers.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// As in E3
    Ethernet,
    /// RoCE with hardware-assisted batching
    Roce,
}

/// How a host with SmartNICs reaches the network.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Port {
    /// Over the ports of its SmartNICs
    Shared,
    /// Over a port of its own
    Dedicated,
}

/// Steering.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Steer {
    /// One after the other
    RoundRobin,
    /// Any that is free
    Shared,
}

/// Servers without an instance.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// They draw their idle power
    On,
    /// They draw nothing
    Asleep,
}

impl Switches {
    fn options(&self) -> Result<Options, Failure> {
        let batching = !self.no_batching;
        if self.no_batching && self.interconnect == Wire::Ethernet {
            let message = "--no-batching has no effect: only RoCE batches";
            return Err(Failure::new(Exit::Input, message).hint("add --interconnect roce"));
        }
        let mut options = Options {
            sleep: !self.no_sleep,
            interconnect: match self.interconnect {
                Wire::Ethernet => Interconnect::Ethernet,
                Wire::Roce => Interconnect::Roce { batching },
            },
            steering: match self.steering {
                Steer::RoundRobin => Steering::RoundRobin,
                Steer::Shared => Steering::Shared,
            },
            host_port: match self.host_port {
                Port::Shared => HostPort::Shared,
                Port::Dedicated => HostPort::Dedicated,
            },
            idle_servers: match self.idle_servers {
                Idle::On => IdleServers::On,
                Idle::Asleep => IdleServers::Asleep,
            },
            ..Options::default()
        };
        for text in &self.guesses {
            let wrong = |e: String| Failure::new(Exit::Input, e);
            let parsed = text
                .split_once('=')
                .and_then(|(n, v)| Some((n, v.parse().ok()?)));
            let (name, value) =
                parsed.ok_or_else(|| wrong(format!("guess {text:?} is not NAME=VALUE")))?;
            options
                .guesses
                .set(name, value)
                .map_err(|e| wrong(e.to_string()))?;
        }
        Ok(options)
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
    /// Instances that do not fit by their reservations.
    pub overcommitted: usize,
    /// Where the messages per request come from.
    pub visits_from: String,
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
    request_bytes: u32,
    options: Options,
}

impl Subject {
    fn read(args: &Sim, settings: &Settings) -> Result<Subject, Failure> {
        let options = args.switches.options()?;
        let (text, mut app) = builtin::application(&args.app)?;
        let wanted = args.topology.as_deref();
        let wanted = wanted.or(settings.file.topology.as_deref());
        let (_, topology) = builtin::topology(wanted.unwrap_or(builtin::TOPOLOGY_DEFAULT))?;
        let dir = args.profiles.as_deref();
        let dir = dir.or(settings.file.profiles.as_deref());
        let profiles = builtin::profiles(dir)?.by_name;
        check_fit(&text.file, &text.text, &app, &topology)?;
        if let (Some(bytes), Some(load)) = (args.request_bytes, &mut app.spec.load) {
            load.request_bytes = bytes;
        }
        let mut placer = args.placer.clone();
        if args.switches.no_topology_awareness {
            placer.placer = PLACER_UNAWARE.into();
        }
        let request = Request::new(&app, &profiles);
        let placed = placer.place(&request, &mut Cluster::new(&topology));
        let (placement, _) = placed.map_err(|e| not_admitted(&text.file, &e.into()))?;
        let (visits, visits_from) = match flows::visits(&app) {
            Some(visits) => (visits, "docs/applications/flows.md"),
            None => (
                request.services().map(|s| request.visits(s)).collect(),
                "the profiles, or else the manifest's bounds",
            ),
        };
        Ok(Subject {
            request_bytes: args.request_bytes.unwrap_or(request.request_bytes()),
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

    fn input(&self) -> Input<'_> {
        Input {
            app: &self.app,
            profiles: &self.profiles,
            topology: &self.topology,
            placement: &self.placement,
            visits: &self.visits,
            request_bytes: self.request_bytes,
            options: &self.options,
        }
    }
}

/// `e3 sim`.
pub fn run(args: &Sim, settings: &Settings) -> Result<(), Failure> {
    let parsed = match &args.load {
        Some(text) => load::parse(text)?,
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
        let view = SweepView {
            app: subject.app.name.clone(),
            topology: subject.topology.name.clone(),
            placer: subject.placer.placer.clone(),
            fidelity: args.fidelity,
            sweep: sweep(args.fidelity.into(), &subject.input(), &run).map_err(|e| refused(&e))?,
        };
        return output::show(format, &view, || view::sweep(&view, settings.paint()));
    }
    let fidelity = args.fidelity.into();
    let report = simulate(fidelity, &subject.input(), run, &mut NoController);
    let report = report.map_err(|e| refused(&e))?;
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
        overcommitted: subject.placement.overcommitted().count(),
        visits_from: subject.visits_from.clone(),
        fidelity: args.fidelity,
        report,
    };
    output::show(format, &view, || view::run(&view, settings.paint()))
}

fn refused(error: &SimulateError) -> Failure {
    let failure = Failure::new(Exit::Input, error);
    let SimulateError::Model(error) = error else {
        return failure;
    };
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
