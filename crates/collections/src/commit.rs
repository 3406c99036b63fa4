//! The end of a request at the primary: its writes take effect, within the quota, together with the
//! removal of keys that have expired.

use crate::State;
use crate::apply::ApplyError;
use crate::batch::WriteBatch;
use crate::limits::{EXPIRED_LEN_MAX, GROWTH_PER_BYTE_MAX};
use thiserror::Error;

/// Why the writes of a request are refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CommitError {
    /// The collections would take more memory than they may. Nothing was written.
    #[error("collections hold {used} bytes, the writes add {growth}, the quota is {max}")]
    Full {
        /// Bytes that the collections hold.
        used: u64,
        /// Bytes that the writes would add.
        growth: u64,
        /// Bytes that they may hold.
        max: u64,
    },
    /// The batch was made against another state.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl State {
    /// Applies the writes of a request, unless they add memory and the collections would then hold
    /// more than `bytes_max`. Then removes keys that have expired, which it adds to the batch: at most
    /// `expired_len_max` and [`EXPIRED_LEN_MAX`] bytes; an empty batch gets this slot. The state's clock
    /// must be that of the request.
    pub fn commit(
        &mut self,
        batch: &mut WriteBatch,
        slot: u16,
        bytes_max: u64,
        expired_len_max: usize,
    ) -> Result<(), CommitError> {
        let used = self.memory_bytes as u64;
        // Near enough for most requests: how much a batch adds is looked at only near the quota.
        let growth_max = (batch.as_bytes().len() * GROWTH_PER_BYTE_MAX) as u64;
        if used.saturating_add(growth_max) > bytes_max && !batch.is_empty() {
            let growth = u64::try_from(self.growth_bytes(batch)).unwrap_or(0);
            if growth > 0 && used + growth > bytes_max {
                return Err(CommitError::Full {
                    used,
                    growth,
                    max: bytes_max,
                });
            }
        }
        self.apply(batch)?;
        if self.has_expired() {
            self.expire(batch, slot, expired_len_max.min(EXPIRED_LEN_MAX));
        }
        Ok(())
    }
}
