//! Reading the state of a shard from a backup, by the code of a backup replica.

use crate::backup::{Backup, Checks, Taken};
use crate::log::Log;
use crate::shard::Context;
use e3_model::backup::Part;
use e3_model::{Nanos, ShardKey};
use e3_wire::WireError;
use e3_wire::part::{Items, checksum};

/// A part on its way in.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Number of the order by which its bytes are fetched.
    pub(crate) order: u64,
    part: Part,
    shift: Nanos,
    len: u64,
    crc: u32,
    items: Items,
    log: Log,
    backup: Backup,
    is_whole: bool,
}

/// Why a part cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum PartError {
    /// An item that this version does not understand.
    #[error("{0}")]
    Item(#[from] WireError),
    /// An item that does not follow from those before, or is of another application.
    #[error("{0}")]
    Sequence(&'static str),
    /// It is not what the plan says.
    #[error("it has {len} bytes with checksum {crc:#010x}, must have {}, {:#010x}", part.len, part.crc)]
    Differs {
        /// Bytes that came.
        len: u64,
        /// Their checksum.
        crc: u32,
        /// What the plan says.
        part: Part,
    },
}

impl Reading {
    pub(crate) fn new(order: u64, part: Part, shift: Nanos, log: Log) -> Reading {
        Reading {
            order,
            part,
            shift,
            len: 0,
            crc: 0,
            items: Items::default(),
            log,
            backup: Backup::default(),
            is_whole: false,
        }
    }

    /// Takes the next bytes. Gives the log when all of it has come.
    pub(crate) fn take(
        &mut self,
        cx: &Context<'_>,
        key: ShardKey,
        bytes: &[u8],
    ) -> Result<Option<Log>, PartError> {
        self.len += bytes.len() as u64;
        self.crc = checksum(self.crc, bytes);
        let checks = Checks::Primary(cx, key);
        let (log, backup, is_whole) = (&mut self.log, &mut self.backup, &mut self.is_whole);
        self.items.take(bytes, |item| {
            let taken = backup.take(&checks, log, item);
            *is_whole |= taken.map_err(PartError::Sequence)? == Taken::SnapshotEnd;
            Ok::<(), PartError>(())
        })?;
        if self.len < self.part.len {
            return Ok(None);
        }
        let is_all = self.is_whole && self.items.is_at_end() && self.log.op == self.part.op;
        if self.len != self.part.len || self.crc != self.part.crc || !is_all {
            let (len, crc, part) = (self.len, self.crc, self.part);
            return Err(PartError::Differs { len, crc, part });
        }
        let mut log = std::mem::replace(&mut self.log, Log::new(&[]));
        log.renew(self.shift);
        Ok(Some(log))
    }
}
