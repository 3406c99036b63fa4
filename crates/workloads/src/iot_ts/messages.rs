//! Records that thermostats send and receive.

use crate::readback::queries::record;
use crate::tokens::{Bytes, Token};
use e3_loadgen::workload::Call;
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};

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

/// An answer without which the load cannot begin.
pub(super) fn first_failed(reply: &Reply) -> String {
    let why = String::from_utf8_lossy(&reply.payload);
    format!("status {}: {why}", reply.status)
}
