//! Runs a scenario: a phase with faults, then healing, after which everything must agree with the
//! reference model.
//!
//! The controller and the agents of the nodes are simulated as processes that pause, die and restart;
//! the product ([`e3_control`]) makes their decisions. The controller takes its turn every [`STEP`];
//! in between, time advances by events.

mod acts;
mod agents;
mod asks;
mod backups;
mod checks;
mod clients;
mod controller;
mod disks;
mod loads;
mod members;
mod operator;
mod orchestrator;
mod placed;
mod probation;
mod processes;
mod releases;
mod replayed;
mod replays;
mod restored;
mod shrink;
mod summary;
mod taken;
mod topics;
mod upgrade;
mod versions;
mod waits;

pub use shrink::shrink;
pub use summary::Summary;

use crate::asks::Ask;
use crate::client::Client;
use crate::clock::SimClock;
use crate::cluster::{BEGIN, Cluster};
use crate::scenario::{Act, ClientShape, Scenario};
use crate::service::{Calls, Service};
use crate::ticks;
use crate::topics::{Published, Publishes};
use agents::Agents;
use controller::ControllerProcess;
use e3_dataplane::limits::DEDUP_GRACE;
use e3_model::{Nanos, Timestamp};
use e3_random::Random;
use e3_wire::entry::Outcome;
use members::Members;
use operator::Operator;
use releases::Releases;
use replayed::Replays;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use taken::Backups;
use waits::Waits;

/// The interval between two turns of the controller and the agents.
const STEP: Nanos = Nanos::from_millis(5);
/// The time before the first fault, in which nodes join and applications start.
const START: Nanos = Nanos::from_millis(600);
/// The time after healing in which nodes take what arrived while they were paused.
const BACKLOG: Nanos = Nanos::from_millis(100);
/// How long after healing every request must have its outcome and every shard all its copies, beside
/// the time that handlers take, and that nodes take to start after a power cut. It is less than what a
/// controller waits that no node tells what it has seen, so that such a wait is found.
const RECOVERY: Nanos = Nanos::from_secs(20);
/// How often the largest copy may have to be made meanwhile: one that lacks, and two that move one after another.
const COPIES_MADE: u64 = 3;
/// How long a new request may take after that.
pub const PROBE: Nanos = Nanos::from_secs(10);
/// Between two of them, beside the time that handlers take.
const PROBE_INTERVAL: Nanos = Nanos::from_millis(20);
const PROBE_INTERVAL_MAX: Nanos = Nanos::from_millis(100);
/// Requests after healing that show that an application works.
const PROBES: u64 = 20;
/// The same after the deadlines: enough that every shard gets some, and forgets what is too old.
const PROBES_LATE: u64 = 100;
/// How long after its time a timer has fired: clocks are off by no more, and little else is to be done.
const TIMERS_FIRED_AFTER: Nanos = Nanos::from_secs(3);
/// The same of timers that repeat, at least: those of all keys fire together.
const TICKS_FIRED_AFTER: Nanos = Nanos::from_secs(10);
/// How far the clock of a node may be ahead.
const AHEAD_MAX: Nanos = Nanos::from_secs(1);
/// How long moves may take when little else is to be done.
const MOVED_AFTER: Nanos = Nanos::from_secs(5);
/// Longest deadline of a scenario that goes on until all its requests must be forgotten.
const DEADLINE_SHORT_MS: u64 = 3_000;
/// How long after that.
const FORGOTTEN_AFTER: Nanos = Nanos(DEDUP_GRACE.0 + 5_000_000_000);
/// The invariants of a node are checked once in this many of its steps, as each check looks at all
/// channels.
const VALIDATES_EVERY: u64 = 64;

/// Why a scenario failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub Vec<String>);

/// Runs a scenario. A panic in the product is a failure too.
pub fn run(scenario: &Scenario) -> Result<Summary, Failure> {
    match catch_unwind(AssertUnwindSafe(|| Run::new(scenario).run())) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            Err(Failure(vec![format!(
                "panic: {}",
                text.unwrap_or_default()
            )]))
        }
    }
}

/// A run of a scenario.
struct Run<'a> {
    scenario: &'a Scenario,
    cluster: Cluster,
    controller: ControllerProcess,
    agents: Agents,
    /// Decides what a fault leaves to chance.
    random: Random,
    /// The faults in progress.
    active: Vec<Act>,
    /// By node: how many faults pause it.
    pauses: BTreeMap<u32, u32>,
    /// The kills that follow other faults: when, and which node.
    kills: Vec<(Timestamp, u32)>,
    /// The nodes that come back one after another: when, and which node.
    revivals: Vec<(Timestamp, u32)>,
    operator: Operator,
    members: Members,
    published: Published,
    backups: Backups,
    replays: Replays,
    releases: Releases,
    /// Versions that the controller went back from by itself.
    went_back: u64,
    /// The nodes whose power fails during their next write to disk.
    tears: Vec<u32>,
    /// Nodes whose next sync fails.
    sync_failures: Vec<u32>,
    /// The nodes that are refused for their damaged journals, and since when.
    damaged: BTreeMap<u32, Timestamp>,
    waits: Waits,
    begin: Timestamp,
    healed_at: Timestamp,
    /// When every shard had its copies again.
    whole_at: Timestamp,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario) -> Run<'a> {
        let services = scenario.apps.iter().enumerate().map(|(number, app)| {
            let services = app.services.iter().enumerate();
            services
                .map(|(at, s)| Service::Graph {
                    stateful: s.stateful,
                    draws_keys: scenario.draws_keys(app, at),
                    messages: app.channels_of(at).iter().map(|(_, n)| *n).collect(),
                    time: Nanos::from_micros(s.service_us),
                    fails_permille: s.fails_permille,
                    timer: Nanos::from_millis(s.timer_ms),
                    ticks: s.ticks.then(|| ticks::collection(s.ttl_ms > 0)),
                    ask: Ask::of(scenario, number, at),
                    publishes: Publishes::of(scenario, number, at),
                    fill_len: s.fill_len() as usize,
                    ttl: (s.ttl_ms > 0).then(|| Nanos::from_millis(s.ttl_ms)),
                    calls: s.calls.map(|service| Calls {
                        service,
                        steps: scenario.steps_to_called(app, service),
                    }),
                })
                .collect()
        });
        let mut cluster = Cluster::new(scenario.seed, Vec::new());
        cluster.services = services.collect();
        cluster.validates_every = VALIDATES_EVERY;
        let controller = ControllerProcess::new(cluster.now, scenario.topology());
        let mut agents = Agents::default();
        agents.reports_figures = scenario.has_bad_versions();
        agents.reports_loads = scenario.has_starvation();
        Run {
            scenario,
            cluster,
            controller,
            agents,
            random: Random::new(scenario.seed ^ 0xac75),
            active: Vec::new(),
            pauses: BTreeMap::new(),
            kills: Vec::new(),
            revivals: Vec::new(),
            operator: Operator::default(),
            members: Members::default(),
            published: Published::default(),
            backups: Backups::default(),
            replays: Replays::default(),
            releases: Releases::default(),
            went_back: 0,
            tears: Vec::new(),
            sync_failures: Vec::new(),
            damaged: BTreeMap::new(),
            waits: Waits::default(),
            begin: BEGIN,
            healed_at: Timestamp::MAX,
            whole_at: Timestamp::MAX,
        }
    }

    fn run(mut self) -> Result<Summary, Failure> {
        self.start();
        let end = self.begin + Nanos::from_millis(self.scenario.faults_ms);
        let mut script = self.scenario.script.iter().peekable();
        while self.cluster.now < end && self.is_sound() {
            let now = self.cluster.now;
            let is_due = |act: &&Act| self.begin + Nanos::from_millis(act.at_ms) <= now;
            let due: Vec<&Act> = std::iter::from_fn(|| script.next_if(|act| is_due(act))).collect();
            for act in due {
                self.begin_act(act);
            }
            self.end_acts();
            self.step();
        }
        self.heal();
        self.wait(BACKLOG);
        let recovered_by = self.healed_at + self.recovery() + self.scenario.refused_time();
        self.wait_for_decisions();
        self.replace_failing();
        self.let_settle(recovered_by);
        self.whole_at = self.cluster.now;
        let recovered_after = self.healed_at.until(self.whole_at);
        if self.is_sound() {
            self.check_settled();
        }
        if self.is_sound() {
            self.leave_bad_versions();
            self.probe(PROBES);
            self.outlive();
            self.wait_for_timers();
            self.let_ticks_pass();
            self.let_moves_end();
            self.check_idle("after the last answer");
            self.check_backups();
        }
        let is_short = |c: &ClientShape| !c.is_keyed && c.deadline_ms <= DEADLINE_SHORT_MS;
        // What services ask and publish is remembered for minutes, and replays for an hour.
        let asks = self.asks_or_publishes();
        if self.is_sound()
            && !asks
            && !self.has_replayed()
            && self.scenario.clients.iter().all(is_short)
        {
            self.wait(Nanos::from_millis(DEADLINE_SHORT_MS) + FORGOTTEN_AFTER);
            self.probe(PROBES_LATE);
            self.check_forgotten();
        }
        if self.is_sound() {
            self.outlive();
            self.wait_for_timers();
            self.wait_for_tick();
            self.check_effects();
            self.check_ticks();
            self.check_copies();
        }
        self.check_damage();
        if !self.is_sound() && !self.controller.is_beyond {
            return Err(Failure(self.cluster.ledger.violations));
        }
        Ok(self.summary(recovered_after))
    }

    /// Waits until all timers must have fired, and outbound requests must have their answers.
    fn wait_for_timers(&mut self) {
        let longest = self
            .scenario
            .longest_timer()
            .max(self.scenario.longest_ask());
        if longest > Nanos::ZERO {
            self.wait(longest + TIMERS_FIRED_AFTER);
        }
    }

    /// Waits until what timers that repeat began this minute is done. By the clock of some node the
    /// next minute may have begun.
    fn let_ticks_pass(&mut self) {
        let into = Nanos((self.cluster.now + AHEAD_MAX).0 % ticks::INTERVAL.0);
        let passed = AHEAD_MAX + self.ticks_fire_within();
        if self.scenario.ticks() && into < passed {
            self.wait(passed - into);
        }
    }

    /// Waits until moves have ended that may have just begun, by the orchestrator or back to a node that
    /// was away: a new primary sends again what nobody has told it to be durable.
    fn let_moves_end(&mut self) {
        self.let_settle(self.cluster.now + MOVED_AFTER + self.scenario.copying_time());
    }

    /// Waits until timers that repeat must have fired once more.
    fn wait_for_tick(&mut self) {
        if self.scenario.ticks() {
            let into = self.cluster.now.0 % ticks::INTERVAL.0;
            let within = self.ticks_fire_within();
            self.wait(Nanos(ticks::INTERVAL.0 - into) + within);
        }
    }

    /// Whether the run goes on.
    fn is_sound(&self) -> bool {
        self.cluster.ledger.violations.is_empty() && !self.controller.is_beyond
    }

    /// Nodes join, applications start, clients begin.
    fn start(&mut self) {
        for node in 0..self.scenario.nodes() {
            self.start_node(node);
        }
        let until = self.cluster.now + START;
        while self.agents.joined() < self.scenario.nodes() as usize && self.cluster.now < until {
            self.step();
        }
        self.begin_to_orchestrate();
        for at in 0..self.scenario.apps.len() {
            let manifest = self.scenario.application(at, 50);
            self.controller.deploy(self.cluster.now, manifest);
        }
        while self.cluster.now < until {
            self.step();
        }
        self.begin = self.cluster.now;
        self.cluster.faults = self.scenario.network.faults();
        for (at, shape) in self.scenario.clients.iter().enumerate() {
            let client = self.client(at, shape);
            self.cluster.clients.push(client);
            if shape.is_rushing && !self.scenario.script.is_empty() {
                self.rush(at);
            } else {
                self.cluster.begin_load(at as u16);
            }
        }
    }

    fn start_node(&mut self, node: u32) {
        let shape = self.scenario.clocks.get(node as usize);
        let shape = shape.copied().unwrap_or_default();
        let offset_ms = self.agents.wall_offset_ms(node).unwrap_or(shape.offset_ms);
        let clock = SimClock::new(self.cluster.now, offset_ms, shape.fast_ppm);
        let name = self.controller.name(node);
        let formats = self.formats_of(node);
        self.agents
            .start(self.cluster.now, node, name, clock, formats);
    }

    /// One turn of controller and agents, and the events until the next one.
    fn step(&mut self) {
        self.kill_late();
        self.tear_writes();
        self.fail_syncs();
        self.revive_late();
        self.vanish();
        self.give_up_waiting();
        self.give_up_damaged();
        self.drain();
        self.change_nodes();
        self.agents.step(&mut self.cluster, &mut self.controller);
        self.controller
            .step(&mut self.cluster, &mut self.agents, &mut self.random);
        self.agents.take_answers(&mut self.cluster);
        self.step_backups();
        self.replay_dead_letters();
        self.step_upgrade();
        self.replace_older();
        self.cluster.run(STEP);
        self.check_waits();
    }

    /// How long after healing, or after a restore, everything must have recovered: what is in the queues then
    /// takes its time, and so does a start after a power cut.
    fn recovery(&self) -> Nanos {
        let scenario = self.scenario;
        let copying = scenario.copying_time() * COPIES_MADE;
        RECOVERY + scenario.starting_time() + scenario.work() + scenario.publishing_time() + copying
    }

    /// Whether services ask others, or publish: such requests take places of `admittedMax`.
    fn asks_or_publishes(&self) -> bool {
        !self.scenario.asks.is_empty() || !self.scenario.topics.is_empty()
    }

    /// Whether every request has its outcome and has released its place, nothing is in progress, all
    /// publications are confirmed, and every shard has its copies.
    fn is_settled(&self) -> bool {
        let waits =
            |c: &Client| !c.has_vanished && (c.open() > 0 || c.load.is_some_and(|l| l.left > 0));
        !self.cluster.clients.iter().any(waits)
            && self.cluster.admitted() == 0
            && self.copies_are_complete()
            && !self.is_backing_up()
            && !self.members_change()
            && (self.kept().iter()).all(|(_, kept)| kept.open == 0 && kept.publishing == 0)
    }

    /// Waits until everything is settled, or until then.
    fn let_settle(&mut self, until: Timestamp) {
        while self.is_sound() && self.cluster.now < until && !self.is_settled() {
            self.step();
        }
    }

    fn wait(&mut self, span: Nanos) {
        let until = self.cluster.now + span;
        while self.is_sound() && self.cluster.now < until {
            self.step();
        }
    }

    fn summary(&self, recovered_after: Nanos) -> Summary {
        let clients = &self.cluster.clients;
        let script = &self.scenario.script;
        let mut pairs = BTreeSet::new();
        for (at, a) in script.iter().enumerate() {
            for b in script[at + 1..].iter().filter(|b| a.meets(b)) {
                let (a, b) = (a.fault.kind(), b.fault.kind());
                pairs.insert((a.min(b), a.max(b)));
            }
        }
        let done = |c: &Client| c.count(Outcome::Done) as u64;
        Summary {
            requests: clients.iter().map(Client::sent).sum(),
            done: clients.iter().map(done).sum(),
            events: self.cluster.events_so_far(),
            simulated: BEGIN.until(self.cluster.now),
            trace: self.cluster.trace,
            pairs,
            forfeited: self.cluster.ledger.forfeited.len(),
            faults: script.iter().filter(|a| !a.fault.is_operation()).count(),
            withheld: self.controller.withheld,
            resharded: (self.controller.control.apps.values())
                .map(|app| app.plan.resharded.len() as u64)
                .sum(),
            is_beyond: self.controller.is_beyond,
            restored_logs: self.controller.restored_logs,
            orchestrated: self.controller.orchestrated,
            published: self.published.published,
            received: self.published.received,
            backups: [
                self.backups.complete,
                self.backups.cancelled,
                self.backups.checked,
            ],
            replayed: self.replays.done,
            went_back: self.went_back,
            members: self.members_summary(),
            upgrades: [
                self.releases.replaced[0],
                self.releases.replaced[1],
                u64::from(self.is_raised()),
            ],
            recovered_after,
            longest_wait: self.waits.longest,
        }
    }
}
