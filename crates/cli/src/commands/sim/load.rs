//! The load of `e3 sim`: `7000`, `steps:0s=1000,2s=5000`, `day:PEAK,TROUGH`, or `trace:FILE.csv`.

use super::azure;
use crate::documents::files::read_trace;
use crate::limits::SIM_TRACE_ROWS_MAX;
use crate::ui::failure::{Exit, Failure};
use crate::ui::values;
use e3_perfsim::Load;
use std::path::Path;
use std::time::Duration;

/// What is accepted.
const FORMS: &str =
    "a rate such as 7000, steps:0s=1000,2s=5000, day:PEAK,TROUGH, or trace:FILE.csv";

/// A load, and how long it lasts if it says so.
#[derive(Debug, PartialEq)]
pub struct Parsed {
    pub load: Load,
    pub duration: Option<Duration>,
}

impl Parsed {
    /// The same with rates times `scale`, passing `speed` times as fast.
    pub fn scaled(self, scale: f64, speed: f64) -> Result<Parsed, Failure> {
        for (name, factor) in [("--load-scale", scale), ("--load-speed", speed)] {
            if !factor.is_finite() || factor <= 0.0 {
                return Err(wrong(format!("{name} is {factor}, must be above 0")));
            }
        }
        let load = match self.load {
            Load::Constant(rate) => Load::Constant(rate * scale),
            Load::Steps(steps) => {
                let step = |(at, rate): (f64, f64)| (at / speed, rate * scale);
                Load::Steps(steps.into_iter().map(step).collect())
            }
            Load::Day {
                peak_rps,
                trough_rps,
            } => Load::Day {
                peak_rps: peak_rps * scale,
                trough_rps: trough_rps * scale,
            },
            Load::Arrivals(_) if scale != 1.0 || speed != 1.0 => {
                let message =
                    "--load-scale and --load-speed need rates; the trace has single arrivals";
                return Err(wrong(message.into()).hint("count its requests per interval"));
            }
            arrivals @ Load::Arrivals(_) => arrivals,
        };
        check(&load)?;
        Ok(Parsed {
            load,
            duration: self.duration.map(|d| d.div_f64(speed)),
        })
    }
}

/// Reads a load as written on the command line.
pub fn parse(text: &str) -> Result<Parsed, Failure> {
    let (form, rest) = text.split_once(':').unwrap_or(("", text));
    let load = match form {
        "" => Load::Constant(rate(rest)?),
        "steps" => steps(rest)?,
        "day" => {
            let (peak, trough) = rest.split_once(',').unwrap_or((rest, "0"));
            Load::Day {
                peak_rps: rate(peak)?,
                trough_rps: rate(trough)?,
            }
        }
        "trace" => {
            let path = Path::new(rest);
            let text = read_trace(path)?;
            let parsed = match azure::parse(rest, &text)? {
                Some(parsed) => parsed,
                None => trace(rest, &text)?,
            };
            check(&parsed.load)?;
            return Ok(parsed);
        }
        _ => return Err(wrong(format!("load {text:?} is not {FORMS}"))),
    };
    check(&load)?;
    Ok(Parsed {
        load,
        duration: None,
    })
}

fn check(load: &Load) -> Result<(), Failure> {
    load.validate().map_err(|e| wrong(format!("load: {e}")))
}

pub(super) fn wrong(message: String) -> Failure {
    Failure::new(Exit::Input, message)
}

fn rate(text: &str) -> Result<f64, Failure> {
    let parsed = text.trim().parse::<f64>();
    parsed.map_err(|_| wrong(format!("load {text:?} is not {FORMS}")))
}

fn steps(text: &str) -> Result<Load, Failure> {
    let step = |step: &str| {
        let (at, rps) = step
            .split_once('=')
            .ok_or_else(|| wrong(format!("step {step:?} is not TIME=RATE, such as 2s=5000")))?;
        let at = values::duration(at).map_err(|e| wrong(format!("step {step:?}: {e}")))?;
        Ok((at.as_secs_f64(), rate(rps)?))
    };
    let steps: Result<Vec<_>, Failure> = text.split(',').map(step).collect();
    Ok(Load::Steps(steps?))
}

/// Lines `time_s` with one arrival each, or `time_s,requests` with the requests from that time until the
/// next line's. Times count from the first line's.
fn trace(file: &str, text: &str) -> Result<Parsed, Failure> {
    let mut lines = (1..).zip(text.lines().map(str::trim));
    let header = lines.next().map_or("", |(_, l)| l);
    let has_counts = match header {
        "time_s" => false,
        "time_s,requests" => true,
        _ => {
            let message = format!(
                "{file}:1: the first line is {header:?}, must be \"time_s\", \"time_s,requests\", or that of an Azure Functions trace"
            );
            return Err(wrong(message));
        }
    };
    let mut rows: Vec<(f64, f64)> = Vec::new();
    for (line, text) in lines.filter(|(_, l)| !l.is_empty()) {
        let (time, requests) = text.split_once(',').unwrap_or((text, "1"));
        let number = |text: &str| {
            let parsed = text.trim().parse::<f64>().ok();
            let good = parsed.filter(|n| n.is_finite() && *n >= 0.0);
            good.ok_or_else(|| {
                wrong(format!(
                    "{file}:{line}: {text:?} is not a number, 0 or more"
                ))
            })
        };
        let row = (number(time)?, number(requests)?);
        if let Some((before, _)) = rows.last()
            && (row.0 < *before || (has_counts && row.0 == *before))
        {
            let message = format!("{file}:{line}: time {} s is not after {before} s", row.0);
            return Err(wrong(message).hint("sort the lines by time"));
        }
        rows.push(row);
        if rows.len() > SIM_TRACE_ROWS_MAX {
            let message = format!("{file}: more than {SIM_TRACE_ROWS_MAX} lines");
            return Err(wrong(message).hint("give requests per interval instead: time_s,requests"));
        }
    }
    let (Some((first, _)), Some((last, _))) = (rows.first().copied(), rows.last().copied()) else {
        return Err(wrong(format!("{file}: there are no arrivals")));
    };
    if !has_counts {
        let nanos = |(at, _): &(f64, f64)| ((at - first) * 1e9) as u64;
        return Ok(Parsed {
            load: Load::Arrivals(rows.iter().map(nanos).collect()),
            duration: Some(Duration::from_secs_f64(last - first + 1e-9)),
        });
    }
    if rows.len() < 2 {
        let message = format!("{file}: one interval, so its length is unknown; add a second line");
        return Err(wrong(message).hint("add a last line with the time of its end and 0 requests"));
    }
    let lengths = rows.windows(2).map(|w| w[1].0 - w[0].0);
    let mut lengths: Vec<f64> = lengths.collect();
    // The last interval is as long as the one before.
    lengths.extend(lengths.last().copied());
    let steps = rows.iter().zip(&lengths);
    let length = last - first + lengths[lengths.len() - 1];
    Ok(Parsed {
        load: Load::Steps(steps.map(|((at, n), l)| (at - first, n / l)).collect()),
        duration: Some(Duration::from_secs_f64(length)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_read() {
        let load = |text: &str| parse(text).unwrap().load;
        assert_eq!(load("7000"), Load::Constant(7000.0));
        assert_eq!(
            load("steps:0s=10,500ms=2e3"),
            Load::Steps(vec![(0.0, 10.0), (0.5, 2000.0)])
        );
        assert_eq!(
            load("day:5,1"),
            Load::Day {
                peak_rps: 5.0,
                trough_rps: 1.0
            }
        );
    }

    #[test]
    fn rates_and_time_are_scaled() {
        let scaled = |text: &str, scale, speed| parse(text).unwrap().scaled(scale, speed);
        let steps = scaled("steps:0s=10,4s=20", 0.5, 2.0).unwrap();
        assert_eq!(steps.load, Load::Steps(vec![(0.0, 5.0), (2.0, 10.0)]));
        let constant = scaled("7000", 2.0, 3.0).unwrap();
        assert_eq!(constant.load, Load::Constant(14_000.0));
        let failure = scaled("7000", 0.0, 1.0).unwrap_err();
        assert_eq!(failure.message, "--load-scale is 0, must be above 0");
    }

    #[test]
    fn what_is_no_load_is_refused() {
        for (text, words) in [
            ("-5", "rate -5 requests/s"),
            ("0", "no requests"),
            ("soon", "is not a rate such as 7000"),
            ("week:5", "is not a rate such as 7000"),
            ("NaN", "rate NaN"),
            ("steps:5", "is not TIME=RATE"),
            ("steps:2s=5,1s=5", "must ascend"),
            ("day:1,2", "above its highest"),
        ] {
            let failure = parse(text).unwrap_err();
            assert_eq!(failure.exit, Exit::Input);
            assert!(failure.message.contains(words), "{text}: {failure}");
        }
        assert_eq!(parse("trace:/missing").unwrap_err().exit, Exit::NotFound);
    }

    #[test]
    fn traces_have_arrivals_or_counts() {
        let good = |text: &str| trace("f", text).unwrap();
        let arrivals = good("time_s\n10\n10.5\n12\n");
        assert_eq!(
            arrivals.load,
            Load::Arrivals(vec![0, 500_000_000, 2_000_000_000])
        );
        let counts = good("time_s,requests\n60,120\n120,60\n");
        assert_eq!(counts.load, Load::Steps(vec![(0.0, 2.0), (60.0, 1.0)]));
        assert_eq!(counts.duration, Some(Duration::from_secs(120)));
        for (text, words) in [
            ("", "f:1: the first line is"),
            ("time_s\n", "no arrivals"),
            ("time_s\n2\n1\n", "f:3: time 1 s is not after 2 s"),
            ("time_s\n-2\n", "f:2: \"-2\" is not a number"),
            ("time_s,requests\n1,x\n", "f:2: \"x\""),
            ("time_s,requests\n1,5\n", "one interval"),
        ] {
            let failure = trace("f", text).unwrap_err();
            assert!(failure.message.contains(words), "{text:?}: {failure}");
        }
    }
}
