//! Reading a node's journal: what is on disk becomes copies of shards again.
//!
//! A copy is what its records make of it, by the code of a backup. A checkpoint is built beside it and
//! takes its place when it is whole, so one that was cut off changes nothing.

use crate::backup::{Backup, Checks, Taken};
use crate::journal::Position;
use crate::log::Log;
use e3_model::plan::CopyOnDisk;
use e3_model::reshard::Split;
use e3_model::{Formats, ShardId, ShardKey};
use e3_wire::WireError;
use e3_wire::journal::{Origin, Record, Step};
use e3_wire::replicated::Replicated;
use std::collections::BTreeMap;

/// The journal of a node, as far as it was read.
#[derive(Debug)]
pub struct Recovery {
    formats: Formats,
    end: Position,
    cluster: Option<u64>,
    shards: BTreeMap<ShardKey, Known>,
}

/// What the journal says of one shard.
#[derive(Debug, Default)]
struct Known {
    /// None if its beginning was trimmed, since a later checkpoint replaces it.
    copy: Option<Copy>,
    /// The checkpoint that has begun last, until it is whole.
    checkpoint: Option<Copy>,
}

/// A copy of a shard that was on disk.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) origin: Origin,
    /// Nothing from before is needed.
    pub(crate) base: Position,
    pub(crate) log: Log,
    backup: Backup,
}

/// Why a journal cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoveryError {
    /// A record that this version does not understand.
    #[error("record {number} of the journal: {source}")]
    Record {
        /// Its number.
        number: u64,
        /// What is wrong.
        source: WireError,
    },
    /// A record that does not follow from those before.
    #[error("record {number} of the journal, of shard {key}: {what}")]
    Sequence {
        /// Its number.
        number: u64,
        /// The shard.
        key: ShardKey,
        /// What is wrong.
        what: &'static str,
    },
    /// Copies of two clusters.
    #[error("record {number} of the journal is of cluster {found}, others are of {expected}")]
    Cluster {
        /// Its number.
        number: u64,
        /// Its cluster.
        found: u64,
        /// The cluster of others.
        expected: u64,
    },
}

impl Recovery {
    /// Nothing read yet, by a process that reads these formats.
    pub fn new(formats: Formats) -> Recovery {
        Recovery {
            formats,
            end: Position {
                number: 1,
                bytes: 0,
            },
            cluster: None,
            shards: BTreeMap::new(),
        }
    }

    /// Takes the next record.
    pub fn take(&mut self, number: u64, bytes: &[u8]) -> Result<(), RecoveryError> {
        let at = Position {
            number,
            bytes: self.end.bytes,
        };
        self.end = Position {
            number: number + 1,
            bytes: at.bytes + bytes.len() as u64,
        };
        let record = Record::decode(self.formats, bytes);
        let Record { key, step } =
            record.map_err(|source| RecoveryError::Record { number, source })?;
        if let Step::Begin(Origin { cluster, .. }) | Step::Checkpoint(Origin { cluster, .. }) = step
        {
            let expected = *self.cluster.get_or_insert(cluster);
            if cluster != expected {
                return Err(RecoveryError::Cluster {
                    number,
                    found: cluster,
                    expected,
                });
            }
        }
        let applied = match step {
            Step::Reshard(split, era) => self.reshard(key, split, era),
            step => self.shards.entry(key).or_default().apply(at, step),
        };
        applied.map_err(|what| RecoveryError::Sequence { number, key, what })
    }

    /// Notes the number of the journal's next record. It does not follow from the records: the files
    /// with all records so far may have been deleted before the next one was durable.
    pub fn continue_at(&mut self, next: u64) {
        self.end.number = next;
    }

    /// The copies of one shard, or of several beginning with it, become those of the shards after a
    /// change of their number.
    fn reshard(&mut self, key: ShardKey, split: Split, era: u32) -> Result<(), &'static str> {
        let children = split.children(key.shard);
        let parents = split.parents(ShardId(children.start));
        let of = |shard| ShardKey {
            shard: ShardId(shard),
            ..key
        };
        let known = parents.map(|shard| self.shards.remove(&of(shard))?.copy);
        let copies: Option<Vec<Copy>> = known.collect();
        let Some(copies) = copies else {
            // Trimmed, since later checkpoints replace what is made of it.
            children.for_each(|shard| drop(self.shards.remove(&of(shard))));
            return Ok(());
        };
        let bases = copies.iter().map(|copy| copy.base);
        let base = bases.min().ok_or("it is made of no shard")?;
        let mut origin = copies[0].origin.clone();
        origin.era = era;
        let logs = Log::reshard(
            copies.into_iter().map(|c| c.log).collect(),
            split,
            key.shard,
            era,
        );
        for (shard, log) in children.zip(logs) {
            origin.since = log.since;
            let copy = Copy {
                origin: origin.clone(),
                base,
                log,
                backup: Backup::default(),
            };
            let known = Known {
                copy: Some(copy),
                checkpoint: None,
            };
            self.shards.insert(of(shard), known);
        }
        Ok(())
    }

    /// The cluster that the copies are of, if there are any.
    pub fn cluster(&self) -> Option<u64> {
        self.cluster
    }

    /// The copies.
    pub fn copies(&self) -> impl Iterator<Item = CopyOnDisk> {
        let shards = self.shards.iter();
        shards.filter_map(|(key, known)| Some(known.copy.as_ref()?.on_disk(*key)))
    }

    /// Where the journal goes on, and what it holds.
    pub(crate) fn finish(self) -> (Position, BTreeMap<ShardKey, Copy>) {
        let copies = self.shards.into_iter();
        let copies = copies.filter_map(|(key, known)| Some((key, known.copy?)));
        (self.end, copies.collect())
    }
}

impl Known {
    fn apply(&mut self, at: Position, step: Step) -> Result<(), &'static str> {
        match step {
            Step::Begin(origin) => {
                self.copy = Some(Copy::new(origin, at));
                self.checkpoint = None;
            }
            Step::Checkpoint(origin) => self.checkpoint = Some(Copy::new(origin, at)),
            Step::Piece(item) => {
                if let Some(checkpoint) = &mut self.checkpoint
                    && checkpoint.take(&Checks::Checkpoint, &item)? == Taken::SnapshotEnd
                {
                    self.copy = self.checkpoint.take();
                }
            }
            Step::Item(item) => {
                // No checkpoint of this log becomes whole any more: another log begins, or the process
                // that began the checkpoint was killed before its first piece was durable.
                let is_other = Replicated::begins_snapshot(&item);
                let has_begun = |c: &Copy| c.backup.has_incoming();
                self.checkpoint.take_if(|c| is_other || !has_begun(c));
                if let Some(copy) = &mut self.copy {
                    copy.take(&Checks::Disk, &item)?;
                }
                if let Some(checkpoint) = &mut self.checkpoint {
                    checkpoint.take(&Checks::Checkpoint, &item)?;
                }
            }
            Step::Reign(view) => {
                self.checkpoint = None;
                if let Some(copy) = &mut self.copy {
                    // A snapshot that was arriving is of no use to a primary.
                    copy.backup = Backup::default();
                    copy.log.history.begin_reign(view, copy.log.op);
                }
            }
            Step::Drop => *self = Known::default(),
            Step::Reshard(..) => return Err("a change of the number of shards is of several"),
        }
        Ok(())
    }
}

impl Copy {
    fn new(origin: Origin, base: Position) -> Copy {
        let mut log = Log::new(&origin.collections);
        log.since = origin.since;
        Copy {
            origin,
            base,
            log,
            backup: Backup::default(),
        }
    }

    fn on_disk(&self, key: ShardKey) -> CopyOnDisk {
        let era = self.origin.era;
        let reign = self.log.history.reigns().last();
        CopyOnDisk {
            key,
            era,
            view: reign.map_or(era, |reign| era.max(reign.view)),
        }
    }

    fn take(&mut self, checks: &Checks<'_>, item: &[u8]) -> Result<Taken, &'static str> {
        let taken = self.backup.take(checks, &mut self.log, item);
        // No loop waits yet.
        drop(self.backup.take_discarded());
        taken
    }
}
