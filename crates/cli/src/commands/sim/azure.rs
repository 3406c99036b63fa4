//! Public traces of Azure Functions as loads (<https://github.com/Azure/AzurePublicDataset>):
//!
//! - 2019, `invocations_per_function_md.anon.dNN.csv`: a line for each function, a column for each minute of
//!   a day. The minutes of all functions are added (Shahrad and others, USENIX ATC 2020).
//! - 2021, `AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt`: a line for each invocation, with the time of
//!   its end and its duration in seconds (Zhang and others, SOSP 2021).

use super::load::{Parsed, wrong};
use crate::limits::SIM_TRACE_ROWS_MAX;
use crate::ui::failure::Failure;
use e3_perfsim::Load;
use std::time::Duration;

/// First columns of the trace of 2019; a column for each minute follows.
const PER_MINUTE: &str = "HashOwner,HashApp,HashFunction,Trigger";
/// First line of the trace of 2021.
const INVOCATIONS: &str = "app,func,end_timestamp,duration";
const MINUTE_S: f64 = 60.0;
const MINUTES_MAX: usize = 1_440;

/// Reads a trace by its first line; none if it is no such trace.
pub fn parse(file: &str, text: &str) -> Result<Option<Parsed>, Failure> {
    let header = text.lines().next().map_or("", str::trim);
    if header == INVOCATIONS {
        return invocations(file, text).map(Some);
    }
    match header.strip_prefix(PER_MINUTE) {
        Some(minutes) => per_minute(file, text, minutes.matches(',').count()).map(Some),
        None => Ok(None),
    }
}

fn per_minute(file: &str, text: &str, minutes: usize) -> Result<Parsed, Failure> {
    if !(1..=MINUTES_MAX).contains(&minutes) {
        let message = format!("{file}:1: {minutes} minutes, must be 1..={MINUTES_MAX}");
        return Err(wrong(message));
    }
    let mut sums = vec![0.0; minutes];
    for (line, text) in (2..).zip(text.lines().skip(1)) {
        let cells: Vec<&str> = text.split(',').skip(4).collect();
        if text.trim().is_empty() {
            continue;
        }
        if cells.len() != minutes {
            let found = cells.len();
            let message = format!("{file}:{line}: {found} minutes, the first line has {minutes}");
            return Err(wrong(message));
        }
        for (sum, cell) in sums.iter_mut().zip(cells) {
            let count = cell.trim().parse::<u64>();
            *sum += count.map_err(|_| not_a_number(file, line, cell))? as f64;
        }
    }
    let rate = |(at, sum): (usize, &f64)| (at as f64 * MINUTE_S, sum / MINUTE_S);
    Ok(Parsed {
        load: Load::Steps(sums.iter().enumerate().map(rate).collect()),
        duration: Some(Duration::from_secs_f64(minutes as f64 * MINUTE_S)),
    })
}

fn invocations(file: &str, text: &str) -> Result<Parsed, Failure> {
    let mut starts = Vec::new();
    for (line, text) in (2..).zip(text.lines().skip(1)) {
        if text.trim().is_empty() {
            continue;
        }
        let mut numbers = text.split(',').skip(2).map(|cell| {
            let number = cell.trim().parse::<f64>().ok();
            let good = number.filter(|n| n.is_finite());
            good.ok_or_else(|| not_a_number(file, line, cell))
        });
        let (Some(end), Some(duration)) = (numbers.next(), numbers.next()) else {
            let message = format!("{file}:{line}: {text:?} has no end_timestamp and duration");
            return Err(wrong(message));
        };
        starts.push(end? - duration?);
        if starts.len() > SIM_TRACE_ROWS_MAX {
            let message = format!("{file}: more than {SIM_TRACE_ROWS_MAX} lines");
            return Err(wrong(message).hint("cut the file, or count requests per interval"));
        }
    }
    starts.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (starts.first().copied(), starts.last().copied()) else {
        return Err(wrong(format!("{file}: there are no invocations")));
    };
    let nanos = starts.iter().map(|at| ((at - first) * 1e9) as u64);
    Ok(Parsed {
        load: Load::Arrivals(nanos.collect()),
        duration: Some(Duration::from_secs_f64(last - first + 1e-9)),
    })
}

fn not_a_number(file: &str, line: usize, cell: &str) -> Failure {
    wrong(format!("{file}:{line}: {cell:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minutes_of_all_functions_are_added() {
        let text =
            "HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,60,0\no,a,g,timer,60,30\n";
        let parsed = parse("f", text).unwrap().unwrap();
        assert_eq!(parsed.load, Load::Steps(vec![(0.0, 2.0), (60.0, 0.5)]));
        assert_eq!(parsed.duration, Some(Duration::from_secs(120)));
    }

    #[test]
    fn invocations_arrive_when_they_began() {
        let text = "app,func,end_timestamp,duration\na,f,12.5,2.5\na,g,9,1\n";
        let parsed = parse("f", text).unwrap().unwrap();
        assert_eq!(parsed.load, Load::Arrivals(vec![0, 2_000_000_000]));
    }

    #[test]
    fn what_is_damaged_is_refused_with_its_line() {
        for (text, words) in [
            (
                "HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,60\n",
                "f:2: 1 minutes",
            ),
            (
                "HashOwner,HashApp,HashFunction,Trigger,1\no,a,f,http,x\n",
                "f:2: \"x\" is not",
            ),
            (
                "app,func,end_timestamp,duration\na,f,1\n",
                "f:2: \"a,f,1\" has no",
            ),
            ("app,func,end_timestamp,duration\n", "no invocations"),
        ] {
            let failure = parse("f", text).unwrap_err();
            assert!(failure.message.contains(words), "{text:?}: {failure}");
        }
        assert!(parse("f", "time_s\n1\n").unwrap().is_none());
    }
}
