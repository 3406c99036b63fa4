//! Waits through a restart of the controller.

use crate::limits::POLL_INTERVAL;
use crate::ui::failure::Failure;
use std::time::{Duration, Instant};

/// How long a command waits.
#[derive(Clone, Copy)]
pub struct Patience {
    /// When it began.
    pub begin: Instant,
    /// From then on.
    pub timeout: Duration,
}

impl Patience {
    /// From now on.
    pub fn new(timeout: Duration) -> Patience {
        Patience {
            begin: Instant::now(),
            timeout,
        }
    }

    /// Asks the controller. While it is away, as in a restart, it is asked again.
    pub fn ask<T>(self, ask: impl Fn() -> Result<T, Failure>) -> Result<T, Failure> {
        loop {
            match ask() {
                Err(e) if e.may_pass() && self.begin.elapsed() < self.timeout => {
                    std::thread::sleep(POLL_INTERVAL);
                }
                answer => return answer,
            }
        }
    }
}
