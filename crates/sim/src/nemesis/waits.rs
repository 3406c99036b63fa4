//! How long requests wait while nothing disturbs the cluster.

use crate::client::Client;
use e3_model::{Nanos, Timestamp};

/// How long a request may wait for its outcome, beside the time for all requests, while no fault acts: clients
/// retry within 3 s and channels within 2 s, and a fail-over may come first. It is less than the 10 s after which
/// a channel without progress begins again, so that a shard that depends on this is found.
pub(super) const WAIT_MAX: Nanos = Nanos::from_secs(8);
/// From this loss of messages on, all attempts of a client within that time may be lost.
pub(super) const LOSSY_PERMILLE: u64 = 10;
/// Between two looks at all requests.
const LOOK_INTERVAL: Nanos = Nanos::from_millis(100);

/// What the checks of waits remember.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Since when nothing has disturbed the cluster.
    pub(super) calm_since: Timestamp,
    next_look: Timestamp,
    /// The longest time that a request waited meanwhile, as in [`Awaited::waited`].
    pub(super) longest: Nanos,
}

/// A request without an outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaited {
    pub(super) client: u64,
    pub(super) number: u64,
    /// How long it has waited without a fault, beyond the time in which its client expects a reply.
    pub(super) waited: Nanos,
}

impl Waits {
    /// The request that has waited longest, if it is time to look.
    pub(super) fn look(
        &mut self,
        now: Timestamp,
        is_disturbed: bool,
        clients: &[Client],
    ) -> Option<Awaited> {
        if is_disturbed {
            self.calm_since = now;
        }
        if now < self.next_look {
            return None;
        }
        self.next_look = now + LOOK_INTERVAL;
        let clients = clients.iter().filter(|c| !c.has_vanished);
        let awaited = clients.flat_map(|c| {
            // After a fault replies have taken long, and the client gives the next ones as much time.
            let since = |sent: Timestamp| sent.max(self.calm_since) + c.reply_wait(now);
            c.awaited().map(move |(number, sent)| Awaited {
                client: c.id,
                number,
                waited: since(sent).until(now),
            })
        });
        let longest = awaited.max_by_key(|a| a.waited)?;
        self.longest = self.longest.max(longest.waited);
        Some(longest)
    }
}
