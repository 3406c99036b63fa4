//! Cron expressions: five fields (minute, hour, day of month, month, day of week), in UTC.
//!
//! The meaning is that of POSIX `crontab`: where both days are restricted, one of them must match.
//! Beyond POSIX there are steps (`*/5`, `10-50/10`) and names of months and days (`jan`, `mon`).

use crate::limits::CRON_LEN_MAX;
use crate::time::Timestamp;
use std::fmt;
use std::str::FromStr;

/// Times that repeat: one or more minutes of a calendar.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cron {
    text: String,
    /// By value: whether it matches.
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// 0 is Sunday.
    weekdays: u64,
    /// Whether a day must match both fields: one of them is `*`.
    is_both: bool,
}

/// Why a text is no cron expression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CronError {
    /// Too long.
    #[error("cron expression has {0} bytes, must be at most {CRON_LEN_MAX}")]
    TooLong(usize),
    /// Another number of fields.
    #[error(
        "cron {text:?} has {fields} fields, must have 5: minute, hour, day of month, month, day of week"
    )]
    Fields {
        /// The expression.
        text: String,
        /// How many there are.
        fields: usize,
    },
    /// A field that cannot be read.
    #[error(
        "cron {text:?}: {field} is {value:?}, must be *, or numbers, ranges and steps within {min}..={max}"
    )]
    Field {
        /// The expression.
        text: String,
        /// Name of the field.
        field: &'static str,
        /// What it is.
        value: String,
        /// Its smallest number.
        min: u8,
        /// Its largest number.
        max: u8,
    },
    /// No date is like that.
    #[error("cron {0:?} never comes: no such date exists")]
    Never(String),
}

/// A field of an expression.
struct Field {
    name: &'static str,
    min: u8,
    max: u8,
    /// Names of its numbers from `min` on.
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Field; 5] = [
    Field::new("minute", 0, 59, &[]),
    Field::new("hour", 0, 23, &[]),
    Field::new("day of month", 1, 31, &[]),
    Field::new("month", 1, 12, MONTHS),
    Field::new("day of week", 0, 7, WEEKDAYS),
];

const MINUTE_NS: u64 = 60_000_000_000;
const DAY_MINUTES: u64 = 24 * 60;
/// Days in which every date comes: two leap years are at most eight years apart.
const DAYS_MAX: u64 = 8 * 366 + 1;

impl Field {
    const fn new(name: &'static str, min: u8, max: u8, names: &'static [&'static str]) -> Field {
        Field {
            name,
            min,
            max,
            names,
        }
    }

    /// The numbers that match, as bits; None if the text cannot be read.
    fn parse(&self, text: &str) -> Option<u64> {
        text.split(',')
            .try_fold(0, |bits, part| Some(bits | self.part(part)?))
    }

    fn part(&self, text: &str) -> Option<u64> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, number(step).filter(|step| *step > 0)?),
            None => (text, 1),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.min, self.max),
            Some((first, last)) => (self.value(first)?, self.value(last)?),
            // A step of a single number has no end.
            None if step > 1 => return None,
            None => (self.value(range)?, self.value(range)?),
        };
        let within = self.min <= first && first <= last && last <= self.max;
        let values = (first..=last).step_by(usize::from(step));
        within.then(|| values.fold(0, |bits, value| bits | 1 << value))
    }

    fn value(&self, text: &str) -> Option<u8> {
        let mut names = self.names.iter();
        match names.position(|name| name.eq_ignore_ascii_case(text)) {
            Some(at) => Some(self.min + at as u8),
            None => number(text),
        }
    }
}

/// A number without a sign.
fn number(text: &str) -> Option<u8> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Month and day of month of a day since the Unix epoch (Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", `civil_from_days`).
fn date(day: u64) -> (u8, u8) {
    let shifted = day + 719_468;
    let of_era = shifted % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (month as u8, day as u8)
}

impl Cron {
    /// The first time after this one; none beyond the end of time.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let first = after.0 / MINUTE_NS + 1;
        let today = first / DAY_MINUTES;
        let days = today..today + DAYS_MAX;
        let minute = days.filter(|day| self.has_day(*day)).find_map(|day| {
            let from = first.saturating_sub(day * DAY_MINUTES);
            let minute = self.minute_from(from)?;
            Some(day * DAY_MINUTES + minute)
        });
        minute?.checked_mul(MINUTE_NS).map(Timestamp)
    }

    fn has_day(&self, day: u64) -> bool {
        let (month, of_month) = date(day);
        // The Unix epoch was a Thursday.
        let weekday = (day + 4) % 7;
        let by_date = self.days >> of_month & 1 == 1;
        let by_weekday = self.weekdays >> weekday & 1 == 1;
        let is_day = if self.is_both {
            by_date && by_weekday
        } else {
            by_date || by_weekday
        };
        is_day && self.months >> month & 1 == 1
    }

    /// The first minute of a day that matches, from this one on.
    fn minute_from(&self, from: u64) -> Option<u64> {
        let mut hours = (from / 60..24).filter(|hour| self.hours >> hour & 1 == 1);
        hours.find_map(|hour| {
            let first = from.saturating_sub(hour * 60);
            let minute = (first..60).find(|minute| self.minutes >> minute & 1 == 1)?;
            Some(hour * 60 + minute)
        })
    }

    /// The expression.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Cron, CronError> {
        if text.len() > CRON_LEN_MAX {
            return Err(CronError::TooLong(text.len()));
        }
        let values: Vec<&str> = text.split_ascii_whitespace().collect();
        let Ok(values) = <[&str; 5]>::try_from(values.as_slice()) else {
            return Err(CronError::Fields {
                text: text.into(),
                fields: values.len(),
            });
        };
        let mut bits = [0; 5];
        for ((bits, field), value) in bits.iter_mut().zip(FIELDS).zip(values) {
            *bits = field.parse(value).ok_or_else(|| CronError::Field {
                text: text.into(),
                field: field.name,
                value: value.into(),
                min: field.min,
                max: field.max,
            })?;
        }
        let [minutes, hours, days, months, weekdays] = bits;
        let cron = Cron {
            text: text.into(),
            minutes,
            hours,
            days,
            months,
            // 7 is Sunday too.
            weekdays: weekdays | weekdays >> 7,
            is_both: values[2].starts_with('*') || values[4].starts_with('*'),
        };
        match cron.next(Timestamp::ZERO) {
            Some(_) => Ok(cron),
            None => Err(CronError::Never(text.into())),
        }
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 2026-11-23 00:00 UTC, a Monday.
    const MONDAY: u64 = 1_795_392_000;

    fn next(text: &str, after_secs: u64) -> u64 {
        let cron: Cron = text.parse().unwrap();
        let after = Timestamp(after_secs * 1_000_000_000);
        let next = cron.next(after).unwrap();
        assert!(next > after);
        next.0 / 1_000_000_000
    }

    #[test]
    fn the_next_time_is_the_first_minute_that_matches() {
        const HOUR: u64 = 3_600;
        const DAY: u64 = 24 * HOUR;
        for (text, after, expected) in [
            ("* * * * *", MONDAY, MONDAY + 60),
            ("* * * * *", MONDAY + 59, MONDAY + 60),
            ("*/15 * * * *", MONDAY + 60, MONDAY + 900),
            ("0 9 * * *", MONDAY, MONDAY + 9 * HOUR),
            ("0 9 * * *", MONDAY + 9 * HOUR, MONDAY + DAY + 9 * HOUR),
            (
                "5,10-20/5 3 * * *",
                MONDAY + 3 * HOUR + 600,
                MONDAY + 3 * HOUR + 900,
            ),
            ("0 0 * * sun", MONDAY, MONDAY + 6 * DAY),
            ("0 0 * * 7", MONDAY, MONDAY + 6 * DAY),
            ("0 0 * * MON-fri", MONDAY, MONDAY + DAY),
            ("0 0 1 * *", MONDAY, MONDAY + 8 * DAY),
            ("0 0 1 jan *", MONDAY, MONDAY + 39 * DAY),
            // Both days are restricted: either will do.
            ("0 0 1 * wed", MONDAY, MONDAY + 2 * DAY),
            // 2028-02-29
            ("0 0 29 2 *", MONDAY, MONDAY + 463 * DAY),
            // 2100 is no leap year: from 2096-02-29 to 2104-02-29.
            ("0 0 29 2 *", 3_981_312_000, 4_233_686_400),
        ] {
            assert_eq!(next(text, after), expected, "{text} after {after}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_bounds() {
        for (text, expected) in [
            (
                "60 * * * *",
                "minute is \"60\", must be *, or numbers, ranges and steps within 0..=59",
            ),
            ("* 24 * * *", "hour is \"24\""),
            ("* * 0 * *", "day of month is \"0\""),
            ("* * * 13 *", "month is \"13\""),
            ("* * * foo *", "month is \"foo\""),
            ("* * * * 8", "day of week is \"8\""),
            ("*/0 * * * *", "minute is \"*/0\""),
            ("5/10 * * * *", "minute is \"5/10\""),
            ("20-10 * * * *", "minute is \"20-10\""),
            ("+5 * * * *", "minute is \"+5\""),
            ("1,,2 * * * *", "minute is \"1,,2\""),
            ("* * * *", "has 4 fields, must have 5"),
            ("", "has 0 fields"),
            ("@daily", "has 1 fields"),
            ("0 0 31 2 *", "never comes"),
        ] {
            let error = text.parse::<Cron>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let long = " ".repeat(CRON_LEN_MAX + 1);
        assert_eq!(
            long.parse::<Cron>(),
            Err(CronError::TooLong(CRON_LEN_MAX + 1))
        );
    }

    #[test]
    fn the_next_time_is_what_trying_every_minute_gives() {
        let texts = [
            "7 3 * * *",
            "*/7 */5 */3 * *",
            "30 4 13 * fri",
            "1-3 0 1,15 2-12/2 *",
        ];
        for text in texts {
            let cron: Cron = text.parse().unwrap();
            let mut after = MONDAY / 60;
            for _ in 0..20 {
                let found = next(text, after * 60) / 60;
                let matches = |minute: &u64| {
                    cron.has_day(minute / DAY_MINUTES)
                        && cron.hours >> (minute % DAY_MINUTES / 60) & 1 == 1
                        && cron.minutes >> (minute % 60) & 1 == 1
                };
                assert_eq!((after + 1..).find(matches), Some(found), "{text}");
                after = found;
            }
        }
    }

    #[test]
    fn there_is_nothing_after_the_end_of_time() {
        let cron: Cron = "* * * * *".parse().unwrap();
        assert_eq!(cron.next(Timestamp::MAX), None);
    }
}
