//! Records of a node's journal: what its disk holds of the shards with `durability: disk`.
//!
//! A copy of a shard begins empty or as a checkpoint of itself. What follows are the items of its
//! replication stream, as a backup receives them and as a primary sends them. docs/design/010.

use crate::codec::{Reader, WireError, Write, check_format};
use crate::limits::{BODY_LEN_MAX, COLLECTIONS_MAX};
use e3_model::application::{Collection, CollectionKind};
use e3_model::limits::NAME_LEN_MAX;
use e3_model::reshard::Split;
use e3_model::{AppId, Format, Formats, Nanos, ServiceId, ShardId, ShardKey, Timestamp};

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The shard.
    pub key: ShardKey,
    /// What happened to its copy here.
    pub step: Step,
}

/// A step of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// An empty copy takes the place of any other.
    Begin(Origin),
    /// A checkpoint of the copy begins. It takes the copy's place when all of it is there.
    Checkpoint(Origin),
    /// An item of the checkpoint: an encoded [`crate::replicated::Replicated`].
    Piece(Vec<u8>),
    /// An item of the stream: an encoded [`crate::replicated::Replicated`].
    Item(Vec<u8>),
    /// The node became the primary of the shard in this view.
    Reign(u32),
    /// The copy was dropped.
    Drop,
    /// The copy, and those of the shards that it is merged with, became copies of the shards after a
    /// change of their number, in this era.
    Reshard(Split, u32),
}

/// What a copy is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The cluster.
    pub cluster: u64,
    /// The view in which the shard last began empty.
    pub era: u32,
    /// Of messages of requests before then an empty copy may know nothing; zero if there were none.
    pub since: Timestamp,
    /// The service's collections.
    pub collections: Vec<Collection>,
}

impl Record {
    /// Bytes of the record. [`seal`] fills in the format.
    pub fn encode(&self) -> Vec<u8> {
        match &self.step {
            Step::Begin(origin) => origin.encode(self.key, 1),
            Step::Checkpoint(origin) => origin.encode(self.key, 2),
            Step::Piece(item) => Record::encode_bytes(self.key, 3, item),
            Step::Item(item) => Record::encode_item(self.key, item),
            Step::Reign(view) => Record::encode_bytes(self.key, 5, &view.to_le_bytes()),
            Step::Drop => Record::encode_bytes(self.key, 6, &[]),
            Step::Reshard(Split { before, after }, era) => {
                let mut out = Vec::new();
                out.put_u16(*before);
                out.put_u16(*after);
                out.put_u32(*era);
                Record::encode_bytes(self.key, 7, &out)
            }
        }
    }

    /// Bytes of [`Step::Item`] without owning the item.
    pub fn encode_item(key: ShardKey, item: &[u8]) -> Vec<u8> {
        Record::encode_bytes(key, 4, item)
    }

    fn encode_bytes(key: ShardKey, kind: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_LEN + bytes.len());
        out.put_u8(0);
        out.put_u16(key.app.0);
        out.put_u16(key.service.0);
        out.put_u16(key.shard.0);
        out.put_u8(kind);
        out.put(bytes);
        out
    }

    /// Reads a record that fills the whole slice, in one of the accepted formats.
    pub fn decode(accepted: Formats, bytes: &[u8]) -> Result<Record, WireError> {
        let r = &mut Reader(bytes);
        check_format(r.u8()?, accepted)?;
        let key = ShardKey {
            app: AppId(r.u16()?),
            service: ServiceId(r.u16()?),
            shard: ShardId(r.u16()?),
        };
        let kind = r.u8()?;
        let step = match kind {
            1 => Step::Begin(Origin::decode(r)?),
            2 => Step::Checkpoint(Origin::decode(r)?),
            3 => Step::Piece(rest(r)?),
            4 => Step::Item(rest(r)?),
            5 => Step::Reign(r.u32()?),
            6 => Step::Drop,
            7 => {
                let (before, after) = (r.u16()?, r.u16()?);
                let split = Split::new(before, after).ok_or(WireError::Unknown {
                    what: "number of shards",
                    value: after.into(),
                })?;
                if key.shard.0 >= before {
                    return Err(WireError::Unknown {
                        what: "shard",
                        value: key.shard.0.into(),
                    });
                }
                Step::Reshard(split, r.u32()?)
            }
            other => {
                return Err(WireError::Unknown {
                    what: "kind of a journal's record",
                    value: other.into(),
                });
            }
        };
        r.end()?;
        Ok(Record { key, step })
    }
}

/// Fills in the format of an encoded record.
pub fn seal(format: Format, record: &mut [u8]) {
    record[0] = format.0;
}

/// Bytes before a record's content.
const HEAD_LEN: usize = 8;

fn rest(r: &mut Reader<'_>) -> Result<Vec<u8>, WireError> {
    let len = r.0.len();
    if len > BODY_LEN_MAX {
        return Err(WireError::TooLong {
            what: "item",
            len,
            max: BODY_LEN_MAX,
        });
    }
    Ok(r.bytes(len)?.to_vec())
}

impl Origin {
    fn encode(&self, key: ShardKey, kind: u8) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.cluster);
        out.put_u32(self.era);
        out.put_u64(self.since.0);
        out.put_u16(u16::try_from(self.collections.len()).expect("bounded by the manifest"));
        for collection in &self.collections {
            out.put_u8(match collection.kind {
                CollectionKind::HashMap => 0,
                CollectionKind::OrderedMap => 1,
                CollectionKind::Array => 2,
                CollectionKind::Counter => 3,
            });
            out.put_u64(collection.ttl.map_or(0, |ttl| ttl.0));
            out.put_short(collection.name.as_bytes());
        }
        Record::encode_bytes(key, kind, &out)
    }

    fn decode(r: &mut Reader<'_>) -> Result<Origin, WireError> {
        let (cluster, era) = (r.u64()?, r.u32()?);
        let since = Timestamp(r.u64()?);
        let len = usize::from(r.u16()?);
        if len > COLLECTIONS_MAX {
            return Err(WireError::TooLong {
                what: "collections",
                len,
                max: COLLECTIONS_MAX,
            });
        }
        let collection = |r: &mut Reader<'_>| {
            let kind = match r.u8()? {
                0 => CollectionKind::HashMap,
                1 => CollectionKind::OrderedMap,
                2 => CollectionKind::Array,
                3 => CollectionKind::Counter,
                other => {
                    return Err(WireError::Unknown {
                        what: "kind of collection",
                        value: other.into(),
                    });
                }
            };
            let ttl = Some(Nanos(r.u64()?)).filter(|ttl| *ttl != Nanos::ZERO);
            let name = r.short_bytes("name of a collection", NAME_LEN_MAX)?;
            let name = str::from_utf8(name).map_err(|_| WireError::Text("name of a collection"))?;
            let name = name.to_owned();
            Ok(Collection { name, kind, ttl })
        };
        let collections = (0..len).map(|_| collection(r)).collect::<Result<_, _>>()?;
        Ok(Origin {
            cluster,
            era,
            since,
            collections,
        })
    }
}
