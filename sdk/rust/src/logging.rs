//! Log lines, formatted without allocation.

use core::fmt::{self, Write};

use crate::limits::LOG_BYTES_MAX;
use crate::sys;

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A lasting error.
    Error = 1,
    /// Something unexpected.
    Warn = 2,
    /// A normal event.
    Info = 3,
    /// For debugging.
    Debug = 4,
}

struct Line {
    bytes: [u8; LOG_BYTES_MAX],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fit = text.floor_char_boundary(LOG_BYTES_MAX - self.len);
        self.bytes[self.len..self.len + fit].copy_from_slice(&text.as_bytes()[..fit]);
        self.len += fit;
        if fit < text.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

/// Behind [`log!`](crate::log).
pub fn log_fmt(level: Level, arguments: fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; LOG_BYTES_MAX],
        len: 0,
    };
    // An error only says that the line was cut.
    let _ = line.write_fmt(arguments);
    sys::log(level as i32, &line.bytes[..line.len]);
}

/// Logs a line: `log!(Level::Info, "bucket of {thermostat} is empty")`. Cut at 512 bytes.
#[macro_export]
macro_rules! log {
    ($level:expr, $($argument:tt)+) => {
        $crate::log_fmt($level, ::core::format_args!($($argument)+))
    };
}
