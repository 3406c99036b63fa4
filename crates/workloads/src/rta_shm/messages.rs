//! Records that server health monitoring receives and sends.

use super::health::Report;
use crate::readback::queries::record;
use e3_loadgen::workload::Call;
use serde::{Deserialize, Serialize};

/// Rows of a server's severities.
const SELECT: &str = "SELECT severity, count(*), sum(cpu), sum(cpu * (report - :since)) FROM health \
    WHERE host = :host AND report > :since GROUP BY severity ORDER BY severity";

#[derive(Serialize)]
struct Message<'a> {
    host: &'a str,
    report: i64,
    time: i64,
    cpu: i64,
    severity: &'a str,
    event: &'a str,
    log: &'a str,
}

#[derive(Serialize)]
struct CountQuery<'a> {
    op: &'a str,
    at: &'a str,
    event: &'a str,
}

#[derive(Serialize)]
struct AverageQuery<'a> {
    op: &'a str,
    at: &'a str,
    host: &'a str,
}

#[derive(Serialize)]
struct Select<'a> {
    sql: &'a str,
    host: &'a str,
    since: i64,
}

#[derive(Deserialize)]
pub(super) struct Answer {
    pub(super) event: String,
    pub(super) count: u64,
    pub(super) ema: f64,
    #[serde(default)]
    pub(super) documents: Vec<String>,
    #[serde(default)]
    pub(super) scores: Vec<f64>,
}

#[derive(Deserialize)]
pub(super) struct Stored {
    pub(super) rows: Vec<(String, i64, i64, i64)>,
}

pub(super) fn host_name(host: u32) -> String {
    format!("host{host:03}")
}

pub(super) fn event(host: u32, severity: &str) -> String {
    format!("{}/{severity}", host_name(host))
}

fn call(host: u32, payload: Vec<u8>) -> Call {
    Call {
        tag: 0,
        key: host_name(host).into_bytes(),
        payload,
    }
}

/// A report with its number and time; the answer is an [`Answer`].
pub(super) fn report(report: &Report, number: i64, time: i64) -> Call {
    let payload = record(&Message {
        host: &host_name(report.host),
        report: number,
        time,
        cpu: report.cpu,
        severity: report.severity,
        event: &event(report.host, report.severity),
        log: &report.log,
    });
    call(report.host, payload)
}

/// A query about the rows of a server; the answer is [`Stored`].
pub(super) fn ask_rows(host: u32, since: i64) -> Call {
    let payload = record(&Select {
        sql: SELECT,
        host: &host_name(host),
        since,
    });
    call(host, payload)
}

/// A query about the average of a server.
pub(super) fn ask_average(host: u32) -> Call {
    let payload = record(&AverageQuery {
        op: "get",
        at: "ema",
        host: &host_name(host),
    });
    call(host, payload)
}

/// A query about a server's reports of one severity.
pub(super) fn ask_count(host: u32, severity: &str) -> Call {
    let payload = record(&CountQuery {
        op: "get",
        at: "count",
        event: &event(host, severity),
    });
    call(host, payload)
}
