//! `e3 get audit`: the commands that the controller was given, and what came of them.

use crate::cluster::client::Client;
use crate::cluster::patience::Patience;
use crate::limits::{POLL_INTERVAL, WATCH_PATIENCE};
use crate::ui::failure::Failure;
use crate::ui::output::{self, Format, Table};
use crate::ui::text::time;
use e3_clock::Clock;
use e3_model::Timestamp;
use e3_model::api::AuditView;
use std::time::Duration;

/// Prints the records of the last `since`, and then new ones as they are written.
pub fn run(
    client: &Client,
    format: Format,
    since: Option<Duration>,
    watch: bool,
) -> Result<(), Failure> {
    let since_unix_ms = since.map_or(0, |since| {
        let now = Clock::new().now().since(Timestamp::ZERO).as_millis();
        now.saturating_sub(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    });
    let mut all = client.audit(0, since_unix_ms)?;
    output::show(format, &all, || table(&all))?;
    if !watch {
        return Ok(());
    }
    let mut last = all.last().map_or(0, |r| r.number);
    while !output::reader_is_gone() {
        std::thread::sleep(POLL_INTERVAL);
        all = Patience::new(WATCH_PATIENCE).ask(|| client.audit(last, since_unix_ms))?;
        for record in &all {
            last = record.number;
            output::show(format, record, || line(record) + "\n")?;
        }
    }
    Ok(())
}

fn outcome(r: &AuditView) -> String {
    match r.error.as_str() {
        "" if r.status < 400 => "done".into(),
        why => format!("refused ({}): {}", r.status, e3_log::escape(why)),
    }
}

fn what(r: &AuditView) -> String {
    let (path, detail) = (e3_log::escape(&r.path), e3_log::escape(&r.detail));
    format!("{path} {detail}").trim_end().to_string()
}

fn line(r: &AuditView) -> String {
    let (at, who, operation) = (time(r.at_unix_ms), &r.who, &r.operation);
    format!("{at}  {who}  {operation}  {}  {}", what(r), outcome(r))
}

fn table(all: &[AuditView]) -> String {
    let mut table = Table::new(&["TIME", "TOKEN", "OPERATION", "REQUEST", "OUTCOME"]);
    for r in all {
        let at = time(r.at_unix_ms);
        table.row([at, r.who.clone(), r.operation.clone(), what(r), outcome(r)]);
    }
    table.render()
}
