//! Measured energy since this controller started, and whose it is.
//!
//! The joules of a node's meter are shared out by processor time: of the time that the machine's
//! processors had, a service gets the part that its handlers used, the platform gets the rest of the
//! node process's, and what remains is idle. So services, platform and idle add up to the node's joules.
//! (Scaphandre shares out a machine's power among processes in the same way.) Of a machine that several
//! nodes share, or that stands in for a node, the node gets what its process used, and nothing is idle.
//!
//! A meter is read at other times than the processor times, so these are kept until the meter has moved on.

use crate::limits::{METERED_POWER_MAX_W, METERED_STEP_MAX_S};
use e3_model::api::{NodeMeterView, ServiceMeterView};
use e3_model::meter::MeteredEnergy;
use e3_model::plan::NodeStats;
use e3_model::profile::Provenance;
use e3_model::{AppId, NodeId, ServiceId};
use std::collections::BTreeMap;

/// What a service did on a node since the report before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub(crate) busy_seconds: f64,
    pub(crate) handled: u64,
}

/// By service.
pub(crate) type UsedBy = BTreeMap<(AppId, ServiceId), Used>;

#[derive(Debug, Default)]
pub(crate) struct Metering {
    nodes: BTreeMap<NodeId, NodeMeter>,
    services: BTreeMap<(AppId, ServiceId), ServiceTotals>,
}

/// A node's meter.
#[derive(Debug, Default)]
struct NodeMeter {
    /// What the node reported last, for the view.
    last: Option<MeteredEnergy>,
    /// Where the next step begins; none at a process's first report.
    from: Option<Point>,
    /// What was used since the meter moved on.
    pending: UsedBy,
    pending_cpu_seconds: f64,
    totals: NodeTotals,
    is_emulated: bool,
}

/// What a process had measured and used at a report.
#[derive(Clone, Copy, Debug)]
struct Point {
    joules: f64,
    metered_seconds: f64,
    unmetered_seconds: f64,
    cpu_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeTotals {
    service_joules: f64,
    platform_joules: f64,
    idle_joules: f64,
    metered_seconds: f64,
    unmetered_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ServiceTotals {
    joules: f64,
    handled: u64,
    is_emulated: bool,
}

/// How far a meter has moved on between two reports.
struct Step {
    joules: f64,
    metered_seconds: f64,
    unmetered_seconds: f64,
    /// Seconds that all processors of the machine had together.
    core_seconds: f64,
}

impl Metering {
    /// A new process of a node has joined: its meter begins at 0.
    pub(crate) fn on_join(&mut self, node: NodeId) {
        if let Some(meter) = self.nodes.get_mut(&node) {
            meter.begin();
        }
    }

    /// Shares out what a node's meter has measured since the report before.
    pub(crate) fn on_report(
        &mut self,
        node: NodeId,
        is_emulated: bool,
        stats: &NodeStats,
        used: UsedBy,
    ) {
        let Some(energy) = &stats.energy else {
            // A process without a meter has taken the place of one with a meter.
            return self.on_join(node);
        };
        let is_emulated = is_emulated || self.is_shared(node, &energy.machine);
        let meter = self.nodes.entry(node).or_default();
        meter.is_emulated = is_emulated;
        let Some(step) = meter.advance(energy, stats.cpu_seconds, used) else {
            return;
        };
        for (service, joules, handled) in meter.share(&step) {
            let totals = self.services.entry(service).or_default();
            totals.joules += joules;
            totals.handled = totals.handled.saturating_add(handled);
            totals.is_emulated |= is_emulated;
        }
    }

    /// Whether another node's process runs on the same machine.
    fn is_shared(&self, node: NodeId, machine: &str) -> bool {
        let others = self.nodes.iter().filter(|(id, _)| **id != node);
        let mut machines = others.filter_map(|(_, m)| m.last.as_ref());
        !machine.is_empty() && machines.any(|m| m.machine == machine)
    }

    /// A node is removed from the topology.
    pub(crate) fn on_remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    pub(crate) fn forget_deleted(&mut self, runs: impl Fn(&AppId) -> bool) {
        self.services.retain(|(app, _), _| runs(app));
    }

    pub(crate) fn node_view(&self, node: NodeId, is_up: bool) -> Option<NodeMeterView> {
        let meter = self.nodes.get(&node)?;
        let (totals, last) = (&meter.totals, meter.last.as_ref()?);
        Some(NodeMeterView {
            provenance: provenance(meter.is_emulated),
            meter: last.meter.clone(),
            scope: last.scope,
            joules: totals.service_joules + totals.platform_joules + totals.idle_joules,
            service_joules: totals.service_joules,
            platform_joules: totals.platform_joules,
            idle_joules: totals.idle_joules,
            watts: if is_up { last.watts } else { 0.0 },
            metered_seconds: totals.metered_seconds,
            unmetered_seconds: totals.unmetered_seconds,
            error: last.error.clone(),
        })
    }

    pub(crate) fn service_view(&self, app: AppId, service: ServiceId) -> Option<ServiceMeterView> {
        let totals = self.services.get(&(app, service))?;
        let per_request = totals.joules / totals.handled as f64;
        Some(ServiceMeterView {
            provenance: provenance(totals.is_emulated),
            joules: totals.joules,
            joules_per_request: (totals.handled > 0).then_some(per_request),
            handled: totals.handled,
        })
    }
}

fn provenance(is_emulated: bool) -> Provenance {
    if is_emulated {
        Provenance::Emulated
    } else {
        Provenance::Measured
    }
}

impl NodeMeter {
    /// Starts from what the next report says.
    fn begin(&mut self) {
        self.from = None;
        self.drop_pending();
        if let Some(last) = &mut self.last {
            last.watts = 0.0;
        }
    }

    fn drop_pending(&mut self) {
        self.pending.clear();
        self.pending_cpu_seconds = 0.0;
    }

    /// Notes what was used. Some if the meter has moved on.
    fn advance(&mut self, energy: &MeteredEnergy, cpu_seconds: f64, used: UsedBy) -> Option<Step> {
        self.last = Some(energy.clone());
        let now = Point {
            joules: energy.joules,
            metered_seconds: energy.metered_seconds,
            unmetered_seconds: energy.unmetered_seconds,
            cpu_seconds,
        };
        let from = self.from.replace(now)?;
        for (service, more) in used {
            let pending = self.pending.entry(service).or_default();
            pending.busy_seconds += more.busy_seconds;
            pending.handled = pending.handled.saturating_add(more.handled);
        }
        self.pending_cpu_seconds += (cpu_seconds - from.cpu_seconds).max(0.0);
        let step = Step::between(&from, &now, energy.cores);
        if step.core_seconds == 0.0 && step.joules == 0.0 {
            return None;
        }
        if step.is_plausible() && step.metered_seconds > 0.0 {
            return Some(step);
        }
        // Nothing is known of the energy of this time: what was used in it goes with it.
        if step.is_plausible() {
            self.totals.unmetered_seconds += step.unmetered_seconds;
        }
        self.drop_pending();
        None
    }

    /// Adds a step to the totals. Gives each service's joules, and its requests.
    fn share(&mut self, step: &Step) -> Vec<((AppId, ServiceId), f64, u64)> {
        let pending = std::mem::take(&mut self.pending);
        let cpu = std::mem::take(&mut self.pending_cpu_seconds).min(step.core_seconds);
        let busy: f64 = pending.values().map(|u| u.busy_seconds).sum();
        // The node estimates the time in handlers; the kernel counts that of the process.
        let in_handlers = busy.min(cpu);
        let joules_per_second = step.joules / step.core_seconds;
        let services = in_handlers * joules_per_second;
        let platform = (cpu - in_handlers) * joules_per_second;
        let totals = &mut self.totals;
        totals.service_joules += services;
        totals.platform_joules += platform;
        if !self.is_emulated {
            totals.idle_joules += (step.joules - services - platform).max(0.0);
        }
        totals.metered_seconds += step.metered_seconds;
        totals.unmetered_seconds += step.unmetered_seconds;
        let share = |(service, used): ((AppId, ServiceId), Used)| {
            let part = if busy > 0.0 {
                used.busy_seconds / busy
            } else {
                0.0
            };
            (service, services * part, used.handled)
        };
        pending.into_iter().map(share).collect()
    }
}

impl Step {
    fn between(from: &Point, to: &Point, cores: u32) -> Step {
        let metered_seconds = to.metered_seconds - from.metered_seconds;
        let unmetered_seconds = to.unmetered_seconds - from.unmetered_seconds;
        Step {
            joules: to.joules - from.joules,
            metered_seconds,
            unmetered_seconds,
            core_seconds: (metered_seconds + unmetered_seconds) * f64::from(cores.max(1)),
        }
    }

    /// A node may report anything.
    fn is_plausible(&self) -> bool {
        let joules_max = METERED_POWER_MAX_W * self.metered_seconds;
        (0.0..=METERED_STEP_MAX_S).contains(&self.metered_seconds)
            && (0.0..=METERED_STEP_MAX_S).contains(&self.unmetered_seconds)
            && (0.0..=joules_max).contains(&self.joules)
    }
}
