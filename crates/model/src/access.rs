//! Who may do what with the controller: roles of tokens, and the part of the API for tokens, secrets
//! and the audit log. docs/design/020-access.md.

use crate::limits::{NAME_LEN_MAX, TOKEN_AGE_MS_MAX};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a token allows. Each role includes those before it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum AccessRole {
    /// See the state of the cluster.
    Read,
    /// Change applications and their secrets.
    Deploy,
    /// Change the cluster: nodes, formats, tokens.
    Admin,
}

impl AccessRole {
    /// All, the weakest first.
    pub const ALL: [AccessRole; 3] = [AccessRole::Read, AccessRole::Deploy, AccessRole::Admin];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            AccessRole::Read => "read",
            AccessRole::Deploy => "deploy",
            AccessRole::Admin => "admin",
        }
    }
}

impl fmt::Display for AccessRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes that are encrypted with AES-256-GCM (NIST SP 800-38D) under the cluster's secret key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sealed {
    /// Which key: the first 8 bytes of a hash of it, in hexadecimal.
    pub key: String,
    /// 12 random bytes, in hexadecimal. Invariant: no other text was encrypted with it under this key.
    pub nonce: String,
    /// The encrypted bytes and their tag, in hexadecimal.
    pub bytes: String,
}

/// `POST /v1/tokens`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenRequest {
    /// Its name: lower-case letters, digits and hyphens.
    #[schemars(extend("pattern" = "^[a-z0-9][a-z0-9-]*$", "maxLength" = NAME_LEN_MAX))]
    pub name: String,
    /// What it allows.
    pub role: AccessRole,
    /// Milliseconds after which it is no longer valid; none if it does not expire.
    #[serde(default)]
    #[schemars(extend("minimum" = 1, "maximum" = TOKEN_AGE_MS_MAX))]
    pub expires_in_ms: Option<u64>,
}

/// Answer to `POST /v1/tokens`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenResponse {
    /// The token itself, which is shown this once and stored nowhere.
    pub token: String,
    /// What is known of it later.
    pub view: TokenView,
}

/// An element of `GET /v1/tokens`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenView {
    /// Its name.
    pub name: String,
    /// What it allows.
    pub role: AccessRole,
    /// When it was created, in milliseconds since the Unix epoch; none for the owner's, which is a file.
    #[serde(default)]
    pub created_unix_ms: Option<u64>,
    /// When it expires, in milliseconds since the Unix epoch; none if it does not.
    #[serde(default)]
    pub expires_unix_ms: Option<u64>,
    /// Whether it has expired.
    pub expired: bool,
}

/// Answer to `DELETE /v1/tokens/{name}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevokeResponse {
    /// The token that is no longer valid.
    pub name: String,
}

/// An element of `GET /v1/apps/{name}/secrets`, and the answer to setting one. It never holds the value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretView {
    /// The application.
    pub app: String,
    /// Its name.
    pub name: String,
    /// Grows each time it is set.
    pub version: u64,
    /// When it was set, in milliseconds since the Unix epoch.
    pub set_unix_ms: u64,
    /// Whether services can still read the value before.
    pub has_previous: bool,
    /// Names of the services that may read it, if the application runs.
    pub services: Vec<String>,
}

/// Answer to `DELETE /v1/apps/{name}/secrets/{secret}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteSecretResponse {
    /// The application.
    pub app: String,
    /// The secret that is gone.
    pub name: String,
}

/// A secret for a node that runs an instance of a service that may read it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretValue {
    /// Grows each time it is set.
    pub version: u64,
    /// The value in hexadecimal.
    pub value: String,
    /// The value before, in hexadecimal, as long as services may still read it.
    #[serde(default)]
    pub previous: Option<String>,
}

/// An element of `GET /v1/audit`: a command, and what came of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditView {
    /// Its number; each is one more than the one before.
    pub number: u64,
    /// When it was answered, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// Name of the token.
    pub who: String,
    /// The operation, as the API's description names it.
    pub operation: String,
    /// The path of the request.
    pub path: String,
    /// What was asked for, or what came of a deployment, in JSON. Cut if it is long; never a secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// HTTP status of the answer.
    pub status: u16,
    /// Why it was refused; empty if it was not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_includes_those_before_it() {
        let [read, deploy, admin] = AccessRole::ALL;
        assert!(read < deploy && deploy < admin);
        for role in AccessRole::ALL {
            let json = serde_json::to_string(&role).unwrap();
            assert_eq!(json, format!("{:?}", role.name()));
            assert_eq!(role.to_string(), role.name());
        }
    }
}
