//! `e3 demo starvation`: a compute-heavy service on an emulated SmartNIC starves the host behind it,
//! first without the orchestrator, then with it. E3 (ATC 2019), 3.4 and 5.2.

use crate::cluster::client::Client as Controller;
use crate::commands::demo::cluster::DemoCluster;
use crate::commands::{deploy, events};
use crate::documents::Sources;
use crate::documents::builtin::{self, Text};
use crate::limits::DEPLOY_TIMEOUT;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output, Paint, Table};
use crate::ui::text::{count, micros, percent, rate};
use clap::Args;
use e3_client::{Call, Client, ClientError, Event as Outcome};
use e3_model::Nanos;
use e3_model::api::{DeployRequest, Event, OrchestratorMode, OrchestratorRequest};
use e3_model::document::parse_application;
use e3_model::event::EventKind;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// `e3 demo starvation`.
#[derive(Args, Debug, Clone)]
pub struct Starvation {
    /// Duration of each phase in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub seconds: u64,
    /// Where modules and profiles come from.
    #[command(flatten)]
    pub sources: Sources,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

const TOPOLOGY: &str = "starvation";
const HOST: &str = "s1-host";
const SMARTNIC: &str = "s1-nic0";

/// Replies with the request, on the host.
const LIGHT: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: hello}
spec:
  objective: {latency: 5ms}
  deadline: 10s
  ingress: echo
  services:
    - {name: echo, module: echo.wasm, pin: {node: s1-host}, resources: {cpu: 0.01, memory: 16Mi}}
";

/// Classifies texts, which takes floating point: by the paper's Table 1 a SmartNIC needs nine times as
/// long as a host.
const HEAVY: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: classify}
spec:
  objective: {latency: 1s}
  deadline: 10s
  ingress: bayes
  assets:
    - {name: model, file: ../data/spam-model.tsv}
  services:
    - name: bayes
      module: bayes.wasm
      resources: {cpu: 0.1, memory: 64Mi}
      assets: [model]
      config: {name: bayes, result: class}
";
const MODEL: &str = "spam-model.tsv";
/// Words of a text: a core of the SmartNIC takes some milliseconds for it.
const WORDS: usize = 1_200;
/// Heavy requests, as a multiple of what the SmartNIC's cores can keep up with at the speed of a first request. Under
/// load a request takes a third to two thirds of that time; more than the cores carry waits at the client.
const OVERLOAD: f64 = 6.0;
/// Heavy requests each second at most.
const HEAVY_RPS_MAX: f64 = 10_000.0;
/// Heavy requests that are timed, one after another, to find out what the cores can keep up with.
const TIMED: usize = 5;
/// Heavy requests in flight at most: what is not answered is not piled up without end.
const HEAVY_MAX: usize = 240;
/// Pause between two light requests.
const LIGHT_PAUSE: Duration = Duration::from_millis(5);
/// How long the orchestrator has to move the service.
const MOVE_TIMEOUT: Duration = Duration::from_secs(60);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// What was measured in a phase.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Phase {
    what: &'static str,
    seconds: f64,
    /// Requests to the host that were answered in it.
    light: u64,
    light_p50_us: f64,
    light_p99_us: f64,
    /// Requests to the compute-heavy service that were answered, each second.
    heavy_rps: f64,
    /// The longest queue at the SmartNIC.
    queue_max: u32,
    /// Greatest use of the SmartNIC's port, of 1.
    port_use_max: f64,
}

/// What `e3 demo starvation -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    topology: &'a str,
    machine: e3_bench::Machine,
    /// Speed of the emulated SmartNIC's cores.
    speed: f64,
    phases: &'a [Phase],
    events: &'a [Event],
}

/// What the threads of the load share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    heavy_on: AtomicBool,
    heavy_answered: AtomicU64,
    /// Latencies of the phase, in microseconds.
    light_us: Mutex<Vec<f64>>,
}

/// `e3 demo starvation`.
pub fn run(args: &Starvation, settings: &Settings) -> Result<(), Failure> {
    let light = prepare(LIGHT, args, settings)?;
    // As in the paper's experiment: on SmartNICs first, as far as they have the memory.
    let heavy = DeployRequest {
        placer: Some("nicfirst".into()),
        overcommit: true,
        ..prepare(HEAVY, args, settings)?
    };
    let cluster = DemoCluster::start(Some(TOPOLOGY), None, settings)?;
    set_orchestrator(&cluster.client, OrchestratorMode::Off)?;
    for (name, request) in [("hello", light), ("classify", heavy)] {
        let version = cluster.client.deploy(&request)?.code_version;
        deploy::wait_ready(&cluster.client, name, version, DEPLOY_TIMEOUT)?;
    }
    let first = cluster.client.events(0, 0)?.last().map_or(0, |e| e.number);
    let phases = phases(&cluster.client, Duration::from_secs(args.seconds))?;
    let mut events = cluster.client.events(first, 0)?;
    events.retain(|e| e.kind != EventKind::OrchestratorSet);
    let report = Report {
        topology: TOPOLOGY,
        machine: e3_bench::Machine::here(),
        speed: cluster.client.node(SMARTNIC)?.speed,
        phases: &phases,
        events: &events,
    };
    let paint = settings.paint();
    output::show(settings.format(args.output), &report, || {
        text(&report, paint)
    })?;
    cluster.remove()
}

/// What is deployed; checked before anything is started.
fn prepare(text: &str, args: &Starvation, settings: &Settings) -> Result<DeployRequest, Failure> {
    let text = Text {
        file: "demo (built in)".to_string(),
        text: text.to_string(),
        dir: None,
    };
    let app = parse_application(&text.file, &text.text)?;
    deploy::request(&text, &app, &args.sources, settings)
}

fn set_orchestrator(client: &Controller, mode: OrchestratorMode) -> Result<(), Failure> {
    let request = OrchestratorRequest {
        mode: Some(mode),
        ..OrchestratorRequest::default()
    };
    client.set_orchestrator(&request).map(drop)
}

/// All phases, under load.
fn phases(controller: &Controller, length: Duration) -> Result<Vec<Phase>, Failure> {
    let connect = |app| -> Result<Client, Failure> {
        Client::new(&controller.endpoints(app)?, None).map_err(of_client)
    };
    let (light, mut heavy) = (connect("hello")?, connect("classify")?);
    let payload = text_to_classify();
    let cores = controller.node(SMARTNIC)?.cores;
    let interval = heavy_interval(&mut heavy, &payload, cores).map_err(of_client)?;
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(|| send_light(light, &shared)),
            scope.spawn(|| send_heavy(heavy, &payload, interval, &shared)),
        ];
        let result = in_turn(controller, length, &shared);
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            let ended = thread.join().expect("the load does not panic");
            ended.map_err(of_client)?;
        }
        result
    })
}

fn in_turn(
    controller: &Controller,
    length: Duration,
    shared: &Shared,
) -> Result<Vec<Phase>, Failure> {
    let phase = |what, until: &mut dyn FnMut(Duration) -> Result<bool, Failure>| {
        output::say(what);
        measure(controller, what, shared, until)
    };
    let mut for_a_while = |passed: Duration| Ok(passed >= length);
    let mut phases = vec![phase("hello alone", &mut for_a_while)?];
    shared.heavy_on.store(true, Ordering::Relaxed);
    phases.push(phase("with classify, orchestrator off", &mut for_a_while)?);
    set_orchestrator(controller, OrchestratorMode::On)?;
    let mut moved = |passed: Duration| {
        let events = controller.events(0, 0)?;
        let done = events.iter().any(|e| e.kind == EventKind::MigrationDone);
        if done || passed < MOVE_TIMEOUT {
            Ok(done)
        } else {
            Err(not_moved(&events))
        }
    };
    phases.push(phase("orchestrator on, until it has moved", &mut moved)?);
    phases.push(phase("after the move", &mut for_a_while)?);
    Ok(phases)
}

fn not_moved(events: &[Event]) -> Failure {
    let last = events.last().map_or("no event", |e| e.why.as_str());
    let message = format!(
        "the orchestrator moved nothing within {} s: {last}",
        MOVE_TIMEOUT.as_secs()
    );
    let hint = "this machine may be too busy, or fast enough for the load; try again";
    Failure::new(Exit::Unexpected, message).hint(hint)
}

/// A phase, until it is over.
fn measure(
    controller: &Controller,
    what: &'static str,
    shared: &Shared,
    is_over: &mut dyn FnMut(Duration) -> Result<bool, Failure>,
) -> Result<Phase, Failure> {
    let lock = || shared.light_us.lock().expect("nobody panics with it");
    lock().clear();
    let answered = shared.heavy_answered.load(Ordering::Relaxed);
    let begin = Instant::now();
    let (mut queue_max, mut port_use_max) = (0, 0.0f64);
    while !is_over(begin.elapsed())? {
        std::thread::sleep(SAMPLE_INTERVAL);
        let node = controller.node(SMARTNIC)?;
        queue_max = queue_max.max(node.queue);
        port_use_max = port_use_max.max(node.port_use);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let mut light = std::mem::take(&mut *lock());
    light.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let at = (light.len() as f64 * part) as usize;
        light.get(at).or(light.last()).copied().unwrap_or(f64::NAN)
    };
    let answered = shared.heavy_answered.load(Ordering::Relaxed) - answered;
    Ok(Phase {
        what,
        seconds,
        light: light.len() as u64,
        light_p50_us: at(0.5),
        light_p99_us: at(0.99),
        heavy_rps: answered as f64 / seconds,
        queue_max,
        port_use_max,
    })
}

/// Sends one light request after another.
fn send_light(mut client: Client, shared: &Shared) -> Result<(), ClientError> {
    while !shared.stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let done = client.call(b"k", b"hello", Nanos::from_secs(10))?;
        if done.reply.is_some() {
            let us = begin.elapsed().as_secs_f64() * 1e6;
            let mut all = shared.light_us.lock().expect("nobody panics with it");
            all.push(us);
        }
        std::thread::sleep(LIGHT_PAUSE);
    }
    Ok(())
}

/// The time between two heavy requests at which the SmartNIC's cores cannot keep up, whatever the speed of
/// this machine.
fn heavy_interval(client: &mut Client, payload: &[u8], cores: u16) -> Result<Nanos, ClientError> {
    let mut shortest_s = f64::INFINITY;
    for _ in 0..TIMED {
        let begin = Instant::now();
        client.call(b"k", payload, Nanos::from_secs(10))?;
        shortest_s = shortest_s.min(begin.elapsed().as_secs_f64());
    }
    let rps = (OVERLOAD * f64::from(cores) / shortest_s).clamp(1.0, HEAVY_RPS_MAX);
    Ok(Nanos((1e9 / rps) as u64))
}

/// Sends heavy requests at their rate while they are wanted.
fn send_heavy(
    mut client: Client,
    payload: &[u8],
    interval: Nanos,
    shared: &Shared,
) -> Result<(), ClientError> {
    let mut due = client.now();
    while !shared.stop.load(Ordering::Relaxed) {
        let now = client.now();
        while due <= now {
            let is_wanted = shared.heavy_on.load(Ordering::Relaxed);
            if is_wanted && client.requests.in_flight() < HEAVY_MAX {
                let call = Call {
                    tag: 0,
                    key: b"k".to_vec(),
                    payload: payload.to_vec(),
                };
                let deadline = now + Nanos::from_secs(10);
                client.requests.submit(now, due, deadline, call);
            }
            due += interval;
        }
        client.turn(due)?;
        while let Some(event) = client.requests.poll_event() {
            if matches!(event, Outcome::Completed(done) if done.reply.is_some()) {
                shared.heavy_answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// A record with a text of words that the classifier knows.
fn text_to_classify() -> Vec<u8> {
    let model = builtin::asset(MODEL).unwrap_or_default();
    let model = String::from_utf8_lossy(model);
    let lines = model.lines().filter(|l| !l.starts_with('#')).skip(2);
    let words: Vec<&str> = lines.filter_map(|l| l.split('\t').next()).collect();
    let text: Vec<&str> = words.iter().copied().cycle().take(WORDS).collect();
    let record = BTreeMap::from([("text", text.join(" "))]);
    let mut bytes = Vec::new();
    ciborium::into_writer(&record, &mut bytes).expect("into memory");
    bytes
}

fn of_client(e: ClientError) -> Failure {
    Failure::new(Exit::Unexpected, format!("load: {e}"))
}

fn text(report: &Report<'_>, paint: Paint) -> String {
    let mut text = format!(
        "{}: hello runs on {HOST}, whose traffic passes {SMARTNIC}; classify begins on {SMARTNIC}\n\
         {SMARTNIC} is emulated at {} of its speed\nthis machine: {}\n\nMeasured here\n",
        paint.bold("starvation"),
        report.speed,
        report.machine
    );
    let mut table = Table::new(&[
        "PHASE",
        ">SECONDS",
        ">HELLO",
        ">P50",
        ">P99",
        ">CLASSIFY/S",
        ">QUEUE",
        ">PORT",
    ])
    .indent(2);
    for phase in report.phases {
        table.row([
            phase.what.to_string(),
            format!("{:.1}", phase.seconds),
            count(phase.light),
            micros(phase.light_p50_us),
            micros(phase.light_p99_us),
            rate(phase.heavy_rps),
            count(phase.queue_max.into()),
            percent(phase.port_use_max),
        ]);
    }
    text += &table.render();
    text += "  HELLO counts answers of the host, P50 and P99 are their latencies. QUEUE and PORT are the longest\n  \
             queue at the SmartNIC and the greatest use of its port.\n\nWhat the orchestrator did\n";
    text += &events::table(report.events);
    text
}
