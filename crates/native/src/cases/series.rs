//! The services of the thermostats: readings of 2000 users in turn, each about one an hour.

use super::case::{BYTES, Case, REQUESTS, SEED};
use crate::words;
use e3_collections::Kind;
use e3_pipeline::{Builder, Value};
use e3_random::Random;
use e3_sdk::accel::HmacSha256;
use e3_service_apigw::ApiGateway;
use e3_service_ema::Ema;
use e3_service_recommend::Recommend;
use e3_service_spike::Detector;
use e3_service_sql::Sql;

/// Users.
const USERS: u64 = 2000;
/// Secret of the tokens.
const TOKEN_KEY: [u8; 32] = [9; 32];
/// When tokens end.
const EXPIRY_S: i64 = 4_000_000_000;
/// Stands for the time of a reading, which is put in when it is sent.
const TIME_S: i64 = 0x7fff_fffe;

/// Readings; with a token, as they reach the gate, or without, as they go on from there.
fn readings(token: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut random = Random::new(SEED);
    let signer = HmacSha256::new(&TOKEN_KEY).expect("a key of any length is allowed");
    let reading = |n: u64| {
        let user = format!("t{:05}", n % USERS);
        // one in some hundred is far from the others
        let far = if random.below(300) == 0 { 9.0 } else { 0.0 };
        let temperature = 14.0 + (n % 7) as f64 + random.unit() + far;
        let mut record = Builder::new();
        record
            .field("user", Value::Text(&user))
            .field("time", Value::Int(TIME_S))
            .field("temperature", Value::Float(temperature));
        if token {
            let mut signed = user.clone().into_bytes();
            signed.extend(EXPIRY_S.to_be_bytes());
            let token = signer.tag(&signed).expect("is short enough");
            record
                .field("expiry", Value::Int(EXPIRY_S))
                .field("token", Value::Bytes(&token));
        }
        let rest = BYTES - record.bytes().len() - 9;
        let mut text = words::text(&mut random, 5000, rest);
        text.truncate(rest);
        record.field("note", Value::Text(&text));
        (user.into_bytes(), record.bytes().to_vec())
    };
    (0..REQUESTS).map(reading).collect()
}

pub(super) fn apigw() -> Case {
    let about = "readings of 2000 users with tokens (HMAC-SHA256)";
    Case::new::<ApiGateway>("apigw", about)
        .accelerated()
        .passes_on()
        .collection("buckets", Kind::HashMap)
        .secret("token-key", &TOKEN_KEY)
        .config("rate", "1000")
        .requests(readings(true))
}

pub(super) fn sql() -> Case {
    let about = "readings of 2000 users: a SELECT, two INSERTs and four expressions each";
    let mut case = Case::new::<Sql>("sql", about)
        .collection("tables", Kind::OrderedMap)
        .timed(TIME_S as u32)
        .requests(readings(false));
    for (name, value) in [
        ("reply", "yes"),
        (
            "schema",
            "CREATE TABLE IF NOT EXISTS readings (user TEXT, time INTEGER, client INTEGER, \
             sequence INTEGER, temperature REAL NOT NULL, \
             PRIMARY KEY (user, time, client, sequence)); \
             CREATE TABLE IF NOT EXISTS latest (user TEXT PRIMARY KEY, time INTEGER NOT NULL, \
             temperature REAL NOT NULL, passed REAL NOT NULL, row_count INTEGER NOT NULL)",
        ),
        (
            "before",
            "SELECT time AS last_time, temperature AS last_temperature, passed, row_count \
             FROM latest WHERE user = :user",
        ),
        ("let-row", "coalesce(:row_count, 0) + 1"),
        ("let-late", "coalesce(:time < :last_time, FALSE)"),
        (
            "when-next",
            "NOT :late AND coalesce(abs(:temperature - :passed) >= 0.5, TRUE)",
        ),
        (
            "statements",
            "INSERT INTO readings (user, time, client, sequence, temperature) \
             VALUES (:user, :time, :client, :sequence, :temperature); \
             INSERT OR REPLACE INTO latest (user, time, temperature, passed, row_count) \
             VALUES (:user, CASE WHEN :late THEN :last_time ELSE :time END, \
             CASE WHEN :late THEN :last_temperature ELSE :temperature END, \
             CASE WHEN :when_next THEN :temperature ELSE :passed END, :row)",
        ),
        ("answer", "row"),
    ] {
        case = case.config(name, value);
    }
    case.passes_on()
}

pub(super) fn ema() -> Case {
    Case::new::<Ema>("ema", "readings of 2000 users, each about one an hour")
        .collection("averages", Kind::HashMap)
        .collection("samples", Kind::Counter)
        .config("field", "temperature")
        .timed(TIME_S as u32)
        .requests(readings(false))
}

pub(super) fn spike() -> Case {
    let about = "readings of 2000 users, each about one an hour, windows of 24";
    Case::new::<Detector>("spike", about)
        .collection("levels", Kind::HashMap)
        .collection("windows", Kind::Array)
        .collection("spikes", Kind::OrderedMap)
        .config("field", "temperature")
        .timed(TIME_S as u32)
        .requests(readings(false))
}

pub(super) fn recommend() -> Case {
    let about = "observations of 2000 users, which rate 24 comfort programmes";
    Case::new::<Recommend>("recommend", about)
        .collection("ratings", Kind::OrderedMap)
        .config("ratings", "comfort")
        .timed(TIME_S as u32)
        .requests(readings(false))
}
