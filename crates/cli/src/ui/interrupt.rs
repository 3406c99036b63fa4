//! Commands that end in order after Ctrl-C.

use crate::ui::failure::{Exit, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::c_int;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The flag that the first Ctrl-C sets, or SIGTERM, or SIGHUP, which comes when the terminal is closed; the
/// second one ends the program at once.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals() {
        let ends = 128 + signal;
        // In this order: the shutdown looks at the flag before it is set.
        signal_hook::flag::register_conditional_shutdown(signal, ends, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(no_handler)?;
    }
    Ok(stop)
}

/// The signals that end a program in order: not SIGHUP if nohup started it.
pub fn signals() -> impl Iterator<Item = c_int> {
    let hang_up = (!ignores_hang_up()).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hang_up)
}

/// These signals, as they arrive.
pub fn arriving() -> Result<Signals, Failure> {
    Signals::new(signals()).map_err(no_handler)
}

fn no_handler(e: io::Error) -> Failure {
    Failure::new(Exit::Unexpected, format!("signal handler: {e}"))
}

/// Whether nohup started this program (Linux, proc_pid_status(5)).
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

/// Fails with this message after Ctrl-C.
pub fn check(stop: &AtomicBool, message: &str) -> Result<(), Failure> {
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::new(Exit::Unexpected, message));
    }
    Ok(())
}
