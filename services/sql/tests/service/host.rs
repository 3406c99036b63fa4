//! The service on the test host, with the configuration of IOT-TS, and its replies as text.

use e3_pipeline::{Builder, Record, Value, status};
use e3_sdk::RequestId;
use e3_sdk::testing::{Call, Host, Kind, Outcome};
use e3_service_sql::Sql;
use minicbor::Decoder;
use minicbor::data::Type;

/// What apps/iot-ts.yaml says.
pub const CONFIG: [(&str, &str); 11] = [
    ("name", "sql"),
    ("to", "ema, spike, recommend"),
    ("reply", "yes"),
    ("schema", SCHEMA),
    (
        "before",
        "SELECT time AS last_time, temperature AS last_temperature, passed, row_count
         FROM latest WHERE user = :user",
    ),
    ("let-row", "coalesce(:row_count, 0) + 1"),
    ("let-late", "coalesce(:time < :last_time, FALSE)"),
    (
        "when-ema",
        "NOT :late AND coalesce(abs(:temperature - :passed) >= 0.5, TRUE)",
    ),
    ("when-spike", "NOT :late"),
    (
        "when-recommend",
        "NOT :late AND :temperature NOT BETWEEN 10 AND 18",
    ),
    ("answer", "row"),
];
pub const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS readings (
            user TEXT, time INTEGER, client INTEGER, sequence INTEGER, temperature REAL NOT NULL,
            PRIMARY KEY (user, time, client, sequence));
         CREATE TABLE IF NOT EXISTS latest (
            user TEXT PRIMARY KEY, time INTEGER NOT NULL, temperature REAL NOT NULL,
            passed REAL NOT NULL, row_count INTEGER NOT NULL)";
pub const STATEMENTS: &str = "
    INSERT INTO readings (user, time, client, sequence, temperature)
        VALUES (:user, :time, :client, :sequence, :temperature);
    INSERT OR REPLACE INTO latest (user, time, temperature, passed, row_count) VALUES (:user,
        CASE WHEN :late THEN :last_time ELSE :time END,
        CASE WHEN :late THEN :last_temperature ELSE :temperature END,
        CASE WHEN :when_ema THEN :temperature ELSE :passed END, :row)";

pub fn host(allow: &str) -> Host {
    host_without_scope(allow).config("scope", "user = user")
}

pub fn host_without_scope(allow: &str) -> Host {
    let host = Host::new()
        .channel("ema")
        .channel("spike")
        .channel("recommend")
        .collection("tables", Kind::Ordered)
        .config("allow", allow)
        .config("statements", STATEMENTS);
    CONFIG
        .iter()
        .fold(host, |host, (name, value)| host.config(name, value))
}

pub fn record(fields: &[(&str, Value<'_>)]) -> Vec<u8> {
    let mut out = Builder::new();
    for (name, value) in fields {
        out.field(name, *value);
    }
    out.bytes().to_vec()
}

pub fn reading(user: &str, hour: i64, temperature: f64) -> Vec<u8> {
    record(&[
        ("user", Value::Text(user)),
        ("time", Value::Int(hour * 3600)),
        ("temperature", Value::Float(temperature)),
    ])
}

pub fn send(host: &Host, sql: &mut Sql, user: &str, sequence: u64, payload: &[u8]) -> Outcome {
    let id = RequestId {
        client: u64::MAX,
        sequence,
    };
    let call = Call {
        id,
        key: user.into(),
        payload: payload.to_vec(),
        ..Call::default()
    };
    let outcome = host.call(sql, &call);
    assert_eq!(outcome.result, Ok(()));
    outcome
}

/// The reply's status, and its text if it is none of success.
pub fn error(outcome: &Outcome) -> (u32, String) {
    assert_eq!(outcome.replies.len(), 1);
    let (status, payload) = &outcome.replies[0];
    (*status, String::from_utf8_lossy(payload).into_owned())
}

pub fn row_of(outcome: &Outcome) -> i64 {
    let (status, payload) = &outcome.replies[0];
    assert_eq!(*status, status::OK, "{}", String::from_utf8_lossy(payload));
    Record::parse(payload).unwrap().int("row").unwrap()
}

pub fn triggered(outcome: &Outcome) -> Vec<&str> {
    let channels = outcome.sent.iter().map(|sent| sent.channel.as_str());
    channels.collect()
}

/// A value of a reply as text: `{name: value}`, `[value, value]`.
pub fn shown(d: &mut Decoder<'_>) -> String {
    match d.datatype().unwrap() {
        Type::Null => d.null().map(|()| "null".into()).unwrap(),
        Type::String => format!("{:?}", d.str().unwrap()),
        Type::F64 => format!("{:?}", d.f64().unwrap()),
        Type::Array => {
            let len = d.array().unwrap().unwrap();
            let all: Vec<_> = (0..len).map(|_| shown(d)).collect();
            format!("[{}]", all.join(", "))
        }
        Type::Map => {
            let len = d.map().unwrap().unwrap();
            let all: Vec<_> = (0..len)
                .map(|_| format!("{}: {}", d.str().unwrap(), shown(d)))
                .collect();
            format!("{{{}}}", all.join(", "))
        }
        _ => d.i64().unwrap().to_string(),
    }
}

/// The reply to a statement, as text.
pub fn ask(
    host: &Host,
    sql: &mut Sql,
    user: &str,
    text: &str,
    more: &[(&str, Value<'_>)],
) -> String {
    let mut all = vec![("user", Value::Text(user)), ("sql", Value::Text(text))];
    all.extend(more);
    said(&send(host, sql, user, 1 << 40, &record(&all)))
}

pub fn said(outcome: &Outcome) -> String {
    match &*outcome.replies {
        [(status::OK, payload)] => shown(&mut Decoder::new(payload)),
        _ => format!("{:?}", error(outcome)),
    }
}
