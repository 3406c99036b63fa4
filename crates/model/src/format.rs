//! The version of everything that leaves a process: datagrams, heartbeats, records of journals.
//!
//! One number stands for all of them. A cluster has an active format, in which its processes write; a
//! program reads a range of formats, and can write each of them. So the processes of a cluster can be
//! replaced one by one by those of another release, and the active format is raised when no process
//! of the older release is left (in the manner of CockroachDB's cluster version).
//! docs/design/019-upgrades.md.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Release of this program.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// A version of all formats. The default is the format of what states none.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Format(pub u8);

impl Format {
    /// From this format on the controller's log has tokens and secrets.
    pub const ACCESS: Format = Format(8);
    /// The first whose log says where the instances of a new application go.
    pub const PLACED: Format = Format(8);
    /// The first whose log says which nodes a command chose by a search, as in fail-over and draining.
    pub const CHOICES: Format = Format(9);
    /// The first whose log says that nodes are added, cordoned and removed.
    pub const NODES: Format = Format(8);
    /// The first whose log has times of all commands, and decisions of the orchestrator.
    pub const ORCHESTRATED: Format = Format(8);
    /// The first whose log has power caps.
    pub const POWER_CAPS: Format = Format(8);
    /// The first whose programs know timers in manifests.
    pub const SERVICE_TIMERS: Format = Format(8);
    /// The first whose programs know bounds of the number of shards, and whose log has the decisions of the
    /// orchestrator to change it.
    pub const SHARD_BOUNDS: Format = Format(8);
    /// The first whose programs know required accelerators, disk and the load by the hour in manifests.
    pub const CONSTRAINTS: Format = Format(9);
    /// From this format on a copy waits where every node lacks memory, disk or power for it. Before, it was
    /// placed on the node that was exceeded least.
    pub const FIRM_RESOURCES: Format = Format(9);
    /// From this format on heartbeats have an authentication tag.
    pub const HEARTBEAT_TAGS: Format = Format(10);
    /// From this format on a replication stream says in which view of its shard it begins.
    pub const STREAM_VIEWS: Format = Format(11);
    /// From this format on a snapshot has all dead letters of the log as it was at its beginning. Before, those
    /// were missing that had gone until they were sent.
    pub const LETTERS_OF_BEGINNING: Format = Format(11);
    /// From this format on a restore does not wait for a node that is lost, a change of the number of shards goes on
    /// when another application makes way, and a shard whose move stalled may move again after another one.
    pub const WAITS_END: Format = Format(11);
    /// From this format on a merge takes no copy off a node that is drained or cordoned where nothing may take its
    /// place.
    pub const MERGES_KEEP_COPIES: Format = Format(11);
    /// The newest that this program writes. When a format changes, this goes up by one, and the
    /// recorded bytes of the one before stay (`crates/wire/tests/recorded`).
    pub const NEWEST: Format = Format(11);
    /// The oldest that this program reads and writes.
    pub const OLDEST: Format = Format(7);
}

impl Default for Format {
    fn default() -> Format {
        Format(7)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The formats that a program reads and can write. The default is what a process has that states
/// none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Range")]
pub struct Formats {
    oldest: Format,
    newest: Format,
}

/// [`Formats`] as it is read, not checked yet.
#[derive(Deserialize, JsonSchema)]
struct Range {
    oldest: Format,
    newest: Format,
}

/// A range of formats that ends before it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("oldest format is {oldest}, must be at most the newest, {newest}")]
pub struct FormatsError {
    oldest: Format,
    newest: Format,
}

impl TryFrom<Range> for Formats {
    type Error = FormatsError;

    fn try_from(range: Range) -> Result<Formats, FormatsError> {
        Formats::new(range.oldest, range.newest)
    }
}

impl Formats {
    /// Those of this program.
    pub const PROGRAM: Formats = Formats {
        oldest: Format::OLDEST,
        newest: Format::NEWEST,
    };

    /// All from the oldest to the newest.
    pub fn new(oldest: Format, newest: Format) -> Result<Formats, FormatsError> {
        if oldest > newest {
            return Err(FormatsError { oldest, newest });
        }
        Ok(Formats { oldest, newest })
    }

    /// The oldest.
    pub fn oldest(self) -> Format {
        self.oldest
    }

    /// The newest.
    pub fn newest(self) -> Format {
        self.newest
    }

    /// Whether a program with these formats reads and writes this one.
    pub fn include(self, format: Format) -> bool {
        (self.oldest..=self.newest).contains(&format)
    }
}

impl fmt::Display for Formats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.oldest, self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_includes_its_ends_and_nothing_beyond() {
        let formats = Formats::new(Format(7), Format(8)).unwrap();
        let included: Vec<u8> = (5..=10).filter(|n| formats.include(Format(*n))).collect();
        assert_eq!(included, [7, 8]);
        assert_eq!(formats.to_string(), "7 to 8");
        let json = serde_json::to_string(&formats).unwrap();
        assert_eq!(json, r#"{"oldest":7,"newest":8}"#);
        assert_eq!(serde_json::from_str::<Formats>(&json).unwrap(), formats);
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_refused() {
        let why = "oldest format is 8, must be at most the newest, 7";
        let refused = Formats::new(Format(8), Format(7)).unwrap_err();
        assert_eq!(refused.to_string(), why);
        let read = serde_json::from_str::<Formats>(r#"{"oldest":8,"newest":7}"#);
        assert!(read.unwrap_err().to_string().contains(why));
    }

    #[test]
    fn what_states_no_format_has_the_first_one() {
        assert_eq!(
            Formats::default(),
            Formats::new(Format(7), Format(7)).unwrap()
        );
        assert!(Formats::PROGRAM.include(Format::NEWEST));
    }
}
