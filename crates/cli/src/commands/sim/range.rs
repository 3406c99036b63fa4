//! The result at both ends of what is plausible for messages per request (docs/applications/flows.md), and
//! for the service time of requests that are smaller than those that were measured. All are low together, and
//! all high together: the widest range.

use super::switches::Changes;
use super::{Fidelity, Subject, not_simulated};
use crate::documents::flows;
use crate::ui::failure::Failure;
use e3_fullsim::sweep;
use e3_hardware::service_time::ServiceTime;
use e3_model::{Application, NodeKind, Profile};
use e3_perfsim::{Input, Options, Report, Run};
use serde::Serialize;
use std::collections::BTreeMap;

/// Both ends, and what is uncertain.
#[derive(Serialize, Debug)]
pub struct Range {
    /// Least messages and shortest times.
    pub low: Headline,
    /// As predicted.
    pub central: Headline,
    /// Most messages and longest times.
    pub high: Headline,
    /// What is uncertain, in words.
    pub uncertain: Vec<String>,
}

/// A result in short; of a curve, that of its knee.
#[derive(Serialize, Debug)]
pub struct Headline {
    /// Requests answered per second.
    pub rate_rps: f64,
    /// Of a curve: the lowest rate that saturates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saturates_rps: Option<f64>,
    /// The cluster cannot carry it.
    pub saturated: bool,
    /// 99 of 100 requests took no longer; None if no request was answered.
    pub latency_us_p99: Option<f64>,
    /// Energy of all servers over requests.
    pub joules_per_request: Option<f64>,
}

/// What is uncertain of an application.
pub struct Uncertain {
    low: Vec<f64>,
    high: Vec<f64>,
    /// Requests are smaller than those that were measured.
    is_small: bool,
    words: Vec<String>,
}

impl Uncertain {
    pub fn new(
        app: &Application,
        profiles: &BTreeMap<String, Profile>,
        central: &[f64],
        request_bytes: u32,
    ) -> Uncertain {
        let known = flows::plausible(app);
        let fixed = || (central.to_vec(), central.to_vec());
        let (low, high) = known.unwrap_or_else(fixed);
        let mut words = Vec::new();
        for (service, (low, high)) in app.spec.services.iter().zip(low.iter().zip(&high)) {
            if low < high {
                words.push(format!(
                    "{}: {low} to {high} messages a request",
                    service.name
                ));
            }
        }
        let kinds = [NodeKind::Host, NodeKind::SmartNic];
        let is_small = app.spec.services.iter().any(|service| {
            let profile = profiles.get(service.profile());
            let from = |k| profile.and_then(|p| ServiceTime::assumed_from(p, k, request_bytes));
            kinds.into_iter().any(|kind| from(kind).is_some())
        });
        if is_small {
            words.push(format!(
                "service times for {request_bytes} bytes: from in proportion to the bytes to as measured"
            ));
        }
        Uncertain {
            low,
            high,
            is_small,
            words,
        }
    }
}

impl Headline {
    fn of(report: &Report) -> Headline {
        Headline {
            rate_rps: report.achieved_rps,
            saturates_rps: None,
            saturated: report.saturated,
            latency_us_p99: report.latency.map(|l| l.p99_us),
            joules_per_request: report.joules_per_request,
        }
    }
}

/// Runs at both ends, in the fidelity of the run between them.
pub fn of_runs(
    subject: &Subject,
    fidelity: Fidelity,
    run: &Run,
    changes: &Changes,
) -> Result<Range, Failure> {
    range(subject, |input| {
        let (report, _) = subject.simulate(fidelity, &input, run.clone(), changes.orchestrator)?;
        Ok(Headline::of(&report))
    })
}

/// Curves at both ends, in the fidelity of the curve between them.
pub fn of_sweeps(subject: &Subject, fidelity: Fidelity, run: &Run) -> Result<Range, Failure> {
    range(subject, |input| {
        let curve = sweep(fidelity.into(), &input, run).map_err(|e| not_simulated(&e))?;
        Ok(Headline {
            saturates_rps: Some(curve.saturates_rps),
            ..Headline::of(&curve.knee)
        })
    })
}

fn range(
    subject: &Subject,
    headline: impl Fn(Input<'_>) -> Result<Headline, Failure>,
) -> Result<Range, Failure> {
    let uncertain = &subject.uncertain;
    let options = |per_byte_part: f64| {
        let mut options: Options = subject.options.clone();
        if uncertain.is_small {
            options.guesses.per_byte_part = per_byte_part;
        }
        options
    };
    let central = headline(subject.input())?;
    let low = headline(subject.input_with(&uncertain.low, &options(1.0)))?;
    let high = headline(subject.input_with(&uncertain.high, &options(0.0)))?;
    Ok(Range {
        low,
        central,
        high,
        uncertain: uncertain.words.clone(),
    })
}
