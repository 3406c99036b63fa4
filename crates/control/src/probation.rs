//! Whether a new version of an application is any good. Soft state beside the log: it is lost with the
//! process, and then the version is watched again.
//!
//! The controller goes back by itself from a version that does not start, and from one that fails most
//! of its requests right after it started where the one before did not. Never from a version that it
//! went back to, so it goes back once for each deployment.

use crate::command::Command;
use crate::limits::{
    FAILED_BEFORE_PERCENT_MAX, FAILED_PERCENT_MAX, PROBATION_ATTEMPTS_MIN, PROBATION_TIME,
    START_FAILED_TIME, START_TIME_MAX,
};
use crate::state::{AppState, Control};
use e3_model::plan::ShardPlan;
use e3_model::{AppId, Timestamp};
use std::collections::BTreeMap;

/// What reports say of an application now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Why its version does not start at a primary, if it does not.
    pub error: Option<String>,
    /// Attempts of all its services that succeeded; never falls.
    pub succeeded: u64,
    /// Attempts that failed; never falls.
    pub failed: u64,
}

/// Attempts of a version.
#[derive(Clone, Copy, Debug, Default)]
struct Attempts {
    succeeded: u64,
    failed: u64,
}

impl Attempts {
    fn of(seen: &Seen) -> Attempts {
        Attempts {
            succeeded: seen.succeeded,
            failed: seen.failed,
        }
    }

    fn since(self, before: Attempts) -> Attempts {
        Attempts {
            succeeded: self.succeeded.saturating_sub(before.succeeded),
            failed: self.failed.saturating_sub(before.failed),
        }
    }

    fn all(self) -> u64 {
        self.succeeded.saturating_add(self.failed)
    }

    /// The part that failed; none if there are too few to say.
    fn failed_percent(self) -> Option<u64> {
        let percent = self.failed.saturating_mul(100).checked_div(self.all())?;
        (self.all() >= PROBATION_ATTEMPTS_MIN).then_some(percent)
    }
}

/// A version that is watched.
#[derive(Clone, Copy, Debug)]
struct Watch {
    version: u32,
    /// The version before, while this controller watched it.
    before: Attempts,
    /// What had been attempted when this version was first seen, then when it had started.
    begin: Attempts,
    /// Since when it could have started: it is deployed, and all shards have a primary that is up.
    since: Timestamp,
    /// Since when it has failed to start without a gap.
    failing: Option<Timestamp>,
    /// When it was first seen to have started.
    started: Option<Timestamp>,
}

/// The versions of all applications.
#[derive(Debug, Default)]
pub struct Probation {
    apps: BTreeMap<AppId, Watch>,
}

impl Probation {
    /// Looks at every application; returns the rollbacks that are due.
    pub fn look(
        &mut self,
        now: Timestamp,
        control: &Control,
        seen: impl Fn(AppId) -> Seen,
    ) -> Vec<Command> {
        self.apps.retain(|id, _| control.apps.contains_key(id));
        let mut due = Vec::new();
        for (id, app) in &control.apps {
            let seen = seen(*id);
            let watch = self.watch(now, *id, app, &seen);
            let why = if app.has_started {
                watch.fails(now, &seen)
            } else {
                // A shard that waits for a place starts nowhere, although the node of its last primary may be up.
                let starts = |s: &ShardPlan| !app.is_orphan(s) && control.is_up(s.primary);
                let is_up = app.plan.shards.iter().all(starts);
                watch.does_not_start(now, &seen, is_up)
            };
            if let Some(why) = why.filter(|_| app.may_roll_back()) {
                due.push(Command::Rollback {
                    app: *id,
                    code_version: app.plan.code_version,
                    why: Some(why),
                    at: now,
                });
            }
        }
        due
    }

    /// The watch of the present version, which begins when it is first seen.
    fn watch(&mut self, now: Timestamp, id: AppId, app: &AppState, seen: &Seen) -> &mut Watch {
        let (version, attempts) = (app.plan.code_version, Attempts::of(seen));
        let before = self.apps.get(&id).map(|w| match w.started {
            _ if w.version == version => w.before,
            Some(_) => attempts.since(w.begin),
            // It never ran alone; the last version that did is the one to compare with.
            None => w.before,
        });
        let watch = self.apps.entry(id).or_insert(Watch {
            version: 0,
            before: Attempts::default(),
            begin: attempts,
            since: now,
            failing: None,
            started: None,
        });
        if watch.version != version {
            *watch = Watch {
                version,
                before: before.unwrap_or_default(),
                begin: attempts,
                since: now,
                failing: None,
                started: None,
            };
        }
        if app.has_started && watch.started.is_none() {
            (watch.started, watch.begin) = (Some(now), attempts);
        }
        watch
    }
}

impl Watch {
    /// Why a version that has not started should be left, if so.
    fn does_not_start(&mut self, now: Timestamp, seen: &Seen, is_up: bool) -> Option<String> {
        let Some(error) = &seen.error else {
            self.failing = None;
            if !is_up {
                // Nothing starts without a node; the time counts from when there is one.
                self.since = now;
            }
            let limit = START_TIME_MAX;
            return (now > self.since + limit).then(|| {
                let seconds = limit.as_secs();
                format!("it has not started at every primary within {seconds} s")
            });
        };
        let since = *self.failing.get_or_insert(now);
        (now >= since + START_FAILED_TIME).then(|| error.clone())
    }

    /// Why a version that has started should be left, if so.
    fn fails(&self, now: Timestamp, seen: &Seen) -> Option<String> {
        let on_probation = self.started.is_some_and(|at| now <= at + PROBATION_TIME);
        let attempts = Attempts::of(seen).since(self.begin);
        let (percent, before) = (attempts.failed_percent()?, self.before.failed_percent()?);
        let is_worse = percent > FAILED_PERCENT_MAX && before <= FAILED_BEFORE_PERCENT_MAX;
        (on_probation && is_worse).then(|| {
            let (failed, all) = (attempts.failed, attempts.all());
            let (failed_before, all_before) = (self.before.failed, self.before.all());
            format!(
                "{failed} of {all} attempts failed since it started; {failed_before} of \
                 {all_before} with the version before"
            )
        })
    }
}
