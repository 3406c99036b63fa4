//! Gate of the thermostat application: who may speak, and how often.
//!
//! Verifies the HMAC token of each request, draws one permit from the thermostat's token bucket
//! (double precision, as in the paper's IOT-TS: it is what SmartNIC cores without a floating-point
//! unit are slow at), and passes the request to `sql`. What is refused is answered here and
//! changes nothing.
//!
//! Needs the secret `token-key`, the channel `sql` and the hash collection `buckets`
//! (thermostat -> permits, time). Configuration: `rate` (permits per second, default 50) and
//! `burst` (most permits, default 100).

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use e3_iot_messages::{ClientMessage, Reply, SqlMessage, TokenError, TokenKey, routing_key};
use e3_sdk::{Channel, Error, HashMap, Request, Service, config_or, limits, now, reply, secret};

const NANOS_PER_S: i64 = 1_000_000_000;

/// How fast permits come back, and how many can wait.
#[derive(Clone, Copy, Debug)]
struct Limit {
    rate_per_s: f64,
    burst: f64,
}

/// A token bucket: `permits` were left at `at`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    permits: f64,
    at: i64,
}

impl Bucket {
    const BYTES: usize = 16;

    fn full(limit: Limit, now: i64) -> Self {
        Self {
            permits: limit.burst,
            at: now,
        }
    }

    /// The bucket with one permit less, or the seconds until there is one.
    fn draw(self, limit: Limit, now: i64) -> Result<Self, f64> {
        let elapsed_s = now.saturating_sub(self.at).max(0) as f64 / NANOS_PER_S as f64;
        let permits = (self.permits + elapsed_s * limit.rate_per_s).min(limit.burst);
        if permits >= 1.0 {
            Ok(Self {
                permits: permits - 1.0,
                at: now.max(self.at),
            })
        } else {
            Err((1.0 - permits) / limit.rate_per_s)
        }
    }

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.permits.to_le_bytes());
        bytes[8..].copy_from_slice(&self.at.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (permits, at) = bytes.split_at_checked(8)?;
        Some(Self {
            permits: f64::from_le_bytes(permits.try_into().ok()?),
            at: i64::from_le_bytes(at.try_into().ok()?),
        })
    }
}

/// The gate.
pub struct ApiGateway {
    token_key: TokenKey,
    limit: Limit,
    buckets: HashMap,
    sql: Channel,
    out: Vec<u8>,
}

impl Service for ApiGateway {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            token_key: TokenKey::new(&secret("token-key")?),
            limit: Limit {
                rate_per_s: config_or("rate", 50.0)?,
                burst: config_or("burst", 100.0)?,
            },
            buckets: HashMap::open("buckets")?,
            sql: Channel::open("sql")?,
            out: Vec::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let message = match ClientMessage::decode(request.payload()) {
            Ok(message) => message,
            Err(error) => return self.answer(&Reply::Malformed(error.to_string())),
        };
        let (token, thermostat, forward) = match message {
            ClientMessage::Update { token, reading } => {
                (token, reading.thermostat, SqlMessage::Store(reading))
            }
            ClientMessage::Query { token, query } => {
                let thermostat = token.thermostat;
                (token, thermostat, SqlMessage::Query { thermostat, query })
            }
        };
        let verified = self.token_key.verify(&token, now() / NANOS_PER_S);
        let verified = verified.and(if token.thermostat == thermostat {
            Ok(())
        } else {
            Err(TokenError::OtherThermostat {
                thermostat: token.thermostat,
            })
        });
        if let Err(error) = verified {
            return self.answer(&Reply::Unauthorized(error.to_string()));
        }
        // Another key would lead to another shard, with another bucket and other rows.
        let key = routing_key(thermostat);
        let mut room = [0; limits::KEY_BYTES_MAX];
        if request.key(&mut room)? != key {
            let fault = format!("routing key: is not the id of thermostat {thermostat}");
            return self.answer(&Reply::Malformed(fault));
        }
        let mut room = [0; Bucket::BYTES];
        let bucket = self
            .buckets
            .get(&key, &mut room)?
            .and_then(Bucket::from_bytes)
            .unwrap_or_else(|| Bucket::full(self.limit, now()));
        match bucket.draw(self.limit, now()) {
            Ok(left) => {
                self.buckets.put(&key, &left.to_bytes())?;
                self.out.clear();
                forward.encode(&mut self.out);
                self.sql.send(&key, &self.out)
            }
            Err(wait_s) => {
                let fault = format!("thermostat {thermostat}: next permit in {wait_s:.3} s");
                self.answer(&Reply::RateLimited(fault))
            }
        }
    }
}

impl ApiGateway {
    fn answer(&mut self, answer: &Reply) -> Result<(), Error> {
        self.out.clear();
        answer.encode(&mut self.out);
        reply(answer.status(), &self.out)
    }
}

e3_sdk::service!(ApiGateway, request_capacity = 4096);

#[cfg(test)]
mod tests {
    use super::*;
    use e3_iot_messages::{Query, Reading, Token, status};
    use e3_sdk::testing::{Call, Host, Kind, Outcome};

    const KEY: &[u8] = b"a key of the tests";
    const START_S: i64 = 1_700_000_000;

    fn host() -> Host {
        Host::new()
            .channel("sql")
            .collection("buckets", Kind::Hash)
            .secret("token-key", KEY)
            .config("rate", "2")
            .config("burst", "3")
    }

    fn update(token: Token, thermostat: u32) -> ClientMessage<'static> {
        ClientMessage::Update {
            token,
            reading: Reading {
                thermostat,
                reading_time_s: 3600,
                temperature_c: 11.5,
            },
        }
    }

    fn call(now_ms: i64, key: u32, message: &ClientMessage<'_>) -> Call {
        let mut payload = Vec::new();
        message.encode(&mut payload);
        Call {
            key: routing_key(key).to_vec(),
            now: START_S * NANOS_PER_S + now_ms * 1_000_000,
            payload,
            ..Call::default()
        }
    }

    fn status_of(outcome: &Outcome) -> u32 {
        assert_eq!(outcome.result, Ok(()));
        assert_eq!(outcome.replies.len() + outcome.sent.len(), 1);
        outcome.replies.first().map_or(status::OK, |reply| reply.0)
    }

    #[test]
    fn forwards_what_is_authentic() {
        let host = host();
        let mut gate = ApiGateway::init().unwrap();
        let token = Token::mint(KEY, 7, START_S + 60);
        let outcome = host.call(&mut gate, &call(0, 7, &update(token, 7)));
        assert_eq!(outcome.sent[0].channel, "sql");
        assert_eq!(outcome.sent[0].key, routing_key(7));
        let SqlMessage::Store(reading) = SqlMessage::decode(&outcome.sent[0].payload).unwrap()
        else {
            panic!("not an update");
        };
        assert_eq!(reading.temperature_c, 11.5);
        let query = ClientMessage::Query {
            token,
            query: Query::Ema,
        };
        let outcome = host.call(&mut gate, &call(0, 7, &query));
        assert_eq!(
            SqlMessage::decode(&outcome.sent[0].payload),
            Ok(SqlMessage::Query {
                thermostat: 7,
                query: Query::Ema
            })
        );
    }

    #[test]
    fn refuses_the_rest_and_changes_nothing() {
        let host = host();
        let mut gate = ApiGateway::init().unwrap();
        let before = host.state();
        let good = Token::mint(KEY, 7, START_S + 60);
        let forged = Token::mint(b"other", 7, START_S + 60);
        let expired = Token::mint(KEY, 7, START_S);
        let mut refuse = |call: &Call, expected: u32| {
            let outcome = host.call(&mut gate, call);
            assert_eq!(status_of(&outcome), expected, "{outcome:?}");
            assert_eq!(host.state(), before);
        };
        refuse(&call(0, 7, &update(forged, 7)), status::UNAUTHORIZED);
        refuse(&call(0, 7, &update(expired, 7)), status::UNAUTHORIZED);
        refuse(&call(0, 8, &update(good, 8)), status::UNAUTHORIZED);
        refuse(&call(0, 8, &update(good, 7)), status::MALFORMED);
        let mut short = call(0, 7, &update(good, 7));
        short.payload.pop();
        refuse(&short, status::MALFORMED);
        short.payload.clear();
        refuse(&short, status::MALFORMED);
    }

    /// The bucket against a naive one that is refilled every millisecond.
    #[test]
    fn limits_the_rate_like_a_bucket_refilled_in_small_steps() {
        let host = host();
        let mut gate = ApiGateway::init().unwrap();
        let token = Token::mint(KEY, 7, START_S + 600);
        let message = update(token, 7);
        // 500 ms are one permit, so whole milliseconds are exact: count in 1/500 permit.
        let (mut permits, mut last_ms) = (3 * 500, 0);
        for n in 0..200_i64 {
            let now_ms = n * 130 + (n * n * 37) % 101;
            let now_ms = now_ms.max(last_ms);
            permits = (permits + (now_ms - last_ms)).min(3 * 500);
            last_ms = now_ms;
            // Double precision is a hair off at the boundary itself.
            let near = permits % 500 == 0;
            let accepted = permits >= 500;
            let outcome = host.call(&mut gate, &call(now_ms, 7, &message));
            let status = status_of(&outcome);
            if near {
                permits -= if status == status::OK { 500 } else { 0 };
                continue;
            }
            let expected = if accepted {
                permits -= 500;
                status::OK
            } else {
                status::RATE_LIMITED
            };
            assert_eq!(status, expected, "at {now_ms} ms with {permits}/500");
        }
    }
}
