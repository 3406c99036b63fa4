//! What `e3 demo day` prints.

use super::curve::Day;
use super::watts::Drawn;
use super::{DAY_S, MOVE_JOULES, RESERVE_PERCENT, Replayed, Sample, TOPOLOGY};
use crate::commands::load::report::{heading, reading};
use crate::ui::output::{Paint, Table};
use crate::ui::text::{count, micros, percent, rate};
use e3_loadgen::{LoadReport, Verdict};
use e3_model::Latency;
use e3_model::Nanos;
use e3_model::api::Event;
use e3_model::event::EventKind;
use serde::Serialize;

/// Hours of a row.
const ROW_H: u32 = 2;

/// What `e3 demo day -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report<'a> {
    topology: &'static str,
    machine: e3_bench::Machine,
    /// Time in which the day passed.
    seconds: f64,
    /// Of a request on a host at full speed, measured here.
    service_time_us: f64,
    peak_rps: f64,
    hours: Vec<Row>,
    days: [Replay; 2],
    /// Part of the modelled energy that following the load saves.
    saved: f64,
    events: Vec<&'a Event>,
}

/// Some hours of the day.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    hour: u32,
    /// Of clients.
    rate_rps: f64,
    fixed: Option<Drawn>,
    adaptive: Option<Drawn>,
}

/// A day on one kind of placement.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Replay {
    placement: &'static str,
    /// Measured.
    sent: u64,
    answered: u64,
    lost: u64,
    repeated: u64,
    verdict: Verdict,
    latency: Latency,
    longest_pause_ms: f64,
    moves: u64,
    /// Modelled: of a whole day, with the moves.
    watts_mean: f64,
    joules: f64,
}

impl Replay {
    fn new(placement: &'static str, replayed: &Replayed) -> Replay {
        let load: &LoadReport = &replayed.load;
        let watts = replayed.samples.iter().map(|s| s.drawn.watts);
        let watts_mean = watts.sum::<f64>() / replayed.samples.len() as f64;
        let done = replayed.events.iter();
        let done = done.filter(|e| e.kind == EventKind::MigrationDone);
        let moves = done.count() as u64;
        let moving = moves as f64 * f64::from(MOVE_JOULES);
        Replay {
            placement,
            sent: load.ledger.sent,
            answered: load.ledger.done,
            lost: load.ledger.lost(),
            repeated: load.ledger.repeated(),
            verdict: load.verdict,
            latency: load.latency,
            longest_pause_ms: load.longest_pause_ms,
            moves,
            watts_mean,
            joules: watts_mean * DAY_S + moving,
        }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(
        day: &Day,
        time: Nanos,
        fixed: &Replayed,
        adaptive: &'a Replayed,
    ) -> Report<'a> {
        let events = adaptive.events.iter();
        let rows = (0..24).step_by(ROW_H as usize).map(|hour| Row {
            hour,
            rate_rps: day.rate_rps(f64::from(hour) + f64::from(ROW_H) / 2.0),
            fixed: mean(&fixed.samples, hour),
            adaptive: mean(&adaptive.samples, hour),
        });
        let days = [
            Replay::new("fixed", fixed),
            Replay::new("adaptive", adaptive),
        ];
        Report {
            topology: TOPOLOGY,
            machine: e3_bench::Machine::here(),
            seconds: day.length.as_secs_f64(),
            service_time_us: time.as_secs_f64() * 1e6,
            peak_rps: day.peak_rps,
            hours: rows.collect(),
            saved: 1.0 - days[1].joules / days[0].joules,
            days,
            events: events
                .filter(|e| e.kind == EventKind::OrchestratorFollow)
                .collect(),
        }
    }
}

/// The mean of the samples of a row.
fn mean(samples: &[Sample], hour: u32) -> Option<Drawn> {
    let row = f64::from(hour)..f64::from(hour + ROW_H);
    let of_row: Vec<Drawn> = samples
        .iter()
        .filter(|s| row.contains(&s.hour))
        .map(|s| s.drawn)
        .collect();
    let mean =
        |value: fn(&Drawn) -> f64| of_row.iter().map(value).sum::<f64>() / of_row.len() as f64;
    (!of_row.is_empty()).then(|| Drawn {
        servers: mean(|d| d.servers),
        watts: mean(|d| d.watts),
    })
}

/// The report as text.
pub fn text(report: &Report<'_>, paint: Paint) -> String {
    let mut text = format!(
        "{}: kvs, 6 shards with state, on 3 servers with a host and a SmartNIC each, emulated at a\n\
         five-hundredth of their speed; a day passes in {:.0} s; this machine: {}\n\
         A request takes {} on a host at full speed (measured here), so the day's highest rate is {} requests/s.\n",
        paint.bold("day"),
        report.seconds,
        report.machine,
        micros(report.service_time_us),
        rate(report.peak_rps),
    );
    let source =
        "watts are MODELLED from E3 (USENIX ATC 2019), Tables 1 and 4; nothing here is measured";
    heading(&mut text, paint, "Placement over the day", source);
    hours(&mut text, report);
    heading(
        &mut text,
        paint,
        "The two days",
        "requests, latency and moves are measured, joules MODELLED",
    );
    days(&mut text, report);
    let saved = format!(
        "Following the load saves {} of the energy.",
        percent(report.saved)
    );
    reading(&mut text, &paint.bold(&saved));
    reading(
        &mut text,
        &format!(
            "Energy is that of 24 hours: the mean of the watts, and {MOVE_JOULES} J for each move. Servers without an"
        ),
    );
    reading(
        &mut text,
        &format!(
            "instance sleep and draw nothing: an assumption. A placement must carry {RESERVE_PERCENT} % of the rate. At a"
        ),
    );
    reading(
        &mut text,
        "five-hundredth of its speed a core takes 500 times as long, and so does each request.",
    );
    decisions(&mut text, paint, report);
    text
}

fn hours(text: &mut String, report: &Report<'_>) {
    let head = [
        "HOURS",
        ">REQUESTS/S",
        ">SERVERS FIXED",
        ">ADAPTIVE",
        ">WATTS FIXED",
        ">ADAPTIVE",
    ];
    let mut table = Table::new(&head).indent(2);
    for row in &report.hours {
        let servers = |d: &Option<Drawn>| d.map_or("-".into(), |d| format!("{:.1}", d.servers));
        let watts = |d: &Option<Drawn>| d.map_or("-".into(), |d| format!("{:.0}", d.watts));
        table.row([
            format!("{:02}-{:02}", row.hour, row.hour + ROW_H),
            rate(row.rate_rps),
            servers(&row.fixed),
            servers(&row.adaptive),
            watts(&row.fixed),
            watts(&row.adaptive),
        ]);
    }
    *text += &table.render();
}

fn days(text: &mut String, report: &Report<'_>) {
    let head = [
        "PLACEMENT",
        ">SENT",
        ">ANSWERED",
        ">LOST",
        ">REPEATED",
        ">P50",
        ">P99",
        ">MOVES",
        ">WATTS",
        ">MEGAJOULES",
    ];
    let mut table = Table::new(&head).indent(2);
    for day in &report.days {
        table.row([
            day.placement.to_string(),
            count(day.sent),
            count(day.answered),
            count(day.lost),
            count(day.repeated),
            micros(day.latency.p50_us),
            micros(day.latency.p99_us),
            count(day.moves),
            format!("{:.0}", day.watts_mean),
            format!("{:.2}", day.joules / 1e6),
        ]);
    }
    *text += &table.render();
}

/// Each plan of the orchestrator once: its moves have the same reason.
fn decisions(text: &mut String, paint: Paint, report: &Report<'_>) {
    heading(
        text,
        paint,
        "What the orchestrator decided",
        "the first move of each plan; power is modelled",
    );
    let mut last = "";
    for event in &report.events {
        if event.why != last {
            reading(text, &event.why);
        }
        last = &event.why;
    }
}
