//! Files of `e3 sim`: a trace for chrome://tracing or Perfetto, and raw samples.

use crate::ui::failure::Failure;
use e3_model::{Application, Topology};
use e3_perfsim::Report;
use std::fmt::Write as _;
use std::path::Path;

/// Writes when each message ran, in the trace event format of Chrome: a process for each node, a thread
/// for each hardware thread.
pub fn trace(
    path: &Path,
    app: &Application,
    topology: &Topology,
    report: &Report,
) -> Result<(), Failure> {
    let mut text = String::from("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n");
    for node in topology.nodes() {
        let name = serde_json::to_string(&node.node.name).unwrap_or_default();
        let _ = writeln!(
            text,
            "{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {}, \"args\": {{\"name\": {name}}}}},",
            node.id.0
        );
    }
    for (at, span) in report.spans.iter().enumerate() {
        let name = &app.spec.services[usize::from(span.service)].name;
        let category = if span.is_backup { "backup" } else { "request" };
        let comma = if at + 1 < report.spans.len() { "," } else { "" };
        let _ = writeln!(
            text,
            "{{\"name\": \"{name}\", \"cat\": \"{category}\", \"ph\": \"X\", \"pid\": {}, \"tid\": {}, \"ts\": {:.3}, \"dur\": {:.3}}}{comma}",
            span.node,
            span.thread,
            span.start_ns as f64 / 1e3,
            (span.end_ns - span.start_ns) as f64 / 1e3,
        );
    }
    if report.spans.is_empty() {
        // The list may not end with a comma.
        text.truncate(text.trim_end().trim_end_matches(',').len());
    }
    let _ = writeln!(
        text,
        "], \"otherData\": {{\"spansDropped\": {}}}}}",
        report.dropped.spans
    );
    write(path, &text)
}

/// Writes a line for each request: when it was sent, how long it took, what it cost.
pub fn samples(path: &Path, report: &Report) -> Result<(), Failure> {
    let mut text = String::from("start_ns,latency_ns,joules\n");
    for s in &report.samples {
        let _ = writeln!(text, "{},{},{:e}", s.start_ns, s.latency_ns, s.joules);
    }
    write(path, &text)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|e| Failure::file("write", path, &e))
}
