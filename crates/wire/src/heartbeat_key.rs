//! The keys under which heartbeats are authenticated.
//!
//! The controller has one key for the cluster. Each process of a node gets a key that follows from it,
//! so the controller stores none, and a node cannot speak for another one. SipHash-2-4 (Aumasson and
//! Bernstein, INDOCRYPT 2012) is a pseudorandom function for short inputs: a forger has to guess 64
//! bits. docs/design/009-failure-detection.md.

use e3_model::NodeId;
use siphasher::{sip, sip128};
use std::fmt;
use std::str::FromStr;

/// Header of each answer of the controller to a node that asks for its plan: the key of its process, as 32
/// hexadecimal digits.
pub const HEARTBEAT_KEY_HEADER: &str = "e3-heartbeat-key";

const KEY_LEN: usize = 16;

/// Key of one process of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatKey([u8; KEY_LEN]);

impl HeartbeatKey {
    /// The tag of these bytes.
    pub(crate) fn tag(&self, bytes: &[u8]) -> u64 {
        sip::SipHasher24::new_with_key(&self.0).hash(bytes)
    }

    /// As 32 hexadecimal digits, for the process that it is of and nobody else.
    pub fn to_hex(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Text that is no key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the key of heartbeats has {0} characters, must be 32 hexadecimal digits")]
pub struct NotAKey(usize);

impl FromStr for HeartbeatKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<HeartbeatKey, NotAKey> {
        let is_hex = text.len() == 2 * KEY_LEN && text.bytes().all(|b| b.is_ascii_hexdigit());
        let key = is_hex
            .then(|| u128::from_str_radix(text, 16).ok())
            .flatten();
        let key = key.ok_or_else(|| NotAKey(text.chars().count()))?;
        Ok(HeartbeatKey(key.to_be_bytes()))
    }
}

impl fmt::Debug for HeartbeatKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeartbeatKey")
    }
}

/// Key of a cluster, from which those of its processes follow.
#[derive(Clone)]
pub struct HeartbeatKeys(sip128::SipHasher24);

impl HeartbeatKeys {
    /// From the cluster's key.
    pub fn new(key: &[u8; KEY_LEN]) -> HeartbeatKeys {
        HeartbeatKeys(sip128::SipHasher24::new_with_key(key))
    }

    /// The key of a node's process.
    pub fn of(&self, node: NodeId, incarnation: u32) -> HeartbeatKey {
        let process = u64::from(node.0) << 32 | u64::from(incarnation);
        HeartbeatKey(self.0.hash(&process.to_le_bytes()).as_bytes())
    }
}

impl fmt::Debug for HeartbeatKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeartbeatKeys")
    }
}
