//! What a shard's service has set for later, as an owner sees it: timers, outbound requests and
//! publications. The primary of a shard says it in its node's report while the controller asks for it.

use crate::ids::ShardKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that is pending at a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// What it is.
    pub kind: PendingKind,
    /// Name; empty for a publication.
    pub name: String,
    /// Key: as it is if it is printable text, otherwise in hexadecimal behind `0x`. The first
    /// [`crate::limits::PENDING_KEY_LEN_MAX`] bytes of it.
    pub key: String,
    /// When it fires, in milliseconds since the Unix epoch. Of an outbound request: until when its answer is
    /// waited for. None for a publication.
    pub due_unix_ms: Option<u64>,
    /// The cron expression of a timer that repeats, or `every PERIOD`.
    pub repeats: Option<String>,
    /// Who is asked: `service NAME`, `application NAME` or the address without its query. Of a publication
    /// the topic.
    pub to: Option<String>,
    /// Attempts of the present primary: requests that were made, or handler runs that failed.
    pub attempts: u32,
    /// When an outbound request is made next, in milliseconds since the Unix epoch; none while an attempt
    /// over HTTP is in flight, and for everything else.
    #[serde(default)]
    pub next_attempt_unix_ms: Option<u64>,
    /// Why the last attempt failed, if that is known.
    pub last_error: Option<String>,
}

/// A kind of pending thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PendingKind {
    /// A timer.
    Timer,
    /// A request to others whose answer has not come.
    Outbound,
    /// A message to a topic that some subscriber has not confirmed: the oldest of its key.
    Publication,
}

impl PendingKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            PendingKind::Timer => "timer",
            PendingKind::Outbound => "outbound",
            PendingKind::Publication => "publication",
        }
    }
}

/// What the controller asks primaries for, in its answer to a report.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingAsked {
    /// Number of the question.
    pub number: u64,
    /// Shards whose primary is to answer.
    pub shards: Vec<ShardKey>,
}

/// The answer, in the next report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingReport {
    /// Number of the question.
    pub number: u64,
    /// Shards whose primary may serve now.
    pub shards: Vec<ShardPending>,
}

/// What is pending at a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShardPending {
    /// The shard.
    pub key: ShardKey,
    /// View of its primary.
    pub view: u32,
    /// How many there are.
    pub count: u64,
    /// The first that are due, then publications.
    pub first: Vec<Pending>,
}

/// What is pending at a shard: part of the answer to `GET /v1/apps/{name}/timers`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingView {
    /// `app/service/shard`.
    pub instance: String,
    /// Node of its primary.
    pub node: String,
    /// How many are pending; none if the primary did not answer.
    pub count: Option<u64>,
    /// How many of them are not listed.
    pub left_out: u64,
    /// The first that are due, then publications.
    pub pending: Vec<Pending>,
    /// Why nothing is known, if so.
    pub error: Option<String>,
}

/// A key as text, cut off after `len_max` bytes.
pub fn key_text(key: &[u8], len_max: usize) -> String {
    let printable = |text: &&str| !text.chars().any(char::is_control) && !text.starts_with("0x");
    let (mut text, len) = match std::str::from_utf8(key).ok().filter(printable) {
        Some(text) => {
            let len = text.floor_char_boundary(len_max);
            (text[..len].to_string(), len)
        }
        None => {
            let shown = &key[..key.len().min(len_max)];
            let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            (format!("0x{digits}"), shown.len())
        }
    };
    if len < key.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_text_where_they_can_be_and_are_cut_off() {
        assert_eq!(key_text(b"user-7", 64), "user-7");
        assert_eq!(key_text(&[0, 255], 64), "0x00ff");
        assert_eq!(key_text(b"0x00", 64), "0x30783030");
        assert_eq!(key_text("aää".as_bytes(), 2), "a…");
        assert_eq!(key_text(&[7; 100], 2), "0x0707…");
        assert_eq!(key_text(b"", 64), "");
    }
}
