//! Outbound requests and topics on the [`testing`](crate::testing) host: what was asked and published, answers
//! and deliveries.

use crate::limits::{
    ANSWER_EDGE, KEY_BYTES_MAX, OUTBOUND_AHEAD_NS_MAX, REQUEST_TIMERS_MAX, TIMER_NAME_BYTES_MAX,
    TOPIC_EDGE, VALUE_BYTES_MAX,
};
use crate::outbound::Outcome;
use crate::testing_state::{Inner, OVERHEAD_BYTES};
use crate::testing_types::{Call, slot_of};
use crate::topic::Topic;

/// An outbound request that a service made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its name.
    pub name: String,
    /// The key of its answer.
    pub key: Vec<u8>,
    /// Who is asked.
    pub to: To,
    /// Payload or body.
    pub payload: Vec<u8>,
    /// How long it may take, in nanoseconds.
    pub timeout: i64,
    /// When it was made, in nanoseconds since the Unix epoch.
    pub at: i64,
}

/// Who is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// A service of the application.
    Service {
        /// Its name.
        service: String,
        /// Key to route by.
        key: Vec<u8>,
    },
    /// Another application.
    Application {
        /// Its name.
        application: String,
        /// Key to route by.
        key: Vec<u8>,
    },
    /// An HTTP server.
    Http {
        /// Method.
        method: String,
        /// Address.
        url: String,
        /// Header fields.
        headers: Vec<(String, String)>,
    },
}

impl Asked {
    /// The request that brings this answer, at the time of the outbound request.
    pub fn answered(&self, outcome: Outcome, status: u32, payload: &[u8]) -> Call {
        Call {
            key: self.key.clone(),
            edge: ANSWER_EDGE,
            timer: self.name.clone(),
            answer: Some((outcome, status)),
            now: self.at,
            payload: payload.to_vec(),
            ..Call::default()
        }
    }

    /// What it counts towards the bound of a request's effects.
    pub(crate) fn bytes(&self) -> usize {
        let to = match &self.to {
            To::Service { service: name, key }
            | To::Application {
                application: name,
                key,
            } => name.len() + key.len(),
            To::Http { url, headers, .. } => {
                let headers = headers.iter().map(|(n, v)| n.len() + v.len());
                url.len() + headers.sum::<usize>()
            }
        };
        24 + self.name.len() + self.key.len() + to + self.payload.len()
    }
}

impl Inner {
    /// Notes an outbound request, or gives the code for one that is refused.
    pub(crate) fn ask(
        &mut self,
        (name, key): (&str, &[u8]),
        to: To,
        payload: &[u8],
        timeout: i64,
    ) -> i32 {
        let key = match key {
            [] => self.key.as_slice(),
            key => key,
        };
        let count = self.timers.len() + self.outbound.len() + self.published.len();
        let key_to = match &to {
            To::Service { key, .. } | To::Application { key, .. } => key.len(),
            To::Http { .. } => 1,
        };
        if payload.len() > VALUE_BYTES_MAX
            || count >= REQUEST_TIMERS_MAX
            || key.len() > KEY_BYTES_MAX
        {
            return -2;
        }
        if !(1..=TIMER_NAME_BYTES_MAX).contains(&name.len())
            || !(1..=KEY_BYTES_MAX).contains(&key_to)
        {
            return -6;
        }
        if !(1..=OUTBOUND_AHEAD_NS_MAX).contains(&timeout) {
            return -7;
        }
        if slot_of(key) != slot_of(&self.key) {
            return -9;
        }
        if let Err(code) = self.allows(&to) {
            return code;
        }
        self.outbound.push(Asked {
            name: name.into(),
            key: key.to_vec(),
            to,
            payload: payload.to_vec(),
            timeout,
            at: self.now,
        });
        0
    }

    fn allows(&self, to: &To) -> Result<(), i32> {
        let is_allowed = match to {
            To::Service { service, .. } => self.asks.contains(service),
            To::Application { application, .. } => !application.is_empty(),
            To::Http { url, .. } => {
                let host = authority(url).ok_or(-20)?;
                self.http_hosts.iter().any(|listed| {
                    let below = listed.strip_prefix('*');
                    *listed == host || below.is_some_and(|suffix| host.ends_with(suffix))
                })
            }
        };
        is_allowed.then_some(()).ok_or(-21)
    }
}

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

/// Host and port of an address, as far as a test needs it; the platform checks more.
fn authority(url: &str) -> Option<String> {
    let rest = url.strip_prefix("http://");
    let rest = rest.or_else(|| url.strip_prefix("https://"))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let is_good = !authority.is_empty() && !authority.contains(['@', ' ']);
    is_good.then(|| authority.to_ascii_lowercase())
}

/// Unpacks header fields.
pub(crate) fn unpacked(mut packed: &[u8]) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    while !packed.is_empty() {
        let (name_len, rest) = packed.split_first_chunk::<4>()?;
        let (value_len, rest) = rest.split_first_chunk::<4>()?;
        let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*name_len) as usize)?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_len) as usize)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        fields.push((text(name), text(value)));
        packed = rest;
    }
    Some(fields)
}
