//! Collections: the state of a service, and everything that changes it.
//!
//! A handler reads and writes through a [`Txn`], which buffers its writes; [`Txn::finish`] makes
//! one [`WriteBatch`] of them, the unit of commit and of replication. Whoever applies the same
//! batches in the same order to a [`State`] has the same contents, so backups never run handlers.
//! Source: the reliable collections of "E3" (USENIX ATC 2019), section 3.

mod apply;
mod batch;
mod commit;
mod expiry;
mod growth;
mod hash;
pub mod limits;
mod map;
mod reshard;
mod snapshot;
mod state;
mod table;
mod txn;

pub use apply::ApplyError;
pub use batch::{BatchError, Op, Write, WriteBatch};
pub use commit::CommitError;
pub use e3_model::application::{Collection as CollectionSpec, CollectionKind as Kind};
pub use hash::seed_hashes;
pub use snapshot::{PieceMax, Restore, RestoreError, Walk};
pub use state::State;
pub use txn::{Txn, TxnError};
