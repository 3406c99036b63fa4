//! `e3 chaos`: injects faults into a running cluster under load. The seed decides the faults; the
//! ledger of the load shows whether anything was lost or repeated.

pub mod bench;
mod fault;
mod history;
mod inject;
mod network;
pub mod own;
mod probe;
mod processes;
mod relay;
mod report;
mod schedule;
mod seeds;
mod update;

use crate::cluster::access::SecretsOf;
use crate::cluster::client::Client;
use crate::cluster::patience::Patience;
use crate::cluster::removal::Removal;
use crate::cluster::state_dir::StateDir;
use crate::commands::load::figures::Losses;
use crate::commands::load::{self, Plan};
use crate::documents::Sources;
use crate::limits::{CHAOS_DEADLINE, CHAOS_MINUTES_MAX, CHAOS_RATE_RPS_DEFAULT, CHAOS_WHOLE_MAX};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::interrupt;
use crate::ui::output::{self, Output};
use crate::ui::text::quoted;
use crate::ui::values::rate;
use clap::Args;
use e3_loadgen::{LoadReport, Phase};
use e3_model::plan::Role;
use fault::Fault;
use history::{Clients, Operation};
use inject::{Injected, Injector};
use network::Network;
use own::Own;
use processes::Processes;
use report::ChaosReport;
use schedule::{Planned, Shape};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use update::Updates;

/// `e3 chaos`.
#[derive(Args, Debug, Clone)]
pub struct Chaos {
    /// Application, which must run on a cluster on this machine
    pub app: String,
    /// Length of the load in minutes
    #[arg(long, value_parser = minutes, default_value = "2", value_name = "MINUTES")]
    pub minutes: f64,
    /// Seed: the same seed gives the same faults at the same times [default: random]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Faults to choose from, separated by commas [default: all but kill-supervisor, which ends all processes
    /// at once, and with them the state that is in memory only]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FAULTS")]
    pub faults: Vec<Fault>,
    /// Requests per second
    #[arg(long, value_parser = rate, default_value_t = CHAOS_RATE_RPS_DEFAULT, value_name = "RATE")]
    pub rate: f64,
    /// Manifest of the application, for the fault `update` [default: the built-in one of its name]
    #[arg(long, value_name = "FILE|NAME")]
    pub manifest: Option<String>,
    /// Write a history of clients that share keys of a key-value store to this file, one line of JSON
    /// for each request
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Start a new cluster in a network namespace, deploy the application there, and also inject
    /// network faults; this needs root
    #[arg(long)]
    pub network: bool,
    /// Print the schedule and do nothing else
    #[arg(long)]
    pub dry_run: bool,
    /// Where modules and profiles come from.
    #[command(flatten)]
    pub sources: Sources,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// `e3 chaos`.
pub fn run(args: &Chaos, settings: &Settings) -> Result<(), Failure> {
    args.check()?;
    let mut own = None;
    let (state, client) = if args.network {
        network::enter()?;
        let manifest = args.manifest.as_deref().unwrap_or(&args.app);
        let own = own.insert(Own::start(manifest, &args.sources, settings)?);
        (own.state.clone(), own.client.clone())
    } else {
        let state = StateDir::new(&settings.dir);
        let cluster = state.require_running()?;
        settings.check_controller(Some(&cluster))?;
        let client = Client::of(&state, &cluster)?;
        (state, client)
    };
    let run = prepare(args, settings, &state, client)?;
    if args.dry_run {
        return output::print(&report::schedule(&run.plan));
    }
    let (report, history) = run.run(own.as_ref().map(|own| &own.removal))?;
    let format = settings.format(args.output);
    output::show(format, &report, || report.table(settings.paint()))?;
    if report.passed {
        return history;
    }
    // The verdict decides the exit code.
    if let Err(failure) = history {
        output::say(&format!("the history is not complete: {failure}"));
    }
    let message = format!(
        "{} did not survive: {}",
        args.app,
        report.reasons.join("; ")
    );
    Err(Failure::new(Exit::Check, message).hint(format!("again: {}", report.replay)))
}

/// Plans the faults of a cluster.
fn prepare<'a>(
    args: &'a Chaos,
    settings: &'a Settings,
    state: &StateDir,
    client: Client,
) -> Result<Run<'a>, Failure> {
    let processes = Processes::of(state)?;
    let seed = args.seed.unwrap_or_else(load::fresh_seed);
    let faults = args.chosen();
    let shape = shape(&processes, &client, &args.app)?;
    let length = Duration::from_secs_f64(args.minutes * 60.0);
    let plan = schedule::schedule(seed, length, &faults, &shape);
    if plan.is_empty() {
        let message = format!(
            "a load of {:.0} s is too short for a fault",
            length.as_secs_f64()
        );
        return Err(Failure::new(Exit::Input, message).hint("give more --minutes"));
    }
    Ok(Run {
        args,
        settings,
        seed,
        length,
        plan,
        replay: args.replay(seed, &faults, state.root()),
        client,
        processes,
    })
}

impl Chaos {
    fn check(&self) -> Result<(), Failure> {
        let network = self.faults.iter().find(|f| f.needs_network());
        match network {
            Some(fault) if !self.network => {
                let message = format!("the fault {fault} needs --network, which needs root");
                Err(Failure::new(Exit::Input, message))
            }
            _ => Ok(()),
        }
    }

    /// The faults to choose from, each once.
    fn chosen(&self) -> Vec<Fault> {
        if self.faults.is_empty() {
            let mut all = Fault::defaults(self.network);
            // Updates need a manifest, other faults do not.
            let known = self.manifest.is_some() || crate::documents::builtin::is_app(&self.app);
            all.retain(|f| *f != Fault::Update || known);
            return all;
        }
        let chosen: BTreeSet<Fault> = self.faults.iter().copied().collect();
        chosen.into_iter().collect()
    }

    /// The command that repeats the same faults, on the cluster in this directory unless it starts its own.
    fn replay(&self, seed: u64, faults: &[Fault], dir: &Path) -> String {
        let names: Vec<String> = faults.iter().map(Fault::to_string).collect();
        let mut line = format!(
            "e3 chaos {} --minutes {} --seed {seed} --rate {} --faults {}",
            quoted(&self.app),
            self.minutes,
            self.rate,
            names.join(",")
        );
        let dir = (!self.network).then_some(dir);
        if self.network {
            line += " --network";
        }
        let manifest = self.manifest.as_deref().map(Path::new);
        for (option, value) in [
            ("--dir", dir),
            ("--manifest", manifest),
            ("--services", self.sources.services.as_deref()),
            ("--profiles", self.sources.profiles.as_deref()),
            ("--history", self.history.as_deref()),
        ] {
            if let Some(value) = value {
                line += &format!(" {option} {}", quoted(&value.to_string_lossy()));
            }
        }
        line
    }
}

/// One run.
struct Run<'a> {
    args: &'a Chaos,
    settings: &'a Settings,
    seed: u64,
    length: Duration,
    plan: Vec<Planned>,
    replay: String,
    client: Client,
    processes: Processes,
}

/// What came of the load, the faults and the clients of a history.
struct Together {
    load: LoadReport,
    injected: Vec<Injected>,
    stuck: Option<String>,
    history: Option<Result<Vec<Operation>, Failure>>,
}

impl Run<'_> {
    /// The report, and whether the history was written if there is to be one. `own`: of the command's own cluster.
    fn run(self, own: Option<&Removal>) -> Result<(ChaosReport, Result<(), Failure>), Failure> {
        let app = &self.args.app;
        let _locked = self.processes.state().lock_load(app, false)?;
        let network = self.args.network;
        let stop = stop_on_signal(&self.processes, own.is_some())?;
        if let Some(removal) = own {
            removal.disarm();
        }
        let injector = Injector {
            app: app.clone(),
            client: self.client.clone(),
            processes: self.processes.clone(),
            network: network.then(|| Network::new(self.processes.controller_port())),
            updates: self.updates()?,
            stop: stop.clone(),
        };
        let load = Plan {
            app: app.clone(),
            rate_rps: self.args.rate,
            duration: self.length,
            seed: self.seed,
            senders: None,
            secrets: SecretsOf::Cluster(self.processes.state().clone()),
            deadline: CHAOS_DEADLINE,
            stop: stop.clone(),
        };
        // Before the load, rather than after it.
        let file = self.args.history.as_deref().map(history::create);
        let file = file.transpose()?;
        output::say(&format!("again: {}", self.replay));
        output::say(report::schedule(&self.plan).trim_end());
        let before = Losses::of(&self.client.app(app)?);
        let Together {
            mut load,
            injected,
            stuck,
            history,
        } = self.beside(&injector, &load)?;
        let written = match (&self.args.history, file, history) {
            (Some(path), Some(file), Some(history)) => {
                history.and_then(|all| history::write(path, file, &all))
            }
            _ => Ok(()),
        };
        let patience = Patience::new(CHAOS_WHOLE_MAX);
        let after = patience.ask(|| self.client.app(app));
        load.judge_with(after.as_ref().ok().map(|now| before.until(now)));
        let unknown = after.err();
        let unknown =
            unknown.map(|e| format!("it is not known whether a shard lost its state: {e}"));
        let mut report = ChaosReport {
            app: app.clone(),
            seed: self.seed,
            minutes: self.args.minutes,
            replay: self.replay,
            passed: false,
            reasons: Vec::new(),
            lost: None,
            repeated: None,
            without_outcome: 0,
            faults: report::costs(injected, &load.timeline),
            load,
        };
        report.judge(stuck.into_iter().chain(unknown));
        Ok((report, written))
    }

    /// Runs the load, the faults and the clients of a history concurrently.
    fn beside(&self, injector: &Injector, load: &Plan) -> Result<Together, Failure> {
        let (begun, begins) = channel();
        // Nothing is sent: it is closed when the last fault is over.
        let (injects, injected_all) = channel::<()>();
        let over = AtomicBool::new(false);
        let (loaded, injected, history) = std::thread::scope(|scope| {
            let (plan, length, over) = (&self.plan, self.length, &over);
            let injecting = scope.spawn(move || {
                let _injects = injects;
                match begins.recv() {
                    Ok(()) => injector.run(plan, length),
                    // The load failed before it began.
                    Err(_) => (Vec::new(), None),
                }
            });
            let mut begun = Some(begun);
            let mut clients = None;
            let loaded = load::drive_alone(&self.client, load, |phase| {
                if phase == Phase::Load
                    && let Some(begun) = begun.take()
                {
                    let _ = begun.send(());
                    let history = self.args.history.as_ref();
                    clients = history.map(|_| scope.spawn(|| self.clients(over)));
                }
                if !matches!(phase, Phase::Probe | Phase::Baseline | Phase::Load) {
                    over.store(true, Ordering::Relaxed);
                }
                // What a late fault costs shows only after it.
                if phase == Phase::Check {
                    let _ = injected_all.recv();
                }
            });
            drop(begun);
            over.store(true, Ordering::Relaxed);
            if loaded.is_err() {
                injector.stop.store(true, Ordering::Relaxed);
            }
            (loaded, injecting.join(), clients.map(|c| c.join()))
        });
        let panicked = |_| Failure::new(Exit::Unexpected, "a thread has panicked");
        let (injected, stuck) = injected.map_err(panicked)?;
        let load = loaded?;
        let history = history.map(|joined| joined.map_err(panicked).flatten());
        Ok(Together {
            load,
            injected,
            stuck,
            history,
        })
    }

    /// The clients of the history.
    fn clients(&self, over: &AtomicBool) -> Result<Vec<Operation>, Failure> {
        let clients = Clients {
            client: &self.client,
            app: &self.args.app,
            seed: self.seed,
            deadline: CHAOS_DEADLINE,
            run: e3_client::unique().map_err(|e| Failure::new(Exit::Unexpected, e))?,
        };
        clients.run(over)
    }

    fn updates(&self) -> Result<Option<Updates>, Failure> {
        if self.plan.iter().all(|p| p.fault != Fault::Update) {
            return Ok(None);
        }
        let manifest = self.args.manifest.as_deref().unwrap_or(&self.args.app);
        let sources = &self.args.sources;
        let updates = Updates::of(manifest, sources, self.settings, load::fresh_seed())?;
        if updates.app() != self.args.app {
            let (app, other) = (&self.args.app, updates.app());
            let message =
                format!("{manifest} is the manifest of {other:?}, must be that of {app:?}");
            return Err(Failure::new(Exit::Input, message));
        }
        Ok(Some(updates))
    }
}

/// The nodes, and the shards that keep state.
fn shape(processes: &Processes, client: &Client, app: &str) -> Result<Shape, Failure> {
    let stateful: BTreeSet<String> = client
        .app(app)?
        .services
        .into_iter()
        .filter(|s| s.stateful)
        .map(|s| format!("{app}/{}/", s.name))
        .collect();
    let primaries = client.instances()?.into_iter();
    let primaries = primaries.filter(|i| i.role == Role::Primary);
    let keeps = |name: &String| stateful.iter().any(|s| name.starts_with(s));
    let shards: BTreeSet<String> = primaries.map(|i| i.instance).filter(keeps).collect();
    Ok(Shape {
        nodes: processes.nodes(),
        shards: shards.into_iter().collect(),
    })
}

/// The flag that the first signal sets. The second signal resumes all processes, removes the cluster if it is
/// the command's own, and ends the program.
fn stop_on_signal(processes: &Processes, is_own: bool) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = interrupt::arriving()?;
    let (flag, processes) = (stop.clone(), processes.clone());
    std::thread::spawn(move || {
        for signal in signals.forever() {
            processes.heal();
            if flag.swap(true, Ordering::Relaxed) {
                if is_own {
                    processes.remove();
                }
                std::process::exit(128 + signal);
            }
            output::say("stopping: resumes all processes, then reads the state back");
        }
    });
    Ok(stop)
}

/// A length in minutes.
pub fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= CHAOS_MINUTES_MAX => Ok(minutes),
        _ => Err(format!(
            "{text:?} is not a number of minutes above 0 and up to {CHAOS_MINUTES_MAX}"
        )),
    }
}
