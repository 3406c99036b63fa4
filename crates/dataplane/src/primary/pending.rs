//! What is pending at a shard, as its owner sees it: the timers that are due first with their outbound
//! requests, then the oldest publication of each key.

use super::Primary;
use super::outbound::{ask_id, identity};
use crate::outbound::Attempts;
use crate::shard::{Context, Shard};
use crate::timer_table::{OutboundPlace, Pending as Set, Place};
use e3_model::limits::PENDING_KEY_LEN_MAX;
use e3_model::outbound::Destination;
use e3_model::pending::{Pending, PendingKind, ShardPending, key_text};
use e3_model::service_timer::shown_name;
use e3_model::timer::When;
use e3_model::{RequestId, Timestamp};

impl Primary {
    /// The first of what is pending, at most so many. `http`: the driver's attempts at a request.
    pub(crate) fn pending(
        &self,
        cx: &Context<'_>,
        shard: &Shard,
        http: impl Fn(RequestId) -> Option<Attempts>,
        count_max: usize,
    ) -> ShardPending {
        let timers = &shard.log.timers;
        let timed = timers.by_time();
        let timed = timed.map(|(place, set)| self.pending_timer(cx, shard, (place, set), &http));
        let published = timers.publications(None);
        let published = published.map(|(place, set)| self.pending_publication(place, set));
        ShardPending {
            key: shard.key,
            view: shard.view,
            count: timers.len() as u64,
            first: timed.chain(published).take(count_max).collect(),
        }
    }

    fn pending_timer(
        &self,
        cx: &Context<'_>,
        shard: &Shard,
        (place, set): (&Place, &Set),
        http: impl Fn(RequestId) -> Option<Attempts>,
    ) -> Pending {
        let failing = self
            .timer
            .iter()
            .chain(self.in_flight.iter().map(|f| &f.waiting));
        let mut failing = failing.filter(|w| w.failures > 0);
        let failing = failing.find(|w| w.timer.as_ref().is_some_and(|t| Place::of(t) == *place));
        let failures = failing.map_or(0, |w| w.failures);
        let last_failure = shard.counts.last_failure.clone();
        let mut pending = Pending {
            kind: PendingKind::Timer,
            name: shown_name(&place.name).into(),
            key: key_text(&place.key, PENDING_KEY_LEN_MAX),
            due_unix_ms: Some(unix_ms(set.next)),
            repeats: self.declared_schedule(cx, shard, place),
            to: None,
            attempts: failures,
            next_attempt_unix_ms: None,
            last_error: last_failure.filter(|_| failures > 0),
        };
        match &set.when {
            When::Cron(cron) => pending.repeats = Some(cron.as_str().into()),
            When::Answered(outbound) => {
                let id = ask_id(place, set, identity(cx, shard));
                let asked = http(id).unwrap_or_else(|| self.outbounds.attempts(id));
                pending.kind = PendingKind::Outbound;
                pending.to = Some(name(&outbound.to));
                pending.attempts += asked.count;
                pending.next_attempt_unix_ms = asked.next.map(unix_ms);
                pending.last_error = pending.last_error.or(asked.last_error);
            }
            When::At(_) | When::Published(_) => {}
        }
        pending
    }

    fn pending_publication(&self, place: &OutboundPlace, set: &Set) -> Pending {
        let topic = match &set.when {
            When::Published(publication) => Some(publication.topic.clone()),
            _ => None,
        };
        Pending {
            kind: PendingKind::Publication,
            name: String::new(),
            key: key_text(&place.1.key, PENDING_KEY_LEN_MAX),
            due_unix_ms: None,
            repeats: None,
            to: topic,
            attempts: self.publications.attempts(place),
            next_attempt_unix_ms: None,
            last_error: None,
        }
    }
}

fn unix_ms(at: Timestamp) -> u64 {
    at.since(Timestamp::ZERO).as_millis()
}

/// Who is asked. What follows a question mark may be a secret.
fn name(to: &Destination) -> String {
    match to {
        Destination::Service { service, .. } => format!("service {service}"),
        Destination::Application { application, .. } => format!("application {application}"),
        Destination::Http(request) => {
            let url = request.url.split(['?', '#']).next();
            url.unwrap_or_default().into()
        }
    }
}
