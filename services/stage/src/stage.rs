//! Where a service's results go: along its channels, and back to the client.

use crate::record::{Builder, Fault, Record};
use crate::status;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use e3_sdk::{Channel, Error, Request, config, limits::KEY_BYTES_MAX, reply};

/// A way on.
#[derive(Debug)]
struct Next {
    channel: Channel,
    /// Field whose value is the routing key; none = the key that the request came with.
    key: Option<String>,
}

/// A service's place among the others, from its configuration:
///
/// - `to`: names of channels, separated by commas, along which its results go (default: none);
/// - `key-NAME`: the field that is the routing key on channel NAME (default: the request's key);
/// - `reply`: `yes` or `no`, whether it answers the client (default: `yes` if `to` is empty).
#[derive(Debug)]
pub struct Stage {
    next: Vec<Next>,
    replies: bool,
}

impl Stage {
    /// Reads the configuration and opens the channels.
    pub fn open() -> Result<Stage, Error> {
        let to = config("to").unwrap_or_default();
        let names = to.split(',').map(str::trim).filter(|n| !n.is_empty());
        let next = names
            .map(|name| {
                Ok(Next {
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
        Ok(Stage { next, replies })
    }

    /// Whether this service answers the client.
    pub fn replies(&self) -> bool {
        self.replies
    }

    /// Passes bytes on along every channel under the request's own key, and answers with them if it
    /// is this service's part.
    pub fn pass(&self, request: &Request<'_>, payload: &[u8]) -> Result<(), Error> {
        self.pass_keyed(request, payload, |_| None)
    }

    /// Passes a record on, on each channel under the key that the configuration names.
    pub fn pass_record(&self, request: &Request<'_>, record: &mut Builder) -> Result<(), Error> {
        let payload = record.bytes();
        if self.next.iter().all(|n| n.key.is_none()) {
            return self.pass(request, payload);
        }
        let read = Record::parse(payload).map_err(|_| Error::Code(1))?;
        self.pass_keyed(request, payload, |field| {
            let int = || read.int(field).ok().map(|i| i.to_le_bytes().to_vec());
            read.bytes(field).ok().map(<[u8]>::to_vec).or_else(int)
        })
    }

    fn pass_keyed(
        &self,
        request: &Request<'_>,
        payload: &[u8],
        key_of: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Result<(), Error> {
        let mut room = [0; KEY_BYTES_MAX];
        for next in &self.next {
            let field = next.key.as_deref().and_then(&key_of);
            match field.filter(|k| (1..=KEY_BYTES_MAX).contains(&k.len())) {
                Some(key) => next.channel.send(&key, payload)?,
                None => next.channel.send(request.key(&mut room)?, payload)?,
            }
        }
        match self.replies {
            true => reply(status::OK, payload),
            false => Ok(()),
        }
    }

    /// Answers a request that is wrong in itself: status [`status::MALFORMED`] and why. Whoever
    /// finds the fault answers, since nobody further on hears of the request.
    pub fn refuse(&self, fault: &Fault) -> Result<(), Error> {
        reply(status::MALFORMED, fault.to_string().as_bytes())
    }
}
