//! The state that the handlers share.

use crate::audit::AuditLog;
use crate::core::Core;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{self, Semaphore, watch};

/// The state that the handlers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) core: Arc<Mutex<Core>>,
    /// The version of the plans, for requests that wait for a newer one.
    pub(crate) version: watch::Receiver<u64>,
    pub(crate) audit: Arc<Mutex<AuditLog>>,
    /// Placements that may still be searched for at the same time.
    pub(crate) solvers: Arc<Semaphore>,
    /// Whoever writes a part of a backup or restore: one at a time.
    pub(crate) parts_writer: Arc<sync::Mutex<()>>,
}

/// Does what takes long in a thread of its own: everything else has one thread.
pub(crate) async fn unblocked<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.expect("the work does not panic")
}

impl Shared {
    pub(crate) fn audit(&self) -> MutexGuard<'_, AuditLog> {
        self.audit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        // A panic in one request must not stop the controller. The state is replaced whole or not at
        // all, so it is consistent.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
