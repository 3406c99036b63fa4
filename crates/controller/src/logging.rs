//! The controller's log: lines on standard error, which whoever started it keeps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    Info,
    Warn,
}

/// Writes a line to the controller's log, which is standard error: time, level, text.
pub(crate) fn log(level: Level, text: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let level = match level {
        Level::Info => "INFO",
        Level::Warn => "WARN",
    };
    eprintln!("{} {level} {text}", timestamp(now.unwrap_or_default()));
}

/// RFC 3339 in UTC. The date is Hinnant's `civil_from_days` ("chrono-Compatible Low-Level Date
/// Algorithms").
fn timestamp(unix: Duration) -> String {
    let (days, second) = (unix.as_secs() / 86_400, unix.as_secs() % 86_400);
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (h, m, s) = (second / 3_600, second / 60 % 60, second % 60);
    let ms = unix.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_those_of_date() {
        let at = |s, ms| timestamp(Duration::from_secs(s) + Duration::from_millis(ms));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399, 7), "2000-02-28T23:59:59.007Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(4_102_444_799, 999), "2099-12-31T23:59:59.999Z");
    }
}
