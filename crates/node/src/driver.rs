//! The node's loop: everything in, everything out, one sleep.

mod parts;
mod starts;

use crate::agent::{AgentEvent, Joined};
use crate::discard::Discarder;
use crate::emulation::{MemoryUse, memory_use};
use crate::executor::Executor;
use crate::failed_starts::FailedStarts;
use crate::follow::Wants;
use crate::heartbeats::Heartbeats;
use crate::idle::Idle;
use crate::journal::{JournalWriter, Trouble};
use crate::limits::{EVENT_INTERVAL, JOURNAL_LEN_MIN, RECEIVE_MAX, REPORT_INTERVAL, REQUESTS_MAX};
use crate::meters::Metered;
use crate::network::Network;
use crate::outbox::Outbox;
use crate::parts::Parts;
use crate::processor_time;
use crate::supplies::Supplies;
use e3_clock::Clock;
use e3_dataplane::{Attempts, Config, EmulatedCores, Health, HttpAsk, Output, Recovery, Worker};
use e3_ingress::Door;
use e3_invocation::Invocation;
use e3_model::plan::{NodeEvent, NodeWelcome, Role};
use e3_model::timing::{CLOCK_SKEW_MAX, HEARTBEAT_INTERVAL};
use e3_model::{Bytes, DropReason, Formats, Nanos, NodeId, ShardKey, Timestamp};
use e3_net::Doorbell;
use e3_outbound::Outbound;
use e3_wire::heartbeat::Heartbeat;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Why the loop ended.
#[derive(PartialEq, Eq)]
pub(crate) enum End {
    /// The process was asked to stop.
    Stopped,
    /// The controller does not count this process as a member any more.
    Expelled,
    /// An emulated node exceeded its memory. The text says by how much.
    OutOfMemory(String),
    /// Nothing is known of what was written to disk. The text says why.
    DiskFailed(String),
}

pub(crate) struct Driver {
    pub(crate) welcome: NodeWelcome,
    pub(crate) network: Network,
    pub(crate) bell: Doorbell,
    pub(crate) clock: Clock,
    pub(crate) agent_events: Receiver<AgentEvent>,
    pub(crate) outbox: Arc<Outbox>,
    /// What the node is asked for, which the agent tells the controller.
    wants: Arc<Wants>,
    heartbeats: Heartbeats,
    pub(crate) worker: Worker,
    pub(crate) executor: Executor,
    /// Requests of users' programs.
    door: Rc<Door>,
    /// What is here of what the plan names.
    supplies: Supplies,
    /// Shards that did not start.
    failed: FailedStarts,
    /// When the state of the node is looked at for heartbeats and reports.
    next_look: Timestamp,
    looked: Timestamp,
    next_report: Timestamp,
    events: Vec<NodeEvent>,
    /// Plan version, health of the primaries and unreachable peers in the last report.
    last_health: (u64, Vec<Health>, Vec<NodeId>),
    memory: MemoryUse,
    is_clock_off: bool,
    journal: JournalWriter,
    parts: Parts,
    /// Outbound requests of services over HTTP.
    http: Outbound,
    discarder: Discarder,
    trouble: Option<Trouble>,
    metered: Metered,
    idle: Idle,
}

impl Driver {
    #[allow(clippy::too_many_arguments, reason = "one caller, right beside")]
    pub(crate) fn new(
        joined: Joined,
        formats: Formats,
        network: Network,
        bell: Doorbell,
        clock: Clock,
        agent_events: Receiver<AgentEvent>,
        outbox: Arc<Outbox>,
        wants: Arc<Wants>,
        heartbeats: Heartbeats,
        executor: Executor,
        door: Rc<Door>,
        journal: JournalWriter,
        parts: Parts,
        recovery: Recovery,
        metered: Metered,
    ) -> Driver {
        let welcome = joined.welcome;
        let mut worker = Worker::new(Config {
            node: welcome.node,
            incarnation: welcome.incarnation,
            cluster: welcome.cluster,
            formats,
            kind: welcome.kind,
            journal_len_min: JOURNAL_LEN_MIN,
            slowed: welcome.slowed,
            emulated: (welcome.emulated && welcome.cores > 0).then_some(EmulatedCores {
                cores: welcome.cores,
                speed: welcome.speed,
            }),
        });
        worker.handle_controller_time(joined.answered, joined.asked, welcome.now);
        worker.handle_recovery(clock.now(), recovery);
        let wake = bell.clone();
        let http = Outbound::new(env!("CARGO_PKG_VERSION"), move || wake.ring());
        Driver {
            welcome,
            network,
            bell,
            clock,
            agent_events,
            outbox,
            wants,
            heartbeats,
            worker,
            executor,
            door,
            supplies: Supplies::default(),
            failed: FailedStarts::default(),
            next_look: Timestamp(0),
            looked: Timestamp(0),
            next_report: Timestamp(0),
            events: Vec::new(),
            last_health: (0, Vec::new(), Vec::new()),
            memory: MemoryUse::Fits,
            is_clock_off: false,
            journal,
            parts,
            http,
            discarder: Discarder::start(),
            trouble: None,
            metered,
            idle: Idle::default(),
        }
    }

    /// Runs until it is stopped; gives the sockets back.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> (End, Network) {
        let mut done = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            self.heartbeats.on_turn();
            while let Ok(event) = self.agent_events.try_recv() {
                match event {
                    AgentEvent::Plan(plan) => {
                        self.worker.handle_plan(self.clock.now(), plan);
                        self.update_door();
                        self.network.follow(self.worker.plan());
                        // An instance that the plan stops must not run again: its state is a backup's now.
                        self.drain();
                        self.bring_up_to_date();
                        // What it confirms goes out at once.
                        self.next_look = self.clock.now();
                    }
                    AgentEvent::Supplies(supplies) => {
                        self.supplies = supplies;
                        self.bring_up_to_date();
                    }
                    AgentEvent::Expelled => {
                        self.door.set_plan(None);
                        return (End::Expelled, self.network);
                    }
                }
            }
            let clock = &self.clock;
            let received = self.network.receive(&mut self.worker, || clock.now());
            let mut requests = 0;
            // Before its first plan the node knows no application.
            let knows_apps = self.worker.plan_version() > 0;
            while knows_apps
                && requests < REQUESTS_MAX
                && let Some(request) = self.door.next()
            {
                self.worker.handle_request(self.clock.now(), request);
                requests += 1;
            }
            while let Some(answered) = self.http.poll() {
                let (now, ticket) = (self.clock.now(), answered.ticket);
                let (answer, payload) = (answered.answer, answered.payload);
                self.worker.on_http_answer(now, ticket, answer, payload);
            }
            if let Some(durable) = self.journal.poll() {
                self.worker.handle_journaled(self.clock.now(), durable);
            }
            let has_part = self.pass_parts();
            let updating = self.executor.update(self.worker.plan(), &self.supplies);
            let more = self.executor.run(&mut done) || updating;
            let finished = !done.is_empty();
            let now = self.clock.now();
            for (key, completion) in done.drain(..) {
                self.worker.handle_completion(now, key, completion);
            }
            for (key, call) in self.executor.calls() {
                self.worker.handle_call(now, key, call);
            }
            self.worker.handle_tick(now);
            if let Some(wants) = self.worker.take_interest() {
                self.wants.set(wants);
            }
            let ran = self.drain();
            let next = self.send_due(now);
            if let MemoryUse::Exceeded(text) = &self.memory {
                return (End::OutOfMemory(text.clone()), self.network);
            }
            if let Some(Trouble::Failed(text)) = &self.trouble {
                return (End::DiskFailed(text.clone()), self.network);
            }
            if received > 0 || requests > 0 || finished {
                self.idle.on_work();
            }
            let waiting = received >= RECEIVE_MAX || requests == REQUESTS_MAX || has_part;
            if !more && !ran && !finished && !waiting {
                self.pause(next);
            }
        }
        (End::Stopped, self.network)
    }

    /// Lets others run until there is something to do, or until `next`.
    fn pause(&mut self, next: Timestamp) {
        let until = self.worker.next_deadline().min(next);
        let wait = self.clock.now().until(until);
        if wait > Nanos::ZERO && !self.idle.yields() {
            self.network.wait(&self.bell, wait);
        }
    }

    fn submit(&mut self, key: ShardKey, invocation: Invocation) {
        if let Err(failed) = self.executor.submit(key, invocation) {
            let now = self.clock.now();
            self.worker.handle_completion(now, key, failed.into());
        }
    }

    /// Does what the worker wants done. True if the worker or handlers may go on.
    fn drain(&mut self) -> bool {
        let mut ran = false;
        while let Some(output) = self.worker.poll_output() {
            match output {
                Output::Send { to, bytes } => {
                    if let Some(buffer) = self.network.send(self.clock.now(), to, bytes) {
                        self.worker.recycle(buffer);
                    }
                }
                Output::Relay { from, to, bytes } => {
                    self.network.relay(self.clock.now(), from, to, bytes);
                }
                Output::Answer { app, id, reply } => self.door.answer(app, id, reply),
                Output::Http(ask) => {
                    ran = true;
                    self.ask_http(ask);
                }
                Output::HttpCancel { ticket } => self.http.cancel(ticket),
                Output::Start { key, state } => {
                    ran = true;
                    self.start(key, state);
                }
                Output::Stop { key } => self.stop(key),
                Output::Discard { state } => self.discarder.discard(state),
                Output::Journal { number, record } => self.journal.append(number, record),
                Output::Export {
                    key,
                    number,
                    offset,
                    bytes,
                } => self.parts.export(key, number, offset, bytes),
                Output::Fetch {
                    key,
                    order,
                    number,
                    part,
                } => self.parts.fetch(key, order, number, part),
                Output::TrimJournal { before } => self.journal.trim(before),
                Output::Execute { key, invocation } => {
                    ran = true;
                    self.submit(key, invocation);
                }
                Output::CallAnswer {
                    key,
                    awaited,
                    answer,
                } => {
                    ran = true;
                    self.executor.answer(key, awaited, answer);
                }
            }
        }
        ran
    }

    /// A service asks over HTTP.
    fn ask_http(&mut self, ask: HttpAsk) {
        let left = self.clock.now().until(ask.deadline);
        self.http.start(e3_outbound::Request {
            ticket: ask.ticket,
            http: ask.request,
            body: ask.body,
            deadline: Instant::now() + Duration::from(left),
            idempotency_key: ask.idempotency_key,
            may_be_sent: ask.may_be_sent,
        });
    }

    /// The attempts at a service's request over HTTP.
    fn attempts(&self, ticket: u64) -> Option<Attempts> {
        let attempts = self.http.attempts(ticket)?;
        let (now, passed) = (self.clock.now(), Instant::now());
        let at = |at: Instant| now + Nanos::from(at.saturating_duration_since(passed));
        Some(Attempts {
            count: attempts.count,
            next: attempts.next.map(at),
            last_error: attempts.last_error,
        })
    }

    /// Sends delayed datagrams and reports that are due; when the next one is.
    fn send_due(&mut self, now: Timestamp) -> Timestamp {
        self.network.send_due(now);
        if now >= self.next_look {
            self.check_memory();
            self.set_heartbeat(now);
            self.next_look = now + HEARTBEAT_INTERVAL;
            self.repeat_starts();
            self.note_clock();
            self.log_trouble();
            let events = self.worker.events();
            let worker = &self.worker;
            let state = (worker.plan_version(), worker.health(), worker.unreachable());
            if self.outbox.is_asked() {
                self.next_report = now;
            }
            if events != self.events || state != self.last_health {
                self.next_report = now;
                self.events = events;
                self.last_health = state;
            }
        }
        if now >= self.next_report {
            let quiet = self.events.is_empty();
            let interval = if quiet {
                REPORT_INTERVAL
            } else {
                EVENT_INTERVAL
            };
            self.next_report = now + interval;
            self.send_report();
        }
        let next = self.next_look.min(self.next_report);
        next.min(self.network.next_due())
    }

    /// Takes requests, unless the clock is wrong: then others shall get them.
    fn update_door(&self) {
        let plan = self.worker.plan();
        let is_open = plan.version > 0 && !self.is_clock_off;
        self.door.set_plan(is_open.then_some(plan));
    }

    fn note_clock(&mut self) {
        let is_off = self.worker.is_clock_off();
        if std::mem::replace(&mut self.is_clock_off, is_off) == is_off {
            return;
        }
        self.update_door();
        if is_off {
            tracing::error!(
                "the clock is more than {CLOCK_SKEW_MAX} from most others' or the controller's; set it right and restart the node"
            )
        } else {
            tracing::info!("the clock is right; the node serves again")
        }
    }

    fn log_trouble(&mut self) {
        let trouble = self.journal.trouble();
        if trouble == self.trouble {
            return;
        }
        match &trouble {
            Some(trouble) => tracing::error!("{trouble}"),
            None => tracing::info!("the disk takes writes again"),
        }
        self.trouble = trouble;
    }

    /// Compares what the process uses with the memory of the node that it stands for.
    fn check_memory(&mut self) {
        if self.welcome.memory_max.is_none() {
            return;
        }
        self.memory = memory_use(Bytes(resident_bytes()), self.welcome.memory_max);
        let full = match &self.memory {
            MemoryUse::Fits => None,
            MemoryUse::Full(text) | MemoryUse::Exceeded(text) => Some(text.clone()),
        };
        self.worker.set_memory_full(full);
    }

    fn set_heartbeat(&mut self, now: Timestamp) {
        let interval = now.since(std::mem::replace(&mut self.looked, now));
        let interval = interval.max(Nanos(1));
        let work = self.worker.take_work(interval);
        let service_time_ns = work.busy.0 / work.handled.max(1);
        let heartbeat = Heartbeat {
            queue_len: self.worker.queue_len(),
            service_time_ns: u32::try_from(service_time_ns).unwrap_or(u32::MAX),
            busy_permille: u16::try_from(work.occupied.0 * 1000 / interval.0).unwrap_or(u16::MAX),
            port_permille: self.network.take_port_permille(interval),
            plan_version_low: self.worker.plan_version() as u32,
        };
        let format = self.worker.plan().format;
        self.heartbeats.set(format, heartbeat);
    }

    fn send_report(&mut self) {
        let mut report = self.worker.report();
        let asked = self.outbox.take_asked();
        report.pending = asked.map(|asked| self.worker.pending(&asked, |t| self.attempts(t)));
        report.stats.cpu_seconds = processor_time::of_process().as_secs_f64();
        report.stats.resident_bytes = resident_bytes();
        report.stats.journal = self.journal.counts();
        if self.network.lost > 0 {
            *report.stats.dropped.entry(DropReason::Port).or_default() += self.network.lost;
        }
        report.stats.energy = self.metered.latest();
        report.stats.accelerators = self.executor.rates().clone();
        for instance in &mut report.instances {
            self.executor.report(instance);
            let (app, service) = (instance.key.app, instance.key.service);
            if instance.role == Role::Primary && instance.code_version == 0 {
                let missing = self.supplies.missing.get(&(app, service));
                instance.error = instance.error.take().or(missing.cloned());
            }
            if let Some(trouble) = &self.trouble
                && instance.error.is_none()
                && self.is_on_disk(instance.key)
            {
                instance.error = Some(trouble.to_string());
            }
        }
        self.outbox.put(report);
    }

    fn is_on_disk(&self, key: ShardKey) -> bool {
        let plan = self.worker.plan();
        let app = plan.apps.iter().find(|app| app.id == key.app);
        app.is_some_and(|app| app.app.service(key.service).is_on_disk())
    }
}

/// Resident memory of this process; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|p| p.parse::<u64>().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
