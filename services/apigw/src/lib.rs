//! API gateway of an application: authentication, rate limits, routing.
//!
//! Input: a record that names its client and proves it: `user` (text or bytes; config `user` names the
//! field), `expiry` (seconds since the Unix epoch, when the token expires) and `token`, 32 bytes:
//! HMAC-SHA256 (RFC 2104) over the bytes of the user and the expiry as 8 bytes, big endian, under the secret
//! `token-key`, or under its value before until that is retired. The operator makes the tokens. Each request takes one permit from the client's token bucket
//! ([`bucket`]).
//!
//! *Guarantees* downstream: the routing key of the request is the user's bytes; the sender had a valid token
//! of this user and stayed within the rate; `token` and `expiry` are removed, so no later service stores or
//! returns them. All other fields are unverified, also those that look like the result of another service.
//! The identity of the request (client, sequence) comes from the platform.
//!
//! *Routes*: without `routes` the record goes along all channels of `to`, which must have one at
//! least. With `routes` (`/PREFIX=CHANNEL, ...`) it goes along the channel with the longest prefix of the
//! field `path`, by whole segments: `/a` matches `/a` and `/a/b`, but not `/ab`; `/` matches all. A query (a
//! record with `op`) is authenticated and takes a permit too; it goes along the channel that its field `at`
//! names, else along the first one, whatever its path. The gateway answers no queries itself.
//!
//! A refused request changes nothing and takes no permit: REFUSED (no valid token, or over the rate: the
//! reply has the seconds until the next permit, rounded up, and a client that waits as long is accepted),
//! NOT_FOUND (no route matches), MALFORMED (everything else).
//!
//! Configuration: `rate` (permits a second, above 0, default 50), `burst` (most permits, at least 1,
//! default 100), `user`, `routes`, and that of [`Stage`]. Collection: hash map `buckets` (user ->
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
use e3_pipeline::{Builder, Record, RecordError, Stage, status};
use e3_sdk::accel::{HmacSha256, same_tag};
use e3_sdk::{
    Channel, Error, HashMap, Request, Service, config, now, previous_secret, reply, secret,
};
use routes::Routes;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 32;

const NANOS: i64 = 1_000_000_000;

/// The gateway.
#[derive(Debug)]
pub struct ApiGateway {
    stage: Stage,
    name: Option<String>,
    /// The channels of `to`, for queries.
    channels: Vec<(String, Channel)>,
    routes: Option<Routes>,
    user: String,
    token_key: HmacSha256,
    /// The key before, while tokens made with it are accepted.
    previous_key: Option<HmacSha256>,
    limit: Limit,
    buckets: HashMap,
    out: Builder,
}

/// The channels along which a request goes, by index.
enum Target {
    /// A query: along this one.
    Query(usize),
    /// A record: along this one.
    Route(usize),
    /// A record: along all.
    All,
}

/// The reply to a refused request.
struct Refusal(u32, String);

impl From<RecordError> for Refusal {
    fn from(error: RecordError) -> Self {
        Refusal(status::MALFORMED, error.to_string())
    }
}

impl Service for ApiGateway {
    fn init() -> Result<Self, Error> {
        let stage = Stage::open()?;
        let to = config("to").unwrap_or_default();
        let names = to.split(',').map(str::trim).filter(|n| !n.is_empty());
        // the stage has found every channel
        let channels: Vec<_> = names
            .filter_map(|name| Some((name.to_string(), Channel::named(name)?)))
            .collect();
        if channels.is_empty() {
            return Err(Error::Config {
                name: "to",
                value: to,
            });
        }
        let names: Vec<&str> = channels.iter().map(|(name, _)| &**name).collect();
        Ok(Self {
            routes: Routes::open(&names)?,
            stage,
            name: config("name"),
            channels,
            user: config("user").unwrap_or_else(|| "user".into()),
            token_key: HmacSha256::new(&secret("token-key")?)?,
            previous_key: previous_secret("token-key")
                .map(|key| HmacSha256::new(&key))
                .transpose()?,
            limit: Limit::open()?,
            buckets: HashMap::open("buckets")?,
            out: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let record = match Record::parse(request.payload()) {
            Ok(record) => record,
            Err(error) => return self.stage.refuse(&error),
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
        let target = self.admit(record, key)?.and_then(|()| self.target(record));
        let target = match target {
            Ok(target) => target,
            Err(Refusal(status, why)) => return reply(status, why.as_bytes()),
        };
        let mut buffer = [0; Bucket::BYTES];
        let stored = self.buckets.get(key, &mut buffer)?;
        let bucket = stored
            .and_then(Bucket::from_bytes)
            .unwrap_or_else(|| Bucket::full(self.limit, now()));
        match bucket.draw(self.limit, now()) {
            Ok(left) => self.buckets.put(key, &left.to_bytes())?,
            Err(wait) => {
                let why = format!("{}: rate limit exceeded, next permit in {wait}", self.user);
                return reply(status::REFUSED, why.as_bytes());
            }
        }
        let out = self.out.clear().copy(record, &["token", "expiry"]);
        match target {
            Target::Query(at) => self.channels[at].1.send(key, out.bytes()),
            Target::All => self.stage.forward_record(request, out),
            Target::Route(at) => {
                let wanted = &self.channels[at].0;
                self.stage
                    .send_record(request, out, |name| name == wanted)?;
                if self.stage.replies() {
                    reply(status::OK, out.bytes())
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Whether the record comes from the client that it names. The tag is checked before the expiry, so that
    /// the reply to a forged token reveals nothing.
    fn admit(&self, record: &Record<'_>, key: &[u8]) -> Result<Result<(), Refusal>, Error> {
        let read = || -> Result<_, RecordError> {
            let user = record.bytes(&self.user)?;
            let (expiry, token) = (record.int("expiry")?, record.bytes("token")?);
            if token.len() == TOKEN_BYTES {
                Ok((user, expiry, token))
            } else {
                let why = format!("has {} bytes, must have {TOKEN_BYTES}", token.len());
                Err(RecordError::value("token", why))
            }
        };
        let (user, expiry, token) = match read() {
            Ok(read) => read,
            Err(error) => return Ok(Err(error.into())),
        };
        let signed = [user, &expiry.to_be_bytes()].concat();
        let refused = |why: String| Ok(Err(Refusal(status::REFUSED, why)));
        let mut is_signed = same_tag(&self.token_key.tag(&signed)?, token);
        if let Some(previous) = &self.previous_key {
            is_signed |= same_tag(&previous.tag(&signed)?, token);
        }
        if !is_signed {
            return refused("token: does not match the user and expiry".into());
        }
        let now_s = now().div_euclid(NANOS);
        if now_s >= expiry {
            return refused(format!("token: expired at {expiry} s, now is {now_s} s"));
        }
        // Another key selects another shard, with another bucket and other state.
        if key != user {
            let error = RecordError::value(&self.user, "must be the routing key");
            return Ok(Err(error.into()));
        }
        Ok(Ok(()))
    }

    fn target(&self, record: &Record<'_>) -> Result<Target, Refusal> {
        // Most records are data: do not construct an error for them.
        if record.has("op")
            && let Ok(op) = record.text("op")
        {
            return match record.text("at") {
                Ok(at) if Some(at) != self.name.as_deref() => {
                    let named = self.channels.iter().position(|(name, _)| name == at);
                    Ok(Target::Query(named.unwrap_or_default()))
                }
                _ => {
                    let why = format!("is {op:?}, but the gateway answers no queries");
                    Err(RecordError::value("op", why).into())
                }
            };
        }
        let Some(routes) = &self.routes else {
            return Ok(Target::All);
        };
        let path = record.text("path")?;
        match routes.find(path) {
            Some(at) => Ok(Target::Route(at)),
            None => {
                let why = format!("field \"path\": is {path:?}, no route matches");
                Err(Refusal(status::NOT_FOUND, why))
            }
        }
    }
}

e3_sdk::service!(ApiGateway, request_capacity = 16384);
