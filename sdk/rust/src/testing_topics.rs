//! Topics on the [`testing`](crate::testing) host: what was published, and its delivery.

use crate::limits::{KEY_BYTES_MAX, REQUEST_TIMERS_MAX, TOPIC_EDGE, VALUE_BYTES_MAX};
use crate::testing::{Call, Inner, OVERHEAD_BYTES};
use crate::topics::Topic;

/// A publication of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Name of the topic.
    pub topic: String,
    /// Key by which subscribers route it.
    pub key: Vec<u8>,
    /// Payload.
    pub payload: Vec<u8>,
    /// When it was published, in nanoseconds since the Unix epoch.
    pub at: i64,
}

impl Published {
    /// The request that a subscriber gets, if this application published it, at the time of the
    /// publication.
    pub fn delivered(&self, application: &str) -> Call {
        Call {
            key: self.key.clone(),
            edge: TOPIC_EDGE,
            topic: Some(Topic {
                application: application.into(),
                name: self.topic.clone(),
            }),
            now: self.at,
            payload: self.payload.clone(),
            ..Call::default()
        }
    }

    /// What it counts towards the bound of a request's effects.
    pub(crate) fn bytes(&self) -> usize {
        OVERHEAD_BYTES + self.topic.len() + self.key.len() + self.payload.len()
    }
}

impl Inner {
    /// Notes a publication, or gives the code for one that is refused.
    pub(crate) fn note_published(&mut self, topic: &str, key: &[u8], payload: &[u8]) -> i32 {
        if !self.publishes.iter().any(|allowed| allowed == topic) {
            return -21;
        }
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return -6;
        }
        let count = self.timers.len() + self.outbound.len() + self.published.len();
        if payload.len() > VALUE_BYTES_MAX || count >= REQUEST_TIMERS_MAX {
            return -2;
        }
        self.published.push(Published {
            topic: topic.into(),
            key: key.to_vec(),
            payload: payload.to_vec(),
            at: self.now,
        });
        0
    }

    /// The topic of the request as the ABI has it.
    pub(crate) fn topic_text(&self) -> Option<String> {
        let topic = self.topic.as_ref()?;
        Some(format!("{}/{}", topic.application, topic.name))
    }
}
