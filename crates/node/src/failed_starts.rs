//! Instances that did not start. Each starts again as soon as what it is given has changed, and after a
//! while in any case, since the machine may have lacked something.

use crate::limits::{START_RETRY_MAX, START_RETRY_MIN};
use crate::supplies::Inputs;
use e3_collections::State;
use e3_model::ShardKey;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// By shard: the start that failed.
#[derive(Default)]
pub(crate) struct FailedStarts {
    starts: BTreeMap<ShardKey, FailedStart>,
}

struct FailedStart {
    state: Rc<RefCell<State>>,
    /// What the instance was given.
    inputs: Option<Inputs>,
    reason: String,
    /// When it starts again, whatever changes until then.
    due: Instant,
    /// Between the last failure and `due`.
    pause: Duration,
}

impl FailedStarts {
    /// Notes that a shard did not start. True if it was not known, or for another reason.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        key: ShardKey,
        state: Rc<RefCell<State>>,
        inputs: Option<Inputs>,
        reason: &str,
    ) -> bool {
        let before = self.starts.remove(&key);
        let is_new = before.as_ref().is_none_or(|before| before.reason != reason);
        let same = before.filter(|before| before.inputs == inputs);
        let pause = same.map_or(START_RETRY_MIN, |same| same.pause * 2);
        let pause = pause.min(START_RETRY_MAX);
        let failed = FailedStart {
            state,
            inputs,
            reason: reason.into(),
            due: now + pause,
            pause,
        };
        self.starts.insert(key, failed);
        is_new
    }

    /// The shard has started, or is not to.
    pub(crate) fn forget(&mut self, key: ShardKey) {
        self.starts.remove(&key);
    }

    /// The shards that are to start again, with their collections. `inputs` is what an instance would be
    /// given now.
    pub(crate) fn due(
        &self,
        now: Instant,
        inputs: impl Fn(ShardKey) -> Option<Inputs>,
    ) -> Vec<(ShardKey, Rc<RefCell<State>>)> {
        let starts = self.starts.iter();
        let due =
            starts.filter(|(key, failed)| failed.due <= now || failed.inputs != inputs(**key));
        due.map(|(key, failed)| (*key, failed.state.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::{AppId, ServiceId, ShardId};

    #[test]
    fn a_start_is_repeated_when_its_inputs_change_and_ever_more_rarely_otherwise() {
        let key = ShardKey {
            app: AppId(1),
            service: ServiceId(0),
            shard: ShardId(0),
        };
        let inputs = |version| Some(Inputs::of_version(version));
        let state = Rc::new(RefCell::new(State::new(&[])));
        let mut failed = FailedStarts::default();
        let mut now = Instant::now();
        let due = |failed: &FailedStarts, now, version| failed.due(now, |_| inputs(version)).len();
        assert_eq!(due(&failed, now, 1), 0);
        for pause in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
            let is_new = failed.note(now, key, state.clone(), inputs(1), "no memory");
            assert_eq!(is_new, pause == START_RETRY_MIN);
            assert_eq!(due(&failed, now, 1), 0);
            assert_eq!(due(&failed, now, 2), 1);
            now += pause - Duration::from_millis(1);
            assert_eq!(due(&failed, now, 1), 0, "{pause:?}");
            now += Duration::from_millis(1);
            assert_eq!(due(&failed, now, 1), 1, "{pause:?}");
        }
        assert!(!failed.note(now, key, state.clone(), inputs(2), "no memory"));
        assert_eq!(due(&failed, now + START_RETRY_MIN, 2), 1);
        assert!(failed.note(now, key, state, inputs(2), "no module"));
        failed.forget(key);
        assert_eq!(due(&failed, now, 1), 0);
    }
}
