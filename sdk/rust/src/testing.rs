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

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits::CALL_EDGE;
use crate::native::with_testing as with;
pub use crate::testing_outbound::{Asked, Published, To};
use crate::testing_state::Inner;
pub use crate::testing_types::{Call, Collection, Kind, Sent, TimerCall, When, slot_of};
use crate::{Error, Request, Service};

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
