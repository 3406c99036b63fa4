//! Writing a line, whatever becomes of it.

use crate::line;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing_subscriber::fmt::format;

/// Lines that could not be written, since the process started.
static LOST: AtomicU64 = AtomicU64::new(0);
/// What the next line has to make up for. Locked for the length of a write, so that lines of
/// several threads do not mix.
static DEBT: Mutex<Debt> = Mutex::new(Debt {
    lost: 0,
    is_torn: false,
});

struct Debt {
    /// Lines lost since the last one that was written.
    lost: u64,
    /// The last line ends in its middle.
    is_torn: bool,
}

/// How many lines this process could not write.
pub fn lines_lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The text with control characters as escapes, such as `\n` and `\u{1b}`: what others wrote can
/// neither begin a line of its own nor command a terminal.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) {
            safe.extend(c.escape_default())
        } else {
            safe.push(c)
        }
    }
    Cow::Owned(safe)
}

/// Control characters, and those that turn the direction of text or break lines.
fn is_unsafe(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Writes a line for people to standard error: as it is, without time and level. If it cannot be
/// written it is lost, and counted.
pub fn say(text: &str) {
    put(&format!("{text}\n"), "e3");
}

/// Standard error, as a place for lines. Never fails.
pub(crate) struct Writer {
    pub(crate) process: &'static str,
}

impl Write for Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = escape(text.strip_suffix('\n').unwrap_or(&text));
        // The status line of `e3 up` may stand here.
        let clear = if io::stderr().is_terminal() {
            "\r\x1b[K"
        } else {
            ""
        };
        put(&format!("{clear}{text}\n"), self.process);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn put(text: &str, process: &str) {
    let mut debt = DEBT.lock().unwrap_or_else(|e| e.into_inner());
    if !debt.pay(&mut io::stderr(), text, process) {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

impl Debt {
    /// Writes a line, and before it what is owed; whether that worked.
    fn pay(&mut self, to: &mut impl Write, text: &str, process: &str) -> bool {
        let mut all = String::new();
        if self.is_torn {
            all.push('\n');
        }
        if self.lost > 0 {
            let _ = line::begin(format::Writer::new(&mut all), "WARN", process);
            let _ = writeln!(all, "{} lines of this log could not be written", self.lost);
        }
        all.push_str(text);
        match write_whole(to, all.as_bytes()) {
            Ok(()) => {
                self.lost = 0;
                self.is_torn = false;
                true
            }
            Err(written) => {
                self.lost += 1;
                self.is_torn |= written > 0;
                false
            }
        }
    }
}

/// Writes all of it, or says how much it wrote before it failed.
fn write_whole(to: &mut impl Write, text: &[u8]) -> Result<(), usize> {
    let mut written = 0;
    while written < text.len() {
        match to.write(&text[written..]) {
            Ok(0) => return Err(written),
            Ok(more) => written += more,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(written),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape("plain, äöü"), "plain, äöü");
        assert_eq!(escape("a\nb\x1b[2J\t\0"), r"a\nb\u{1b}[2J\t\u{0}");
        assert_eq!(escape("\u{9b}1m\u{202e}x"), r"\u{9b}1m\u{202e}x");
    }

    #[test]
    fn the_next_line_says_how_many_were_lost() {
        let mut debt = Debt {
            lost: 0,
            is_torn: false,
        };
        // The first takes only a part.
        let mut small = [0u8; 3];
        assert!(!debt.pay(&mut &mut small[..], "first\n", "s1-host"));
        assert!(!debt.pay(&mut &mut [][..], "second\n", "s1-host"));
        let mut log = small.to_vec();
        assert!(debt.pay(&mut log, "third\n", "s1-host"));
        assert!(debt.pay(&mut log, "fourth\n", "s1-host"));
        let log = String::from_utf8(log).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!((lines[0], &lines[2..]), ("fir", &["third", "fourth"][..]));
        let lost = " WARN  s1-host: 2 lines of this log could not be written";
        assert!(lines[1].ends_with(lost), "{log}");
    }

    #[test]
    fn a_write_that_fails_says_how_far_it_came() {
        let mut small = [0u8; 3];
        assert_eq!(write_whole(&mut &mut small[..], b"abcde"), Err(3));
        assert_eq!(&small, b"abc");
        assert_eq!(write_whole(&mut Vec::new(), b"abcde"), Ok(()));
    }
}
