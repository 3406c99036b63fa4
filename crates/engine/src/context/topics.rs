//! What a handler publishes, and the topic of the publication that a request brings.

use super::Ctx;
use crate::codes::{BOUND, LENGTH, NOT_ALLOWED};
use crate::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_model::limits::REQUEST_TIMERS_MAX;
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::topic::Publication;

impl Ctx {
    /// Publishes on a topic of the application.
    pub(crate) fn publish(&mut self, topic: &[u8], key: &[u8], payload: &[u8]) -> i32 {
        let mut allowed = self.shared.spec.publishes.iter();
        let Some(name) = allowed.find(|name| name.as_bytes() == topic).cloned() else {
            let why = "it is not in `publishes` of the manifest; add it there";
            self.refuse("topic", topic, why);
            return NOT_ALLOWED;
        };
        let len = key.len();
        if !(1..=KEY_LEN_MAX).contains(&len) {
            let why = format!("the key has {len} bytes, must be 1..={KEY_LEN_MAX}");
            self.refuse("publication on topic", topic, &why);
            return LENGTH;
        }
        if payload.len() > PAYLOAD_LEN_MAX || self.effects.timers.len() >= REQUEST_TIMERS_MAX {
            return BOUND;
        }
        let publication = Publication {
            topic: name,
            key: key.to_vec(),
        };
        self.effects.timers.push(TimerChange {
            name: String::new(),
            key: self.request_key().to_vec(),
            set: Some(TimerSet {
                when: When::Published(Box::new(publication)),
                payload: payload.to_vec(),
            }),
        });
        0
    }

    /// Application and name of the topic of the publication that the request brings.
    pub(crate) fn topic(&self) -> Option<String> {
        let topic = self.invocation.as_ref()?.topic.as_ref()?;
        Some(topic.to_string())
    }
}
