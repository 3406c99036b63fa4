//! The form of a line.

use std::fmt;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// `TIME LEVEL PROCESS: TEXT name=value`.
pub(crate) struct Line {
    pub(crate) process: &'static str,
}

/// Begins a line.
pub(crate) fn begin(mut to: Writer<'_>, level: &str, process: &str) -> fmt::Result {
    SystemTime.format_time(&mut to)?;
    write!(to, " {level:5} {process}: ")
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        begin(to.by_ref(), event.metadata().level().as_str(), self.process)?;
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}
