//! One run: first answer, state before, load, last answers, state after.

use crate::LoadError;
use crate::due::Due;
use crate::ledger::Ledger;
use crate::limits::*;
use crate::report::{LoadReport, Phase, Progress, Step, latency};
use crate::verdict::judge;
use crate::workload::{Check, Workload};
use e3_client::ClientError;
use e3_client::{Client, Completed, Event, Refresh};
use e3_client_core::limits::ANSWER_GRACE;
use e3_model::api::EndpointsView;
use e3_model::{Nanos, Timestamp};
use e3_wire::entry::{Outcome, Reply};
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What to run.
pub struct Config {
    /// Name of the application, for errors.
    pub app: String,
    /// Where its requests go.
    pub endpoints: EndpointsView,
    /// Asks for new endpoints when requests go unanswered.
    pub refresh: Option<Refresh>,
    /// Requests due per second.
    pub rate_rps: f64,
    /// Length of the load.
    pub duration: Duration,
    /// Time that a request has, from when it is sent; [`DEADLINE`] is a good one.
    pub deadline: Duration,
    /// Seed that the workload was made from, for the report.
    pub seed: u64,
    /// When it becomes true, no more requests are sent; what was sent is still checked.
    pub stop: Arc<AtomicBool>,
}

/// Runs a workload against an application.
pub fn run(
    config: Config,
    workload: &mut dyn Workload,
    progress: impl FnMut(Progress),
) -> Result<LoadReport, LoadError> {
    if !(config.rate_rps > 0.0 && config.rate_rps <= RATE_RPS_MAX) {
        return Err(LoadError::Rate {
            rate_rps: config.rate_rps,
        });
    }
    let (total, seconds) = match workload.schedule() {
        Some(times) => (times.len() as u64, config.duration.as_secs_f64()),
        None => {
            let total = (config.rate_rps * config.duration.as_secs_f64()).round();
            (total as u64, total / config.rate_rps)
        }
    };
    if !(1..=REQUESTS_MAX).contains(&total) {
        return Err(LoadError::Requests { requests: total });
    }
    let client = match Client::new(&config.endpoints, config.refresh) {
        Err(ClientError::NoNodes { .. }) => {
            return Err(ClientError::NoNodes { app: config.app }.into());
        }
        client => client?,
    };
    let mut run = Run {
        app: config.app,
        nodes: config.endpoints.nodes.len(),
        client,
        workload,
        progress,
        stop: config.stop,
        ledger: Ledger::default(),
        latency: Histogram::new_with_max(LATENCY_MAX.0, 3).expect("bounds are allowed"),
        timeline: Vec::new(),
        started: Timestamp(0),
        done_in_time: 0,
        last_outcome: Timestamp(0),
        longest_pause: Nanos(0),
        next_progress: Timestamp(0),
        phase: None,
    };
    run.probe()?;
    let deadline = Nanos::from(config.deadline);
    run.baseline(deadline)?;
    // Reported before the clock of the load starts, since the receiver may query the cluster.
    run.report(Phase::Load, 0.0);
    let (stopped_early, seconds) = run.load(config.rate_rps, seconds, total, deadline)?;
    let timeline = std::mem::take(&mut run.timeline);
    run.check(deadline)?;
    let verified = run.workload.verify();
    let ledger = run.ledger.close(verified.rows);
    let (verdict, reasons) = judge(&ledger, &verified.checks, None);
    Ok(LoadReport {
        verdict,
        reasons,
        checks: verified.checks,
        cluster: None,
        stopped_early,
        workload: run.workload.name().into(),
        senders: run.workload.describe(),
        seed: config.seed,
        duration_s: seconds,
        offered_rps: config.rate_rps,
        achieved_rps: run.done_in_time as f64 / seconds,
        latency: latency(&run.latency),
        longest_pause_ms: run.longest_pause.0 as f64 / 1e6,
        timeline,
        ledger,
        findings: verified.findings,
    })
}

struct Run<'a, P> {
    app: String,
    nodes: usize,
    client: Client,
    workload: &'a mut dyn Workload,
    progress: P,
    stop: Arc<AtomicBool>,
    ledger: Ledger,
    /// In nanoseconds.
    latency: Histogram<u64>,
    timeline: Vec<Step>,
    started: Timestamp,
    done_in_time: u64,
    last_outcome: Timestamp,
    longest_pause: Nanos,
    next_progress: Timestamp,
    /// Last phase that was reported.
    phase: Option<Phase>,
}

impl<P: FnMut(Progress)> Run<'_, P> {
    /// Sends the first request until a node answers it.
    fn probe(&mut self) -> Result<(), LoadError> {
        let began = self.client.now();
        let deadline = began + PROBE_DEADLINE;
        let call = self.workload.probe();
        self.client.requests.submit(began, began, deadline, call);
        loop {
            let now = self.client.now();
            let span = (PROBE_DEADLINE + ANSWER_GRACE).0 as f64;
            self.report(Phase::Probe, now.since(began).0 as f64 / span);
            self.not_stopped()?;
            self.client.turn(now + TIMELINE_STEP)?;
            while let Some(event) = self.client.requests.poll_event() {
                let Event::Completed(completed) = event else {
                    continue;
                };
                return match completed.reply {
                    Some(reply) if reply.outcome == Outcome::Done => {
                        let app = self.app.clone();
                        let taken = self.workload.on_probe(&reply);
                        taken.map_err(|reason| LoadError::FirstRequest { app, reason })
                    }
                    Some(reply) => Err(self.not_served(&reply)),
                    None => {
                        let waited_s = completed.at.since(began).as_secs();
                        Err(LoadError::NoAnswer {
                            nodes: self.nodes,
                            waited_s,
                        })
                    }
                };
            }
        }
    }

    fn not_stopped(&self) -> Result<(), LoadError> {
        if self.stop.load(Ordering::Relaxed) {
            Err(LoadError::Stopped)
        } else {
            Ok(())
        }
    }

    /// Reads the state of earlier loads.
    fn baseline(&mut self, deadline: Nanos) -> Result<(), LoadError> {
        let limit = self.client.now() + CHECK_TIME_MAX;
        loop {
            let now = self.client.now();
            let Some(wake) = self.ask(now, deadline, Phase::Baseline) else {
                return match self.workload.baseline_unanswered() {
                    0 => Ok(()),
                    unanswered => Err(LoadError::Baseline {
                        app: self.app.clone(),
                        unanswered,
                    }),
                };
            };
            if now >= limit {
                return Err(LoadError::Baseline {
                    app: self.app.clone(),
                    unanswered: self.client.requests.in_flight() as u64,
                });
            }
            self.not_stopped()?;
            self.client.turn(wake)?;
            while let Some(event) = self.client.requests.poll_event() {
                if let Event::Completed(c) = event {
                    self.workload.on_baseline(c.tag, c.reply.as_ref());
                }
            }
        }
    }

    /// Sends the queries of a phase that are due. Returns when to continue; None if there are no more.
    fn ask(&mut self, now: Timestamp, deadline: Nanos, phase: Phase) -> Option<Timestamp> {
        let wake = now + TIMELINE_STEP;
        while self.client.requests.in_flight() < CHECKS_IN_FLIGHT_MAX {
            let next = match phase {
                Phase::Baseline => self.workload.next_baseline(),
                _ => self.workload.next_check(now),
            };
            match next {
                Check::Ask(call) => {
                    if phase == Phase::Baseline {
                        self.report(phase, 0.0);
                    }
                    let until = now + deadline;
                    self.client.requests.submit(now, now, until, call);
                }
                Check::At(at) => return Some(wake.min(at)),
                Check::Wait => break,
                Check::Finished => return None,
            }
        }
        Some(wake)
    }

    fn not_served(&self, reply: &Reply) -> LoadError {
        let app = self.app.clone();
        let words = String::from_utf8_lossy(&reply.payload).into_owned();
        match reply.outcome {
            Outcome::Rejected => LoadError::NoSuchApplication { app, reason: words },
            outcome => {
                let reason = format!("{outcome:?} {words}").trim().to_lowercase();
                LoadError::FirstRequest { app, reason }
            }
        }
    }

    /// Sends `total` requests at their times, and waits for the last outcome. Gives whether it was
    /// stopped early, and the seconds that it was sending.
    fn load(
        &mut self,
        rate_rps: f64,
        seconds: f64,
        total: u64,
        deadline: Nanos,
    ) -> Result<(bool, f64), LoadError> {
        self.ledger = Ledger::new(self.client.requests.next_seq());
        let _ = self.client.requests.take_stray();
        self.started = self.client.now();
        self.last_outcome = self.started;
        let due = Due::new(self.started, self.workload.schedule(), rate_rps);
        let end = self.started + Nanos((seconds * 1e9) as u64);
        let stopped = self.send(&due, total, end, deadline)?;
        let drain_end = self.client.now() + deadline + ANSWER_GRACE;
        while self.client.requests.in_flight() > 0 {
            let now = self.client.now();
            self.turn(Phase::Drain, drain_end, now, drain_end)?;
        }
        let since = |at: Timestamp| at.since(self.started).max(TICK).as_secs_f64();
        Ok((stopped.is_some(), stopped.map_or(seconds, since)))
    }

    /// Sends the requests. Gives the time at which it was stopped, if it was.
    fn send(
        &mut self,
        due: &Due,
        total: u64,
        end: Timestamp,
        deadline: Nanos,
    ) -> Result<Option<Timestamp>, LoadError> {
        let mut next = 0;
        let mut starved = false;
        let mut late = None;
        while next < total {
            let now = self.client.now();
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Some(end.min(now)));
            }
            if now >= end && starved {
                break;
            }
            starved = false;
            while next < total && due.at(next) <= now {
                if !self.send_one(now, due.at(next), deadline) {
                    starved = true;
                    break;
                }
                next += 1;
            }
            if starved && late != Some(next) {
                late = Some(next);
                self.ledger.on_saturated();
            }
            let wake = if starved { now + TICK } else { due.at(next) };
            self.turn(Phase::Load, wake.min(end), now, end)?;
        }
        self.ledger.on_not_sent(total - next);
        Ok(None)
    }

    /// Sends the next request; false if there is none now, or too many are in flight.
    fn send_one(&mut self, now: Timestamp, due: Timestamp, deadline: Nanos) -> bool {
        let in_flight = self.client.requests.in_flight();
        self.workload.at(now);
        let free = in_flight < IN_FLIGHT_MAX;
        let Some(call) = free.then(|| self.workload.next()).flatten() else {
            return false;
        };
        if in_flight == 0 {
            self.last_outcome = now;
        }
        let until = now + deadline;
        let seq = self.client.requests.submit(now, due, until, call);
        self.ledger.on_sent(seq);
        self.step(now).sent += 1;
        true
    }

    fn turn(
        &mut self,
        phase: Phase,
        wake: Timestamp,
        now: Timestamp,
        end: Timestamp,
    ) -> Result<(), LoadError> {
        let span = end.since(self.started).0.max(1) as f64;
        self.report(phase, now.since(self.started).0 as f64 / span);
        self.client.turn(wake.min(now + TIMELINE_STEP))?;
        while let Some(event) = self.client.requests.poll_event() {
            match event {
                Event::Completed(completed) => self.on_completed(&completed, end),
                Event::Duplicate(duplicate) => self.ledger.on_duplicate(&duplicate),
                Event::DeadLetters(_) => {}
            }
        }
        self.ledger.on_stray(self.client.requests.take_stray());
        Ok(())
    }

    fn on_completed(&mut self, completed: &Completed, end: Timestamp) {
        let judged = self
            .workload
            .on_outcome(completed.tag, completed.reply.as_ref());
        self.ledger
            .on_outcome(completed, judged.meaning, judged.expected);
        let Some(reply) = &completed.reply else {
            return;
        };
        let pause = completed.at.since(self.last_outcome);
        self.longest_pause = self.longest_pause.max(pause);
        self.last_outcome = completed.at;
        let pause_ms = pause.0 as f64 / 1e6;
        let step = self.step(completed.at);
        step.pause_ms_max = step.pause_ms_max.max(pause_ms);
        if reply.outcome == Outcome::Done {
            let latency = completed.at.since(completed.due).0;
            self.latency.saturating_record(latency);
            self.done_in_time += u64::from(completed.at <= end);
            let step = self.step(completed.at);
            step.done += 1;
            step.latency_us_max = step.latency_us_max.max(latency as f64 / 1e3);
        } else {
            self.step(completed.at).other += 1;
        }
    }

    /// The step of the timeline that a time belongs to.
    fn step(&mut self, at: Timestamp) -> &mut Step {
        let index = (at.since(self.started).0 / TIMELINE_STEP.0) as usize;
        while self.timeline.len() <= index {
            let at_ms = (TIMELINE_STEP * self.timeline.len() as u64).as_millis();
            self.timeline.push(Step {
                at_ms,
                ..Step::default()
            });
        }
        &mut self.timeline[index]
    }

    /// Reads the state back.
    fn check(&mut self, deadline: Nanos) -> Result<(), LoadError> {
        // The receiver may wait until the state can be read.
        self.report(Phase::Check, 0.0);
        let give_up = self.client.now() + CHECK_TIME_MAX;
        loop {
            let now = self.client.now();
            if now >= give_up {
                return Ok(());
            }
            let Some(wake) = self.ask(now, deadline, Phase::Check) else {
                return Ok(());
            };
            let checked = self.workload.checked();
            self.report(Phase::Check, checked);
            self.client.turn(wake)?;
            let now = self.client.now();
            while let Some(event) = self.client.requests.poll_event() {
                match event {
                    Event::Completed(c) => self.workload.on_check(now, c.tag, c.reply.as_ref()),
                    // The ledger counts late duplicates of the load, and ignores those of queries.
                    Event::Duplicate(duplicate) => self.ledger.on_duplicate(&duplicate),
                    Event::DeadLetters(_) => {}
                }
            }
            self.ledger.on_stray(self.client.requests.take_stray());
        }
    }

    fn report(&mut self, phase: Phase, fraction: f64) {
        let now = self.client.now();
        // A new phase is always reported, before it has sent anything.
        if now < self.next_progress && self.phase == Some(phase) {
            return;
        }
        self.phase = Some(phase);
        self.next_progress = now + TIMELINE_STEP;
        (self.progress)(Progress {
            phase,
            fraction: fraction.clamp(0.0, 1.0),
            sent: self.ledger.sent(),
            done: self.ledger.counts().done,
            in_flight: self.client.requests.in_flight(),
            p50_us: latency(&self.latency).p50_us,
        });
    }
}
