//! Publishes what requests say, keeps what others publish, and asks others; for tests.
//!
//! A payload is a word and what belongs to it: `publish TEXT` publishes the text on the topic `events`
//! under the request's key. `read` is answered with all texts that the service got under this key, in
//! order, separated by spaces; each begins with the application that published it. `pass read` goes on
//! to the channel `copy`. The array collection `got` has the texts.
//!
//! `keep TEXT` keeps a text. `ask SERVICE PAYLOAD` asks a service of the application, under the request's key, and
//! `ask-app APPLICATION PAYLOAD` asks another application; the answer is kept as its outcome, a colon and its content.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;
use e3_sdk::outbound::Outbound;
use e3_sdk::{Array, Channel, Error, Request, Service, publish, reply};

/// Status of the reply to a payload that says none of this.
pub const STATUS_MALFORMED: u32 = 1;
/// How long who is asked may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Keeps publications.
#[derive(Debug)]
pub struct Feed {
    got: Array,
}

impl Service for Feed {
    fn init() -> Result<Self, Error> {
        let got = Array::open("got")?;
        Ok(Self { got })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        request.with_key(|key| {
            if let Some(topic) = request.topic() {
                let from = topic.application.as_bytes();
                let text = [from, b":", request.payload()].concat();
                return self.got.push(key, &text);
            }
            if let Some(answer) = request.answer() {
                let outcome = format!("{:?}:", answer.outcome);
                let text = [outcome.as_bytes(), request.payload()].concat();
                return self.got.push(key, &text);
            }
            let text = str::from_utf8(request.payload()).unwrap_or_default();
            match text.split_once(' ').unwrap_or((text, "")) {
                ("publish", text) => {
                    publish("events", key, text.as_bytes())?;
                    reply(0, b"ok")
                }
                ("pass", text) => Channel::open("copy")?.send(key, text.as_bytes()),
                ("keep", text) => {
                    self.got.push(key, text.as_bytes())?;
                    reply(0, b"kept")
                }
                (word @ ("ask" | "ask-app"), asked) => {
                    let outbound = Outbound::new(asked, TIMEOUT);
                    let (whom, payload) = asked.split_once(' ').unwrap_or((asked, ""));
                    match word {
                        "ask" => outbound.to_service(whom, key, payload.as_bytes())?,
                        _ => outbound.to_application(whom, key, payload.as_bytes())?,
                    }
                    reply(0, b"asked")
                }
                ("read", _) => {
                    let mut texts: Vec<Vec<u8>> = Vec::new();
                    self.got.for_each(key, 0, |text| {
                        texts.push(text.to_vec());
                        Ok(())
                    })?;
                    reply(0, &texts.join(&b' '))
                }
                _ => reply(
                    STATUS_MALFORMED,
                    b"must be publish, pass, keep, ask, ask-app or read",
                ),
            }
        })
    }
}

e3_sdk::service!(Feed, request_capacity = 4096);

#[cfg(test)]
mod tests {
    use super::*;
    use e3_sdk::outbound::Outcome;
    use e3_sdk::testing::{Call, Host, Kind};

    #[test]
    fn what_is_published_is_kept_by_key() {
        let host = Host::new()
            .collection("got", Kind::Array)
            .publishes("events");
        let mut feed = Feed::init().unwrap();
        let call = |payload: &[u8]| Call {
            payload: payload.to_vec(),
            ..Call::default()
        };
        for text in [&b"publish one"[..], b"publish two"] {
            let published = host.call(&mut feed, &call(text)).published;
            host.call(&mut feed, &published[0].delivered("shop"));
        }
        let outcome = host.call(&mut feed, &call(b"read"));
        assert_eq!(outcome.replies, [(0, b"shop:one shop:two".to_vec())]);
        let outcome = host.call(&mut feed, &call(b"keep three"));
        assert_eq!(outcome.replies, [(0, b"kept".to_vec())]);
        let outcome = host.call(&mut feed, &call(b"write"));
        assert_eq!(outcome.replies[0].0, STATUS_MALFORMED);
    }

    #[test]
    fn answers_are_kept() {
        let host = Host::new().collection("got", Kind::Array).asks("vault");
        let mut feed = Feed::init().unwrap();
        let call = |payload: &[u8]| Call {
            payload: payload.to_vec(),
            ..Call::default()
        };
        for text in [&b"ask vault keep a"[..], b"ask-app books keep b"] {
            let asked = host.call(&mut feed, &call(text)).outbound.remove(0);
            host.call(&mut feed, &asked.answered(Outcome::Done, 0, b"kept"));
        }
        let outcome = host.call(&mut feed, &call(b"read"));
        assert_eq!(outcome.replies, [(0, b"Done:kept Done:kept".to_vec())]);
    }
}
