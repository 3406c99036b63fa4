//! What the [`testing`](crate::testing) host holds for its thread.

use crate::limits::{
    KEY_BYTES_MAX, REQUEST_CALLS_MAX, REQUEST_TIMERS_MAX, TIMER_AHEAD_NS_MAX, TIMER_NAME_BYTES_MAX,
    VALUE_BYTES_MAX,
};
use crate::testing_outbound::{Asked, Published};
use crate::testing_types::{Collection, Sent, TimerCall, When, slot_of};
use crate::topic::Topic;
use crate::{Error, outbound};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Bytes that all writes of a request may have together.
const WRITE_BYTES_MAX: usize = 40 * 1024;
/// Bytes that writes, messages and reply of a request may have together.
const EFFECT_BYTES_MAX: usize = 56 * 1024;
/// What a write or a message counts beside key and value.
pub(crate) const OVERHEAD_BYTES: usize = 16;
/// Outputs (replies and messages) that a request may have unless a test says otherwise.
const OUTPUTS_MAX: usize = 8;

/// Answers a call of this service, with key and payload: by status and payload, or an error.
type Answers = Box<dyn FnMut(&str, &[u8], &[u8]) -> Result<(u32, Vec<u8>), Error>>;

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) now: i64,
    pub(crate) request_id: [u8; 16],
    pub(crate) key: Vec<u8>,
    pub(crate) edge: i32,
    pub(crate) timer: String,
    pub(crate) timers: Vec<TimerCall>,
    pub(crate) answer: Option<(outbound::Outcome, u32)>,
    pub(crate) outbound: Vec<Asked>,
    pub(crate) asks: Vec<String>,
    pub(crate) topic: Option<Topic>,
    pub(crate) published: Vec<Published>,
    pub(crate) publishes: Vec<String>,
    pub(crate) http_hosts: Vec<String>,
    pub(crate) channels: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) secrets: BTreeMap<String, Vec<u8>>,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) assets: Vec<(String, Vec<u8>)>,
    pub(crate) logs: Vec<(i32, String)>,
    pub(crate) collections: Vec<Collection>,
    /// By collection: how long its keys live, in nanoseconds.
    pub(crate) ttls: Vec<Option<i64>>,
    /// When keys expire that do.
    pub(crate) expiries: BTreeMap<(i32, Vec<u8>), i64>,
    pub(crate) replies: Vec<(u32, Vec<u8>)>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) written_bytes: usize,
    /// Answers the calls that the service makes.
    pub(crate) answers: Option<Answers>,
    pub(crate) calls_made: usize,
    /// What the last call brought.
    pub(crate) called: Option<(u32, Vec<u8>)>,
    /// A `counter_add` was refused, which cannot tell the service: the request fails.
    pub(crate) is_write_lost: bool,
    pub(crate) seed: u64,
    pub(crate) digests: u64,
}

impl TimerCall {
    pub(crate) fn bytes(&self) -> usize {
        let cron = match &self.when {
            Some(When::Cron(text)) => text.len(),
            _ => 0,
        };
        24 + self.name.len() + self.key.len() + cron + self.payload.len()
    }
}

impl Inner {
    pub(crate) fn collection_at(&mut self, handle: i32) -> Option<&mut Collection> {
        self.collections.get_mut(usize::try_from(handle).ok()?)
    }

    /// Notes that a key was written, to live for `ttl` or as its collection says.
    pub(crate) fn wrote(&mut self, coll: i32, key: &[u8], ttl: Option<i64>) {
        let default = usize::try_from(coll).ok().and_then(|at| self.ttls[at]);
        let at = (coll, key.to_vec());
        match ttl.or(default) {
            Some(ttl) => drop(self.expiries.insert(at, self.now.saturating_add(ttl))),
            None => drop(self.expiries.remove(&at)),
        }
    }

    /// Removes the keys that have expired.
    pub(crate) fn expire(&mut self) {
        let now = self.now;
        let all = std::mem::take(&mut self.expiries);
        let (expired, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, at)| *at <= now);
        self.expiries = rest.into_iter().collect();
        for ((coll, key), _) in expired {
            match self.collection_at(coll) {
                Some(Collection::Hash(map) | Collection::Ordered(map)) => drop(map.remove(&key)),
                Some(Collection::Array(map)) => drop(map.remove(&key)),
                Some(Collection::Counter(map)) => drop(map.remove(&key)),
                None => {}
            }
        }
    }

    /// The code for a write beyond the bounds.
    pub(crate) fn refuses_write(&mut self, key: &[u8], value: &[u8]) -> Option<i32> {
        let written_bytes = self.written_bytes + key.len() + value.len() + OVERHEAD_BYTES;
        if key.is_empty()
            || key.len() > KEY_BYTES_MAX
            || value.len() > VALUE_BYTES_MAX
            || written_bytes > WRITE_BYTES_MAX
        {
            return Some(-2);
        }
        self.written_bytes = written_bytes;
        None
    }

    /// Whether a request replies and does nothing else, as a call must.
    pub(crate) fn only_replies(&self, before: &[Collection]) -> bool {
        let is_quiet = self.sent.is_empty()
            && self.timers.is_empty()
            && self.published.is_empty()
            && self.written_bytes == 0;
        is_quiet && self.collections == before && !self.replies.is_empty()
    }

    pub(crate) fn effects_fit(&self) -> bool {
        let replies = self.replies.iter().map(|(_, payload)| payload.len());
        let sent = self.sent.iter();
        let sent = sent.map(|s| s.key.len() + s.payload.len() + OVERHEAD_BYTES);
        let timers = self.timers.iter().map(TimerCall::bytes).sum::<usize>();
        let outbound = self.outbound.iter().map(Asked::bytes).sum::<usize>();
        let published = self.published.iter().map(Published::bytes).sum::<usize>();
        let kept = timers + outbound + published;
        self.written_bytes + replies.sum::<usize>() + sent.sum::<usize>() + kept <= EFFECT_BYTES_MAX
    }

    /// Random bytes: digests of the seed and a counter, one for each 32 bytes.
    pub(crate) fn fill_random(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(32) {
            self.digests += 1;
            let both = [self.seed.to_le_bytes(), self.digests.to_le_bytes()];
            chunk.copy_from_slice(&Sha256::digest(both.concat())[..chunk.len()]);
        }
    }

    /// Notes a timer, or gives the code for one beyond the bounds.
    pub(crate) fn change_timer(&mut self, timer: TimerCall) -> i32 {
        let key = match timer.key.as_slice() {
            [] => &self.key,
            key => key,
        };
        let ahead = match timer.when {
            Some(When::At(at)) => at.saturating_sub(self.now),
            _ => 0,
        };
        let is_cron = |text: &String| text.split_ascii_whitespace().count() == 5;
        match &timer.when {
            _ if !(1..=TIMER_NAME_BYTES_MAX).contains(&timer.name.len()) => return -6,
            _ if self.timers.len() + self.outbound.len() + self.published.len()
                >= REQUEST_TIMERS_MAX
                || key.len() > KEY_BYTES_MAX
                || timer.payload.len() > VALUE_BYTES_MAX =>
            {
                return -2;
            }
            _ if ahead > TIMER_AHEAD_NS_MAX => return -7,
            Some(When::Cron(text)) if !is_cron(text) => return -8,
            _ if slot_of(key) != slot_of(&self.key) => return -9,
            _ => {}
        }
        self.timers.push(timer);
        0
    }

    /// Makes a call: the length of what it brings, or the code of its failure.
    pub(crate) fn make_call(&mut self, service: &str, key: &[u8], payload: &[u8]) -> i32 {
        self.called = None;
        let Some(answers) = &mut self.answers else {
            return -1;
        };
        let fits = (1..=KEY_BYTES_MAX).contains(&key.len()) && payload.len() <= VALUE_BYTES_MAX;
        if !fits || self.calls_made >= REQUEST_CALLS_MAX {
            return -2;
        }
        self.calls_made += 1;
        match answers(service, key, payload) {
            Ok(answer) => self.called.insert(answer).1.len() as i32,
            Err(Error::NoService) => -1,
            Err(Error::Unavailable) => -10,
            Err(Error::TimedOut) => -11,
            Err(_) => -12,
        }
    }

    pub(crate) fn outputs_full(&self, payload: &[u8]) -> bool {
        self.replies.len() + self.sent.len() >= OUTPUTS_MAX || payload.len() > VALUE_BYTES_MAX
    }

    pub(crate) fn reply(&mut self, status: u32, payload: &[u8]) -> i32 {
        if self.outputs_full(payload) {
            return -2;
        }
        self.replies.push((status, payload.to_vec()));
        0
    }

    pub(crate) fn send(&mut self, channel: i32, key: &[u8], payload: &[u8]) -> i32 {
        let name = usize::try_from(channel)
            .ok()
            .and_then(|index| self.channels.get(index));
        let Some(name) = name.cloned() else { return -1 };
        if key.is_empty() || key.len() > KEY_BYTES_MAX || self.outputs_full(payload) {
            return -2;
        }
        self.sent.push(Sent {
            channel: name,
            key: key.to_vec(),
            payload: payload.to_vec(),
        });
        0
    }

    /// Maps: insert or replace.
    pub(crate) fn put_map(&mut self, coll: i32, key: &[u8], value: &[u8], ttl: Option<i64>) -> i32 {
        if let Some(code) = self.refuses_write(key, value) {
            return code;
        }
        match self.collection_at(coll) {
            Some(Collection::Hash(map) | Collection::Ordered(map)) => {
                map.insert(key.to_vec(), value.to_vec());
                self.wrote(coll, key, ttl);
                0
            }
            Some(_) => -3,
            None => -1,
        }
    }
}
