//! What thermostats say to their application and hear from it, as records.

use super::Call;
use super::questions::{NOT_FOUND, record};
use crate::LoadError;
use e3_wire::entry::{Outcome, Reply};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize, Serializer};
use sha2::Sha256;

/// Status of what the application refuses: no valid token, or over the rate.
pub(super) const REFUSED: u32 = 3;
/// How the reason begins if it is the token.
const BAD_TOKEN: &str = "token:";
/// What the reason says if it is the rate.
const OVER_THE_RATE: &str = "over the rate";

/// Proof of who speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// Seconds since the Unix epoch; void from this second on.
    pub(super) expiry: i64,
    /// HMAC-SHA256 over the user's bytes and the expiry, 8 bytes, big endian.
    pub(super) tag: [u8; 32],
}

/// Makes tokens.
pub(super) struct TokenKey(Hmac<Sha256>);

impl TokenKey {
    /// By the application's secret `token-key`.
    pub(super) fn new(key: &[u8]) -> TokenKey {
        TokenKey(Hmac::new_from_slice(key).expect("HMAC takes a key of any length"))
    }

    pub(super) fn mint(&self, user: &str, expiry: i64) -> Token {
        let mac = self.0.clone().chain_update(user);
        let tag = mac.chain_update(expiry.to_be_bytes()).finalize();
        Token {
            expiry,
            tag: tag.into_bytes().into(),
        }
    }
}

/// Written as bytes, not as an array of numbers.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

#[derive(Serialize)]
struct Update<'a> {
    user: &'a str,
    expiry: i64,
    token: Bytes<'a>,
    time: i64,
    temperature: f64,
}

#[derive(Serialize)]
struct Select<'a> {
    user: &'a str,
    expiry: i64,
    token: Bytes<'a>,
    sql: &'a str,
    since: i64,
    until: i64,
}

#[derive(Serialize)]
struct Get<'a> {
    user: &'a str,
    expiry: i64,
    token: Bytes<'a>,
    op: &'a str,
    at: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<i64>,
}

#[derive(Serialize)]
struct SpikesSince<'a> {
    user: &'a str,
    expiry: i64,
    token: Bytes<'a>,
    op: &'a str,
    at: &'a str,
    from: i64,
}

fn call(tag: u64, user: &str, said: &impl Serialize) -> Call {
    Call {
        tag,
        key: user.as_bytes().to_vec(),
        payload: record(said),
    }
}

/// A reading to be stored.
pub(super) fn update(tag: u64, user: &str, token: &Token, time: i64, temperature: f64) -> Call {
    let update = Update {
        user,
        expiry: token.expiry,
        token: Bytes(&token.tag),
        time,
        temperature,
    };
    call(tag, user, &update)
}

/// The rows of a time.
pub(super) fn select(tag: u64, user: &str, token: &Token, since: i64, until: i64) -> Call {
    let sql = "SELECT time, temperature FROM readings WHERE time >= :since AND time < :until";
    sql_call(tag, user, token, sql, [since, until])
}

/// How many rows there are.
pub(super) fn count(tag: u64, user: &str, token: &Token) -> Call {
    let sql = "SELECT count(*) FROM readings WHERE time >= :since AND time < :until";
    sql_call(tag, user, token, sql, [i64::MIN, i64::MAX])
}

fn sql_call(tag: u64, user: &str, token: &Token, sql: &str, [since, until]: [i64; 2]) -> Call {
    let select = Select {
        user,
        expiry: token.expiry,
        token: Bytes(&token.tag),
        sql,
        since,
        until,
    };
    call(tag, user, &select)
}

/// The spikes since a time.
pub(super) fn spikes(tag: u64, user: &str, token: &Token, from: i64) -> Call {
    let spikes = SpikesSince {
        user,
        expiry: token.expiry,
        token: Bytes(&token.tag),
        op: "spikes",
        at: "spike",
        from,
    };
    call(tag, user, &spikes)
}

/// The average.
pub(super) fn average(tag: u64, user: &str, token: &Token) -> Call {
    get(tag, user, token, "ema", None)
}

/// The rating of a comfort programme, or what is recommended.
pub(super) fn rating(tag: u64, user: &str, token: &Token, item: Option<i64>) -> Call {
    get(tag, user, token, "recommend", item)
}

fn get(tag: u64, user: &str, token: &Token, at: &str, item: Option<i64>) -> Call {
    let get = Get {
        user,
        expiry: token.expiry,
        token: Bytes(&token.tag),
        op: "get",
        at,
        item,
    };
    call(tag, user, &get)
}

/// Answer to [`average`].
#[derive(Deserialize)]
pub(super) struct Averaged {
    pub(super) ema: f64,
    pub(super) time: i64,
    pub(super) samples: u64,
}

/// Answer to [`rating`].
#[derive(Deserialize)]
pub(super) struct Rated {
    pub(super) rating: f64,
    /// 1 if it is the thermostat's own rating, not a prediction.
    pub(super) rated: u8,
}

/// Answer to an update.
#[derive(Deserialize)]
pub(super) struct Stored {
    /// 1 for the first row of its user, and so on.
    pub(super) row: u64,
}

/// Answer to [`count`].
#[derive(Deserialize)]
pub(super) struct Counted {
    #[serde(rename = "rows")]
    _rows: Vec<(i64,)>,
}

/// Answer to [`select`].
#[derive(Deserialize)]
pub(super) struct Selected {
    pub(super) rows: Vec<(i64, f64)>,
    /// 1 if rows were left out because the reply was full.
    pub(super) more: u8,
}

/// Answer to [`spikes`].
#[derive(Deserialize)]
pub(super) struct Spikes {
    pub(super) times: Vec<i64>,
    /// 1 if there are more.
    pub(super) more: u8,
}

/// Whether a refusal is for the token's sake (true), or for the rate's (false).
pub(super) fn is_for_the_token(reply: &Reply) -> Option<bool> {
    let why = std::str::from_utf8(&reply.payload).ok()?;
    let of_token = why.starts_with(BAD_TOKEN);
    (reply.status == REFUSED && (of_token || why.contains(OVER_THE_RATE))).then_some(of_token)
}

/// Whether the application says that there is nothing.
pub(super) fn is_nothing(reply: &Reply) -> bool {
    reply.outcome == Outcome::Done && reply.status == NOT_FOUND
}

/// An answer without which the load cannot begin.
pub(super) fn first_failed(reply: &Reply) -> LoadError {
    let why = String::from_utf8_lossy(&reply.payload);
    LoadError::FirstRequest {
        app: "iot-ts".into(),
        reason: format!("status {}: {why}", reply.status),
    }
}
