//! Commands that end in order after Ctrl-C.

use crate::ui::failure::{Exit, Failure};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The flag that the first Ctrl-C (or SIGTERM) sets; the second one ends the program at once.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let ends = 128 + signal;
        // In this order: the shutdown looks at the flag before it is set.
        signal_hook::flag::register_conditional_shutdown(signal, ends, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|e| Failure::new(Exit::Unexpected, format!("signal handler: {e}")))?;
    }
    Ok(stop)
}

/// Fails with this message after Ctrl-C.
pub fn check(stop: &AtomicBool, message: &str) -> Result<(), Failure> {
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::new(Exit::Unexpected, message));
    }
    Ok(())
}
