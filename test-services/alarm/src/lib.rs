//! Sets and cancels the timers that requests name, and counts those that fire; for tests.
//!
//! A payload is a word and what belongs to it: `set NAME MS` sets a timer so many milliseconds ahead,
//! `cron NAME EXPRESSION` one that repeats, `cancel NAME` cancels one. `fired NAME` is answered with
//! how often the timer has fired. All of them are timers of the request's key. A timer whose name
//! begins with `fail` fails. The counter collection `fired` has a count for each key and name.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::vec::Vec;
use core::time::Duration;
use e3_sdk::{Counter, Error, Request, Service, reply, timers};

/// Status of the reply to a payload that says none of this.
pub const STATUS_MALFORMED: u32 = 1;
/// Status of the reply to a timer that the platform refuses.
pub const STATUS_REFUSED: u32 = 2;
/// Code of a run that fails because its timer says so.
pub const CODE_FAIL: i32 = 1;

/// Counts timers.
#[derive(Debug)]
pub struct Alarm {
    fired: Counter,
}

/// The key of a timer's count.
fn place(request: &Request<'_>, name: &str) -> Result<Vec<u8>, Error> {
    request.with_key(|key| Ok([key, b" ", name.as_bytes()].concat()))
}

impl Alarm {
    fn on_timer(&self, request: &Request<'_>, name: &str) -> Result<(), Error> {
        if name.starts_with("fail") {
            return Err(Error::Code(CODE_FAIL));
        }
        self.fired.fetch_add(&place(request, name)?, 1);
        // Goes nowhere.
        reply(0, b"fired")
    }

    fn on_command(&self, request: &Request<'_>, text: &str) -> Result<(), Error> {
        let (command, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let done = match command {
            "set" => match rest.parse() {
                Ok(ms) => timers::set_after(name, b"", Duration::from_millis(ms), b""),
                Err(_) => return reply(STATUS_MALFORMED, b"milliseconds: must be a number"),
            },
            "cron" => timers::cron(name, b"", rest, b""),
            "cancel" => timers::cancel(name, b""),
            "fired" => {
                let count = self.fired.get(&place(request, name)?);
                return reply(0, alloc::format!("{count}").as_bytes());
            }
            _ => return reply(STATUS_MALFORMED, b"must be set, cron, cancel or fired"),
        };
        match done {
            Ok(()) => reply(0, b"ok"),
            Err(error) => reply(STATUS_REFUSED, alloc::format!("{error}").as_bytes()),
        }
    }
}

impl Service for Alarm {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            fired: Counter::open("fired")?,
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        if let Some(name) = request.timer() {
            return self.on_timer(request, &name);
        }
        match core::str::from_utf8(request.payload()) {
            Ok(text) => self.on_command(request, text),
            Err(_) => reply(STATUS_MALFORMED, b"must be text"),
        }
    }
}

e3_sdk::service!(Alarm, request_capacity = 2048);

#[cfg(test)]
mod tests {
    use super::*;
    use e3_sdk::testing::{Call, Host, Kind, Outcome, When};

    fn call(host: &Host, alarm: &mut Alarm, payload: &str) -> Outcome {
        let payload = payload.as_bytes().to_vec();
        let call = Call {
            payload,
            now: 1_000_000,
            ..Call::default()
        };
        host.call(alarm, &call)
    }

    #[test]
    fn sets_counts_and_says_what_is_refused() {
        let host = Host::new().collection("fired", Kind::Counter);
        let mut alarm = Alarm::init().unwrap();
        let set = &call(&host, &mut alarm, "set t 5").timers[0];
        assert_eq!(
            (set.name.as_str(), &set.when),
            ("t", &Some(When::At(6_000_000)))
        );
        let cron = &call(&host, &mut alarm, "cron t */5 * * * *").timers[0];
        assert_eq!(cron.when, Some(When::Cron("*/5 * * * *".into())));
        assert_eq!(call(&host, &mut alarm, "cancel t").timers[0].when, None);
        let fires = Call {
            edge: -2,
            timer: "t".into(),
            ..Call::default()
        };
        assert_eq!(host.call(&mut alarm, &fires).result, Ok(()));
        assert_eq!(
            call(&host, &mut alarm, "fired t").replies,
            [(0, b"1".to_vec())]
        );
        for (refused, why) in [
            ("set t 99999999999", "the time is more than a year ahead"),
            (
                "cron t * * *",
                "the text is no cron expression of five fields",
            ),
            ("set  5", "a length that is not allowed"),
        ] {
            let outcome = call(&host, &mut alarm, refused);
            assert_eq!(
                outcome.replies,
                [(STATUS_REFUSED, why.as_bytes().to_vec())],
                "{refused}"
            );
            assert!(outcome.timers.is_empty());
        }
        assert_eq!(
            call(&host, &mut alarm, "dance").replies[0].0,
            STATUS_MALFORMED
        );
    }
}
