//! What the cluster reports about a load: messages handled by each service, processor time of each
//! node. Taken before the load and right after it, when the nodes have reported all of it.

use crate::client::Client;
use crate::failure::Failure;
use crate::limits::{REPORTS_SETTLE, REPORTS_SETTLE_TRIES};
use e3_load::Phase;
use e3_model::NodeKind;
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
    /// Processor time per second of the load, in cores of this machine.
    pub cpu_cores: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Datagrams received and sent per second.
    pub datagrams_per_s: f64,
}

/// What the cluster did during a load.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Messages handled, by service.
    pub handled: BTreeMap<String, u64>,
    /// Nodes.
    pub nodes: Vec<NodeFigures>,
}

struct Snapshot {
    at: Instant,
    handled: BTreeMap<String, u64>,
    nodes: Vec<e3_model::api::NodeView>,
}

fn snapshot(client: &Client, app: &str) -> Result<Snapshot, Failure> {
    let services = client.app(app)?.services;
    Ok(Snapshot {
        at: Instant::now(),
        handled: services.into_iter().map(|s| (s.name, s.handled)).collect(),
        nodes: client.nodes()?,
    })
}

/// Takes the figures as a load goes on.
pub struct Watch<'a> {
    client: &'a Client,
    app: &'a str,
    before: Snapshot,
    after: Option<Result<Snapshot, Failure>>,
    loaded_s: f64,
}

impl<'a> Watch<'a> {
    /// Before the load.
    pub fn begin(client: &'a Client, app: &'a str) -> Result<Watch<'a>, Failure> {
        Ok(Watch {
            client,
            app,
            before: snapshot(client, app)?,
            after: None,
            loaded_s: 0.0,
        })
    }

    /// The load is in this phase now.
    pub fn at(&mut self, phase: Phase) {
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

    /// After everything.
    pub fn end(self) -> Result<Figures, Failure> {
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
            // A process that was started anew counts from zero.
            let same = before(&n.name).filter(|b| b.incarnation == n.incarnation);
            let cpu = n.cpu_seconds - same.map_or(0.0, |b| b.cpu_seconds);
            let datagrams = |n: &e3_model::api::NodeView| n.datagrams_in + n.datagrams_out;
            let moved = datagrams(&n).saturating_sub(same.map_or(0, datagrams));
            NodeFigures {
                kind: n.kind,
                emulated: n.emulated,
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
        Ok(Figures {
            handled: handled.collect(),
            nodes: after.nodes.into_iter().map(figures).collect(),
        })
    }
}
