//! What the handlers share.

use crate::core::Core;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) core: Arc<Mutex<Core>>,
    /// Version of the plans, for those who wait for a newer one.
    pub(crate) version: watch::Receiver<u64>,
}

impl Shared {
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        // A panic in one request must not take the controller with it; the state is replaced whole
        // or not at all, so it is sound.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
