//! The state that the handlers share.

use crate::audit::AuditLog;
use crate::core::Core;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, watch};

/// The state that the handlers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) core: Arc<Mutex<Core>>,
    /// The version of the plans, for requests that wait for a newer one.
    pub(crate) version: watch::Receiver<u64>,
    pub(crate) audit: Arc<Mutex<AuditLog>>,
    /// Placements that may still be searched for at the same time.
    pub(crate) solvers: Arc<Semaphore>,
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
