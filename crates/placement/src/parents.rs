//! Where the messages and calls of a service come from.

use crate::request::Request;
use e3_model::ServiceId;

/// A part of the model that sends to another one, or calls it.
#[derive(Clone, Debug)]
pub(crate) struct Parent {
    /// Its place in the walk.
    pub(crate) part: usize,
    /// Part of the messages and calls that comes from it.
    pub(crate) share: f64,
    /// It gets answers.
    pub(crate) calls: bool,
}

/// Who sends to a service, or calls it.
pub(crate) fn parents(request: &Request<'_>, service: ServiceId) -> Vec<Parent> {
    let flows: Vec<_> = request.app.flows().filter(|f| f.to == service).collect();
    let visits = flows.iter().map(|f| request.visits_expected(f.from));
    let all: f64 = visits.sum();
    let place = |s: ServiceId| request.walk().iter().position(|(w, _)| *w == s);
    let known = flows.iter().filter_map(|f| {
        Some(Parent {
            part: place(f.from)?,
            share: request.visits_expected(f.from) / all,
            calls: f.is_call,
        })
    });
    known.filter(|parent| parent.share > 0.0).collect()
}
