//! The handler of the API for events.

use crate::limits::EVENTS_WAIT_MAX;
use crate::shared::Shared;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use e3_http::Refusal;
use e3_model::api::Event;
use serde::Deserialize;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    #[serde(default)]
    since: u64,
    #[serde(default)]
    wait: u64,
}

/// The events after a number. If there are none, it waits for one: every event comes with a new version
/// of the state.
pub(crate) async fn list(
    State(mut shared): State<Shared>,
    Query(q): Query<EventsQuery>,
) -> Result<Json<Vec<Event>>, Refusal> {
    let wait = Duration::from_secs(q.wait);
    if wait > EVENTS_WAIT_MAX {
        let wait_max = EVENTS_WAIT_MAX.as_secs();
        let error = format!("wait is {}, must be at most {wait_max} (seconds)", q.wait);
        return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
    }
    let until = Instant::now() + wait;
    loop {
        shared.version.mark_unchanged();
        let found = found(&shared, q.since);
        let changed = async {
            !matches!(
                timeout_at(until, shared.version.changed()).await,
                Ok(Ok(()))
            )
        };
        if !found.is_empty() || changed.await {
            return Ok(Json(found));
        }
    }
}

fn found(shared: &Shared, since: u64) -> Vec<Event> {
    shared.core().control.events.since(since).cloned().collect()
}
