//! Records that sensors and their operator exchange with the hub.

use super::sensors::Report;
use crate::readback::queries::record;
use crate::tokens::Token;
use e3_loadgen::workload::Call;
use serde::{Deserialize, Serialize, Serializer};

/// What the rows of a sensor come to.
const TOTALS: &str = "SELECT count(*), sum(value), max(time) FROM history WHERE user = :user";

#[derive(Serialize)]
struct Message<'a> {
    user: &'a str,
    expiry: i64,
    #[serde(serialize_with = "bytes")]
    token: &'a [u8],
    path: &'a str,
    topic: &'a str,
    time: i64,
    value: f64,
    features: &'a [f64],
    #[serde(serialize_with = "bytes")]
    content: &'a [u8],
}

#[derive(Serialize)]
struct Query<'a> {
    user: &'a str,
    expiry: i64,
    #[serde(serialize_with = "bytes")]
    token: &'a [u8],
    op: &'a str,
    at: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
}

#[derive(Serialize)]
struct Select<'a> {
    user: &'a str,
    expiry: i64,
    #[serde(serialize_with = "bytes")]
    token: &'a [u8],
    path: &'a str,
    sql: &'a str,
}

/// Written as bytes, not as an array of numbers.
fn bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

fn call(user: &str, said: &impl Serialize) -> Call {
    Call {
        tag: 0,
        key: user.as_bytes().to_vec(),
        payload: record(said),
    }
}

/// A report of a sensor; the answer is [`Kept`].
pub(super) fn report(user: &str, token: &Token, topic: &str, report: &Report) -> Call {
    let message = Message {
        user,
        expiry: token.expiry,
        token: &token.tag,
        path: "/reports",
        topic,
        time: report.time_s,
        value: report.value,
        features: &report.features,
        content: &vec![b'.'; report.bytes],
    };
    call(user, &message)
}

/// What the rows of a sensor come to; the answer is [`Totals`].
pub(super) fn totals(user: &str, token: &Token) -> Call {
    let select = Select {
        user,
        expiry: token.expiry,
        token: &token.tag,
        path: "/history",
        sql: TOTALS,
    };
    call(user, &select)
}

/// The latest report of a sensor; the answer is [`Latest`].
pub(super) fn latest(user: &str, token: &Token) -> Call {
    get(user, token, "kvs", None)
}

/// How many reports there were on a topic.
pub(super) fn count(user: &str, token: &Token, topic: &str) -> Call {
    get(user, token, "count", Some(topic))
}

fn get(user: &str, token: &Token, at: &str, topic: Option<&str>) -> Call {
    let query = Query {
        user,
        expiry: token.expiry,
        token: &token.tag,
        op: "get",
        at,
        topic,
    };
    call(user, &query)
}

#[derive(Deserialize)]
pub(super) struct Kept {
    /// 1 for the first row of its sensor, and so on.
    pub(super) row: u64,
    /// Reports on its topic so far, with this one.
    pub(super) count: u64,
    pub(super) class: String,
}

#[derive(Deserialize)]
pub(super) struct Latest {
    /// Whether there is one.
    pub(super) done: bool,
    pub(super) last_time: Option<i64>,
    pub(super) last_value: Option<f64>,
    pub(super) last_class: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Totals {
    /// One row: how many there are, the sum of values, the last time.
    pub(super) rows: Vec<(u64, Option<f64>, Option<i64>)>,
}
