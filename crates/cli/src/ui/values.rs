//! Parsers of values on the command line.

use std::time::Duration;

/// A finite number. A plus sign, which `str::parse` accepts, is refused.
fn number(text: &str) -> Option<f64> {
    let number = text.parse::<f64>().ok()?;
    (number.is_finite() && !text.starts_with('+')).then_some(number)
}

/// `250ms`, `15s`, `2m`; a bare number is in seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let nanos = match number(text) {
        Some(seconds) if seconds >= 0.0 => (seconds * 1e9) as u64,
        _ => {
            text.parse::<e3_model::Nanos>()
                .map_err(|e| format!("{e}, such as 250ms, 15s or 2m"))?
                .0
        }
    };
    Ok(Duration::from_nanos(nanos))
}

/// A rate above 0.
pub fn rate(text: &str) -> Result<f64, String> {
    match number(text) {
        Some(rate) if rate > 0.0 => Ok(rate),
        _ => Err(format!(
            "{text:?} is not a number of requests per second above 0"
        )),
    }
}

/// A speed factor above 0.
pub fn speed(text: &str) -> Result<f64, String> {
    match number(text) {
        Some(speed) if speed > 0.0 => Ok(speed),
        _ => Err(format!("{text:?} is not a factor above 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        for bad in ["", "-1", "soon", "NaN", "5 parsecs", "+1", "+1s", "inf"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
