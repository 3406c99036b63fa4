//! The service with the configuration of IOT-TS: rows, triggers, questions, faults, splits.

use e3_sdk::testing::{Call, Host, Kind, Outcome};
use e3_sdk::{RequestId, Service};
use e3_service_sql::Sql;
use e3_stage::{Builder, Record, Value, status};
use minicbor::Decoder;
use minicbor::data::Type;

/// What apps/iot-ts.yaml says.
const CONFIG: [(&str, &str); 12] = [
    ("name", "sql"),
    ("to", "ema, spike, recommend"),
    ("reply", "yes"),
    ("scope", "user = user"),
    (
        "schema",
        "CREATE TABLE IF NOT EXISTS readings (
            user TEXT, time INTEGER, client INTEGER, sequence INTEGER, temperature REAL NOT NULL,
            PRIMARY KEY (user, time, client, sequence));
         CREATE TABLE IF NOT EXISTS latest (
            user TEXT PRIMARY KEY, time INTEGER NOT NULL, temperature REAL NOT NULL,
            passed REAL NOT NULL, row_count INTEGER NOT NULL)",
    ),
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
const STATEMENTS: &str = "
    INSERT INTO readings (user, time, client, sequence, temperature)
        VALUES (:user, :time, :client, :sequence, :temperature);
    INSERT OR REPLACE INTO latest (user, time, temperature, passed, row_count) VALUES (:user,
        CASE WHEN :late THEN :last_time ELSE :time END,
        CASE WHEN :late THEN :last_temperature ELSE :temperature END,
        CASE WHEN :when_ema THEN :temperature ELSE :passed END, :row)";

fn host(allow: &str) -> Host {
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

fn record(fields: &[(&str, Value<'_>)]) -> Vec<u8> {
    let mut out = Builder::new();
    for (name, value) in fields {
        out.field(name, *value);
    }
    out.bytes().to_vec()
}

fn reading(user: &str, hour: i64, temperature: f64) -> Vec<u8> {
    record(&[
        ("user", Value::Text(user)),
        ("time", Value::Int(hour * 3600)),
        ("temperature", Value::Float(temperature)),
    ])
}

fn send(host: &Host, sql: &mut Sql, user: &str, sequence: u64, payload: &[u8]) -> Outcome {
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
fn fault(outcome: &Outcome) -> (u32, String) {
    assert_eq!(outcome.replies.len(), 1);
    let (status, payload) = &outcome.replies[0];
    (*status, String::from_utf8_lossy(payload).into_owned())
}

fn row_of(outcome: &Outcome) -> i64 {
    let (status, payload) = &outcome.replies[0];
    assert_eq!(*status, status::OK, "{}", String::from_utf8_lossy(payload));
    Record::parse(payload).unwrap().int("row").unwrap()
}

fn triggered(outcome: &Outcome) -> Vec<&str> {
    let channels = outcome.sent.iter().map(|sent| sent.channel.as_str());
    channels.collect()
}

/// A value of a reply as text: `{name: value}`, `[value, value]`.
fn shown(d: &mut Decoder<'_>) -> String {
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
fn ask(host: &Host, sql: &mut Sql, user: &str, text: &str, more: &[(&str, Value<'_>)]) -> String {
    let mut all = vec![("user", Value::Text(user)), ("sql", Value::Text(text))];
    all.extend(more);
    let outcome = send(host, sql, user, 1 << 40, &record(&all));
    match &*outcome.replies {
        [(status::OK, payload)] => shown(&mut Decoder::new(payload)),
        _ => format!("{:?}", fault(&outcome)),
    }
}

#[test]
fn stores_a_row_for_each_record_and_passes_on_by_conditions() {
    let host = host("read");
    let mut sql = Sql::init().unwrap();
    let steps: [(i64, f64, i64, &[&str]); 7] = [
        (0, 15.0, 1, &["ema", "spike"]),
        (1, 15.3, 2, &["spike"]),
        // 0.6 from the last one that went to ema.
        (2, 15.6, 3, &["ema", "spike"]),
        (3, 18.5, 4, &["ema", "spike", "recommend"]),
        (4, 18.5, 5, &["spike", "recommend"]),
        // Late: stored, but nothing happens.
        (3, 40.0, 6, &[]),
        (5, 9.0, 7, &["ema", "spike", "recommend"]),
    ];
    for (sequence, (hour, temperature, row, channels)) in steps.into_iter().enumerate() {
        if sequence == 4 {
            // Instance memory may vanish at any time.
            sql = Sql::init().unwrap();
        }
        let payload = reading("t7", hour, temperature);
        let outcome = send(&host, &mut sql, "t7", sequence as u64, &payload);
        assert_eq!(
            (row_of(&outcome), triggered(&outcome)),
            (row, channels.to_vec())
        );
        for sent in &outcome.sent {
            assert_eq!((&*sent.key, &sent.payload), (&b"t7"[..], &payload));
        }
    }
    let all = "SELECT time, temperature, passed, row_count AS n FROM latest";
    assert_eq!(
        ask(&host, &mut sql, "t7", all, &[]),
        r#"{columns: ["time", "temperature", "passed", "n"], rows: [[18000, 9.0, 9.0, 7]], more: 0}"#
    );
}
