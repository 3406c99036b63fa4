//! The log of every process: lines on standard error, which whoever started the process keeps.
//!
//! A line is `TIME LEVEL PROCESS: TEXT`, with the time in UTC as RFC 3339 has it. Programs log with
//! the macros of `tracing`. A line that cannot be written, because the disk is full or the reader
//! is gone, is dropped and counted; the next line that can be written says how many were lost. So
//! no process ends because of its log.

mod line;
mod writer;

pub use writer::{escape, lines_lost, say};

use line::Line;
use std::str::FromStr;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use writer::Writer;

/// Chooses what is logged: a level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or levels by
/// module, such as `info,e3_node=debug`.
pub const VARIABLE: &str = "E3_LOG";

/// Reads a choice of what is logged.
fn parse_filter(text: &str) -> Result<Targets, String> {
    // A bare module would silence all others, which is hardly ever meant.
    let is_choice = |part: &str| part.contains('=') || LevelFilter::from_str(part).is_ok();
    match (text.split(',').all(is_choice), Targets::from_str(text)) {
        (true, Ok(filter)) => Ok(filter),
        _ => Err(format!(
            "{VARIABLE} is {text:?}, must be a level such as info or debug, or levels by module \
             such as info,e3_node=debug; using info"
        )),
    }
}

/// Sends everything that this process logs to standard error, panics included. Called once, first;
/// a second call changes nothing. A bad `E3_LOG` is reported in the log and means `info`.
pub fn init(process: &str) {
    let chosen = std::env::var(VARIABLE).ok().filter(|v| !v.is_empty());
    let (filter, wrong) = match chosen.map(|text| parse_filter(&text)) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(wrong)) => (Targets::new().with_default(LevelFilter::INFO), Some(wrong)),
        None => (Targets::new().with_default(LevelFilter::INFO), None),
    };
    let process: &'static str = escape(process).into_owned().leak();
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Line { process })
        .with_writer(move || Writer { process })
        .with_ansi(false);
    let is_first = tracing_subscriber::registry()
        .with(lines)
        .with(filter)
        .try_init()
        .is_ok();
    if !is_first {
        return;
    }
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    if let Some(wrong) = wrong {
        tracing::warn!("{wrong}");
    }
}
