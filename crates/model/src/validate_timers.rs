//! Checks of the timers that manifests declare.

use crate::cron::Cron;
use crate::limits::{
    KEY_LEN_MAX, NAME_LEN_MAX, PAYLOAD_LEN_MAX, SERVICE_TIMER_PERIOD_MIN, SERVICE_TIMERS_MAX,
    TIMER_AHEAD_MAX,
};
use crate::service_timer::{MARK, ServiceTimer};
use crate::validate::{Check, ensure, name};

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
        check_schedule(timer, field, of)?;
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

    fn refused(service: &str, timers: &str) -> String {
        let from = format!("    - name: {service}\n");
        assert!(SAMPLE.contains(&from));
        let text = SAMPLE.replacen(&from, &format!("{from}      timers: [{timers}]\n"), 1);
        parse_application("a.yaml", &text).unwrap_err().to_string()
    }

    #[test]
    fn a_stateless_service_has_none() {
        let timers = [serde_norway::from_str("{name: t, every: 1m}").unwrap()];
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
