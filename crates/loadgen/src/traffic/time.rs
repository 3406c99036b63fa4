//! Times as people write them.

/// Reads seconds since any moment (`12`, `12.25`), or a date and time of RFC 3339
/// (`2026-03-01T08:30:00.5Z`, `2026-03-01 08:30:00+01:00`); in nanoseconds.
pub(super) fn parse(text: &str) -> Option<i128> {
    match text.get(4..5) {
        Some("-") if !text.starts_with('-') && !text.contains(['e', 'E']) => date(text),
        _ => seconds(text),
    }
}

/// Exact where a number of binary floating point is not.
fn seconds(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || whole.len() > 18 {
        return None;
    }
    let nanos: i128 = format!("{fraction:0<9.9}").parse().ok()?;
    let all = whole.parse::<i128>().ok()? * 1_000_000_000 + nanos;
    Some(if negative { -all } else { all })
}

fn date(text: &str) -> Option<i128> {
    let number = |from: usize, to: usize, range: std::ops::RangeInclusive<i128>| {
        let digits = text.get(from..to)?;
        let number: i128 = digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())??;
        range.contains(&number).then_some(number)
    };
    let is = |at: usize, any: &str| text.get(at..at + 1).is_some_and(|c| any.contains(c));
    if !(is(4, "-") && is(7, "-") && is(10, "Tt ") && is(13, ":") && is(16, ":")) {
        return None;
    }
    let (year, month) = (number(0, 4, 0..=9999)?, number(5, 7, 1..=12)?);
    let day = number(8, 10, 1..=days_of(year, month))?;
    let of_day = number(11, 13, 0..=23)? * 3600 + number(14, 16, 0..=59)? * 60;
    // a leap second is the second after
    let second = number(17, 19, 0..=60)?;
    let rest = text.get(19..)?;
    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (fraction, zone) = rest.split_at(zone_at);
    let fraction = match fraction {
        "" => 0,
        _ => seconds(&format!(
            "0{}",
            fraction.strip_prefix('.').map(|f| format!(".{f}"))?
        ))?,
    };
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let from = 19 + zone_at;
            if text.len() != from + 6 || !is(from + 3, ":") {
                return None;
            }
            let minutes =
                number(from + 1, from + 3, 0..=23)? * 60 + number(from + 4, from + 6, 0..=59)?;
            if zone.starts_with('-') {
                -minutes
            } else {
                minutes
            }
        }
    };
    let seconds = (days_before(year, month) + day - 1) * 86_400 + of_day + second - offset * 60;
    Some(seconds * 1_000_000_000 + fraction)
}

fn is_leap(year: i128) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i128, month: i128) -> i128 {
    match month {
        2 => 28 + i128::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the begin of the year 0 to that of a month.
fn days_before(year: i128, month: i128) -> i128 {
    let before = (year - 1).max(0);
    let leaps = match year {
        0 => 0,
        _ => before / 4 - before / 100 + before / 400 + 1,
    };
    year * 365 + leaps + (1..month).map(|m| days_of(year, m)).sum::<i128>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(parse("12"), Some(12_000_000_000));
        assert_eq!(
            parse("1795264777.123456789"),
            Some(1_795_264_777_123_456_789)
        );
        assert_eq!(parse("0.5000000009"), Some(500_000_000));
        assert_eq!(parse("-1.5"), Some(-1_500_000_000));
        for wrong in [
            "",
            ".",
            "1.",
            ".5",
            "1e3",
            "1,5",
            "--1",
            "1234567890123456789",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let epoch = parse("1970-01-01T00:00:00Z").unwrap();
        // values of `date -u -d ... +%s`
        for (text, since) in [
            ("2026-11-21T12:39:37Z", 1_795_264_777),
            ("2000-02-29 23:59:59Z", 951_868_799),
            ("2026-03-01T08:30:00+01:00", 1_772_350_200),
            ("1969-12-31T23:00:00-01:00", 0),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            let got = parse(text).unwrap() - epoch;
            assert_eq!(got, since * 1_000_000_000, "{text}");
        }
        let half = parse("1970-01-01T00:00:00.25Z").unwrap();
        assert_eq!(half - epoch, 250_000_000);
        for wrong in [
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+1:00",
            "2026-01-01T00:00:00Zulu",
            "2026-01-01",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
