//! Loads the state of queued requests into the processor's cache before their handlers need it.

use crate::limits::WARM_PAUSE;

use e3_collections::State;
use e3_collections::limits::WARM_KEYS_MAX;
use e3_invocation::Invocation;
use std::collections::VecDeque;

/// Warms the state at the keys of queued requests, since most services keep their state there. A
/// service that does not pays for one try in many requests.
#[derive(Default)]
pub(crate) struct Warm {
    /// Requests at the front of the queue whose state is warm.
    ahead: usize,
    /// Requests before the next try.
    pause: usize,
}

impl Warm {
    /// Must be called before the front of the queue is taken.
    #[inline]
    pub(crate) fn next(&mut self, queue: &VecDeque<Invocation>, state: &State) {
        if self.ahead > 0 {
            self.ahead -= 1;
        } else if self.pause > 0 {
            self.pause -= 1;
        } else if queue.len() > 1 {
            self.ahead = queue.len().min(WARM_KEYS_MAX) - 1;
            if state.warm(queue.iter().map(|r| &*r.key)) == 0 {
                self.pause = WARM_PAUSE;
            }
        }
    }
}
