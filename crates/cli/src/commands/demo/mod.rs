//! `e3 demo`: starts a cluster of its own, deploys an application, sends load, reports, and removes
//! the cluster.

pub mod cluster;
mod day;
mod model;
mod report;
mod starvation;

use crate::cluster::access::SecretsOf;
use crate::cluster::process::Process;
use crate::commands::deploy;
use crate::commands::load::figures::Figures;
use crate::commands::load::{self, Plan, Ran, report as load_report};
use crate::documents::Sources;
use crate::documents::builtin::{self, Profiles, Text};
use crate::limits::DEPLOY_TIMEOUT;
use crate::settings::Settings;
use crate::ui::failure::Failure;
use crate::ui::output::{self, Output, Paint};
use crate::ui::text::plural;
use crate::ui::values::rate;
use clap::{Args, Subcommand};
use cluster::DemoCluster;
use e3_loadgen::LoadReport;
use e3_model::Application;
use e3_model::api::{AppView, DeployRequest, InstanceView};
use model::{Modelled, Subject};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Other demonstrations.
#[derive(Subcommand, Debug, Clone)]
pub enum Scene {
    /// A compute-heavy service on a SmartNIC starves the host behind it, until the orchestrator moves it
    Starvation(starvation::Starvation),
    /// A day of load in a minute: the placement follows it, and what that saves
    Day(day::DayArgs),
}

/// `e3 demo`.
#[derive(Args, Debug, Clone)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Demo {
    /// Another demonstration.
    #[command(subcommand)]
    pub scene: Option<Scene>,
    /// Duration of the load in seconds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Requests per second
    #[arg(long, value_parser = rate, default_value = "1000", value_name = "RATE")]
    pub rate: f64,
    /// Seed of the load
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Keep the cluster, with its state in --dir
    #[arg(long)]
    pub keep: bool,
    /// Topology: a file or a built-in one [default: 3x-type1]
    #[arg(long, env = "E3_TOPOLOGY", value_name = "FILE|NAME")]
    pub topology: Option<String>,
    /// Where modules and profiles come from.
    #[command(flatten)]
    pub sources: Sources,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

impl Demo {
    /// Length of the load.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Application of the demo.
const APP: &str = "iot-ts";

/// A cluster in a temporary directory with the application on it, removed when dropped.
pub struct Stage {
    /// The cluster.
    pub cluster: DemoCluster,
    /// The application.
    pub app: Application,
    text: Text,
    profiles: Profiles,
    request: DeployRequest,
    /// Time that the deployment took, in seconds.
    pub deploy_s: f64,
}

/// What `e3 demo -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DemoReport<'a> {
    app: &'a str,
    topology: &'a str,
    machine: e3_bench::Machine,
    up_s: f64,
    deploy_s: f64,
    load: &'a LoadReport,
    figures: &'a Figures,
    messages_per_request: Vec<f64>,
    application: &'a AppView,
    modelled: &'a [Modelled],
}

/// `e3 demo`.
pub fn run(args: &Demo, settings: &Settings) -> Result<(), Failure> {
    match &args.scene {
        Some(Scene::Starvation(args)) => return starvation::run(args, settings),
        Some(Scene::Day(args)) => return day::run(args, settings),
        None => {}
    }
    let format = settings.format(args.output);
    let keep = args.keep.then_some(settings.dir.as_path());
    let stage = Stage::start(
        args.sources.clone(),
        args.topology.as_deref(),
        keep,
        settings,
    )?;
    output::say(&format!(
        "load: {} requests/s for {} s, then reading the state back",
        crate::ui::text::rate(args.rate),
        args.seconds
    ));
    let plan = stage.plan(args.rate, args.duration(), args.seed);
    let ran = load::drive(&stage.cluster.client, &plan)?;
    let (view, instances) = (
        stage.cluster.client.app(APP)?,
        stage.cluster.client.instances()?,
    );
    let visits = model::visits(&stage.app, &ran.figures);
    let subject = Subject {
        app: &stage.app,
        text: &stage.text,
        profiles: &stage.profiles.by_name,
        visits: visits.clone(),
    };
    let modelled = model::compare(&subject, &stage.cluster.state, &instances)?;
    let topology = stage.cluster.client.cluster()?.topology;
    let report = DemoReport {
        app: APP,
        topology: &topology,
        machine: e3_bench::Machine::here(),
        up_s: stage.cluster.up_s,
        deploy_s: stage.deploy_s,
        load: &ran.load,
        figures: &ran.figures,
        messages_per_request: visits,
        application: &view,
        modelled: &modelled,
    };
    let paint = settings.paint();
    output::show(format, &report, || table(&report, &ran, &instances, paint))?;
    stage.cluster.remove()?;
    load::not_failed(&ran.load)
}

fn table(report: &DemoReport<'_>, ran: &Ran, instances: &[InstanceView], paint: Paint) -> String {
    let nodes = plural(ran.figures.nodes.len(), "node");
    let mut text = format!(
        "{} on {}: {} on {nodes}\nthis machine: {}\n",
        paint.bold(report.app),
        report.topology,
        plural(instances.len(), "instance"),
        report.machine,
    );
    text += &format!(
        "up after {:.1} s, deployed after {:.1} s more\n",
        report.up_s, report.deploy_s
    );
    load_report::load(&mut text, paint, &ran.load);
    load_report::ledger(&mut text, paint, &ran.load);
    load_report::findings(&mut text, paint, &ran.load);
    report::places(
        &mut text,
        paint,
        report.application,
        &report.messages_per_request,
    );
    report::nodes(
        &mut text,
        paint,
        &ran.figures,
        instances,
        report.modelled.first(),
    );
    report::energy(&mut text, paint, report.modelled);
    text
}

impl Stage {
    /// Starts a cluster and deploys the application: in `keep`, where it stays, or in a temporary
    /// directory.
    pub fn start(
        sources: Sources,
        topology: Option<&str>,
        keep: Option<&Path>,
        settings: &Settings,
    ) -> Result<Stage, Failure> {
        let (text, app) = builtin::application(APP)?;
        // Checked before anything is started.
        let request = deploy::request(&text, &app, &sources, settings)?;
        let profiles = builtin::profiles(deploy::profiles_dir(&sources, settings))?;
        let cluster = DemoCluster::start(topology, keep, settings)?;
        let mut stage = Stage {
            cluster,
            app,
            text,
            profiles,
            request,
            deploy_s: 0.0,
        };
        output::say(&format!(
            "deploying {APP}: {}",
            plural(stage.app.instances() as usize, "instance")
        ));
        let begin = Instant::now();
        stage.deploy(&stage.request)?;
        stage.deploy_s = begin.elapsed().as_secs_f64();
        Ok(stage)
    }

    fn deploy(&self, request: &DeployRequest) -> Result<(), Failure> {
        let version = self.cluster.client.deploy(request)?.code_version;
        deploy::wait_ready(&self.cluster.client, APP, version, DEPLOY_TIMEOUT)?;
        Ok(())
    }

    /// Processor time that the cluster and this process have used.
    pub fn cpu(&self) -> Duration {
        let cluster = self.cluster.state.processes_alive().into_iter();
        let cluster = cluster.map(|(_, process)| process);
        let all = cluster.chain(Process::this());
        all.filter_map(|process| process.cpu()).sum()
    }

    /// Deploys the application again, without state and with `shards_factor` times its shards;
    /// gives the number of instances.
    pub fn redeploy(&self, shards_factor: u16) -> Result<usize, Failure> {
        self.cluster.client.delete(APP)?;
        let mut app = self.app.clone();
        for service in &mut app.spec.services {
            service.shards *= shards_factor;
        }
        let instances = app.instances() as usize;
        let mut request = self.request.clone();
        request.manifest = self.text.with(&app).text;
        self.deploy(&request)?;
        Ok(instances)
    }

    /// A load of this application.
    pub fn plan(&self, rate_rps: f64, duration: Duration, seed: u64) -> Plan {
        Plan {
            app: APP.to_string(),
            rate_rps,
            duration,
            seed,
            senders: None,
            secrets: SecretsOf::Cluster(self.cluster.state.clone()),
            deadline: load::DEADLINE_DEFAULT,
            stop: Arc::new(AtomicBool::new(false)),
        }
    }
}
