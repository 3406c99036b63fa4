//! `e3 twin`: runs an application on a cluster on this machine and in the performance simulator, and says
//! how far the prediction is off. The simulator gets what was measured of each service alone and of bare
//! services ([design](../../../../../docs/design/030-twin-and-fidelities.md)), never a figure of the application.

mod alone;
mod bare;
mod cores;
mod load;
mod predict;
mod view;

use crate::cluster::access::SecretsOf;
use crate::commands::demo::cluster::DemoCluster;
use crate::commands::deploy;
use crate::documents::Sources;
use crate::documents::builtin::{self, Text};
use crate::limits::DEPLOY_TIMEOUT;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output};
use alone::Flow;
use bare::{Bares, Plan};
use clap::Args;
use e3_bench::Figure;
use e3_bench::twin::{self, Point};
use e3_client::unique;
use e3_clock::Clock;
use e3_loadgen::Workload;
use e3_model::document::check_fit;
use e3_model::limits::SHARDS_MAX;
use e3_model::{Application, NodeKind, Topology};
use e3_placement::Placement;
use e3_workloads::{Inputs, for_application, secrets};
use load::{Loads, Sample};
use predict::{Known, ServiceView};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The five loads, as parts of the highest rate that is held.
const PARTS: [f64; 5] = [0.2, 0.35, 0.5, 0.75, 0.95];
/// Use of the client's core from which it may be what limits the load.
const CLIENT_CORES_MAX: f64 = 0.9;
/// Rate of the requests that show what services are sent.
const FLOW_RPS: f64 = 1_000.0;
/// Topology if none is named.
const TOPOLOGY_DEFAULT: &str = "twin-host";
/// Length of each of the five loads in seconds.
const SECONDS_DEFAULT: u64 = 3;
/// Nodes that fit beside a client.
const NODES_MAX: usize = 2;

/// `e3 twin`.
#[derive(Args, Debug, Clone)]
pub struct Twin {
    /// Manifest: a file or a built-in one such as iot-ts
    #[arg(value_name = "FILE|NAME")]
    pub app: String,
    /// Topology: twin-host, twin-smartnic, or a file with at most one host and one SmartNIC with one core each
    #[arg(long, default_value = TOPOLOGY_DEFAULT, value_name = "FILE|NAME")]
    pub topology: String,
    /// Length of each of the five loads in seconds
    #[arg(long, default_value_t = SECONDS_DEFAULT, value_parser = clap::value_parser!(u64).range(1..=20))]
    pub seconds: u64,
    /// Seed of loads and simulator
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Where modules and profiles come from.
    #[command(flatten)]
    pub sources: Sources,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// What `e3 twin -o json` prints. Errors are parts of what was measured.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TwinView {
    /// Application.
    pub app: String,
    /// Topology.
    pub topology: String,
    /// This machine.
    pub machine: e3_bench::Machine,
    /// What was measured of each service alone.
    pub services: Vec<ServiceView>,
    /// What bare services show of the nodes, by kind.
    pub nodes: BTreeMap<NodeKind, bare::NodeCost>,
    /// What they show of messages between two nodes.
    pub hop: Option<bare::HopCost>,
    /// The loads.
    pub loads: Vec<LoadView>,
    /// The knee.
    pub knee: KneeView,
    /// Largest error of the median latency at loads up to 70 % of the measured knee.
    pub p50_error: Option<f64>,
    /// What makes the comparison doubtful.
    pub doubts: Vec<String>,
}

/// A load, measured and predicted.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadView {
    /// Requests due per second.
    pub offered_rps: f64,
    /// On the cluster.
    pub measured: Point,
    /// In the simulator.
    pub predicted: Point,
    /// The simulator says that the cluster cannot carry it.
    pub saturated: bool,
    /// Error of the median latency.
    pub p50_error: f64,
    /// Error of the 99th percentile.
    pub p99_error: f64,
    /// Processor time of the client, as a part of a core.
    pub client_cores: f64,
}

/// The rate with the highest throughput over mean latency.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KneeView {
    /// On the cluster.
    pub measured_rps: f64,
    /// In the simulator.
    pub predicted_rps: f64,
    /// Error of the prediction.
    pub error: f64,
}

/// `e3 twin`.
pub fn run(args: &Twin, settings: &Settings) -> Result<(), Failure> {
    let view = compare(args, settings)?;
    let format = settings.format(args.output);
    output::show(format, &view, || view::table(&view, settings.paint()))
}

/// Measures, predicts and compares.
pub fn compare(args: &Twin, settings: &Settings) -> Result<TwinView, Failure> {
    let subject = Subject::read(args)?;
    let request = deploy::request(&subject.text, &subject.app, &args.sources, settings)?;
    let cluster = DemoCluster::start(Some(&args.topology), None, settings)?;
    let names: Vec<String> = subject.nodes.iter().map(|(_, name)| name.clone()).collect();
    let length = Duration::from_secs(args.seconds);
    let cores = cores::give(&cluster, &names);
    let mut loads = Loads::new(&cluster, names, length, args.seed);

    let bares = bare::measure(
        &mut loads,
        &Plan {
            sources: &args.sources,
            settings,
            nodes: subject.nodes.clone(),
            bytes: subject.request_bytes,
            instances: subject.app.instances().min(SHARDS_MAX.into()).into(),
            length,
        },
    )?;
    let mut request = request;
    request.overcommit = true;
    let version = cluster.client.deploy(&request)?.code_version;
    let name = subject.app.name.as_str();
    deploy::wait_ready(&cluster.client, name, version, DEPLOY_TIMEOUT)?;

    // Before the application gets its first request: nothing that is predicted comes from it.
    output::say("each service alone");
    let secrets = SecretsOf::Cluster(cluster.state.clone());
    let secret = |secret: &str| secrets.read(&cluster.client, name, secret);
    let mut make = |rate, length, seed| subject.workload(&secret, rate, length, seed);
    let services = alone::services(&args.app, &subject.app, &args.sources, settings, secret)?;
    let mut workload = make(FLOW_RPS, Duration::from_secs(3), args.seed)?;
    let begin = Clock::new().now();
    let flow = alone::flow(&subject.app, &services, workload.as_mut(), begin, FLOW_RPS)?;
    let alone = alone::measure(&subject.app, &services, &flow)?;
    let profiles = args.sources.profiles.as_deref();
    let profiles = builtin::profiles(profiles.or(settings.file.profiles.as_deref()))?;
    let known = Known {
        app: &subject.app,
        topology: &subject.topology,
        placement: placement(&cluster, &subject)?,
        alone: &alone,
        flow: &flow,
        bares: &bares,
        deployed: &profiles.by_name,
    };
    let (prediction, services) = known.prediction();

    output::say(&format!("{name} on {}", subject.topology.name));
    let searched = loads.search(name, &mut make)?;
    let Some(best) = searched.last().map(|s| s.point.offered_rps) else {
        let message = format!("{name} on {} carries no load", subject.topology.name);
        return Err(Failure::new(Exit::Check, message).hint("is this machine busy?"));
    };
    let mut measured = Vec::new();
    for part in PARTS {
        measured.push(loads.at(name, best * part, length, &mut make)?);
    }
    cluster.remove()?;
    let predicted = |s: &Sample| prediction.at(s.point.offered_rps, args.seed);
    let predicted: Result<Vec<_>, Failure> = measured.iter().map(predicted).collect();
    let knee_rps = prediction.sweep(args.seed)?.knee.offered_rps;
    Ok(TwinView::new(
        &subject,
        services,
        bares,
        &searched,
        &measured,
        &predicted?,
        knee_rps,
        doubts(&measured, &flow, cores.is_given()),
    ))
}

/// The figures of `e3 bench sim`: the application on one node with one core.
pub fn figures(app: &str, sources: &Sources, settings: &Settings) -> Result<Vec<Figure>, Failure> {
    let args = Twin {
        app: app.into(),
        topology: TOPOLOGY_DEFAULT.into(),
        seconds: SECONDS_DEFAULT,
        seed: 1,
        sources: sources.clone(),
        output: Output::default(),
    };
    let view = compare(&args, settings)?;
    let mut note = format!(
        "{app} on {}: knee {:.0} requests/s, predicted {:.0}",
        view.topology, view.knee.measured_rps, view.knee.predicted_rps
    );
    for doubt in &view.doubts {
        note += &format!("; {doubt}");
    }
    Ok(twin::figures(view.knee.error, view.p50_error, &note))
}

/// What is compared.
struct Subject {
    text: Text,
    app: Application,
    topology: Topology,
    /// Kinds and names of the nodes, a host first.
    nodes: Vec<(NodeKind, String)>,
    request_bytes: usize,
}

impl Subject {
    fn read(args: &Twin) -> Result<Subject, Failure> {
        let (text, mut app) = builtin::application(&args.app)?;
        let (_, topology) = builtin::topology(&args.topology)?;
        let nodes = nodes(&topology)?;
        // One server is one fault domain.
        for service in &mut app.spec.services {
            service.replicas = 1;
        }
        let text = text.with(&app);
        check_fit(&text.file, &text.text, &app, &topology)?;
        let load = app.spec.load.as_ref();
        Ok(Subject {
            request_bytes: load.map_or(512, |l| l.request_bytes as usize),
            text,
            app,
            topology,
            nodes,
        })
    }

    fn workload(
        &self,
        secret: &impl Fn(&str) -> Result<Vec<u8>, Failure>,
        rate_rps: f64,
        duration: Duration,
        seed: u64,
    ) -> Result<Box<dyn Workload>, Failure> {
        let failed = |e: &dyn std::fmt::Display| Failure::new(Exit::Unexpected, e);
        let names = secrets(&self.app.name).iter();
        let secrets = names.map(|name| Ok((name.to_string(), secret(name)?)));
        let inputs = Inputs {
            seed,
            rate_rps,
            duration,
            now: Clock::new().now(),
            secrets: secrets.collect::<Result<_, Failure>>()?,
            senders: None,
            run: unique().map_err(|e| failed(&e))?,
        };
        for_application(&self.app.name, &inputs).map_err(|e| failed(&e))
    }
}

/// The nodes of a topology that fits this machine, a host first.
fn nodes(topology: &Topology) -> Result<Vec<(NodeKind, String)>, Failure> {
    let all = topology.nodes().map(|n| (n.node.kind, n.node.name.clone()));
    let mut all: Vec<(NodeKind, String)> = all.collect();
    all.sort();
    let kinds: Vec<NodeKind> = all.iter().map(|(kind, _)| *kind).collect();
    let fits = kinds == [NodeKind::Host] || kinds == [NodeKind::Host, NodeKind::SmartNic];
    let cores = topology.nodes().map(|n| n.node.cores).max();
    if fits && cores == Some(1) {
        return Ok(all);
    }
    let message = format!(
        "topology {:?} has {} nodes with up to {} cores, must have a host, or a host and a SmartNIC ({NODES_MAX} nodes), with 1 core each",
        topology.name,
        all.len(),
        cores.unwrap_or(0)
    );
    Err(Failure::new(Exit::Input, message).hint("built in: twin-host, twin-smartnic"))
}

/// Where the controller has put the primaries.
fn placement(cluster: &DemoCluster, subject: &Subject) -> Result<Placement, Failure> {
    let mut decisions = Vec::new();
    for instance in cluster.client.instances()? {
        let mut parts = instance.instance.split('/');
        let (Some(app), Some(service), Some(shard)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let service = subject.app.service_named(service);
        let mut nodes = subject.topology.nodes();
        let node = nodes.find(|n| n.node.name == instance.node);
        if app == subject.app.name
            && let (Some((service, _)), Ok(shard), Some(node)) = (service, shard.parse(), node)
        {
            decisions.push(predict::decision(service.0, shard, node.id));
        }
    }
    Ok(Placement { decisions })
}

impl TwinView {
    #[allow(clippy::too_many_arguments, reason = "one caller, right above")]
    fn new(
        subject: &Subject,
        services: Vec<ServiceView>,
        bares: Bares,
        searched: &[Sample],
        measured: &[Sample],
        predicted: &[e3_perfsim::Report],
        predicted_knee_rps: f64,
        doubts: Vec<String>,
    ) -> TwinView {
        let all = searched.iter().chain(measured).map(|s| s.point);
        let all: Vec<Point> = all.collect();
        let measured_rps = twin::knee(&all).unwrap_or(0.0);
        let pairs = measured.iter().zip(predicted);
        let pairs: Vec<(Point, Point)> = pairs.map(|(m, p)| (m.point, predict::point(p))).collect();
        let load = |(i, (m, p)): (usize, &(Point, Point))| LoadView {
            offered_rps: m.offered_rps,
            measured: *m,
            predicted: *p,
            saturated: predicted[i].saturated,
            p50_error: twin::error(p.p50_us, m.p50_us),
            p99_error: twin::error(p.p99_us, m.p99_us),
            client_cores: measured[i].client_cores,
        };
        TwinView {
            app: subject.app.name.clone(),
            topology: subject.topology.name.clone(),
            machine: e3_bench::Machine::here(),
            services,
            nodes: bares.nodes,
            hop: bares.hop,
            loads: pairs.iter().enumerate().map(load).collect(),
            knee: KneeView {
                measured_rps,
                predicted_rps: predicted_knee_rps,
                error: twin::error(predicted_knee_rps, measured_rps),
            },
            p50_error: twin::p50_error(&pairs, measured_rps),
            doubts,
        }
    }
}

fn doubts(measured: &[Sample], flow: &Flow, have_cores: bool) -> Vec<String> {
    let mut doubts = Vec::new();
    if !have_cores {
        doubts
            .push("nodes and client share this machine's cores, of which there are too few".into());
    }
    let client = measured.iter().map(|s| s.client_cores).fold(0.0, f64::max);
    if client > CLIENT_CORES_MAX {
        doubts.push(format!(
            "the client used {client:.2} cores: it may limit the highest loads, not the nodes"
        ));
    }
    let lost: u64 = measured.iter().map(|s| s.lost).sum();
    if lost > 0 {
        doubts.push(format!("{lost} requests had no outcome"));
    }
    let rare = flow.visits.iter().filter(|v| **v == 0.0).count();
    if rare > 0 {
        doubts.push(format!(
            "{rare} services handled no message when they were measured alone"
        ));
    }
    doubts
}
