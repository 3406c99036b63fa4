//! Gate of an application: who may speak, how often, and where to.
//!
//! A record names its client and proves it: `user` (text or bytes; config `user` names the field), `expiry`
//! (seconds since the Unix epoch, from which on the token is void) and `token`, 32 bytes: HMAC-SHA256 (RFC
//! 2104) over the user's bytes and the expiry as 8 bytes, big endian, under the secret `token-key`. The
//! operator makes the token of each client. Each request draws one permit from the client's token
//! bucket ([`bucket`]).
//!
//! *What is guaranteed* behind the gate: the request's routing key is the user's bytes; whoever sent it
//! held a token of this user that was not yet void, and kept to the rate; `token` and `expiry` are gone, so
//! no later service stores or answers them. All other fields are the client's word, also those
//! that look like another service's result. The request's own identity (client, sequence) is the
//! platform's.
//!
//! *Ways on*: the record goes on along all channels of `to`, of which there must be one, or by `routes`
//! (`/PREFIX=CHANNEL, ...`) along the one whose prefix is the longest of those that the field `path`
//! begins with, segment by segment: `/a` leads `/a` and `/a/b` on, but not `/ab`; `/` leads all. A
//! question (a record with `op`) proves its client and draws a permit too, and then goes along the channel
//! that its field `at` names, else along the first, whatever its path. The gate itself answers
//! none.
//!
//! What is refused changes nothing and draws no permit: REFUSED (no valid token, over the rate: with the
//! seconds until the next permit, rounded up, so that a client that waits as long is accepted), NOT_FOUND (no route leads there), MALFORMED (all else).
//!
//! Configuration: `rate` (permits a second, above 0, default 50), `burst` (most permits, at least 1,
//! default 100), `user`, `routes`, and those of [`Stage`]. Collection: hash map `buckets` (user ->
//! permits, time). Accelerator: `hmac-sha256`.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod bucket;
mod routes;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use bucket::{Bucket, Limit};
use e3_pipeline::{Builder, Fault, Record, Stage, status};
use e3_sdk::accel::{HmacSha256, same_tag};
use e3_sdk::{Channel, Error, HashMap, Request, Service, config, now, reply, secret};
use routes::Routes;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 32;

const NANOS: i64 = 1_000_000_000;

/// The gate.
#[derive(Debug)]
pub struct ApiGateway {
    stage: Stage,
    name: Option<String>,
    /// The channels of `to`, for questions.
    ways: Vec<(String, Channel)>,
    routes: Option<Routes>,
    user: String,
    token_key: HmacSha256,
    limit: Limit,
    buckets: HashMap,
    out: Builder,
}

/// Where a request is to go.
enum Way {
    /// A question: along this one.
    Question(usize),
    /// A record: along this one.
    Route(usize),
    /// A record: along all.
    All,
}

/// What is said to a request that does not pass.
struct Refusal(u32, String);

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Refusal(status::MALFORMED, fault.to_string())
    }
}

impl Service for ApiGateway {
    fn init() -> Result<Self, Error> {
        let stage = Stage::open()?;
        let to = config("to").unwrap_or_default();
        let names = to.split(',').map(str::trim).filter(|n| !n.is_empty());
        // the stage has found every channel
        let ways: Vec<_> = names
            .filter_map(|name| Some((name.to_string(), Channel::named(name)?)))
            .collect();
        if ways.is_empty() {
            return Err(Error::Config {
                name: "to",
                value: to,
            });
        }
        let names: Vec<&str> = ways.iter().map(|(name, _)| &**name).collect();
        Ok(Self {
            routes: Routes::open(&names)?,
            stage,
            name: config("name"),
            ways,
            user: config("user").unwrap_or_else(|| "user".into()),
            token_key: HmacSha256::new(&secret("token-key")?)?,
            limit: Limit::open()?,
            buckets: HashMap::open("buckets")?,
            out: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let record = match Record::parse(request.payload()) {
            Ok(record) => record,
            Err(fault) => return self.stage.refuse(&fault),
        };
        request.with_key(|key| self.on_record(request, &record, key))
    }
}

impl ApiGateway {
    fn on_record(
        &mut self,
        request: &Request<'_>,
        record: &Record<'_>,
        key: &[u8],
    ) -> Result<(), Error> {
        let way = self.admit(record, key)?.and_then(|()| self.way(record));
        let way = match way {
            Ok(way) => way,
            Err(Refusal(status, why)) => return reply(status, why.as_bytes()),
        };
        let mut room = [0; Bucket::BYTES];
        let stored = self.buckets.get(key, &mut room)?;
        let bucket = stored
            .and_then(Bucket::from_bytes)
            .unwrap_or_else(|| Bucket::full(self.limit, now()));
        match bucket.draw(self.limit, now()) {
            Ok(left) => self.buckets.put(key, &left.to_bytes())?,
            Err(wait) => {
                let why = format!("{}: over the rate, next permit in {wait}", self.user);
                return reply(status::REFUSED, why.as_bytes());
            }
        }
        let out = self.out.clear().copy(record, &["token", "expiry"]);
        match way {
            Way::Question(way) => self.ways[way].1.send(key, out.bytes()),
            Way::All => self.stage.pass_record(request, out),
            Way::Route(way) => {
                let wanted = &self.ways[way].0;
                self.stage
                    .send_record(request, out, |name| name == wanted)?;
                match self.stage.replies() {
                    true => reply(status::OK, out.bytes()),
                    false => Ok(()),
                }
            }
        }
    }

    /// Whether the record comes from whom it says. The tag is looked at before the expiry, so that
    /// who cannot make tokens learns nothing from the answer.
    fn admit(&self, record: &Record<'_>, key: &[u8]) -> Result<Result<(), Refusal>, Error> {
        let read = || -> Result<_, Fault> {
            let user = record.bytes(&self.user)?;
            let (expiry, token) = (record.int("expiry")?, record.bytes("token")?);
            match token.len() == TOKEN_BYTES {
                true => Ok((user, expiry, token)),
                false => {
                    let why = format!("has {} bytes, must have {TOKEN_BYTES}", token.len());
                    Err(Fault::value("token", why))
                }
            }
        };
        let (user, expiry, token) = match read() {
            Ok(read) => read,
            Err(fault) => return Ok(Err(fault.into())),
        };
        let signed = [user, &expiry.to_be_bytes()].concat();
        let refused = |why: String| Ok(Err(Refusal(status::REFUSED, why)));
        if !same_tag(&self.token_key.tag(&signed)?, token) {
            return refused("token: is not that of this user and expiry".into());
        }
        let now_s = now().div_euclid(NANOS);
        if now_s >= expiry {
            return refused(format!("token: expired at {expiry} s, now is {now_s} s"));
        }
        // Another key would lead to another shard, with another bucket and other state.
        if key != user {
            let fault = Fault::value(&self.user, "is not the routing key, but must be");
            return Ok(Err(fault.into()));
        }
        Ok(Ok(()))
    }

    fn way(&self, record: &Record<'_>) -> Result<Way, Refusal> {
        // Nearly all have none: no fault is made up for them.
        if record.has("op")
            && let Ok(op) = record.text("op")
        {
            return match record.text("at") {
                Ok(at) if Some(at) != self.name.as_deref() => {
                    let named = self.ways.iter().position(|(name, _)| name == at);
                    Ok(Way::Question(named.unwrap_or_default()))
                }
                _ => {
                    let why = format!("is {op:?}, but there is nothing to ask at the gate");
                    Err(Fault::value("op", why).into())
                }
            };
        }
        let Some(routes) = &self.routes else {
            return Ok(Way::All);
        };
        let path = record.text("path")?;
        match routes.find(path) {
            Some(way) => Ok(Way::Route(way)),
            None => {
                let why = format!("field \"path\": is {path:?}, no route leads there");
                Err(Refusal(status::NOT_FOUND, why))
            }
        }
    }
}

e3_sdk::service!(ApiGateway, request_capacity = 16384);
