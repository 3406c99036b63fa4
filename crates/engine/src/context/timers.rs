//! Timers that a handler sets and cancels.

use super::Ctx;
use crate::codes::{BOUND, CRON, LENGTH, SLOT, TIME};
use crate::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX, TIMER_NAME_LEN_MAX};
use crate::memory::cut;
use e3_invocation::HandlerError;
use e3_model::cron::Cron;
use e3_model::limits::{CRON_LEN_MAX, REQUEST_TIMERS_MAX, TIMER_AHEAD_MAX};
use e3_model::service_timer::is_marked;
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{Slot, Timestamp};

/// Level of log lines that say why a timer is refused.
const WARN: i32 = 2;

impl Ctx {
    /// Only within a request of a service with state: timers are part of it.
    pub(crate) fn may_set_timers(&self, import: &'static str) -> Result<(), HandlerError> {
        self.in_request(import)?;
        if self.shared.spec.stateful {
            Ok(())
        } else {
            Err(HandlerError::Stateless(import))
        }
    }

    /// Sets a timer, once.
    pub(crate) fn timer_set(&mut self, name: &[u8], key: &[u8], at: i64, payload: &[u8]) -> i32 {
        let (now, at) = (self.now() as u64, at.max(0) as u64);
        if Timestamp(at) > Timestamp(now) + TIMER_AHEAD_MAX {
            let days = (at - now) / (24 * 3_600_000_000_000);
            self.refuse(
                "timer",
                name,
                &format!("is {days} days ahead, must be at most 366"),
            );
            return TIME;
        }
        self.set_timer(name, key, When::At(Timestamp(at)), payload)
    }

    /// Sets a timer that repeats.
    pub(crate) fn timer_cron(
        &mut self,
        name: &[u8],
        key: &[u8],
        expression: &[u8],
        payload: &[u8],
    ) -> i32 {
        let expression = cut(expression, CRON_LEN_MAX);
        match String::from_utf8_lossy(expression).parse::<Cron>() {
            Ok(cron) => self.set_timer(name, key, When::Cron(cron), payload),
            Err(error) => {
                self.refuse("timer", name, &error.to_string());
                CRON
            }
        }
    }

    fn set_timer(&mut self, name: &[u8], key: &[u8], when: When, payload: &[u8]) -> i32 {
        if payload.len() > PAYLOAD_LEN_MAX {
            return BOUND;
        }
        let payload = payload.to_vec();
        self.change_timer(name, key, Some(TimerSet { when, payload }))
    }

    /// Cancels a timer.
    pub(crate) fn timer_cancel(&mut self, name: &[u8], key: &[u8]) -> i32 {
        self.change_timer(name, key, None)
    }

    /// Notes what a handler does to a timer or an outbound request.
    pub(super) fn change_timer(&mut self, name: &[u8], key: &[u8], set: Option<TimerSet>) -> i32 {
        let what = match set.as_ref().map(|set| &set.when) {
            Some(When::Answered(_)) => "outbound request",
            _ => "timer",
        };
        let text = str::from_utf8(name);
        let fits = (1..=TIMER_NAME_LEN_MAX).contains(&name.len());
        let Some(text) = text.ok().filter(|_| fits).map(str::to_owned) else {
            let len = name.len();
            self.refuse(
                what,
                name,
                &format!(
                    "its name has {len} bytes, must be 1..={TIMER_NAME_LEN_MAX} bytes of UTF-8"
                ),
            );
            return LENGTH;
        };
        if is_marked(&text) {
            let why =
                "its name begins with the character U+0001, which only timers of the manifest have";
            self.refuse(what, name, why);
            return LENGTH;
        }
        if key.len() > KEY_LEN_MAX || self.effects.timers.len() >= REQUEST_TIMERS_MAX {
            return BOUND;
        }
        let key = match key {
            [] => self.request_key().to_vec(),
            key => key.to_vec(),
        };
        let is_own = key == self.request_key();
        if !is_own && i32::from(Slot::of(&key).0) != self.request_slot() {
            self.refuse(
                what,
                name,
                "its key belongs to another slot than the request's, must be of the same",
            );
            return SLOT;
        }
        let name = text;
        self.effects.timers.push(TimerChange { name, key, set });
        0
    }

    /// Name of the timer, or of the outbound request, whose request this is.
    pub(crate) fn timer_name(&self) -> Option<&[u8]> {
        let timer = self.invocation.as_ref()?.timer.as_ref()?;
        Some(timer.as_bytes())
    }

    /// Tells in the log why a timer or an outbound request is refused.
    pub(super) fn refuse(&mut self, what: &str, name: &[u8], why: &str) {
        let name = String::from_utf8_lossy(&name[..name.len().min(TIMER_NAME_LEN_MAX)]);
        self.log(WARN, format!("{what} {name:?}: {why}").as_bytes());
    }
}
