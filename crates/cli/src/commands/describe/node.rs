//! `e3 describe node`.

use super::layout::{facts, heading, list};
use crate::cluster::client::Client;
use crate::commands::get::{instances, joules, node_state};
use crate::ui::failure::Failure;
use crate::ui::output::Paint;
use crate::ui::text::{bytes, count};
use e3_model::api::{InstanceView, NodeView};
use e3_model::profile::Provenance;
use serde::Serialize;
use std::fmt::Write as _;

/// A node with its instances.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeDetails {
    node: NodeView,
    instances: Vec<InstanceView>,
}

impl NodeDetails {
    /// Asks the controller.
    pub fn get(client: &Client, name: &str) -> Result<NodeDetails, Failure> {
        let node = client.node(name)?;
        let mut instances = client.instances()?;
        instances.retain(|i| i.node == node.name);
        Ok(NodeDetails { node, instances })
    }

    /// The details as text.
    pub fn text(&self, paint: Paint) -> String {
        let mut rows = hardware(&self.node, paint);
        rows.extend(process(&self.node));
        rows.extend(traffic(&self.node));
        rows.extend(energy(&self.node));
        rows.extend(measured(&self.node));
        let mut text = facts(rows);
        if !self.node.undrained.is_empty() {
            heading(&mut text, paint, "Left to drain");
            for left in &self.node.undrained {
                let _ = writeln!(text, "  {}: {}", left.instance, left.why);
            }
        }
        let title = format!("Instances ({})", self.instances.len());
        heading(&mut text, paint, &title);
        text + &instances(&self.instances, paint)
    }
}

fn hardware(n: &NodeView, paint: Paint) -> Vec<(&'static str, String)> {
    let state = node_state(n, paint);
    let emulated = match (n.emulated, n.speed) {
        (false, _) => String::new(),
        (true, 1.0) => ", emulated by this machine".into(),
        (true, speed) => format!(", emulated by this machine at {speed} of its speed"),
    };
    let accelerators = n.accelerators.iter();
    let accelerators = accelerators.map(|(a, rate)| format!("{a} {:.1} Gb/s", rate * 8e-9));
    vec![
        ("Node", n.name.clone()),
        ("State", state),
        ("Kind", format!("{}{emulated}", n.kind.name())),
        (
            "Server",
            format!("{} (fault domain) in {}", n.server, n.rack),
        ),
        ("Size", format!("{} cores, {}", n.cores, bytes(n.memory.0))),
        ("Accelerators", list(accelerators)),
    ]
}

fn process(n: &NodeView) -> Vec<(&'static str, String)> {
    let seen = n.heard_ms_ago.map(|ms| format!("{ms} ms ago"));
    vec![
        (
            "Process",
            format!("incarnation {}, plan {}", n.incarnation, n.plan_version),
        ),
        ("Release", release(n)),
        ("Address", n.address.clone().unwrap_or_else(|| "-".into())),
        ("Relay", n.relay.clone().unwrap_or_else(|| "-".into())),
        ("HTTP", n.url.clone().unwrap_or_else(|| "-".into())),
        ("Last seen", seen.unwrap_or_else(|| "never".into())),
        (
            "Used",
            format!(
                "{:.1} s of CPU time, {} of memory",
                n.cpu_seconds,
                bytes(n.resident_bytes)
            ),
        ),
    ]
}

fn release(n: &NodeView) -> String {
    match n.release.as_str() {
        "" => "-".into(),
        release => format!("{release}, formats {}", n.formats),
    }
}

fn traffic(n: &NodeView) -> Vec<(&'static str, String)> {
    let dropped = n.dropped.iter();
    let dropped = dropped.map(|(reason, times)| format!("{reason} {}", count(*times)));
    vec![
        (
            "Requests",
            format!(
                "{} admitted, {} refused (overloaded), {} queued",
                count(n.admitted),
                count(n.overloaded),
                n.queue
            ),
        ),
        (
            "Datagrams",
            format!(
                "{} received, {} sent, {} messages retransmitted",
                count(n.datagrams_in),
                count(n.datagrams_out),
                count(n.retransmitted)
            ),
        ),
        ("Port", format!("{:.1} % used", n.port_use * 100.0)),
        ("Dropped", list(dropped)),
        (
            "Journal",
            format!(
                "{} records written with {} waits for the disk",
                count(n.journal_records),
                count(n.journal_syncs)
            ),
        ),
    ]
}

fn energy(n: &NodeView) -> Option<(&'static str, String)> {
    let e = n.energy.as_ref()?;
    let text = format!(
        "{} above idle, {} idle of its server, {:.1} W above idle at present; {}",
        joules(e.active_joules),
        joules(e.idle_joules),
        e.active_watts,
        e.source
    );
    Some(("Energy, MODELLED", text))
}

fn measured(n: &NodeView) -> Option<(&'static str, String)> {
    let m = n.measured.as_ref()?;
    let gap = match m.unmetered_seconds {
        gap if gap >= 1.0 => format!(", {gap:.0} s without readings"),
        _ => String::new(),
    };
    let error = m.error.as_ref().map(|e| format!("; now: {e}"));
    let text = format!(
        "{} in {:.0} s{gap}: {} services, {} platform, {} idle; {:.1} W at present; meter {} ({}){}",
        joules(m.joules),
        m.metered_seconds,
        joules(m.service_joules),
        joules(m.platform_joules),
        joules(m.idle_joules),
        m.watts,
        m.meter,
        m.scope.name(),
        error.unwrap_or_default()
    );
    Some((measured_title(m.provenance), text))
}

/// What precedes figures of a meter.
pub(super) fn measured_title(provenance: Provenance) -> &'static str {
    match provenance {
        Provenance::Emulated => "Energy, EMULATED",
        _ => "Energy, measured",
    }
}
