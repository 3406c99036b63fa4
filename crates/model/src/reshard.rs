//! Changes of the number of shards of a running service.
//!
//! The number becomes a multiple or a divisor of what it was, so that each shard is split into whole
//! shards, or merged from whole ones. Each node does that with the copies that it has; no state moves.

use crate::ids::{ServiceId, ShardId};
use crate::limits::SHARDS_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The last change of the number of shards of a service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resharded {
    /// The service.
    pub service: ServiceId,
    /// How the number changed.
    pub split: Split,
    /// By shard before: the era of its copies, see [`crate::plan::ShardPlan::era`].
    pub eras: Vec<u32>,
    /// The era of the copies that were made of them.
    pub era: u32,
}

/// From one number of shards to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Split {
    /// Shards before. At least 1.
    pub before: u16,
    /// Shards after: a multiple or a divisor.
    pub after: u16,
}

impl Split {
    /// None if a service cannot change so.
    pub fn new(before: u16, after: u16) -> Option<Split> {
        let numbers = 1..=SHARDS_MAX;
        let fits = numbers.contains(&before) && numbers.contains(&after);
        let is_whole = fits && (after.is_multiple_of(before) || before.is_multiple_of(after));
        is_whole.then_some(Split { before, after })
    }

    /// The shards before whose slots a shard afterwards has.
    pub fn parents(&self, child: ShardId) -> Range<u16> {
        shares(self.after, self.before, child.0)
    }

    /// The shards afterwards that have the slots of a shard before.
    pub fn children(&self, parent: ShardId) -> Range<u16> {
        shares(self.before, self.after, parent.0)
    }
}

/// Which of `there` shards have slots of shard `one` of `here`.
fn shares(here: u16, there: u16, one: u16) -> Range<u16> {
    if there >= here {
        let times = there / here;
        one * times..(one + 1) * times
    } else {
        let times = here / there;
        one / times..one / times + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Slot;
    use crate::limits::SLOTS;

    #[test]
    fn parents_and_children_have_the_same_slots() {
        for (before, after) in [
            (1, 2),
            (3, 12),
            (12, 24),
            (24, 12),
            (6, 2),
            (7, 4095),
            (5, 5),
        ] {
            let Some(split) = Split::new(before, after) else {
                assert_eq!((before, after), (7, 4095), "{before} to {after}");
                continue;
            };
            for slot in (0..SLOTS).map(Slot) {
                let (parent, child) = (slot.shard(before), slot.shard(after));
                assert!(split.parents(child).contains(&parent.0), "{split:?} {slot}");
                assert!(
                    split.children(parent).contains(&child.0),
                    "{split:?} {slot}"
                );
            }
        }
    }

    #[test]
    fn only_whole_shards_are_split_and_merged() {
        for (before, after) in [(0, 1), (1, 0), (2, 3), (4, 6), (4096, 8192)] {
            assert_eq!(Split::new(before, after), None, "{before} to {after}");
        }
        let split = Split::new(2, 6).unwrap();
        assert_eq!(split.children(ShardId(1)), 3..6);
        assert_eq!(split.parents(ShardId(4)), 1..2);
        let merge = Split::new(6, 2).unwrap();
        assert_eq!(merge.parents(ShardId(1)), 3..6);
    }
}
