//! Accelerators: host functions with one meaning on every kind of node (docs/abi.md). A manifest
//! names those that a service uses, a topology those that a node has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One accelerator.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Accelerator {
    /// AES in cipher block chaining.
    AesCbc,
    /// AES in Galois/counter mode.
    AesGcm,
    /// HMAC with SHA-1.
    HmacSha1,
    /// HMAC with SHA-256.
    HmacSha256,
    /// Cyclic redundancy check, IEEE 802.3.
    Crc32,
    /// Multi-pattern match.
    Match,
}

impl Accelerator {
    /// All of them.
    pub const ALL: [Accelerator; 6] = [
        Accelerator::AesCbc,
        Accelerator::AesGcm,
        Accelerator::HmacSha1,
        Accelerator::HmacSha256,
        Accelerator::Crc32,
        Accelerator::Match,
    ];

    /// As written in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::AesCbc => "aes-cbc",
            Accelerator::AesGcm => "aes-gcm",
            Accelerator::HmacSha1 => "hmac-sha1",
            Accelerator::HmacSha256 => "hmac-sha256",
            Accelerator::Crc32 => "crc32",
            Accelerator::Match => "match",
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of accelerators; in documents a list of names. The default is all of them: processors do what
/// a kind of node has no hardware for.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Vec<Accelerator>", into = "Vec<Accelerator>")]
#[schemars(with = "Vec<Accelerator>")]
pub struct Accelerators(u8);

impl Accelerators {
    /// None.
    pub const NONE: Accelerators = Accelerators(0);
    /// All.
    pub const ALL: Accelerators = Accelerators((1 << Accelerator::ALL.len()) - 1);

    /// Whether the set has it.
    pub fn has(self, accelerator: Accelerator) -> bool {
        self.0 & 1 << accelerator as u8 != 0
    }

    /// Those in both sets.
    pub fn and(self, other: Accelerators) -> Accelerators {
        Accelerators(self.0 & other.0)
    }

    /// Those in either set.
    pub fn or(self, other: Accelerators) -> Accelerators {
        Accelerators(self.0 | other.0)
    }

    /// Those that the other set does not have.
    pub fn without(self, other: Accelerators) -> Accelerators {
        Accelerators(self.0 & !other.0)
    }

    /// Whether the set has all that the other one has.
    pub fn include(self, other: Accelerators) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether the set has all.
    pub fn is_all(&self) -> bool {
        *self == Accelerators::ALL
    }

    /// Those in the set, in the order of [`Accelerator::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Accelerator> {
        Accelerator::ALL.into_iter().filter(move |a| self.has(*a))
    }
}

impl Default for Accelerators {
    fn default() -> Accelerators {
        Accelerators::ALL
    }
}

impl fmt::Debug for Accelerators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<Accelerator> for Accelerators {
    fn from_iter<I: IntoIterator<Item = Accelerator>>(all: I) -> Accelerators {
        Accelerators(all.into_iter().fold(0, |set, a| set | 1 << a as u8))
    }
}

impl From<Vec<Accelerator>> for Accelerators {
    fn from(all: Vec<Accelerator>) -> Accelerators {
        all.into_iter().collect()
    }
}

impl From<Accelerators> for Vec<Accelerator> {
    fn from(set: Accelerators) -> Vec<Accelerator> {
        set.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_all_unless_the_topology_says_which() {
        let node = |more: &str| {
            let text = format!(
                r#"{{"name": "n", "kind": "smartnic", "cores": 8, "memory": "16Gi"{more}}}"#
            );
            serde_json::from_str::<crate::topology::Node>(&text).unwrap()
        };
        assert_eq!(node("").accelerators, Accelerators::ALL);
        assert_eq!(
            node(r#", "accelerators": []"#).accelerators,
            Accelerators::NONE
        );
        let some = node(r#", "accelerators": ["aes-gcm"]"#).accelerators;
        assert_eq!(some.iter().collect::<Vec<_>>(), [Accelerator::AesGcm]);
    }

    #[test]
    fn sets_are_lists_of_names() {
        let some: Accelerators = [Accelerator::Match, Accelerator::AesCbc]
            .into_iter()
            .collect();
        let text = serde_json::to_string(&some).unwrap();
        assert_eq!(text, r#"["aes-cbc","match"]"#);
        assert_eq!(serde_json::from_str::<Accelerators>(&text).unwrap(), some);
        assert!(some.has(Accelerator::Match) && !some.has(Accelerator::Crc32));
        assert_eq!(Accelerators::ALL.iter().count(), Accelerator::ALL.len());
        for a in Accelerator::ALL {
            assert_eq!(serde_json::to_value(a).unwrap(), a.name());
        }
        assert!(serde_json::from_str::<Accelerators>(r#"["aes-ecb"]"#).is_err());
    }
}
