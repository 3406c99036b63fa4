//! What a primary sends to its backups: log entries, and snapshots before them.

use crate::codec::{Reader, WireError, Write};
use crate::dead_letter::DeadLetter;
use crate::entry::Entry;
use crate::limits::{BODY_LEN_MAX, REIGNS_MAX};
use crate::message::{decode_id, encode_id};
use crate::timer::Timer;
use e3_model::{MessageId, Timestamp};

/// The entries that one primary appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reign {
    /// The view in which it became the primary.
    pub view: u32,
    /// Its first entry; the last is before that of the next reign.
    pub first_op: u64,
}

/// What a primary sends to a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replicated {
    /// Entries from a number on follow. The backup goes on if its last entry is one of the primary's,
    /// and is sent a snapshot if not.
    Resume {
        /// The first view of the shard that had this backup; none before [`e3_model::Format::STREAM_VIEWS`].
        view: Option<u32>,
        /// The first of the entries that follow.
        first_op: u64,
        /// Of the primary's log, at most [`crate::limits::REIGNS_MAX`], oldest first.
        reigns: Vec<Reign>,
    },
    /// A snapshot begins; the backup keeps what it has until the end. Entries come between its parts.
    SnapshotBegin {
        /// As in [`Replicated::Resume`]; none on disk either, unless it was part of a stream.
        view: Option<u32>,
        /// Last entry before it.
        op: u64,
        /// `now` of that entry.
        now: Timestamp,
        /// Of messages of requests before then the log may know nothing.
        since: Timestamp,
        /// Outputs of entries up to this one need not be sent again.
        released: u64,
        /// As in [`Replicated::Resume`].
        reigns: Vec<Reign>,
    },
    /// An entry before the snapshot whose outputs may have to be sent again, without writes.
    SnapshotOutgoing(Entry),
    /// A message that was handled before the snapshot, as an entry without writes.
    SnapshotSeen(Entry),
    /// A dead letter from before the snapshot.
    SnapshotDead(MessageId, DeadLetter),
    /// A timer, as the last entry before left it.
    SnapshotTimer(Timer),
    /// Part of the collections.
    SnapshotState {
        /// Last entry in it.
        op: u64,
        /// A piece of a walk over the collections.
        piece: Vec<u8>,
    },
    /// The snapshot is whole.
    SnapshotEnd {
        /// Last entry in it.
        op: u64,
    },
    /// The next entry.
    Entry(Entry),
    /// Outputs of entries up to this one are durable at their receivers.
    Released(u64),
}

fn encode_reigns(out: &mut Vec<u8>, reigns: &[Reign]) {
    out.put_u8(u8::try_from(reigns.len()).expect("bounded"));
    for reign in reigns {
        out.put_u32(reign.view);
        out.put_u64(reign.first_op);
    }
}

fn decode_reigns(r: &mut Reader<'_>) -> Result<Vec<Reign>, WireError> {
    let len = usize::from(r.u8()?);
    if len > REIGNS_MAX {
        return Err(WireError::TooLong {
            what: "reigns",
            len,
            max: REIGNS_MAX,
        });
    }
    let reign = |r: &mut Reader<'_>| {
        Ok(Reign {
            view: r.u32()?,
            first_op: r.u64()?,
        })
    };
    (0..len).map(|_| reign(r)).collect()
}

// The codes of items that begin a stream.
const SNAPSHOT_BEGIN: u8 = 1;
const RESUME: u8 = 9;
// The same with the view.
const SNAPSHOT_BEGIN_IN_VIEW: u8 = 11;
const RESUME_IN_VIEW: u8 = 12;

fn encode_beginning(out: &mut Vec<u8>, view: Option<u32>, (plain, in_view): (u8, u8)) {
    match view {
        None => out.put_u8(plain),
        Some(view) => {
            out.put_u8(in_view);
            out.put_u32(view);
        }
    }
}

impl Replicated {
    /// Bytes of it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        match self {
            Replicated::SnapshotBegin {
                view,
                op,
                now,
                since,
                released,
                reigns,
            } => {
                encode_beginning(&mut out, *view, (SNAPSHOT_BEGIN, SNAPSHOT_BEGIN_IN_VIEW));
                out.put_u64(*op);
                out.put_u64(now.0);
                out.put_u64(since.0);
                out.put_u64(*released);
                encode_reigns(&mut out, reigns);
            }
            Replicated::Resume {
                view,
                first_op,
                reigns,
            } => {
                encode_beginning(&mut out, *view, (RESUME, RESUME_IN_VIEW));
                out.put_u64(*first_op);
                encode_reigns(&mut out, reigns);
            }
            Replicated::SnapshotOutgoing(entry) => {
                out.put_u8(8);
                entry.encode(&mut out);
            }
            Replicated::SnapshotSeen(entry) => {
                out.put_u8(3);
                entry.encode(&mut out);
            }
            Replicated::SnapshotDead(id, dead) => {
                out.put_u8(7);
                encode_id(&mut out, id);
                dead.encode(&mut out);
            }
            Replicated::SnapshotTimer(timer) => {
                out.put_u8(10);
                timer.encode(&mut out);
            }
            Replicated::SnapshotState { op, piece } => {
                out.put_u8(2);
                out.put_u64(*op);
                out.put_long(piece);
            }
            Replicated::SnapshotEnd { op } => {
                out.put_u8(4);
                out.put_u64(*op);
            }
            Replicated::Entry(entry) => return Replicated::encode_entry(entry),
            Replicated::Released(op) => {
                out.put_u8(6);
                out.put_u64(*op);
            }
        }
        out
    }

    /// Bytes of [`Replicated::Entry`] without owning the entry.
    pub fn encode_entry(entry: &Entry) -> Vec<u8> {
        let mut out = Vec::with_capacity(entry.len_estimate());
        out.put_u8(5);
        entry.encode(&mut out);
        out
    }

    /// Whether these are the bytes of [`Replicated::SnapshotBegin`].
    pub fn begins_snapshot(bytes: &[u8]) -> bool {
        matches!(
            bytes.first(),
            Some(&(SNAPSHOT_BEGIN | SNAPSHOT_BEGIN_IN_VIEW))
        )
    }

    /// The view that the first item of a stream names, of which these are the bytes.
    pub fn view_of_stream(bytes: &[u8]) -> Option<u32> {
        let mut r = Reader(bytes);
        match r.u8().ok()? {
            SNAPSHOT_BEGIN_IN_VIEW | RESUME_IN_VIEW => r.u32().ok(),
            _ => None,
        }
    }

    /// Reads one that fills the whole slice.
    pub fn decode(bytes: &[u8]) -> Result<Replicated, WireError> {
        let r = &mut Reader(bytes);
        let kind = r.u8()?;
        let has_view = matches!(kind, SNAPSHOT_BEGIN_IN_VIEW | RESUME_IN_VIEW);
        let view = |r: &mut Reader<'_>| has_view.then(|| r.u32()).transpose();
        let item = match kind {
            SNAPSHOT_BEGIN | SNAPSHOT_BEGIN_IN_VIEW => Replicated::SnapshotBegin {
                view: view(r)?,
                op: r.u64()?,
                now: Timestamp(r.u64()?),
                since: Timestamp(r.u64()?),
                released: r.u64()?,
                reigns: decode_reigns(r)?,
            },
            2 => Replicated::SnapshotState {
                op: r.u64()?,
                piece: r.long_bytes("snapshot piece", BODY_LEN_MAX)?.to_vec(),
            },
            3 => Replicated::SnapshotSeen(Entry::decode(r)?),
            4 => Replicated::SnapshotEnd { op: r.u64()? },
            5 => Replicated::Entry(Entry::decode(r)?),
            6 => Replicated::Released(r.u64()?),
            7 => Replicated::SnapshotDead(decode_id(r)?, DeadLetter::decode(r)?),
            8 => Replicated::SnapshotOutgoing(Entry::decode(r)?),
            RESUME | RESUME_IN_VIEW => Replicated::Resume {
                view: view(r)?,
                first_op: r.u64()?,
                reigns: decode_reigns(r)?,
            },
            10 => Replicated::SnapshotTimer(Timer::decode(r)?),
            other => {
                return Err(WireError::Unknown {
                    what: "kind of replicated item",
                    value: other.into(),
                });
            }
        };
        r.end()?;
        Ok(item)
    }
}
