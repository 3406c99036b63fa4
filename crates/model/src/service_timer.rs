//! Timers that the manifest of a service declares. They are set when the application is deployed, and they repeat.
//!
//! Each has a key, which decides the shard that runs it: that of the key's slot. In logs its name begins with
//! [`MARK`], so no handler can set, replace or cancel it. Design: docs/design/013-timers.md.

use crate::cron::Cron;
use crate::time::Timestamp;
use crate::timer::When;
use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// First character of the names that timers of manifests have in logs.
pub const MARK: char = '\u{1}';

/// A timer that is set when the application is deployed. It has either `every` or `cron`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceTimer {
    /// Name, unique in the service; at most 62 characters.
    pub name: String,
    /// Period, 1 s to 366 days. It fires at the multiples of it since 1970-01-01 00:00 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Nanos>,
    /// Cron expression: minute, hour, day of month, month, day of week, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Key of its request, which decides the shard; by default the timer's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Payload of its request; by default empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
}

/// The name that a service and its owner see.
pub fn shown_name(name: &str) -> &str {
    name.strip_prefix(MARK).unwrap_or(name)
}

/// Whether a name in a log is that of a manifest's timer.
pub fn is_marked(name: &str) -> bool {
    name.starts_with(MARK)
}

impl ServiceTimer {
    /// Its name in logs.
    pub fn marked_name(&self) -> String {
        format!("{MARK}{}", self.name)
    }

    /// Key of its request.
    pub fn key(&self) -> &[u8] {
        self.key.as_ref().unwrap_or(&self.name).as_bytes()
    }

    /// Payload of its request.
    pub fn payload(&self) -> &[u8] {
        self.payload.as_deref().unwrap_or_default().as_bytes()
    }

    /// When it fires, if it is set at `now`; none if there is no such time.
    pub fn when(&self, now: Timestamp) -> Option<When> {
        match (&self.cron, self.every) {
            (Some(cron), _) => cron.parse::<Cron>().ok().map(When::Cron),
            (None, Some(every)) => {
                let periods = now.0.checked_div(every.0)?.checked_add(1)?;
                periods.checked_mul(every.0).map(Timestamp).map(When::At)
            }
            (None, None) => None,
        }
    }

    /// Whether a timer that was set at `set_at` is as the manifest declares it now. Then it keeps its next time.
    pub fn is_set(&self, set_at: Timestamp, when: &When, payload: &[u8]) -> bool {
        self.payload() == payload && self.when(set_at).as_ref() == Some(when)
    }

    /// How it repeats, in words: the cron expression or `every 5m`.
    pub fn repeats(&self) -> String {
        match (&self.cron, self.every) {
            (Some(cron), _) => cron.clone(),
            (None, every) => format!("every {}", every.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(text: &str) -> ServiceTimer {
        serde_norway::from_str(text).unwrap()
    }

    #[test]
    fn a_period_fires_at_its_multiples_and_not_twice_at_one() {
        let timer = timer("{name: t, every: 5m}");
        let minutes = |n: u64| Timestamp(n * 60_000_000_000);
        for (now, next) in [(0, 5), (4, 5), (5, 10), (7, 10)] {
            assert_eq!(timer.when(minutes(now)), Some(When::At(minutes(next))));
        }
        assert_eq!(timer.when(Timestamp::MAX), None);
        assert_eq!((timer.key(), timer.payload()), (&b"t"[..], &b""[..]));
        assert_eq!(timer.repeats(), "every 5m");
    }

    #[test]
    fn what_is_set_is_kept_unless_schedule_or_payload_changed() {
        let set_at = Timestamp(7 * 60_000_000_000);
        let set = timer("{name: t, every: 5m, payload: p}");
        let when = set.when(set_at).unwrap();
        for (now, is_kept) in [
            ("{name: t, every: 5m, payload: p}", true),
            ("{name: t, every: 5m}", false),
            ("{name: t, every: 7m, payload: p}", false),
            ("{name: t, cron: '*/5 * * * *', payload: p}", false),
        ] {
            assert_eq!(timer(now).is_set(set_at, &when, b"p"), is_kept, "{now}");
        }
    }
}
