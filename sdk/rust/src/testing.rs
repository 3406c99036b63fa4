//! An in-memory host for tests: one for each thread, with the semantics of docs/abi.md.
//!
//! ```
//! use e3_sdk::testing::{Call, Host, Kind};
//!
//! let host = Host::new().collection("buckets", Kind::Hash).config("rate", "2");
//! assert_eq!(e3_sdk::config("rate").as_deref(), Some("2"));
//! let before = host.state();
//! e3_sdk::HashMap::open("buckets")?.put(b"k", b"v")?;
//! assert_ne!(host.state(), before);
//! # let _ = Call::default();
//! # Ok::<(), e3_sdk::Error>(())
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::limits::{
    CALL_EDGE, KEY_BYTES_MAX, REQUEST_CALLS_MAX, REQUEST_TIMERS_MAX, TIMER_AHEAD_NS_MAX,
    TIMER_NAME_BYTES_MAX, VALUE_BYTES_MAX,
};
use crate::native::with_testing as with;
use crate::outbound;
pub use crate::testing_outbound::{Asked, Published, To};
use crate::topic::Topic;
use crate::{Error, Request, RequestId, Service};

/// Bytes that all writes of a request may have together.
const WRITE_BYTES_MAX: usize = 40 * 1024;
/// Bytes that writes, messages and reply of a request may have together.
const EFFECT_BYTES_MAX: usize = 56 * 1024;
/// What a write or a message counts beside key and value.
pub(crate) const OVERHEAD_BYTES: usize = 16;
/// Outputs (replies and messages) that a request may have unless a test says otherwise.
const OUTPUTS_MAX: usize = 8;

/// Slot of a key: 64-bit FNV-1a, mixed, as docs/abi.md has it.
pub fn slot_of(key: &[u8]) -> u16 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for b in key {
        h = (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    (h % u64::from(crate::limits::SLOTS)) as u16
}

/// What a collection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A map without order.
    Hash,
    /// A map ordered by key.
    Ordered,
    /// Arrays by key.
    Array,
    /// Counters by key.
    Counter,
}

/// Contents of a collection, by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collection {
    /// A map without order (kept in order here).
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// A map ordered by key.
    Ordered(BTreeMap<Vec<u8>, Vec<u8>>),
    /// Arrays by key.
    Array(BTreeMap<Vec<u8>, VecDeque<Vec<u8>>>),
    /// Counters by key.
    Counter(BTreeMap<Vec<u8>, i64>),
}

/// A message that a service sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The channel's name.
    pub channel: String,
    /// The routing key.
    pub key: Vec<u8>,
    /// The message.
    pub payload: Vec<u8>,
}

/// A timer that a service set or cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerCall {
    /// Its name.
    pub name: String,
    /// Its key; empty for that of the request.
    pub key: Vec<u8>,
    /// When it fires; none if it is cancelled.
    pub when: Option<When>,
    /// The payload of its request.
    pub payload: Vec<u8>,
}

/// When a timer fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Once, in nanoseconds since the Unix epoch.
    At(i64),
    /// By a cron expression, of which only the number of fields is checked here.
    Cron(String),
}

/// A request for [`Host::call`].
#[derive(Clone, Debug)]
pub struct Call {
    /// Its identity.
    pub id: RequestId,
    /// Its routing key.
    pub key: Vec<u8>,
    /// The channel that it came by; -1 = from a client, -2 = from a timer, -3 = a call, -4 = with an answer,
    /// -5 = with a publication.
    pub edge: i32,
    /// The name of the timer, if it came from one, or of the outbound request that it answers.
    pub timer: String,
    /// Outcome and status of the answer that it brings, see [`Asked::answered`].
    pub answer: Option<(outbound::Outcome, u32)>,
    /// The topic of the publication that it brings, see [`Published::delivered`].
    pub topic: Option<Topic>,
    /// Its time in nanoseconds since the Unix epoch.
    pub now: i64,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Default for Call {
    fn default() -> Self {
        Self {
            id: RequestId {
                client: 1,
                sequence: 1,
            },
            key: vec![0],
            edge: -1,
            timer: String::new(),
            answer: None,
            topic: None,
            now: 1_700_000_000_000_000_000,
            payload: Vec::new(),
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the handler returned. After an error there are no outputs and no writes.
    pub result: Result<(), Error>,
    /// Replies with their status.
    pub replies: Vec<(u32, Vec<u8>)>,
    /// Messages.
    pub sent: Vec<Sent>,
    /// Timers that it set and cancelled, in order.
    pub timers: Vec<TimerCall>,
    /// Outbound requests, in order.
    pub outbound: Vec<Asked>,
    /// Publications, in order.
    pub published: Vec<Published>,
    /// Log lines with their level.
    pub logs: Vec<(i32, String)>,
}

/// The thread's host. Making one replaces the one before.
#[derive(Debug)]
pub struct Host(());

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
    collections: Vec<Collection>,
    /// By collection: how long its keys live, in nanoseconds.
    ttls: Vec<Option<i64>>,
    /// When keys expire that do.
    expiries: BTreeMap<(i32, Vec<u8>), i64>,
    replies: Vec<(u32, Vec<u8>)>,
    sent: Vec<Sent>,
    written_bytes: usize,
    /// Answers the calls that the service makes.
    answers: Option<Answers>,
    calls_made: usize,
    /// What the last call brought.
    pub(crate) called: Option<(u32, Vec<u8>)>,
    /// A `counter_add` was refused, which cannot tell the service: the request fails.
    pub(crate) is_write_lost: bool,
    seed: u64,
    digests: u64,
}

impl TimerCall {
    fn bytes(&self) -> usize {
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
    fn expire(&mut self) {
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
    fn only_replies(&self, before: &[Collection]) -> bool {
        let is_quiet = self.sent.is_empty()
            && self.timers.is_empty()
            && self.published.is_empty()
            && self.written_bytes == 0;
        is_quiet && self.collections == before && !self.replies.is_empty()
    }

    fn effects_fit(&self) -> bool {
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

    fn outputs_full(&self, payload: &[u8]) -> bool {
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
}

#[expect(clippy::new_without_default, reason = "new replaces the thread's host")]
impl Host {
    /// An empty host for this thread.
    pub fn new() -> Self {
        with(|host| {
            *host = Inner {
                edge: -1,
                ..Inner::default()
            }
        });
        Self(())
    }

    /// Adds an outgoing channel.
    #[must_use]
    pub fn channel(self, name: &str) -> Self {
        with(|host| host.channels.push(name.into()));
        self
    }

    /// Lets the service ask a service of the application.
    #[must_use]
    pub fn asks(self, service: &str) -> Self {
        with(|host| host.asks.push(service.into()));
        self
    }

    /// Lets the service publish on a topic.
    #[must_use]
    pub fn publishes(self, topic: &str) -> Self {
        with(|host| host.publishes.push(topic.into()));
        self
    }

    /// Lets the service ask a host over HTTP: host and port as in the address, or `*.example.com`.
    #[must_use]
    pub fn http_host(self, host: &str) -> Self {
        with(|inner| inner.http_hosts.push(host.into()));
        self
    }

    /// Adds a collection.
    #[must_use]
    pub fn collection(self, name: &str, kind: Kind) -> Self {
        with(|host| {
            host.names.push(name.into());
            host.ttls.push(None);
            host.collections.push(match kind {
                Kind::Hash => Collection::Hash(BTreeMap::new()),
                Kind::Ordered => Collection::Ordered(BTreeMap::new()),
                Kind::Array => Collection::Array(BTreeMap::new()),
                Kind::Counter => Collection::Counter(BTreeMap::new()),
            });
        });
        self
    }

    /// How long keys of the collection that was added last live after their last write.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        let ttl = i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX);
        with(|host| {
            if let Some(last) = host.ttls.last_mut() {
                *last = Some(ttl);
            }
        });
        self
    }

    /// Adds a configuration value.
    #[must_use]
    pub fn config(self, name: &str, value: &str) -> Self {
        with(|host| host.config.insert(name.into(), value.into()));
        self
    }

    /// Adds a secret.
    #[must_use]
    pub fn secret(self, name: &str, value: &[u8]) -> Self {
        with(|host| host.secrets.insert(name.into(), value.to_vec()));
        self
    }

    /// Answers the calls that the service makes: `answers` gets service, key and payload, and returns
    /// status and payload of the reply, or [`Error::NoService`], [`Error::Unavailable`],
    /// [`Error::TimedOut`] or [`Error::CallFailed`]. Without it there is no service to call.
    #[must_use]
    pub fn answers(
        self,
        answers: impl FnMut(&str, &[u8], &[u8]) -> Result<(u32, Vec<u8>), Error> + 'static,
    ) -> Self {
        with(|host| host.answers = Some(Box::new(answers)));
        self
    }

    /// The seed of the random bytes; hosts with the same seed give the same bytes.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        with(|host| (host.seed, host.digests) = (seed, 0));
        self
    }

    /// A random number, as a service would get it.
    #[cfg(test)]
    pub(crate) fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        crate::random(&mut bytes).expect("8 bytes are few enough");
        u64::from_le_bytes(bytes)
    }

    /// Adds an asset; it takes the place of one of the same name.
    #[must_use]
    pub fn asset(self, name: &str, bytes: &[u8]) -> Self {
        with(|host| {
            host.assets.retain(|(n, _)| n != name);
            host.assets.push((name.into(), bytes.to_vec()));
        });
        self
    }

    /// All collections, to compare before with after.
    pub fn state(&self) -> Vec<(String, Collection)> {
        with(|host| {
            host.names
                .iter()
                .cloned()
                .zip(host.collections.iter().cloned())
                .collect()
        })
    }

    /// Calls `service` with a request. An error undoes its writes, as on the platform. If writes, messages
    /// and reply have more than 56 KiB together, the result is [`Error::Bound`]; if the request is a call, and
    /// there are writes, messages or timers, or no reply, it is [`Error::CallFailed`].
    pub fn call<S: Service>(&self, service: &mut S, call: &Call) -> Outcome {
        let before = with(|host| {
            host.now = call.now;
            let id = u128::from(call.id.sequence) << 64 | u128::from(call.id.client);
            host.request_id = id.to_le_bytes();
            host.key.clone_from(&call.key);
            host.edge = call.edge;
            host.timer.clone_from(&call.timer);
            host.timers.clear();
            host.answer = call.answer;
            host.outbound.clear();
            host.topic.clone_from(&call.topic);
            host.published.clear();
            host.calls_made = 0;
            host.called = None;
            host.written_bytes = 0;
            host.is_write_lost = false;
            host.replies.clear();
            host.sent.clear();
            host.logs.clear();
            host.expire();
            // Each request clones the state, so tests with much state should make few requests.
            (host.collections.clone(), host.expiries.clone())
        });
        let result = service.handle(&Request::new(&call.payload));
        with(|host| {
            let result = result.and_then(|()| {
                if host.edge == CALL_EDGE && !host.only_replies(&before.0) {
                    Err(Error::CallFailed)
                } else if host.effects_fit() && !host.is_write_lost {
                    Ok(())
                } else {
                    Err(Error::Bound)
                }
            });
            if result.is_err() {
                (host.collections, host.expiries) = before;
                host.replies.clear();
                host.sent.clear();
                host.timers.clear();
                host.outbound.clear();
                host.published.clear();
            }
            Outcome {
                result,
                replies: std::mem::take(&mut host.replies),
                sent: std::mem::take(&mut host.sent),
                timers: std::mem::take(&mut host.timers),
                outbound: std::mem::take(&mut host.outbound),
                published: std::mem::take(&mut host.published),
                logs: std::mem::take(&mut host.logs),
            }
        })
    }
}
