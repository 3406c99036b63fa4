//! What the cluster reports about a load: messages handled by each service, processor time of each
//! node, state lost and dead letters. Taken before the load and right after it, when the nodes have
//! reported all of it; what was lost once more at the end.

use crate::cluster::client::Client;
use crate::limits::{REPORTS_SETTLE, REPORTS_SETTLE_TRIES};
use crate::ui::failure::Failure;
use crate::ui::output;
use e3_loadgen::{ClusterChange, Phase};
use e3_model::NodeKind;
use e3_model::api::AppView;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// Use of a node during a load, measured on this machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFigures {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: NodeKind,
    /// This machine stands in for it.
    pub emulated: bool,
    /// Scale of the emulation: speed of its cores and its port as a part of what it stands for.
    pub speed: f64,
    /// Processor time per second of the load, in cores of this machine.
    pub cpu_cores: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Datagrams received and sent per second.
    pub datagrams_per_s: f64,
}

/// What the cluster did during a load.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Messages handled, by service.
    pub handled: BTreeMap<String, u64>,
    /// Messages handled per request that came in, by service.
    pub messages_per_request: BTreeMap<String, f64>,
    /// Nodes.
    pub nodes: Vec<NodeFigures>,
}

struct Snapshot {
    at: Instant,
    handled: BTreeMap<String, u64>,
    nodes: Vec<e3_model::api::NodeView>,
    losses: Losses,
}

/// What the application has lost since it was deployed.
#[derive(Clone, Copy)]
pub struct Losses {
    app: u16,
    state_lost: u64,
    dead_letters: u64,
}

impl Losses {
    /// As the controller shows them.
    pub fn of(app: &AppView) -> Losses {
        Losses {
            app: app.id,
            state_lost: app.state_lost,
            dead_letters: app.dead_letters,
        }
    }

    /// What was lost from this to a later view.
    pub fn until(self, later: &AppView) -> ClusterChange {
        let (was, now) = (self, Losses::of(later));
        // An application that was deployed again counts from zero.
        let replaced = now.app != was.app || now.state_lost < was.state_lost;
        ClusterChange {
            state_lost: now.state_lost.saturating_sub(was.state_lost),
            dead_letters: now.dead_letters.saturating_sub(was.dead_letters),
            replaced,
        }
    }
}

fn snapshot(client: &Client, app: &str) -> Result<Snapshot, Failure> {
    let view = client.app(app)?;
    let losses = Losses::of(&view);
    let services = view.services.into_iter();
    Ok(Snapshot {
        at: Instant::now(),
        handled: services.map(|s| (s.name, s.handled)).collect(),
        nodes: client.nodes()?,
        losses,
    })
}

/// Takes the figures as a load goes on.
pub struct Watch<'a> {
    client: &'a Client,
    app: &'a str,
    /// Taken once more when the load begins: until then, state may have been read.
    before: Snapshot,
    losses: Losses,
    began: bool,
    after: Option<Result<Snapshot, Failure>>,
    loaded_s: f64,
}

impl<'a> Watch<'a> {
    /// Before the load.
    pub fn begin(client: &'a Client, app: &'a str) -> Result<Watch<'a>, Failure> {
        let before = snapshot(client, app)?;
        Ok(Watch {
            client,
            app,
            losses: before.losses,
            before,
            began: false,
            after: None,
            loaded_s: 0.0,
        })
    }

    /// The load is in this phase now.
    pub fn at(&mut self, phase: Phase) {
        // Nodes report once a second: what came before the load must not count as its messages.
        if phase == Phase::Load && !self.began {
            self.began = true;
            if let Ok(before) = self.settled() {
                self.before = before;
            }
        }
        // Before the state is read back, which is no part of the load.
        if phase == Phase::Check && self.after.is_none() {
            self.loaded_s = self.before.at.elapsed().as_secs_f64();
            self.after = Some(self.settled());
        }
    }

    /// The figures when they do not change any more.
    fn settled(&self) -> Result<Snapshot, Failure> {
        let mut last = snapshot(self.client, self.app)?;
        for _ in 0..REPORTS_SETTLE_TRIES {
            std::thread::sleep(REPORTS_SETTLE);
            let now = snapshot(self.client, self.app)?;
            if now.handled == last.handled {
                return Ok(now);
            }
            last = now;
        }
        Ok(last)
    }

    /// What was lost since the beginning; None if the controller does not say.
    pub fn losses(&self) -> Option<ClusterChange> {
        let now = self.client.app(self.app).ok()?;
        Some(self.losses.until(&now))
    }

    /// After everything; so many requests were sent. Without an answer of the controller there are none.
    pub fn end(self, requests: u64) -> Figures {
        self.figures(requests).unwrap_or_else(|e| {
            output::say(&format!("the figures of the cluster are missing: {e}"));
            Figures::default()
        })
    }

    fn figures(self, requests: u64) -> Result<Figures, Failure> {
        let seconds = match self.loaded_s {
            0.0 => self.before.at.elapsed().as_secs_f64(),
            s => s,
        };
        let after = match self.after {
            Some(after) => after?,
            None => snapshot(self.client, self.app)?,
        };
        let before = |name: &str| self.before.nodes.iter().find(|n| n.name == name);
        let figures = |n: e3_model::api::NodeView| {
            // A process that was restarted counts from zero.
            let same = before(&n.name).filter(|b| b.incarnation == n.incarnation);
            let cpu = n.cpu_seconds - same.map_or(0.0, |b| b.cpu_seconds);
            let datagrams = |n: &e3_model::api::NodeView| n.datagrams_in + n.datagrams_out;
            let moved = datagrams(&n).saturating_sub(same.map_or(0, datagrams));
            NodeFigures {
                kind: n.kind,
                emulated: n.emulated,
                speed: n.speed,
                cpu_cores: cpu.max(0.0) / seconds,
                resident_bytes: n.resident_bytes,
                datagrams_per_s: moved as f64 / seconds,
                name: n.name,
            }
        };
        let handled = after.handled.into_iter().map(|(name, now)| {
            let then = self.before.handled.get(&name).copied().unwrap_or(0);
            // After a fail-over the new primary counts from zero.
            let delta = if now >= then { now - then } else { now };
            (name, delta)
        });
        let handled: BTreeMap<String, u64> = handled.collect();
        let each = |(name, n): (&String, &u64)| (name.clone(), *n as f64 / requests.max(1) as f64);
        let per_request = handled.iter().map(each);
        Ok(Figures {
            messages_per_request: per_request.collect(),
            handled,
            nodes: after.nodes.into_iter().map(figures).collect(),
        })
    }
}
