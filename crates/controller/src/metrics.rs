//! `/metrics`: the latest reports in Prometheus' text format.

use crate::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use prometheus::{GaugeVec, Opts, Registry, TextEncoder};

pub(crate) async fn metrics(State(shared): State<Shared>) -> Result<String, StatusCode> {
    render(&shared).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

fn render(shared: &Shared) -> Result<String, prometheus::Error> {
    let registry = Registry::new();
    let family = |name: &str, help: &str, labels: &[&str]| -> prometheus::Result<GaugeVec> {
        let family = GaugeVec::new(Opts::new(name, help), labels)?;
        registry.register(Box::new(family.clone()))?;
        Ok(family)
    };
    let core = shared.core();
    let version = family("e3_plan_version", "Version of the desired state.", &[])?;
    version
        .with_label_values::<&str>(&[])
        .set(core.control.version as f64);
    let garbage = family(
        "e3_garbage_datagrams_total",
        "Heartbeats that made no sense.",
        &[],
    )?;
    garbage
        .with_label_values::<&str>(&[])
        .set(core.garbage as f64);

    let up = family(
        "e3_node_up",
        "Whether the node takes part.",
        &["node", "kind"],
    )?;
    let cpu = family("e3_node_cpu_seconds_total", "Processor time.", &["node"])?;
    let resident = family("e3_node_resident_bytes", "Resident memory.", &["node"])?;
    let queue = family("e3_node_queue_requests", "Requests waiting.", &["node"])?;
    let admitted = family(
        "e3_node_admitted_requests_total",
        "Requests admitted.",
        &["node"],
    )?;
    let overloaded = family(
        "e3_node_overloaded_requests_total",
        "Requests answered overloaded.",
        &["node"],
    )?;
    let datagrams = family(
        "e3_node_datagrams_total",
        "Datagrams by direction.",
        &["node", "direction"],
    )?;
    let dropped = family(
        "e3_node_dropped_datagrams_total",
        "Datagrams dropped.",
        &["node", "reason"],
    )?;
    let retransmitted = family(
        "e3_node_retransmitted_messages_total",
        "Messages sent again.",
        &["node"],
    )?;
    for n in core.node_views() {
        let node = n.name.as_str();
        up.with_label_values(&[node, n.kind.name()])
            .set(f64::from(u8::from(n.up)));
        cpu.with_label_values(&[node]).set(n.cpu_seconds);
        resident
            .with_label_values(&[node])
            .set(n.resident_bytes as f64);
        queue.with_label_values(&[node]).set(f64::from(n.queue));
        admitted.with_label_values(&[node]).set(n.admitted as f64);
        overloaded
            .with_label_values(&[node])
            .set(n.overloaded as f64);
        datagrams
            .with_label_values(&[node, "in"])
            .set(n.datagrams_in as f64);
        datagrams
            .with_label_values(&[node, "out"])
            .set(n.datagrams_out as f64);
        retransmitted
            .with_label_values(&[node])
            .set(n.retransmitted as f64);
        for (reason, count) in &n.dropped {
            dropped
                .with_label_values(&[node, reason])
                .set(*count as f64);
        }
    }

    let labels = &["app", "service"];
    let handled = family(
        "e3_service_handled_requests_total",
        "Requests handled.",
        labels,
    )?;
    let failed = family(
        "e3_service_failed_attempts_total",
        "Attempts that failed.",
        labels,
    )?;
    let waiting = family("e3_service_queue_requests", "Requests waiting.", labels)?;
    let busy = family("e3_service_busy_seconds_total", "Time in handlers.", labels)?;
    let ready = family("e3_app_ready", "Whether everything runs.", &["app"])?;
    let dead = family("e3_app_dead_letters_total", "Requests given up.", &["app"])?;
    for app in core.app_views() {
        ready
            .with_label_values(&[&app.name])
            .set(f64::from(u8::from(app.ready)));
        dead.with_label_values(&[&app.name])
            .set(app.dead_letters as f64);
        for s in &app.services {
            let labels = [app.name.as_str(), s.name.as_str()];
            handled.with_label_values(&labels).set(s.handled as f64);
            failed.with_label_values(&labels).set(s.failed as f64);
            waiting.with_label_values(&labels).set(f64::from(s.queue));
            busy.with_label_values(&labels).set(s.busy_seconds);
        }
    }
    TextEncoder::new().encode_to_string(&registry.gather())
}
