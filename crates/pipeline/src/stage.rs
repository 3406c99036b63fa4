//! The routes of a service's results: downstream along its channels, and back to the client.

use crate::builder::Builder;
use crate::record::{Record, RecordError};
use crate::status;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use e3_sdk::{Channel, Error, Request, config, limits::KEY_BYTES_MAX, reply};

/// What a message counts among the bytes of a request beside key and payload (docs/abi.md).
const MESSAGE_OVERHEAD_BYTES: usize = 16;

/// A downstream route.
#[derive(Debug)]
struct Route {
    name: String,
    channel: Channel,
    /// Field whose value is the routing key; none = the request's own key.
    key: Option<String>,
}

/// A service's place in the pipeline, from its configuration:
///
/// - `to`: names of the channels along which its results go, separated by commas (default: none);
/// - `key-NAME`: the field that is the routing key on channel NAME (default: the request's key);
/// - `reply`: `yes` or `no`, whether it replies to the client (default: `yes` if `to` is empty);
/// - `name`: its name in queries (see [`Stage::query`]).
#[derive(Debug)]
pub struct Stage {
    routes: Vec<Route>,
    replies: bool,
    name: Option<String>,
}

/// Whether a record is a query, and for which service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query<'a> {
    /// Not a query, but data.
    None,
    /// A query to this service, with its `op`. It is answered even if the service does not reply to
    /// data, and changes nothing.
    Mine(&'a str),
    /// A query to another service, which was forwarded.
    Forwarded,
}

impl Stage {
    /// Reads the configuration and opens the channels.
    pub fn open() -> Result<Stage, Error> {
        let to = config("to").unwrap_or_default();
        let names = to.split(',').map(str::trim).filter(|n| !n.is_empty());
        let routes = names
            .map(|name| {
                Ok(Route {
                    name: name.to_string(),
                    channel: Channel::named(name).ok_or_else(|| Error::Config {
                        name: "to",
                        value: to.clone(),
                    })?,
                    key: config(&alloc::format!("key-{name}")),
                })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let replies = match config("reply").as_deref() {
            None => routes.is_empty(),
            Some("yes") => true,
            Some("no") => false,
            Some(other) => {
                return Err(Error::Config {
                    name: "reply",
                    value: other.to_string(),
                });
            }
        };
        Ok(Stage {
            routes,
            replies,
            name: config("name"),
        })
    }

    /// Distinguishes queries (records with a field `op`) from data. A query whose field `at` names
    /// another service is forwarded under the request's own key, so that it reaches the shard that owns
    /// the key's slot there: along the channel of that name if there is one, else along the first. The
    /// last service refuses it.
    pub fn query<'a>(
        &self,
        request: &Request<'_>,
        record: &Record<'a>,
    ) -> Result<Query<'a>, Error> {
        // Most records are data: do not construct an error for them.
        let Some(Ok(op)) = record.has("op").then(|| record.text("op")) else {
            return Ok(Query::None);
        };
        let at = match record.text("at") {
            Ok(at) if Some(at) != self.name.as_deref() => at,
            _ => return Ok(Query::Mine(op)),
        };
        let named = self.routes.iter().find(|r| r.name == at);
        match (named.or(self.routes.first()), &self.name) {
            (Some(route), _) => {
                request.with_key(|key| route.channel.send(key, request.payload()))?;
            }
            (None, Some(name)) => {
                let why = alloc::format!(
                    "is {at:?}, no downstream service has this name; the last one is {name:?}"
                );
                self.refuse(&RecordError::value("at", why))?;
            }
            // A service without a name answers all queries.
            (None, None) => return Ok(Query::Mine(op)),
        }
        Ok(Query::Forwarded)
    }

    /// Reads a record for a service that answers no queries but may have services downstream that do.
    /// None if the request is done: it was not a record, or a query.
    pub fn record<'a>(&self, request: &Request<'a>) -> Result<Option<Record<'a>>, Error> {
        let record = match Record::parse(request.payload()) {
            Ok(record) => record,
            Err(error) => return self.refuse(&error).map(|()| None),
        };
        match self.query(request, &record)? {
            Query::None => Ok(Some(record)),
            Query::Forwarded => Ok(None),
            Query::Mine(op) => {
                let why = alloc::format!("is {op:?}, but this service answers no queries");
                self.refuse(&RecordError::value("op", why)).map(|()| None)
            }
        }
    }

    /// Whether a downstream service or the client gets the result.
    pub fn has_output(&self) -> bool {
        self.replies || !self.routes.is_empty()
    }

    /// Whether the service has no downstream routes.
    pub fn is_last(&self) -> bool {
        self.routes.is_empty()
    }

    /// How much of the bound on a request's effects (docs/abi.md) [`Stage::forward_record`] uses at most
    /// for a record of `len` bytes.
    pub fn output_bytes(&self, request: &Request<'_>, len: usize) -> usize {
        let own_key = request.with_key(|key| Ok(key.len()));
        let own_key = own_key.unwrap_or(KEY_BYTES_MAX);
        let messages = self.routes.iter().map(|route| {
            let key = if route.key.is_some() {
                KEY_BYTES_MAX
            } else {
                own_key
            };
            len + key + MESSAGE_OVERHEAD_BYTES
        });
        messages.sum::<usize>() + if self.replies { len } else { 0 }
    }

    /// Whether this service replies to the client.
    pub fn replies(&self) -> bool {
        self.replies
    }

    /// Passes bytes on along every channel under the request's own key, and leaves the answer to the
    /// caller, for a service that says something else than it forwards.
    pub fn send(&self, request: &Request<'_>, payload: &[u8]) -> Result<(), Error> {
        self.send_keyed(request, payload, |_| true, |_| None)
    }

    /// Passes bytes on along every channel under the request's own key, and answers with them if it
    /// is this service's part.
    pub fn forward(&self, request: &Request<'_>, payload: &[u8]) -> Result<(), Error> {
        self.send(request, payload)?;
        if self.replies {
            reply(status::OK, payload)
        } else {
            Ok(())
        }
    }

    /// Passes bytes on as [`Stage::forward`] does, but the answer, if it is this service's part, is a
    /// record made by `answer`: what it found rather than what it was given.
    pub fn forward_and_reply(
        &self,
        request: &Request<'_>,
        payload: &[u8],
        answer: impl FnOnce() -> Builder,
    ) -> Result<(), Error> {
        self.send(request, payload)?;
        if self.replies {
            reply(status::OK, answer().bytes())
        } else {
            Ok(())
        }
    }

    /// Passes a record on, on each channel under the key that the configuration names, and answers
    /// with it if it is this service's part.
    pub fn forward_record(&self, request: &Request<'_>, record: &mut Builder) -> Result<(), Error> {
        self.send_record(request, record, |_| true)?;
        if self.replies {
            reply(status::OK, record.bytes())
        } else {
            Ok(())
        }
    }

    /// Passes a record on along the channels that `wanted` says yes to by name, and leaves the answer
    /// to the caller.
    pub fn send_record(
        &self,
        request: &Request<'_>,
        record: &mut Builder,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), Error> {
        let payload = record.bytes();
        if self.routes.iter().all(|r| r.key.is_none()) {
            return self.send_keyed(request, payload, wanted, |_| None);
        }
        let read = Record::parse(payload).map_err(|_| Error::Code(1))?;
        self.send_keyed(request, payload, wanted, |field| {
            let int = || read.int(field).ok().map(|i| i.to_le_bytes().to_vec());
            read.bytes(field).ok().map(<[u8]>::to_vec).or_else(int)
        })
    }

    fn send_keyed(
        &self,
        request: &Request<'_>,
        payload: &[u8],
        wanted: impl Fn(&str) -> bool,
        key_of: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Result<(), Error> {
        for route in self.routes.iter().filter(|r| wanted(&r.name)) {
            let field = route.key.as_deref().and_then(&key_of);
            match field.filter(|k| (1..=KEY_BYTES_MAX).contains(&k.len())) {
                Some(key) => route.channel.send(&key, payload)?,
                None => request.with_key(|key| route.channel.send(key, payload))?,
            }
        }
        Ok(())
    }

    /// Answers an invalid request with status [`status::MALFORMED`] and the reason. The service that finds
    /// the error replies, since no downstream service receives the request.
    pub fn refuse(&self, error: &RecordError) -> Result<(), Error> {
        reply(status::MALFORMED, error.to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Value;
    use alloc::vec;
    use e3_sdk::Service;
    use e3_sdk::testing::{Call, Host};

    /// Adds a field, and answers queries with their `op`.
    struct Adds(Stage);

    impl Service for Adds {
        fn init() -> Result<Self, Error> {
            Stage::open().map(Adds)
        }

        fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
            let record = match Record::parse(request.payload()) {
                Ok(record) => record,
                Err(error) => return self.0.refuse(&error),
            };
            match self.0.query(request, &record)? {
                Query::Mine(op) => return reply(status::OK, op.as_bytes()),
                Query::Forwarded => return Ok(()),
                Query::None => {}
            }
            let mut out = Builder::new();
            out.copy(&record, &[]).field("added", Value::Int(1));
            self.0.forward_record(request, &mut out)
        }
    }

    fn record(fields: &[(&str, Value<'_>)]) -> Call {
        let mut b = Builder::new();
        for (name, value) in fields {
            b.field(name, *value);
        }
        Call {
            key: b"route".to_vec(),
            payload: b.bytes().to_vec(),
            ..Call::default()
        }
    }

    #[test]
    fn results_go_on_under_the_configured_key() {
        let host = Host::new()
            .channel("a")
            .channel("b")
            .config("to", "a, b")
            .config("key-b", "user");
        let mut service = Adds::init().unwrap();
        let done = host.call(&mut service, &record(&[("user", Value::Text("u7"))]));
        let keys: Vec<_> = done.sent.iter().map(|s| (&*s.channel, &*s.key)).collect();
        assert_eq!(keys, [("a", &b"route"[..]), ("b", b"u7")]);
        let sent = Record::parse(&done.sent[0].payload).unwrap();
        assert_eq!((sent.text("user"), sent.int("added")), (Ok("u7"), Ok(1)));
        assert_eq!(done.replies, []);
        // without the field, the request's own key
        let done = host.call(&mut service, &record(&[]));
        assert_eq!(done.sent[1].key, b"route");
    }

    #[test]
    fn the_last_one_answers_unless_told_otherwise() {
        let host = Host::new();
        let done = host.call(&mut Adds::init().unwrap(), &record(&[]));
        assert_eq!(done.replies.len(), 1);
        let host = Host::new().config("reply", "no");
        let done = host.call(&mut Adds::init().unwrap(), &record(&[]));
        assert_eq!(done.replies, []);
        let _host = Host::new().config("reply", "perhaps");
        assert!(Adds::init().is_err());
        let _host = Host::new().config("to", "nowhere");
        assert!(Adds::init().is_err());
    }

    /// Answers with what it found, and forwards what it was given.
    struct Measures(Stage);

    impl Service for Measures {
        fn init() -> Result<Self, Error> {
            Stage::open().map(Measures)
        }

        fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
            let bytes = request.payload();
            self.0.forward_and_reply(request, bytes, || {
                let mut out = Builder::new();
                out.field("bytes", Value::Int(bytes.len() as i64));
                out
            })
        }
    }

    #[test]
    fn an_answer_may_be_another_than_what_goes_on() {
        let host = Host::new()
            .channel("a")
            .config("to", "a")
            .config("reply", "yes");
        let call = Call {
            payload: b"packet".to_vec(),
            ..Call::default()
        };
        let done = host.call(&mut Measures::init().unwrap(), &call);
        assert_eq!(done.sent[0].payload, b"packet");
        let answer = Record::parse(&done.replies[0].1).unwrap();
        assert_eq!(answer.int("bytes"), Ok(6));
    }

    #[test]
    fn queries_find_their_service() {
        let ask = |at| record(&[("op", Value::Text("report")), ("at", Value::Text(at))]);
        let host = Host::new()
            .channel("a")
            .config("to", "a")
            .config("name", "first");
        let mut service = Adds::init().unwrap();
        let done = host.call(&mut service, &ask("second"));
        assert_eq!((done.replies.len(), done.sent.len()), (0, 1));
        assert_eq!(done.sent[0].payload, ask("second").payload);
        let done = host.call(&mut service, &ask("first"));
        assert_eq!(done.replies, vec![(0, b"report".to_vec())]);
        // the channel of that name, else the first; and no further than the last
        for (at, channel) in [("b", "b"), ("a", "a"), ("elsewhere", "a")] {
            let host = Host::new()
                .channel("a")
                .channel("b")
                .config("to", "a, b")
                .config("name", "first");
            let done = host.call(&mut Adds::init().unwrap(), &ask(at));
            let channels: Vec<_> = done.sent.iter().map(|s| &*s.channel).collect();
            assert_eq!(channels, [channel]);
        }
        let host = Host::new().config("name", "last");
        let done = host.call(&mut Adds::init().unwrap(), &ask("elsewhere"));
        let why = "field \"at\": is \"elsewhere\", no downstream service has this name; the last one is \"last\"";
        assert_eq!(
            done.replies,
            vec![(status::MALFORMED, why.as_bytes().to_vec())]
        );
        let bad = Call {
            payload: vec![1],
            ..Call::default()
        };
        let done = host.call(&mut service, &bad);
        assert_eq!(done.replies[0].0, status::MALFORMED);
    }
}
