//! Where a service's results go: along its channels, and back to the client.

use crate::builder::Builder;
use crate::record::{Fault, Record};
use crate::status;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use e3_sdk::{Channel, Error, Request, config, limits::KEY_BYTES_MAX, reply};

/// What a message counts among the bytes of a request beside key and payload (docs/abi.md).
const MESSAGE_OVERHEAD_BYTES: usize = 16;

/// A way on.
#[derive(Debug)]
struct Next {
    name: String,
    channel: Channel,
    /// Field whose value is the routing key; none = the key that the request came with.
    key: Option<String>,
}

/// A service's place among the others, from its configuration:
///
/// - `to`: names of channels, separated by commas, along which its results go (default: none);
/// - `key-NAME`: the field that is the routing key on channel NAME (default: the request's key);
/// - `reply`: `yes` or `no`, whether it answers the client (default: `yes` if `to` is empty);
/// - `name`: what it is called in questions (see [`Stage::question`]).
#[derive(Debug)]
pub struct Stage {
    next: Vec<Next>,
    replies: bool,
    name: Option<String>,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question<'a> {
    /// No question: to be handled.
    None,
    /// A question to this service: this is its `op`. It is answered whoever else replies, and
    /// changes nothing.
    Mine(&'a str),
    /// A question to another service: it is on its way there.
    PassedOn,
}

impl Stage {
    /// Reads the configuration and opens the channels.
    pub fn open() -> Result<Stage, Error> {
        let to = config("to").unwrap_or_default();
        let names = to.split(',').map(str::trim).filter(|n| !n.is_empty());
        let next = names
            .map(|name| {
                Ok(Next {
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
            None => next.is_empty(),
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
            next,
            replies,
            name: config("name"),
        })
    }

    /// Tells a question (a record with a field `op`) from what is to be handled. One whose field
    /// `at` names another service goes on under the request's own key, so that it reaches the shard
    /// that owns the key's slot there: along the channel of that name if there is one, else along
    /// the first. One that can go no further is refused.
    pub fn question<'a>(
        &self,
        request: &Request<'_>,
        record: &Record<'a>,
    ) -> Result<Question<'a>, Error> {
        // Nearly all are none: no fault is made up for them.
        let Some(Ok(op)) = record.has("op").then(|| record.text("op")) else {
            return Ok(Question::None);
        };
        let at = match record.text("at") {
            Ok(at) if Some(at) != self.name.as_deref() => at,
            _ => return Ok(Question::Mine(op)),
        };
        let named = self.next.iter().find(|n| n.name == at);
        match (named.or(self.next.first()), &self.name) {
            (Some(next), _) => {
                request.with_key(|key| next.channel.send(key, request.payload()))?;
            }
            (None, Some(name)) => {
                let why = alloc::format!("is {at:?}, but the last service here is {name:?}");
                self.refuse(&Fault::value("at", why))?;
            }
            // A service without a name takes what comes.
            (None, None) => return Ok(Question::Mine(op)),
        }
        Ok(Question::PassedOn)
    }

    /// Reads a request for a service that answers no questions but may stand before services that
    /// do. None if it has been dealt with: it is no record, or a question.
    pub fn statement<'a>(&self, request: &Request<'a>) -> Result<Option<Record<'a>>, Error> {
        let record = match Record::parse(request.payload()) {
            Ok(record) => record,
            Err(fault) => return self.refuse(&fault).map(|()| None),
        };
        match self.question(request, &record)? {
            Question::None => Ok(Some(record)),
            Question::PassedOn => Ok(None),
            Question::Mine(op) => {
                let why = alloc::format!("is {op:?}, but there is nothing to ask here");
                self.refuse(&Fault::value("op", why)).map(|()| None)
            }
        }
    }

    /// Whether anybody sees what comes out: a further service or the client.
    pub fn is_heard(&self) -> bool {
        self.replies || !self.next.is_empty()
    }

    /// Whether no service comes after this one.
    pub fn is_last(&self) -> bool {
        self.next.is_empty()
    }

    /// Bytes that a record of `len` bytes, passed on by [`Stage::pass_record`], takes at most of those
    /// that a request may write and send (docs/abi.md).
    pub fn output_bytes(&self, request: &Request<'_>, len: usize) -> usize {
        let own_key = request.with_key(|key| Ok(key.len()));
        let own_key = own_key.unwrap_or(KEY_BYTES_MAX);
        let messages = self.next.iter().map(|next| {
            let key = if next.key.is_some() {
                KEY_BYTES_MAX
            } else {
                own_key
            };
            len + key + MESSAGE_OVERHEAD_BYTES
        });
        messages.sum::<usize>() + if self.replies { len } else { 0 }
    }

    /// Whether this service answers the client.
    pub fn replies(&self) -> bool {
        self.replies
    }

    /// Passes bytes on along every channel under the request's own key, and leaves the answer to the
    /// caller, for a service that says something else than it passes on.
    pub fn send(&self, request: &Request<'_>, payload: &[u8]) -> Result<(), Error> {
        self.send_keyed(request, payload, |_| true, |_| None)
    }

    /// Passes bytes on along every channel under the request's own key, and answers with them if it
    /// is this service's part.
    pub fn pass(&self, request: &Request<'_>, payload: &[u8]) -> Result<(), Error> {
        self.send(request, payload)?;
        match self.replies {
            true => reply(status::OK, payload),
            false => Ok(()),
        }
    }

    /// Passes bytes on as [`Stage::pass`] does, but the answer, if it is this service's part, is a
    /// record made by `answer`: what it found rather than what it was given.
    pub fn pass_answering(
        &self,
        request: &Request<'_>,
        payload: &[u8],
        answer: impl FnOnce() -> Builder,
    ) -> Result<(), Error> {
        self.send(request, payload)?;
        match self.replies {
            true => reply(status::OK, answer().bytes()),
            false => Ok(()),
        }
    }

    /// Passes a record on, on each channel under the key that the configuration names, and answers
    /// with it if it is this service's part.
    pub fn pass_record(&self, request: &Request<'_>, record: &mut Builder) -> Result<(), Error> {
        self.send_record(request, record, |_| true)?;
        match self.replies {
            true => reply(status::OK, record.bytes()),
            false => Ok(()),
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
        if self.next.iter().all(|n| n.key.is_none()) {
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
        for next in self.next.iter().filter(|n| wanted(&n.name)) {
            let field = next.key.as_deref().and_then(&key_of);
            match field.filter(|k| (1..=KEY_BYTES_MAX).contains(&k.len())) {
                Some(key) => next.channel.send(&key, payload)?,
                None => request.with_key(|key| next.channel.send(key, payload))?,
            }
        }
        Ok(())
    }

    /// Answers a request that is wrong in itself: status [`status::MALFORMED`] and why. Whoever
    /// finds the fault answers, since nobody further on hears of the request.
    pub fn refuse(&self, fault: &Fault) -> Result<(), Error> {
        reply(status::MALFORMED, fault.to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Value;
    use alloc::vec;
    use e3_sdk::Service;
    use e3_sdk::testing::{Call, Host};

    /// Adds a field, and answers questions with their `op`.
    struct Adds(Stage);

    impl Service for Adds {
        fn init() -> Result<Self, Error> {
            Stage::open().map(Adds)
        }

        fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
            let record = match Record::parse(request.payload()) {
                Ok(record) => record,
                Err(fault) => return self.0.refuse(&fault),
            };
            match self.0.question(request, &record)? {
                Question::Mine(op) => return reply(status::OK, op.as_bytes()),
                Question::PassedOn => return Ok(()),
                Question::None => {}
            }
            let mut out = Builder::new();
            out.copy(&record, &[]).field("added", Value::Int(1));
            self.0.pass_record(request, &mut out)
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

    /// Answers with what it found, and passes on what it was given.
    struct Measures(Stage);

    impl Service for Measures {
        fn init() -> Result<Self, Error> {
            Stage::open().map(Measures)
        }

        fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
            let bytes = request.payload();
            self.0.pass_answering(request, bytes, || {
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
    fn questions_find_their_service() {
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
        for (at, way) in [("b", "b"), ("a", "a"), ("elsewhere", "a")] {
            let host = Host::new()
                .channel("a")
                .channel("b")
                .config("to", "a, b")
                .config("name", "first");
            let done = host.call(&mut Adds::init().unwrap(), &ask(at));
            let ways: Vec<_> = done.sent.iter().map(|s| &*s.channel).collect();
            assert_eq!(ways, [way]);
        }
        let host = Host::new().config("name", "last");
        let done = host.call(&mut Adds::init().unwrap(), &ask("elsewhere"));
        let why = "field \"at\": is \"elsewhere\", but the last service here is \"last\"";
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
