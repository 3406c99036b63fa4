//! Numbers formatted for reading.

use e3_model::{Latency, NodeKind};

/// `1234567` as `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A word as a shell reads it.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Kind of a node, and at which part of its speed it is emulated, if it is.
pub fn kind_and_scale(kind: NodeKind, emulated: bool, speed: f64) -> String {
    match (emulated, speed) {
        (false, _) => kind.name().into(),
        (true, 1.0) => format!("{} (emulated)", kind.name()),
        (true, speed) => format!("{} (emulated at {speed} of its speed)", kind.name()),
    }
}

/// A rate without decimals, grouped; below 10 with two significant digits, so that a low rate is not 0.
pub fn rate(value: f64) -> String {
    if value <= 0.0 || value >= 10.0 {
        return count(value.max(0.0).round() as u64);
    }
    let digits = (1.0 - value.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.digits$}");
    match text.trim_end_matches('0') {
        "" | "0." => format!("{value:.1e}"),
        text => text.trim_end_matches('.').to_string(),
    }
}

/// Bytes in the largest binary unit that leaves at least 1.
pub fn bytes(value: u64) -> String {
    let mut amount = value as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            return match unit {
                "B" => format!("{amount:.0} B"),
                _ => format!("{amount:.1} {unit}"),
            };
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} TiB")
}

/// Microseconds as `us`, `ms` or `s`; `-` if there is no value.
pub fn micros(us: f64) -> String {
    if !us.is_finite() {
        "-".into()
    } else if us < 1_000.0 {
        format!("{us:.0} us")
    } else if us < 1_000_000.0 {
        format!("{:.2} ms", us / 1e3)
    } else {
        format!("{:.2} s", us / 1e6)
    }
}

/// Average, percentiles and maximum of a latency.
pub fn latency(l: &Latency) -> String {
    format!(
        "average {}, p50 {}, p99 {}, p99.9 {}, longest {}",
        micros(l.avg_us),
        micros(l.p50_us),
        micros(l.p99_us),
        micros(l.p99_9_us),
        micros(l.max_us)
    )
}

/// A fraction as a percentage.
pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// `1 node`, `2 nodes`.
pub fn plural(value: usize, one: &str) -> String {
    if value == 1 {
        format!("1 {one}")
    } else {
        format!("{} {one}s", count(value as u64))
    }
}

/// Date and time of day in UTC, as in RFC 3339, of milliseconds since the Unix epoch. The calendar is
/// computed as by H. Hinnant's `civil_from_days`.
pub fn time(unix_ms: u64) -> String {
    let s = unix_ms / 1_000;
    let (h, min, sec) = (s / 3_600 % 24, s / 60 % 60, s % 60);
    // Years begin in March, so that the leap day is the last of its year.
    let days = s / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (d, m) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let y = era * 400 + year + u64::from(m <= 2);
    format!("{y:04}-{m:02}-{d:02}T{h:02}:{min:02}:{sec:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(time(unix_s * 1_000), text);
        }
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(4 << 30), "4.0 GiB");
        assert_eq!(micros(870.4), "870 us");
        assert_eq!(micros(1_234.0), "1.23 ms");
        assert_eq!(micros(f64::NAN), "-");
        assert_eq!(
            [0.0, 3.0, 10.4, 7_000.6].map(rate),
            ["0", "3", "10", "7,001"]
        );
        assert_eq!(
            [0.004, 0.25, 2.54, 9.97].map(rate),
            ["0.004", "0.25", "2.5", "10"]
        );
        assert_eq!(rate(3e-12), "3.0e-12");
        assert_eq!(plural(1, "node"), "1 node");
        assert_eq!(plural(6, "node"), "6 nodes");
    }
}
