//! Topics: a service publishes on one, and every subscription gets each publication once.
//!
//! A publication is kept in the publisher's table of timers until all subscribers have confirmed it:
//! see [`crate::timer::When::Published`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A topic of an application.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Topic {
    /// The application whose services publish on it.
    pub application: String,
    /// Its name there.
    pub name: String,
}

/// What a service publishes; its payload is that of its timer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publication {
    /// Name of the topic, which is of the publisher's application. Empty in a log's record of who has
    /// confirmed another publication.
    pub topic: String,
    /// Key by which each subscriber routes it.
    pub key: Vec<u8>,
}

impl Publication {
    /// Bytes of what it holds.
    pub fn bytes(&self) -> usize {
        self.topic.len() + self.key.len()
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.application, self.name)
    }
}

/// A topic of an application, as the API shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicView {
    /// Its name.
    pub name: String,
    /// Services of the application that publish on it.
    pub publishers: Vec<String>,
    /// `app/service` of those that are subscribed, of all applications.
    pub subscribers: Vec<String>,
}

/// A subscription of an application, as the API shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionView {
    /// `app/topic`.
    pub topic: String,
    /// The service that is subscribed.
    pub service: String,
    /// Whether an application with this topic is deployed.
    pub exists: bool,
}
