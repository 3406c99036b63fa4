//! Messages that end without a run of their handler: why, and with what outcome.

use crate::check::latest_deadline;
use crate::ingress::ahead_max;
use crate::limits::REMEMBERED_BYTES_MAX;
use crate::shard::Turn;
use e3_model::Timestamp;
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::{Outcome, Reply};
use e3_wire::message::Message;

/// Why a message is given up, and its outcome.
pub(crate) struct Refusal {
    pub(crate) outcome: Outcome,
    pub(crate) reason: String,
}

impl Refusal {
    /// What can be said of this message: if it may have been handled before, that its outcome is
    /// unknown.
    pub(crate) fn of(self, turn: &Turn<'_>, message: &Message) -> Refusal {
        let created_within = ahead_max(&turn.cx.app.plan.app.spec);
        if turn.shard.log.knows(message, created_within) {
            return self;
        }
        Refusal {
            outcome: Outcome::Unknown,
            reason: format!(
                "{}; whether it was handled before is not known any more",
                self.reason
            ),
        }
    }
}

/// Answer of the platform to a request that was not handled.
pub(crate) fn refuse(outcome: Outcome, reason: &str) -> Reply {
    Reply {
        outcome,
        status: 0,
        payload: reason.as_bytes().to_vec(),
    }
}

/// Answer to the replay of a dead letter that cannot be replayed: it is not there (any more), or its
/// message came once more when nobody knew whether it was handled.
pub(crate) fn refusal_of_replay(letter: Option<&DeadLetter>) -> Option<Reply> {
    let reason = match letter.map(|letter| letter.outcome) {
        None => "the shard has no such dead letter",
        Some(Outcome::Unknown) => {
            "it may have been handled already: a replay could have its effects twice"
        }
        Some(_) => return None,
    };
    Some(refuse(Outcome::Rejected, reason))
}

/// Why a message is not handled at `now`, if it is not.
pub(crate) fn refusal(turn: &Turn<'_>, now: Timestamp, message: &Message) -> Option<Refusal> {
    let remembered = turn.shard.log.dedup.bytes();
    let (outcome, reason) = if message.deadline < now {
        let reason = "deadline passed before it was handled".to_string();
        (Outcome::Expired, reason)
    } else if message.deadline > latest_deadline(turn.cx.now) {
        let reason = "deadline is over an hour ahead of the clock of this node".to_string();
        (Outcome::Failed, reason)
    } else if let Some(error) = &turn.shard.error {
        (Outcome::Failed, error.clone())
    } else if remembered > REMEMBERED_BYTES_MAX {
        let reason = format!(
            "{remembered} bytes of handled messages are remembered until after their deadlines, must be at most {REMEMBERED_BYTES_MAX}"
        );
        (Outcome::Failed, reason)
    } else {
        return None;
    };
    Some(Refusal { outcome, reason })
}

/// Bytes that the shard's collections may hold with the writes of a handler that runs now.
pub(crate) fn state_bytes_max(turn: &Turn<'_>) -> u64 {
    match turn.cx.memory_full {
        // Handlers may only free memory.
        Some(_) => 0,
        // Timers count too.
        None => {
            let timers = turn.shard.log.timers.bytes() as u64;
            let quota = turn.cx.app.service(turn.shard.key).quota();
            quota.0.saturating_sub(timers)
        }
    }
}

/// Why writes were refused that would have added `growth` to `used` bytes of at most `max`.
pub(crate) fn full(turn: &Turn<'_>, used: u64, growth: u64, max: u64) -> String {
    let service = turn.cx.app.service(turn.shard.key);
    let quota = service.quota();
    if max < quota.0 && used + growth <= quota.0 {
        let reason = "the memory of the node was used up: writes may only free some";
        return turn.cx.memory_full.unwrap_or(reason).to_string();
    }
    let field = match service.resources.state {
        Some(_) => "resources.state",
        None => "resources.memory",
    };
    format!(
        "service {:?}: its collections in shard {} hold {used} bytes and the request adds {growth}, which exceeds the quota of {quota} ({field})",
        service.name, turn.shard.key.shard
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::{CONFIG, NOW, app, message, place};
    use crate::dedup::tests::of_bytes;
    use crate::lease::Leases;
    use crate::publications::Subscribers;
    use crate::reach::ClockCheck;
    use crate::replica::Replica;
    use crate::shard::{Context, Counts};
    use e3_model::{Format, Via};
    use std::collections::BTreeMap;

    #[test]
    fn a_message_is_handled_within_all_bounds_and_not_beyond_one() {
        let app = app();
        let (key, bytes) = place(&app, 0);
        let (leases, peers) = (Leases::default(), BTreeMap::new());
        let subscribers = Subscribers::default();
        let cx = Context {
            free_cores: usize::MAX,
            subscribers: &subscribers,
            now: NOW,
            config: &CONFIG,
            app: &app,
            leases: &leases,
            peers: &peers,
            memory_full: None,
            clock: ClockCheck::Right,
            format: Format::NEWEST,
        };
        let outcome = |deadline, remembered| {
            let plan = app.shard(key);
            let mut replica = Replica::new(key, plan, Counts::default(), app.collections(key));
            replica.shard.log.dedup = of_bytes(remembered);
            let turn = Turn {
                cx: &cx,
                shard: &mut replica.shard,
                effects: &mut Vec::new(),
            };
            let mut message = message(bytes.clone(), Via::Ingress);
            message.deadline = Timestamp(deadline);
            refusal(&turn, NOW, &message).map(|r| r.outcome)
        };
        let (full, latest) = (REMEMBERED_BYTES_MAX, latest_deadline(NOW).0);
        assert_eq!(outcome(NOW.0 - 1, 0), Some(Outcome::Expired));
        assert_eq!(outcome(NOW.0, full), None);
        assert_eq!(outcome(latest, full), None);
        assert_eq!(outcome(latest + 1, 0), Some(Outcome::Failed));
        for over in [1, 1_000] {
            assert_eq!(outcome(latest, full + over), Some(Outcome::Failed));
        }
    }
}
