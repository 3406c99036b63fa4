//! Follows the plan in two threads. One waits for changes. The other asks at once when requests come for
//! an application whose routes are not here ([design](../../../docs/design/027-interest.md)).

use crate::agent::{AgentEvent, Answer, Api, LatestKey, Sent, is_no_connection};
use crate::complaints::Complaints;
use crate::config::NodeError;
use crate::essential;
use crate::limits::{OUTBOX_WAIT, PLAN_WAIT, RETRY_INTERVAL};
use e3_model::AppId;
use e3_model::plan::{NodePlan, NodeWelcome};
use e3_net::Doorbell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The applications that the node is asked for.
#[derive(Default)]
pub(crate) struct Wants {
    state: Mutex<WantsState>,
    changed: Condvar,
}

#[derive(Default)]
struct WantsState {
    apps: BTreeSet<AppId>,
    /// How often these, or the plan, were replaced.
    changes: u64,
}

impl Wants {
    pub(crate) fn set(&self, apps: BTreeSet<AppId>) {
        self.lock().apps = apps;
        self.note_change();
    }

    /// Wakes the one that waits for a change.
    fn note_change(&self) {
        self.lock().changes += 1;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, WantsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self) -> BTreeSet<AppId> {
        self.lock().apps.clone()
    }

    fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Waits until there were more changes than these, but not for long.
    fn wait(&self, seen: u64) {
        let is_old = |state: &mut WantsState| state.changes == seen;
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), OUTBOX_WAIT, is_old);
        drop(waited);
    }
}

/// The plan that came last.
#[derive(Default)]
struct Latest {
    sent: Option<Sent>,
    /// The newest version that came, and who sent it.
    newest: (u64, Option<u64>),
    /// How often it was replaced. An answer to a question that was asked before then is of no use.
    number: u64,
    /// Of both threads.
    complaints: Complaints,
}

/// Asks for plans. Each goes to the driver at once, and to the thread that fetches what it names.
#[derive(Clone)]
pub(crate) struct Follower {
    pub(crate) api: Api,
    pub(crate) welcome: NodeWelcome,
    pub(crate) agent_events: Sender<AgentEvent>,
    pub(crate) supplier: Sender<Arc<NodePlan>>,
    pub(crate) bell: Doorbell,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) wants: Arc<Wants>,
    pub(crate) key: LatestKey,
}

/// What to do after an answer.
enum Next {
    Ask,
    Wait,
    End,
}

impl Follower {
    /// Starts the threads.
    pub(crate) fn start(self) -> Result<(), NodeError> {
        let latest = Arc::<Mutex<Latest>>::default();
        let (asker, its) = (self.clone(), latest.clone());
        essential::spawn("e3-wanted-plans", move || asker.ask_for_wanted(&its))?;
        essential::spawn("e3-plans", move || self.follow(&latest)).map(drop)
    }

    fn follow(&self, latest: &Mutex<Latest>) {
        let mut wait = PLAN_WAIT;
        while !self.stop.load(Ordering::Relaxed) {
            match self.ask(latest, wait) {
                Next::Ask => wait = PLAN_WAIT,
                // A controller that was restarted answers at once: it may have another key for heartbeats.
                Next::Wait => {
                    self.wait();
                    wait = Duration::ZERO;
                }
                Next::End => return,
            }
        }
    }

    fn ask_for_wanted(&self, latest: &Mutex<Latest>) {
        while !self.stop.load(Ordering::Relaxed) {
            let seen = self.wants.changes();
            if !self.misses(latest) {
                self.wants.wait(seen);
                continue;
            }
            if matches!(self.ask(latest, Duration::ZERO), Next::End) {
                return;
            }
            if self.misses(latest) {
                self.wait();
            }
        }
    }

    /// Whether the plan lacks the routes of an application that the node is asked for.
    fn misses(&self, latest: &Mutex<Latest>) -> bool {
        let Some(sent) = lock(latest).sent.clone() else {
            return false;
        };
        let routed: BTreeSet<AppId> = sent.plan.routed().collect();
        let listed = |app: &AppId| sent.plan.directory.contains_key(app);
        let wants = self.wants.get();
        wants.difference(&routed).any(listed)
    }

    fn wait(&self) {
        if !self.stop.load(Ordering::Relaxed) {
            thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Asks once. An answer whose question the other thread's answer has overtaken is dropped.
    fn ask(&self, latest: &Mutex<Latest>, wait: Duration) -> Next {
        let (old, newest, number) = {
            let latest = lock(latest);
            (latest.sent.clone(), latest.newest, latest.number)
        };
        let wants = self.wants.get();
        let (welcome, key) = (&self.welcome, &self.key);
        let answer = self
            .api
            .plan(welcome, (old.as_ref(), newest), &wants, wait, key);
        let mut latest = lock(latest);
        let is_overtaken = latest.number != number;
        let next = match answer {
            Ok(Answer::Refused(409, _)) => {
                let _ = self.agent_events.send(AgentEvent::Expelled);
                Next::End
            }
            _ if is_overtaken => Next::Ask,
            // The controller's log is older. The code and the secrets of the newer plan stay here.
            Ok(Answer::Ok(sent)) if sent.version().0 < latest.newest.0 => Next::Wait,
            Ok(Answer::Ok(mut sent)) => {
                latest.newest = sent.version();
                Arc::make_mut(&mut sent.plan).revision = number + 1;
                let plan = sent.plan.clone();
                (latest.sent, latest.number) = (Some(sent), number + 1);
                // It may name an application that the node is asked for already.
                self.wants.note_change();
                // Under the lock, so that plans are passed on in their order.
                let is_sent = self
                    .agent_events
                    .send(AgentEvent::Plan(plan.clone()))
                    .is_ok();
                if is_sent && self.supplier.send(plan).is_ok() {
                    Next::Ask
                } else {
                    Next::End
                }
            }
            Ok(Answer::Empty) => Next::Ask,
            Ok(Answer::Refused(status, text)) => {
                if latest.complaints.is_new(&format!("{status}: {text}")) {
                    tracing::error!(status, error = text, "controller refused the plan request");
                }
                // The next answer is the whole plan.
                (latest.sent, latest.number) = (None, number + 1);
                Next::Wait
            }
            // The node goes on with the plan that it has.
            Err(e) => {
                if !is_no_connection(&e) && latest.complaints.is_new(&e.to_string()) {
                    tracing::error!(error = %e, "the plan request has no whole answer");
                }
                Next::Wait
            }
        };
        self.bell.ring();
        next
    }
}

fn lock(latest: &Mutex<Latest>) -> MutexGuard<'_, Latest> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tests::{answer, heard_controller};
    use e3_model::plan_change::PLAN_SOURCE_HEADER;
    use e3_model::{Nanos, NodeKind, Timestamp};
    use std::sync::mpsc::channel;
    use std::time::Instant;

    /// A controller that has lost this version must hear of it, although the node asks for a whole plan.
    #[test]
    fn a_node_says_which_version_it_has_also_after_a_refusal() {
        let plan = NodePlan {
            version: 7,
            ..NodePlan::default()
        };
        let plan = serde_json::to_string(&plan).unwrap();
        let sent = answer(&format!("200 OK\r\n{PLAN_SOURCE_HEADER}: 5"), &plan);
        let older = answer("200 OK", &plan.replace("\"version\":7", "\"version\":6"));
        let refusal = answer("503 Service Unavailable", "{}");
        let (api, requests) =
            heard_controller(vec![sent, refusal, older, answer("409 Conflict", "")]);
        let welcome = serde_json::json!({
            "cluster": 1, "node": 1, "incarnation": 1, "now": Timestamp(1),
            "kind": NodeKind::Host, "emulated": false, "link_latency": Nanos::ZERO,
        });
        let ((agent_events, events), (supplier, plans)) = (channel(), channel());
        let follower = Follower {
            api,
            welcome: serde_json::from_value(welcome).unwrap(),
            agent_events,
            supplier,
            bell: Doorbell::new().unwrap(),
            stop: Arc::default(),
            wants: Arc::default(),
            key: LatestKey::default(),
        };
        follower.follow(&Mutex::default());
        let asked: Vec<String> = requests.iter().take(4).collect();
        let has = |request: &str, fields: &[&str]| fields.iter().all(|f| request.contains(f));
        assert!(has(&asked[0], &["after=0&"]), "{asked:?}");
        assert!(has(&asked[1], &["after=7&", "&source=5"]), "{asked:?}");
        assert!(
            has(&asked[2], &["after=7&", "&applied_source=5"]),
            "{asked:?}"
        );
        assert!(
            has(&asked[3], &["after=7&", "&applied_source=5"]),
            "{asked:?}"
        );
        assert_eq!(plans.try_iter().count(), 1, "not the older one");
        assert_eq!(events.try_iter().count(), 2, "the plan and the end");
    }

    #[test]
    fn a_change_before_the_wait_ends_it() {
        let wants = Wants::default();
        let (begin, seen) = (Instant::now(), wants.changes());
        wants.set(BTreeSet::from([AppId(1)]));
        wants.wait(seen);
        assert!(begin.elapsed() < OUTBOX_WAIT);
    }
}
