//! `e3 demo day`: a day of load in a minute, first on a fixed placement, then with the orchestrator
//! following the load. What is measured: requests, latency, moves. What is modelled: watts and joules.
//!
//! The cluster is emulated at a five-hundredth of its speed, so the day's highest rate is what two cores can
//! send and answer. How long a request takes is measured here first; so the placement of each machine
//! has the same use of its cores, and needs all three servers at the peak.

mod curve;
mod report;
mod watts;

use crate::cluster::access::SecretsOf;
use crate::cluster::client::Client;
use crate::commands::demo::cluster::DemoCluster;
use crate::commands::deploy;
use crate::commands::load::{self, Plan};
use crate::documents::Sources;
use crate::documents::builtin::{self, Text};
use crate::limits::DEPLOY_TIMEOUT;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output};
use clap::Args;
use curve::Day;
use e3_loadgen::{LoadReport, Phase};
use e3_model::api::{DeployRequest, Event, InstanceView, OrchestratorMode, OrchestratorRequest};
use e3_model::application::Load;
use e3_model::document::{API_VERSION, Document, Kind, Metadata, parse_application};
use e3_model::profile::Provenance;
use e3_model::{Application, Nanos, NodeKind, Profile, Topology};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use watts::{Drawn, Subject};

/// `e3 demo day`.
#[derive(Args, Debug, Clone)]
pub struct DayArgs {
    /// Seconds in which a day passes; two of them are replayed
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    pub seconds: u64,
    /// Seed of the load
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Where modules and profiles come from.
    #[command(flatten)]
    pub sources: Sources,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

const TOPOLOGY: &str = "day";
/// The application: a key-value store, whose state moves with it.
const APP: &str = "kvs";
const MANIFEST: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: kvs}
spec:
  objective: {latency: 100ms}
  deadline: 60s
  ingress: kvs
  load: {rateRps: 1, requestBytes: 512}
  services:
    - name: kvs
      module: kvs.wasm
      stateful: true
      shards: 6
      resources: {cpu: 0.0001, memory: 64Mi}
      collections:
        - {name: items, kind: hash-map}
        - {name: expiries, kind: ordered-map}
        - {name: versions, kind: counter}
";
/// Senders: so many that each shard has about as much to do as the others.
const SENDERS: u32 = 480;
/// What a placement must carry, in percent of the rate.
const RESERVE_PERCENT: u32 = 200;
/// What the highest rate with the reserve takes of what three hosts carry.
const PEAK_USE: f64 = 0.9;
/// Energy that is counted for the move of an instance.
const MOVE_JOULES: u32 = 20;
/// Looks of the orchestrator at the rate, in a day.
const LOOKS: u64 = 30;
/// Time between two looks at least: a node reports once a second.
const INTERVAL_S_MIN: u32 = 2;
/// The load that shows how long a request takes.
const TRIAL_RPS: f64 = 30.0;
const TRIAL: Duration = Duration::from_secs(4);
/// A run that takes much longer than others occupies its core for seconds at this speed.
const DEADLINE: Duration = Duration::from_secs(60);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);
const DAY_S: f64 = 86_400.0;

/// A placement at some time of the day.
struct Sample {
    hour: f64,
    drawn: Drawn,
}

/// A day that was replayed.
struct Replayed {
    load: LoadReport,
    samples: Vec<Sample>,
    /// Until the load ended.
    events: Vec<Event>,
}

/// What is replayed, where.
struct Stage {
    cluster: DemoCluster,
    app: Application,
    profiles: BTreeMap<String, Profile>,
    topology: Topology,
    day: Day,
    seed: u64,
}

/// `e3 demo day`.
pub fn run(args: &DayArgs, settings: &Settings) -> Result<(), Failure> {
    let (text, app) = manifest()?;
    // Checked before anything is started.
    let request = DeployRequest {
        overcommit: true,
        ..deploy::request(&text, &app, &args.sources, settings)?
    };
    let profiles = builtin::profiles(deploy::profiles_dir(&args.sources, settings))?.by_name;
    let cluster = DemoCluster::start(Some(TOPOLOGY), None, settings)?;
    let topology = cluster.state.stored_topology()?;
    let mut stage = Stage {
        cluster,
        app,
        profiles,
        topology,
        day: Day {
            length: Duration::from_secs(args.seconds),
            peak_rps: TRIAL_RPS,
        },
        seed: args.seed,
    };
    stage.deploy(&request)?;
    let time = stage.measure()?;
    stage.prepare(time)?;
    stage.cluster.client.delete(APP)?;
    stage.deploy(&stage.request(&text, &request))?;
    output::say("a day on a fixed placement");
    let fixed = stage.replay()?;
    follow(&stage.cluster.client, args.seconds)?;
    output::say("the same day with a placement that follows the load");
    let adaptive = stage.replay()?;
    let report = report::Report::new(&stage.day, time, &fixed, &adaptive);
    let paint = settings.paint();
    output::show(settings.format(args.output), &report, || {
        report::text(&report, paint)
    })?;
    stage.cluster.remove()?;
    load::not_failed(&fixed.load)?;
    load::not_failed(&adaptive.load)
}

fn manifest() -> Result<(Text, Application), Failure> {
    let text = Text {
        file: "demo (built in)".to_string(),
        text: MANIFEST.to_string(),
        dir: None,
    };
    let app = parse_application(&text.file, &text.text)?;
    Ok((text, app))
}

/// Has the orchestrator follow the load, as quickly as this day passes.
fn follow(client: &Client, seconds: u64) -> Result<(), Failure> {
    let interval = u32::try_from(seconds / LOOKS).unwrap_or(u32::MAX);
    let interval = interval.max(INTERVAL_S_MIN);
    let numbers = [
        ("followIntervalS", interval),
        ("followReservePercent", RESERVE_PERCENT),
        ("followHorizonS", 3_600),
        ("followMoveJoules", MOVE_JOULES),
        ("followCooldownS", interval),
        ("instanceCooldownS", 1),
        ("nodeCooldownS", 1),
        ("cooldownSMax", interval),
        ("movesPerServerMax", 4),
    ];
    let request = OrchestratorRequest {
        mode: Some(OrchestratorMode::On),
        numbers: numbers
            .map(|(name, value)| (name.to_string(), value))
            .into(),
    };
    client.set_orchestrator(&request).map(drop)
}

impl Stage {
    fn deploy(&self, request: &DeployRequest) -> Result<(), Failure> {
        let client = &self.cluster.client;
        let version = client.deploy(request)?.code_version;
        deploy::wait_ready(client, APP, version, DEPLOY_TIMEOUT).map(drop)
    }

    fn plan(&self, rate_rps: f64, duration: Duration) -> Plan {
        Plan {
            app: APP.to_string(),
            rate_rps,
            duration,
            seed: self.seed,
            senders: Some(SENDERS),
            secrets: SecretsOf::Cluster(self.cluster.state.clone()),
            deadline: DEADLINE,
            stop: Arc::new(AtomicBool::new(false)),
        }
    }

    /// How long a request takes on a host at full speed, measured on this machine.
    fn measure(&self) -> Result<Nanos, Failure> {
        output::say("measuring how long a request takes here");
        let client = &self.cluster.client;
        let ran = load::drive(client, &self.plan(TRIAL_RPS, TRIAL))?;
        load::not_failed(&ran.load)?;
        let factor = |kind| {
            let time = |kind| self.profiles.get(APP)?.service_time(kind, 512);
            match (time(kind), time(NodeKind::Host)) {
                (Some(here), Some(host)) => here.as_secs_f64() / host.as_secs_f64(),
                _ => 1.0,
            }
        };
        let (mut handled, mut host_s) = (0, 0.0);
        for view in client.instances()? {
            let Some(at) = self.topology.node_named(&view.node) else {
                continue;
            };
            handled += view.handled;
            host_s += view.busy_seconds * at.node.speed() / factor(at.node.kind);
        }
        let nanos = host_s * 1e9 / handled.max(1) as f64;
        if nanos >= 1.0 {
            Ok(Nanos(nanos as u64))
        } else {
            Err(Failure::new(
                Exit::Unexpected,
                "the nodes reported no time for the requests of the trial",
            ))
        }
    }

    /// Derives the day's highest rate, the load in the manifest and the profile from the measured time.
    fn prepare(&mut self, time: Nanos) -> Result<(), Failure> {
        let time_s = time.as_secs_f64();
        let hosts = self
            .topology
            .nodes()
            .filter(|n| n.node.kind == NodeKind::Host);
        let cores: f64 = hosts.map(|n| n.node.core_capacity()).sum();
        let knee_rps = e3_power::limits::KNEE_UTILISATION * cores / time_s;
        let reserve = f64::from(RESERVE_PERCENT) / 100.0;
        self.day.peak_rps = PEAK_USE * knee_rps / reserve;
        let spec = &mut self.app.spec;
        spec.load = Some(Load {
            rate_rps: self.day.peak_rps,
            request_bytes: 512,
            day: Vec::new(),
        });
        let service = &mut spec.services[0];
        // What a shard needs at the peak with the reserve, up to the use of a core at the knee.
        service.resources.cpu = PEAK_USE * cores / f64::from(service.shards);
        let profile = self.profiles.get_mut(APP);
        let profile = profile
            .ok_or_else(|| Failure::new(Exit::Input, format!("there is no profile {APP:?}")))?;
        let paper = |kind| profile.service_time(kind, 512);
        let slower = match (paper(NodeKind::SmartNic), paper(NodeKind::Host)) {
            (Some(nic), Some(host)) => nic.as_secs_f64() / host.as_secs_f64(),
            _ => 1.0,
        };
        profile.spec.provenance = Provenance::Measured;
        profile.spec.source = "measured by e3 demo day; SmartNIC: times the paper's ratio".into();
        for (kind, cost) in &mut profile.spec.nodes {
            cost.lower_bound = false;
            for point in &mut cost.service_time {
                let nanos = time.0 as f64 * if *kind == NodeKind::Host { 1.0 } else { slower };
                point.time = Nanos(nanos.round() as u64);
            }
        }
        Ok(())
    }

    /// The deployment with the measured profile.
    fn request(&self, text: &Text, before: &DeployRequest) -> DeployRequest {
        let profiles = self.profiles.values().map(|profile| {
            let document = Document {
                api_version: API_VERSION.to_string(),
                kind: Kind::Profile.name().to_string(),
                metadata: Metadata {
                    name: profile.name.clone(),
                    description: None,
                },
                spec: profile.spec.clone(),
            };
            // JSON is YAML.
            serde_json::to_string(&document).expect("plain data")
        });
        DeployRequest {
            manifest: text.with(&self.app).text,
            profiles: profiles.collect(),
            ..before.clone()
        }
    }

    /// Replays the day, and looks at the placement meanwhile.
    fn replay(&self) -> Result<Replayed, Failure> {
        let client = &self.cluster.client;
        let times = self.day.times();
        let rate_rps = times.len() as f64 / self.day.length.as_secs_f64();
        let plan = self.plan(rate_rps, self.day.length);
        let begun = OnceLock::new();
        let stop = AtomicBool::new(false);
        let first = client.events(0, 0)?.last().map_or(0, |e| e.number);
        let (ran, samples) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| self.watch(first, &begun, &stop));
            let on_phase = |phase| {
                if phase == Phase::Load {
                    begun.get_or_init(Instant::now);
                }
                if phase == Phase::Drain {
                    stop.store(true, Ordering::Relaxed);
                }
            };
            let ran = load::drive_at(client, &plan, times, on_phase);
            stop.store(true, Ordering::Relaxed);
            let samples = watch.join().expect("it does not panic");
            (ran, samples)
        });
        let (load, (samples, events)) = (ran?.load, samples?);
        Ok(Replayed {
            load,
            samples,
            events,
        })
    }

    /// What the placement draws, from the begin of the load to its end, and the events after the `first`.
    fn watch(
        &self,
        first: u64,
        begun: &OnceLock<Instant>,
        stop: &AtomicBool,
    ) -> Result<(Vec<Sample>, Vec<Event>), Failure> {
        let client = &self.cluster.client;
        let subject = Subject {
            app: &self.app,
            profiles: &self.profiles,
            topology: &self.topology,
        };
        let mut samples = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(SAMPLE_INTERVAL);
            let Some(begun) = begun.get() else { continue };
            let hour = self.day.hour(begun.elapsed());
            let instances: Vec<InstanceView> = client.instances()?;
            let rate_rps = self.day.rate_rps(hour);
            if let Some(drawn) = subject.drawn(&instances, rate_rps).filter(|_| hour <= 24.0) {
                samples.push(Sample { hour, drawn });
            }
        }
        if samples.is_empty() {
            let message = "the placement of the application was never seen";
            return Err(Failure::new(Exit::Unexpected, message));
        }
        Ok((samples, client.events(first, 0)?))
    }
}
