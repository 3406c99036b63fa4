//! `/metrics`: the latest reports in Prometheus' text format.
//!
//! Every scrape computes all values again. Counts of applications and services are totals since the
//! controller started and never fall while it runs. Counts of a node are those of its process and
//! begin at 0 with a new process, as Prometheus expects of counters.

use crate::core::Core;
use crate::shared::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use e3_model::api::{Health, InstanceStatus, InstanceView};
use prometheus::{CounterVec, GaugeVec, Opts, Registry, Result, TEXT_FORMAT, TextEncoder};

pub(crate) async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    match render(&shared.core()) {
        Ok(text) => Ok(([("content-type", TEXT_FORMAT)], text)),
        Err(e) => Err((StatusCode::INTERNAL_SERVER_ERROR, e.to_string())),
    }
}

fn render(core: &Core) -> Result<String> {
    let families = Families(Registry::new());
    cluster(core, &families)?;
    nodes(core, &families)?;
    apps(core, &families)?;
    TextEncoder::new().encode_to_string(&families.0.gather())
}

/// The metric families of one scrape.
struct Families(Registry);

impl Families {
    fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> Result<impl Fn(&[&str], f64)> {
        let family = GaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(family.clone()))?;
        Ok(move |labels: &[&str], value: f64| family.with_label_values(labels).set(value))
    }

    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<impl Fn(&[&str], f64)> {
        let family = CounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(family.clone()))?;
        // A node may report anything, but a counter accepts no negative number.
        let add = move |labels: &[&str], value: f64| {
            family.with_label_values(labels).inc_by(value.max(0.0));
        };
        Ok(add)
    }
}

fn cluster(core: &Core, f: &Families) -> Result<()> {
    let version = f.gauge("e3_plan_version", "Version of the desired state.", &[])?;
    version(&[], core.control.version as f64);
    let help = "Nodes of the topology, by whether they take part.";
    let nodes = f.gauge("e3_nodes", help, &["state"])?;
    let view = core.cluster_view();
    nodes(&["up"], f64::from(view.nodes_up));
    nodes(&["down"], f64::from(view.nodes - view.nodes_up));
    let help = "Datagrams on the heartbeat port that are no heartbeat of a member.";
    let garbage = f.counter("e3_garbage_datagrams_total", help, &[])?;
    garbage(&[], core.garbage as f64);
    Ok(())
}

fn nodes(core: &Core, f: &Families) -> Result<()> {
    let by = &["node"];
    let up = f.gauge("e3_node_up", "Takes part.", &["node", "kind"])?;
    let cpu = f.counter("e3_node_cpu_seconds_total", "Processor time.", by)?;
    let help = "MODELLED joules, not measured: the server's idle power (part idle, at its first node) and the node's power above it (part active).";
    let joules = f.counter("e3_node_modelled_joules_total", help, &["node", "part"])?;
    let help = "Joules of the node's meter, by whose processor time they are: services, platform (the rest of the node's process) or idle (what remains). Provenance: measured, or emulated if the measured machine only stands in for the node.";
    let measured = f.counter(
        "e3_node_joules_total",
        help,
        &["node", "part", "provenance"],
    )?;
    let help = "Watts that the node's meter shows.";
    let watts = f.gauge("e3_node_watts", help, &["node", "provenance"])?;
    let help = "Seconds by whether the node's meter gave usable readings; others are in no figure.";
    let metered = f.counter("e3_node_meter_seconds_total", help, &["node", "state"])?;
    let help = "The node's meter: 1 if its last reading succeeded.";
    let meter_ok = f.gauge("e3_node_meter_ok", help, &["node", "meter", "scope"])?;
    let resident = f.gauge("e3_node_resident_bytes", "Resident memory.", by)?;
    let queue = f.gauge("e3_node_queue_requests", "Requests waiting.", by)?;
    let help = "Part of the port's bandwidth that is used, of the busier direction.";
    let port = f.gauge("e3_node_port_use_ratio", help, by)?;
    let help = "Requests from clients, by what became of them.";
    let requests = f.counter("e3_requests_total", help, &["node", "result"])?;
    let help = "Datagrams, by direction.";
    let datagrams = f.counter("e3_node_datagrams_total", help, &["node", "direction"])?;
    let help = "Datagrams dropped, by reason.";
    let dropped = f.counter("e3_node_dropped_datagrams_total", help, &["node", "reason"])?;
    let help = "Messages sent again for want of an acknowledgement.";
    let again = f.counter("e3_node_retransmitted_messages_total", help, by)?;
    let help = "Records written to the journal, for services with durability: disk.";
    let records = f.counter("e3_node_journal_records_total", help, by)?;
    let help = "Waits for the disk; records that come meanwhile share the next one.";
    let syncs = f.counter("e3_node_journal_syncs_total", help, by)?;
    for n in core.node_views() {
        let node = n.name.as_str();
        up(&[node, n.kind.name()], f64::from(u8::from(n.up)));
        cpu(&[node], n.cpu_seconds);
        resident(&[node], n.resident_bytes as f64);
        if let Some(energy) = &n.energy {
            joules(&[node, "idle"], energy.idle_joules);
            joules(&[node, "active"], energy.active_joules);
        }
        if let Some(m) = &n.measured {
            let provenance = m.provenance.name();
            measured(&[node, "services", provenance], m.service_joules);
            measured(&[node, "platform", provenance], m.platform_joules);
            measured(&[node, "idle", provenance], m.idle_joules);
            watts(&[node, provenance], m.watts);
            metered(&[node, "metered"], m.metered_seconds);
            metered(&[node, "unmetered"], m.unmetered_seconds);
            let ok = f64::from(u8::from(m.error.is_none()));
            meter_ok(&[node, &m.meter, m.scope.name()], ok);
        }
        queue(&[node], f64::from(n.queue));
        port(&[node], n.port_use);
        requests(&[node, "admitted"], n.admitted as f64);
        requests(&[node, "overloaded"], n.overloaded as f64);
        datagrams(&[node, "in"], n.datagrams_in as f64);
        datagrams(&[node, "out"], n.datagrams_out as f64);
        again(&[node], n.retransmitted as f64);
        records(&[node], n.journal_records as f64);
        syncs(&[node], n.journal_syncs as f64);
        for (reason, count) in &n.dropped {
            dropped(&[node, reason.name()], *count as f64);
        }
    }
    Ok(())
}

fn apps(core: &Core, f: &Families) -> Result<()> {
    let by = &["app", "service"];
    let help = "Requests that have an outcome, dead-lettered ones included.";
    let handled = f.counter("e3_service_handled_requests_total", help, by)?;
    let help = "Attempts that failed.";
    let failed = f.counter("e3_service_failed_attempts_total", help, by)?;
    let help = "Requests dead-lettered, for whatever reason.";
    let dead_lettered = f.counter("e3_service_dead_lettered_requests_total", help, by)?;
    let help = "Requests dead-lettered because their deadline had passed.";
    let expired = f.counter("e3_service_expired_requests_total", help, by)?;
    let help = "MODELLED joules above idle of the requests handled, not measured.";
    let joules = f.counter("e3_service_modelled_joules_total", help, by)?;
    let help = "Joules of the nodes' meters, by the processor time in the service's handlers.";
    let measured = f.counter(
        "e3_service_joules_total",
        help,
        &["app", "service", "provenance"],
    )?;
    let help = "MODELLED joules above idle of a request to the service, not measured.";
    let per_request = f.gauge("e3_service_modelled_joules_per_request", help, by)?;
    let help = "Joules of the nodes' meters by the processor time in the service's handlers, over the requests handled while they were read.";
    let measured_per_request = f.gauge(
        "e3_service_joules_per_request",
        help,
        &["app", "service", "provenance"],
    )?;
    let help = "MODELLED joules above idle of a request through all services, not measured.";
    let app_per_request = f.gauge("e3_app_modelled_joules_per_request", help, &["app"])?;
    let help = "Requests from clients of an application, by what became of them.";
    let asked = f.counter("e3_app_requests_total", help, &["app", "result"])?;
    let help = "1 for the state that the application is in.";
    let health = f.gauge("e3_app_health", help, &["app", "health"])?;
    let help = "Requests dead-lettered in the last 60 s.";
    let lately = f.gauge("e3_app_dead_lettered_lately_requests", help, &["app"])?;
    let waiting = f.gauge("e3_service_queue_requests", "Requests waiting.", by)?;
    let help = "Time in handlers.";
    let busy = f.counter("e3_service_busy_seconds_total", help, by)?;
    let help = "Every shard can commit and has all its copies.";
    let ready = f.gauge("e3_app_ready", help, &["app"])?;
    let help = "Instances, by whether they run and are up to date.";
    let instances = f.gauge("e3_app_instances", help, &["app", "state"])?;
    let help = "Instances, by their status.";
    let by_status = f.gauge("e3_app_instances_by_status", help, &["app", "status"])?;
    let help = "Dead letters that shards keep or have dropped, less those that were replayed.";
    let dead = f.gauge("e3_app_dead_letters", help, &["app"])?;
    let help = "Shards whose only copies are on silent nodes.";
    let waiting_shards = f.gauge("e3_app_waiting_shards", help, &["app"])?;
    let help = "How often the last copy of a shard that had state was lost, or given up.";
    let lost = f.counter("e3_app_lost_shards_total", help, &["app"])?;
    let all = core.instance_views();
    for app in core.app_views() {
        let name = app.name.as_str();
        ready(&[name], f64::from(u8::from(app.ready)));
        instances(&[name, "ready"], f64::from(app.instances_ready));
        let missing = app.instances.saturating_sub(app.instances_ready);
        instances(&[name, "missing"], f64::from(missing));
        dead(&[name], app.dead_letters as f64);
        lost(&[name], app.state_lost as f64);
        waiting_shards(&[name], app.waiting.len() as f64);
        if let Some(joules) = app.modelled_joules_per_request {
            app_per_request(&[name], joules);
        }
        asked(&[name, "admitted"], app.admitted as f64);
        asked(&[name, "overloaded"], app.overloaded as f64);
        lately(&[name], app.dead_lettered_lately as f64);
        for h in Health::ALL {
            health(&[name, h.name()], f64::from(u8::from(app.health == h)));
        }
        let prefix = format!("{name}/");
        for s in InstanceStatus::ALL {
            let of = |i: &&InstanceView| i.status == s && i.instance.starts_with(&prefix);
            let count = all.iter().filter(of).count();
            by_status(&[name, s.name()], count as f64);
        }
        for s in &app.services {
            let labels = [name, s.name.as_str()];
            handled(&labels, s.handled as f64);
            failed(&labels, s.failed as f64);
            dead_lettered(&labels, s.dead_lettered as f64);
            expired(&labels, s.expired as f64);
            if let Some(energy) = &s.energy {
                joules(&labels, energy.joules);
                if let Some(joules) = energy.joules_per_request {
                    per_request(&labels, joules);
                }
            }
            if let Some(m) = &s.measured {
                let labels = [name, &s.name, m.provenance.name()];
                measured(&labels, m.joules);
                if let Some(joules) = m.joules_per_request {
                    measured_per_request(&labels, joules);
                }
            }
            waiting(&labels, f64::from(s.queue));
            busy(&labels, s.busy_seconds);
        }
    }
    Ok(())
}
