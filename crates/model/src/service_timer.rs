//! Timers that the manifest of a service declares. They are set when the application is deployed, and they repeat.
//!
//! Each has a key, which decides the shard that runs it: that of the key's slot. In logs its name begins with
//! [`MARK`], so no handler can set, replace or cancel it. Design: docs/design/013-timers.md.

use crate::cron::Cron;
use crate::limits::{
    KEY_LEN_MAX, NAME_LEN_MAX, PAYLOAD_LEN_MAX, SERVICE_TIMER_PERIOD_MIN, SERVICE_TIMERS_MAX,
    TIMER_AHEAD_MAX,
};
use crate::time::Timestamp;
use crate::timer::When;
use crate::units::Nanos;
use crate::validate::{Check, ensure, name};
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

/// Checks the timers of a service; `at`: the service's field, `service`: its name.
pub(crate) fn check(at: &str, service: &str, stateful: bool, timers: &[ServiceTimer]) -> Check {
    let of = |m: String| format!("service {service:?}: {m}");
    ensure(
        stateful || timers.is_empty(),
        format!("{at}.timers"),
        || of("a stateless service has no timers; set stateful: true".into()),
    )?;
    let count = timers.len();
    ensure(count <= SERVICE_TIMERS_MAX, format!("{at}.timers"), || {
        of(format!(
            "{count} timers, must be at most {SERVICE_TIMERS_MAX}"
        ))
    })?;
    for (i, timer) in timers.iter().enumerate() {
        let field = |f: &str| format!("{at}.timers[{i}].{f}");
        let of = |m: String| of(format!("timer {:?}: {m}", timer.name));
        name(&field("name"), &timer.name)?;
        let (len, len_max) = (timer.name.len(), NAME_LEN_MAX - MARK.len_utf8());
        ensure(len <= len_max, field("name"), || {
            of(format!(
                "its name has {len} characters, must be at most {len_max}"
            ))
        })?;
        let is_first = timers[..i].iter().all(|other| other.name != timer.name);
        ensure(is_first, field("name"), || {
            format!("service {service:?}: two timers are named {:?}", timer.name)
        })?;
        check_schedule(timer, field, &of)?;
        let len = timer.key().len();
        ensure((1..=KEY_LEN_MAX).contains(&len), field("key"), || {
            of(format!(
                "its key has {len} bytes, must be 1..={KEY_LEN_MAX}"
            ))
        })?;
        let len = timer.payload().len();
        ensure(len <= PAYLOAD_LEN_MAX, field("payload"), || {
            of(format!(
                "its payload has {len} bytes, must be at most {PAYLOAD_LEN_MAX}"
            ))
        })?;
    }
    Ok(())
}

fn check_schedule(
    timer: &ServiceTimer,
    field: impl Fn(&str) -> String,
    of: impl Fn(String) -> String,
) -> Check {
    let has_one = timer.every.is_some() != timer.cron.is_some();
    ensure(has_one, field("name"), || {
        let found = match timer.every {
            Some(_) => "both",
            None => "none",
        };
        of(format!(
            "has {found} of every and cron, must have one of them"
        ))
    })?;
    if let Some(every) = timer.every {
        let (min, max) = (SERVICE_TIMER_PERIOD_MIN, TIMER_AHEAD_MAX);
        ensure((min..=max).contains(&every), field("every"), || {
            of(format!(
                "every is {every}, must be at least {min} and at most {max}"
            ))
        })?;
    }
    let wrong = timer.cron.as_ref().and_then(|c| c.parse::<Cron>().err());
    ensure(wrong.is_none(), field("cron"), || {
        of(wrong.map(|e| e.to_string()).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::parse_application;

    const SAMPLE: &str = include_str!("../tests/two-services.yaml");

    fn timer(text: &str) -> ServiceTimer {
        serde_norway::from_str(text).unwrap()
    }

    fn refused(service: &str, timers: &str) -> String {
        let from = format!("    - name: {service}\n");
        assert!(SAMPLE.contains(&from));
        let text = SAMPLE.replacen(&from, &format!("{from}      timers: [{timers}]\n"), 1);
        parse_application("a.yaml", &text).unwrap_err().to_string()
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

    #[test]
    fn a_stateless_service_has_none() {
        let timers = [timer("{name: t, every: 1m}")];
        let check = |stateful| check("spec.services[0]", "front", stateful, &timers);
        assert!(check(true).is_ok());
        let fault = check(false).err().unwrap();
        assert_eq!(fault.field, "spec.services[0].timers");
        assert!(fault.message.contains("has no timers; set stateful: true"));
    }

    #[test]
    fn wrong_timers_are_refused_with_the_reason() {
        let long = format!("{{name: {}, every: 1m}}", "a".repeat(63));
        let many = "{name: t, every: 1m}, ".repeat(SERVICE_TIMERS_MAX + 1);
        for (service, timers, says) in [
            (
                "back",
                "{name: t}",
                "timer \"t\": has none of every and cron",
            ),
            (
                "back",
                "{name: t, every: 1m, cron: '* * * * *'}",
                "has both of every and cron",
            ),
            (
                "back",
                "{name: t, every: 10ms}",
                "every is 10ms, must be at least 1s and at most 8784h",
            ),
            (
                "back",
                "{name: t, every: 9000h}",
                "every is 9000h, must be at least 1s",
            ),
            ("back", "{name: t, cron: '61 * * * *'}", "minute is \"61\""),
            ("back", "{name: t, cron: '0 0 30 2 *'}", "never comes"),
            (
                "back",
                "{name: t, every: 1m}, {name: t, every: 2m}",
                "two timers are named \"t\"",
            ),
            ("back", "{name: T, every: 1m}", "lower-case letters"),
            (
                "back",
                "{name: t, every: 1m, key: ''}",
                "its key has 0 bytes, must be 1..=1024",
            ),
            ("back", &long, "63 characters, must be at most 62"),
            ("back", &many, "33 timers, must be at most 32"),
        ] {
            let error = refused(service, timers);
            assert!(error.contains(says), "{error}");
        }
    }
}
