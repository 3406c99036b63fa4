//! `e3 bench chaos`: how long a shard pauses after each fault, and what a long run loses.

use super::fault::Fault;
use super::inject::{Injected, Injector};
use super::network::{self, Network};
use super::own::Own;
use super::probe::{self, Answer};
use super::processes::Processes;
use super::schedule::{PRIMARY_OF, Planned};
use super::{Chaos, prepare, seeds};
use crate::cluster::access::SecretsOf;
use crate::commands::bench::part::Part;
use crate::commands::load::{self, Plan};
use crate::documents::Sources;
use crate::limits::{
    CHAOS_API_TIMEOUT, CHAOS_DEADLINE, CHAOS_RATE_RPS_DEFAULT, FAILOVER_MAX, PROBE_BEFORE,
};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output};
use e3_bench::Figure;
use e3_bench::chaos::{Failovers, Measured, Quiet, Run, figures};
use e3_loadgen::LoadReport;
use e3_model::api::InstanceView;
use e3_model::plan::Role;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const APP: &str = "kvs";
/// The shard that is probed.
const SHARD: &str = "kvs/kvs/0";
/// Why there are no faults of the network.
const NEEDS_ROOT: &str = "they need root";
/// Fail-overs after each fault in a run of an hour; fewer in a shorter one.
const ROUNDS: f64 = 20.0;
const ROUNDS_MIN: u32 = 3;
/// Faults that make a backup take over.
const FAILOVERS: [Fault; 4] = [Fault::Kill, Fault::Pause, Fault::OneWay, Fault::CutPeers];
/// Faults of the controller.
const AWAY: [Fault; 3] = [
    Fault::PauseController,
    Fault::RestartController,
    Fault::KillController,
];
/// Length of a fault of the controller.
const AWAY_FOR: Duration = Duration::from_secs(10);
/// The search for the highest rate offers this much for so long, and doubles it until less than this part of
/// it is handled.
const FLOOD_RPS: f64 = 50_000.0;
const FLOOD_FOR: Duration = Duration::from_secs(5);
const FLOOD_HANDLED_MIN: f64 = 0.8;
/// A load that is too high is made of loads of at most this length, as the ledger of each is in memory.
const OVERLOAD_MAX: Duration = Duration::from_mins(2);
/// Busy loops beside a load that is too high.
const BUSY_LOOPS: usize = 2;

/// Measures all parts, or one; each on a cluster of its own.
pub fn run(
    minutes: f64,
    parts: &[Part],
    sources: &Sources,
    settings: &Settings,
) -> Result<Vec<Figure>, Failure> {
    // Rather than after hours.
    if parts.contains(&Part::Seeds) {
        seeds::nemesis()?;
    }
    if parts.contains(&Part::Deliberate) {
        seeds::deliberate_faults()?;
    }
    let is_root = rustix::process::geteuid().is_root();
    let needs_no_cluster = |p: &Part| matches!(p, Part::Seeds | Part::Deliberate);
    if is_root && !parts.iter().all(needs_no_cluster) {
        network::enter()?;
    }
    let stage = || Stage::start(is_root, sources, settings);
    let mut measured = Measured::default();
    for part in parts {
        match part {
            Part::Failover => {
                let rounds = (minutes / 60.0 * ROUNDS) as u32;
                let rounds = rounds.clamp(ROUNDS_MIN, ROUNDS as u32);
                let has_network = if is_root {
                    Ok(())
                } else {
                    Err(NEEDS_ROOT.into())
                };
                let (failovers, missing) = failovers(rounds, has_network, sources, settings)?;
                (measured.failovers, measured.missing) = (failovers, missing);
            }
            Part::Controller => {
                let stage = stage()?;
                for fault in AWAY {
                    measured.away.push((fault.to_string(), stage.away(fault)?));
                }
            }
            Part::Load => measured.quiet = Some(stage()?.quiet(minutes / 2.0)?),
            Part::Seeds => measured.seeds = Some(seeds::seeds(minutes)?),
            Part::Deliberate => measured.deliberate = Some(seeds::deliberate()?),
            Part::Run => measured.run = Some(long_run(minutes, is_root, sources, settings)?),
            // Of the group state.
            _ => {}
        }
    }
    Ok(figures(&measured))
}

/// Runs this program again in a network namespace of its own, for faults of the network; or says why
/// there can be none.
pub fn enter_network() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err(NEEDS_ROOT.into());
    }
    network::enter().map_err(|e| e.message)
}

/// So many fail-overs after each fault, on a cluster of its own; and which faults were not tried.
pub fn failovers(
    rounds: u32,
    has_network: Result<(), String>,
    sources: &Sources,
    settings: &Settings,
) -> Result<(Vec<Failovers>, Option<String>), Failure> {
    let stage = Stage::start(has_network.is_ok(), sources, settings)?;
    let why = has_network.err();
    let mut measured = Vec::new();
    for fault in FAILOVERS {
        if fault.needs_network() && why.is_some() {
            continue;
        }
        measured.push(stage.failovers(fault, rounds)?);
    }
    let missing = why.map(|why| format!("one-way and cut-peers were not tried: {why}"));
    Ok((measured, missing))
}

/// A cluster with the application.
struct Stage {
    injector: Injector,
    own: Own,
}

impl Stage {
    fn start(network: bool, sources: &Sources, settings: &Settings) -> Result<Stage, Failure> {
        let own = Own::start(APP, sources, settings)?;
        let processes = Processes::of(&own.state)?;
        let injector = Injector {
            app: APP.into(),
            client: own.client.clone(),
            network: network.then(|| Network::new(processes.controller_port())),
            processes,
            updates: None,
            stop: Arc::new(AtomicBool::new(false)),
        };
        Ok(Stage { injector, own })
    }

    /// Probes a shard while a fault is injected. Returns when the fault began, and the answers so far;
    /// `until` decides by the answers when to stop.
    fn probe(
        &self,
        fault: Fault,
        length: Duration,
        mut until: impl FnMut(Instant, &[Answer], bool) -> bool,
    ) -> Result<(Instant, Vec<Answer>), Failure> {
        let client = &self.own.client;
        let shards = client.app(APP)?.services.first().map_or(1, |s| s.shards);
        let mut round = [Injected::new(Planned {
            round: 0,
            at: Duration::ZERO,
            fault,
            target: format!("{PRIMARY_OF}{SHARD}"),
            length,
        })];
        self.injector.aim(&mut round[0], CHAOS_API_TIMEOUT)?;
        let node = self.primary()?.node;
        let address = client.node(&node)?.address.unwrap_or_default();
        let (tell, answers) = channel();
        let (tell_begun, begun) = channel();
        let over = AtomicBool::new(false);
        let probed = std::thread::scope(|scope| {
            let key = probe::key_of(0, shards);
            let (over, address) = (&over, &address);
            let probing = scope.spawn(move || probe::run(client, APP, &key, address, over, &tell));
            std::thread::sleep(PROBE_BEFORE);
            let (planned, node) = (&round[0].planned, &node);
            let injecting = scope.spawn(move || {
                self.injector.inject(planned, node, &mut || {
                    let _ = tell_begun.send(Instant::now());
                })
            });
            let mut all = Vec::new();
            // A fault that failed never begins, and is reported below.
            let began = begun.recv().unwrap_or_else(|_| Instant::now());
            loop {
                take(&answers, &mut all);
                let late = began.elapsed() > FAILOVER_MAX + length;
                if late || until(began, &all, injecting.is_finished()) {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
            // Ends a fault that is still in progress.
            self.injector.stop.store(true, Ordering::Relaxed);
            let panicked = |_| Failure::new(Exit::Unexpected, "a thread has panicked");
            injecting.join().map_err(panicked)??;
            self.injector.stop.store(false, Ordering::Relaxed);
            probing.join().map_err(panicked)??;
            Ok((began, all))
        });
        self.injector.processes.heal();
        let whole = self.injector.wait_until_whole(&round);
        whole.map_err(|why| Failure::new(Exit::Check, why))?;
        probed
    }

    /// The primary of the shard that is probed.
    fn primary(&self) -> Result<InstanceView, Failure> {
        let all = self.own.client.instances()?.into_iter();
        let mut primaries = all.filter(|i| i.instance == SHARD && i.role == Role::Primary);
        let none = || Failure::new(Exit::NotFound, format!("{SHARD} has no primary"));
        primaries.next().ok_or_else(none)
    }

    fn failovers(&self, fault: Fault, rounds: u32) -> Result<Failovers, Failure> {
        let mut ms = Vec::new();
        for _ in 0..rounds {
            let length = fault.length().map_or(Duration::ZERO, |_| FAILOVER_MAX);
            let first = |began: Instant, all: &[Answer]| {
                let after = all.iter().filter(|a| a.sent > began);
                after.map(|a| a.came - began).min()
            };
            let view = self.primary()?.view;
            let (began, all) =
                self.probe(fault, length, |began, all, _| first(began, all).is_some())?;
            if self.primary()?.view == view {
                let message = format!("{fault} caused no fail-over of {SHARD}");
                return Err(Failure::new(Exit::Check, message));
            }
            let took = first(began, &all).map(|took| took.as_secs_f64() * 1e3);
            output::say(&match took {
                Some(ms) => format!("{fault}: fail-over after {ms:.0} ms"),
                None => format!("{fault}: no reply in time"),
            });
            ms.push(took);
        }
        let fault = fault.to_string();
        Ok(Failovers { fault, ms })
    }

    /// Longest time without an answer while the controller is down, in milliseconds; None if none came after it.
    fn away(&self, fault: Fault) -> Result<Option<f64>, Failure> {
        // Without an answer at the end the longest time would not be over.
        let is_over =
            |began: Instant, all: &[Answer]| all.iter().any(|a| a.sent > began + AWAY_FOR);
        let (began, mut all) = self.probe(fault, AWAY_FOR, |began, all, ended| {
            ended && is_over(began, all)
        })?;
        all.sort_by_key(|a| a.came);
        let gaps = all.windows(2).map(|w| w[1].came - w[0].came);
        let longest = gaps.max().filter(|_| is_over(began, &all));
        let longest = longest.map(|gap| gap.as_secs_f64() * 1e3);
        output::say(&match longest {
            Some(ms) => format!("{fault}: {ms:.0} ms without a reply"),
            None => format!("{fault}: no reply after it"),
        });
        Ok(longest)
    }

    fn load(&self, rate_rps: f64, duration: Duration) -> Result<LoadReport, Failure> {
        let plan = Plan {
            app: APP.into(),
            rate_rps,
            duration,
            seed: 1,
            senders: None,
            secrets: SecretsOf::Cluster(self.own.state.clone()),
            deadline: CHAOS_DEADLINE,
            stop: Arc::new(AtomicBool::new(false)),
        };
        load::drive_alone(&self.own.client, &plan, |_| {})
    }

    /// The sum of the views of all shards: each fail-over adds one.
    fn views(&self) -> Result<u64, Failure> {
        let all = self.own.client.instances()?.into_iter();
        let primaries = all.filter(|i| i.role == Role::Primary);
        Ok(primaries.map(|i| u64::from(i.view)).sum())
    }

    /// The most requests that are handled in a second.
    fn highest_rps(&self) -> Result<f64, Failure> {
        let mut offered_rps = FLOOD_RPS;
        loop {
            let highest = self.load(offered_rps, FLOOD_FOR)?.achieved_rps;
            if highest < FLOOD_HANDLED_MIN * offered_rps {
                return Ok(highest);
            }
            offered_rps *= 2.0;
        }
    }

    /// Offers this much; gives how many requests were sent and handled in a second.
    fn overload(&self, offered_rps: f64, duration: Duration) -> Result<(f64, f64), Failure> {
        let (mut left, mut sent, mut handled) = (duration, 0, 0);
        while !left.is_zero() {
            let part = left.min(OVERLOAD_MAX);
            let ledger = self.load(offered_rps, part)?.ledger;
            sent += ledger.sent;
            handled += ledger.done;
            left -= part;
        }
        let seconds = duration.as_secs_f64();
        Ok((sent as f64 / seconds, handled as f64 / seconds))
    }

    /// Counts fail-overs under a load that is too high, without a fault.
    fn quiet(&self, minutes: f64) -> Result<Quiet, Failure> {
        let highest_rps = self.highest_rps()?;
        let offered_rps = 3.0 * highest_rps;
        let before = self.views()?;
        let over = AtomicBool::new(false);
        let (sent_rps, handled_rps) = std::thread::scope(|scope| {
            for _ in 0..BUSY_LOOPS {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let loaded = self.overload(offered_rps, Duration::from_secs_f64(minutes * 60.0));
            over.store(true, Ordering::Relaxed);
            loaded
        })?;
        Ok(Quiet {
            failovers: self.views()?.saturating_sub(before),
            minutes,
            highest_rps,
            offered_rps,
            sent_rps,
            handled_rps,
        })
    }
}

/// Takes the answers that have arrived; waits briefly for the first.
fn take(answers: &Receiver<Answer>, all: &mut Vec<Answer>) {
    all.extend(answers.recv_timeout(PROBE_BEFORE / 100).ok());
    all.extend(answers.try_iter());
}

fn long_run(
    minutes: f64,
    network: bool,
    sources: &Sources,
    settings: &Settings,
) -> Result<Run, Failure> {
    let own = Own::start(APP, sources, settings)?;
    let chaos = Chaos {
        app: APP.into(),
        minutes,
        seed: None,
        faults: Vec::new(),
        rate: CHAOS_RATE_RPS_DEFAULT,
        manifest: None,
        history: None,
        network,
        dry_run: false,
        sources: sources.clone(),
        output: Output::default(),
    };
    let run = prepare(&chaos, settings, &own.state, own.client.clone())?;
    let (report, _) = run.run(Some(&own.removal))?;
    if report.load.stopped_early {
        let message = "interrupted: no figure is taken of a part of the run";
        return Err(Failure::new(Exit::Unexpected, message));
    }
    Ok(Run {
        minutes,
        faults: report
            .faults
            .iter()
            .filter(|f| f.injected.began_ms.is_some())
            .count() as u64,
        sent: report.load.ledger.sent,
        lost: report.lost.map(|lost| lost + report.without_outcome),
        repeated: report.repeated,
        reasons: report.reasons,
        replay: report.replay,
    })
}
