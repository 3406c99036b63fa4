//! What the controller knows of tokens and secrets: a token by its hash only, and a secret by what it is
//! encrypted to.

use e3_model::{AccessRole, Sealed, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A token of the API.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiToken {
    /// What it allows.
    pub role: AccessRole,
    /// SHA-256 of its text, in hexadecimal. It has 256 random bits, so no salt is needed.
    pub hash: String,
    /// When it was created.
    pub created: Timestamp,
    /// When it expires, if it does.
    pub expires: Option<Timestamp>,
}

impl ApiToken {
    /// Whether it is no longer valid.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|at| now >= at)
    }
}

/// A secret of an application.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretState {
    /// Grows each time that nodes must fetch it again.
    pub version: u64,
    /// When its value was set.
    pub set: Timestamp,
    /// The value.
    pub value: Sealed,
    /// The value before, while services may still read it.
    #[serde(default)]
    pub previous: Option<Sealed>,
}

impl SecretState {
    /// All encrypted values.
    pub fn all(&self) -> impl Iterator<Item = &Sealed> {
        [Some(&self.value), self.previous.as_ref()]
            .into_iter()
            .flatten()
    }
}

/// Secrets of applications by name of application and secret. They may be set before the application
/// is deployed.
pub type Secrets = BTreeMap<String, BTreeMap<String, SecretState>>;
