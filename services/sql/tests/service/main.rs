//! The service with the configuration of IOT-TS: rows, triggers, queries, errors, splits.

use e3_pipeline::{Value, status};
use e3_sdk::Service;
use e3_sdk::testing::{Collection, Host, Kind, slot_of};
use e3_service_sql::Sql;
use e3_testkit::{Random, fuzz};
use std::collections::BTreeMap;

mod host;

use host::*;

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

#[test]
fn a_statement_sees_the_rows_of_its_scope() {
    let host = host("read");
    let mut sql = Sql::init().unwrap();
    let count = "SELECT count(*) AS n FROM readings";
    // Before anything is stored, and without storing anything.
    let none = "{columns: [\"n\"], rows: [[0]], more: 0}";
    assert_eq!(ask(&host, &mut sql, "t7", count, &[]), none);
    assert!(state(&host).is_empty());
    // Two users of one slot.
    let mut users = ["t7".to_string(), String::new()];
    users[1] = (0..)
        .map(|n| format!("x{n}"))
        .find(|u| slot_of(u.as_bytes()) == slot_of(b"t7"))
        .unwrap();
    for n in 0..30 {
        let user = &users[n % 2];
        let stored = send(
            &host,
            &mut sql,
            user,
            n as u64,
            &reading(user, n as i64, 12.0),
        );
        assert_eq!(row_of(&stored), n as i64 / 2 + 1);
    }
    for user in &users {
        let n = ask(&host, &mut sql, user, count, &[]);
        assert_eq!(n, "{columns: [\"n\"], rows: [[15]], more: 0}");
    }
    // Identities are read back; parameters come from the record.
    let text = "SELECT client, sequence, time FROM readings WHERE time > :after LIMIT 2";
    let rows = ask(
        &host,
        &mut sql,
        &users[1],
        text,
        &[("after", Value::Int(3 * 3600))],
    );
    let expected = "rows: [[-1, 5, 18000], [-1, 7, 25200]], more: 0}";
    assert!(rows.ends_with(expected), "{rows}");
    let text = "SELECT max(row_count) m FROM latest l JOIN readings r ON l.time = r.time";
    let rows = ask(&host, &mut sql, "t7", text, &[]);
    assert_eq!(rows, "{columns: [\"m\"], rows: [[15]], more: 0}");
    // A reply that is full says so.
    let text = "SELECT a.time, :long FROM readings a, readings b, readings c";
    assert!(ask(&host, &mut sql, "t7", text, &[]).contains("more than two tables"));
    let long = "x".repeat(1000);
    let text = "SELECT :long FROM readings a, readings b";
    let rows = ask(&host, &mut sql, "t7", text, &[("long", Value::Text(&long))]);
    assert!(
        rows.ends_with("more: 1}") && rows.matches(&long).count() == 31,
        "{rows}"
    );

    let before = host.state();
    for (text, error) in [
        (
            "DELETE FROM readings",
            "(3, \"statement: is not a SELECT\")",
        ),
        (
            "SELECT x FROM readings",
            "(1, \"table readings: has no column x\")",
        ),
        ("SELECT x FROM y", "(2, \"table y: does not exist\")"),
        (
            "x",
            "(1, \"not supported: statements but CREATE and DROP of TABLE and INDEX, INSERT, SELECT, UPDATE and DELETE\")",
        ),
        ("SELECT :x", "(1, \"field \\\"x\\\": is missing\")"),
        (
            "SELECT ?",
            "(1, \"not supported: ?: parameters must be named, as :name\")",
        ),
    ] {
        assert_eq!(ask(&host, &mut sql, "t7", text, &[]), error, "{text}");
    }
    let long = format!("SELECT {}", " ".repeat(3000));
    let error = ask(&host, &mut sql, "t7", &long, &[]);
    assert!(
        error.contains("has 3007 bytes, must have at most 2048"),
        "{error}"
    );
    assert_eq!(host.state(), before);
}

#[test]
fn a_change_within_a_scope_stays_there() {
    let host = host("write");
    let mut sql = Sql::init().unwrap();
    for n in 0..4 {
        send(
            &host,
            &mut sql,
            "t7",
            n,
            &reading(["t7", "t8"][n as usize % 2], 1, 12.0),
        );
    }
    let mut changed = |text: &str| ask(&host, &mut sql, "t7", text, &[]);
    let refused = "(3, \"column user: differs from the request's scope\")";
    for (text, reply) in [
        ("UPDATE readings SET temperature = 1.5", "{changed: 2}"),
        ("INSERT INTO readings VALUES ('t8', 1, 1, 1, 1.0)", refused),
        (
            "INSERT INTO readings VALUES (:user, 1, 1, 1, 1.0)",
            "{changed: 1}",
        ),
        (
            "INSERT OR REPLACE INTO latest VALUES ('t8', 1, 1.0, 1.0, 1)",
            refused,
        ),
        ("DELETE FROM readings WHERE user = 't8'", "{changed: 0}"),
        ("DELETE FROM readings", "{changed: 3}"),
        (
            "DROP TABLE readings",
            "(1, \"not supported: CREATE and DROP here\")",
        ),
    ] {
        assert_eq!(changed(text), reply, "{text}");
    }
    let _host = host.config("scope", "nothing");
    assert!(Sql::init().is_err());
}

/// A primary key that leaves the user out: another's row is neither replaced nor disclosed.
#[test]
fn a_key_of_another_user_is_free() {
    let schema = "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, user TEXT, body TEXT);
        CREATE INDEX IF NOT EXISTS bodies ON notes (body)";
    let host = Host::new()
        .collection("tables", Kind::Ordered)
        .config("schema", schema)
        .config("scope", "user = user");
    let mut sql = Sql::init().unwrap();
    let mut say = |user: &str, text: &str| {
        let record = record(&[("user", Value::Text(user)), ("sql", Value::Text(text))]);
        // Under one key: both are in one database.
        said(&send(&host, &mut sql, "k", 1, &record))
    };
    let rows = |rows: &str| format!("{{columns: [\"id\", \"body\"], rows: [{rows}], more: 0}}");
    for (user, text, reply) in [
        (
            "ann",
            "INSERT INTO notes VALUES (1, :user, 'ann''s')",
            "{changed: 1}",
        ),
        (
            "bob",
            "INSERT INTO notes VALUES (1, :user, 'bob''s')",
            "{changed: 1}",
        ),
        (
            "bob",
            "INSERT OR REPLACE INTO notes VALUES (1, :user, 'new')",
            "{changed: 1}",
        ),
        (
            "bob",
            "REPLACE INTO notes VALUES (2, :user, 'two')",
            "{changed: 1}",
        ),
        (
            "bob",
            "INSERT OR IGNORE INTO notes VALUES (1, :user, 'x')",
            "{changed: 0}",
        ),
        (
            "bob",
            "INSERT INTO notes VALUES (1, :user, 'x')",
            "(3, \"table notes: already has a row with this primary key\")",
        ),
        ("ann", "SELECT id, body FROM notes", &rows("[1, \"ann's\"]")),
        (
            "bob",
            "SELECT id, body FROM notes",
            &rows("[1, \"new\"], [2, \"two\"]"),
        ),
        ("bob", "DELETE FROM notes", "{changed: 2}"),
        ("ann", "SELECT id, body FROM notes", &rows("[1, \"ann's\"]")),
        (
            "ann",
            "UPDATE notes SET user = 'bob'",
            "(1, \"column user: belongs to the primary key, which cannot be changed\")",
        ),
    ] {
        assert_eq!(say(user, text), reply, "{user}: {text}");
    }
}

/// A number of users, each under its own key, some with late readings and wrong ones.
fn workload(accepts: impl Fn(u16) -> bool, fresh_at: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut host = host("write");
    let mut sql = Sql::init().unwrap();
    let mut random = Random::new(11);
    let mut rows: BTreeMap<String, i64> = BTreeMap::new();
    for n in 0..400 {
        if n == 100 {
            // A new version of the application has an index more.
            let index = "; CREATE INDEX IF NOT EXISTS warm ON readings (temperature)";
            host = host.config("schema", &format!("{SCHEMA}{index}"));
        }
        if n == 100 || n == fresh_at {
            sql = Sql::init().unwrap();
        }
        let user = format!("t{}", random.index(12));
        let (hour, temperature) = (random.index(50) as i64, random.unit() * 40.0);
        let odd = random.index(10);
        if !accepts(slot_of(user.as_bytes())) {
            continue;
        }
        let payload = match odd {
            0 => record(&[("user", Value::Text(&user)), ("time", Value::Text("x"))]),
            _ => reading(&user, hour, temperature),
        };
        let stored = send(&host, &mut sql, &user, n as u64, &payload);
        if odd == 0 {
            assert_eq!(error(&stored).0, status::MALFORMED);
            continue;
        }
        let count = rows.entry(user.clone()).or_default();
        *count += 1;
        assert_eq!(row_of(&stored), *count);
    }
    for (user, count) in rows {
        let text = "SELECT count(*) AS n FROM readings WHERE temperature >= 0";
        let expected = format!("{{columns: [\"n\"], rows: [[{count}]], more: 0}}");
        assert_eq!(ask(&host, &mut sql, &user, text, &[]), expected);
    }
    state(&host)
}

fn state(host: &Host) -> BTreeMap<Vec<u8>, Vec<u8>> {
    match host.state().remove(0).1 {
        Collection::Ordered(map) => map,
        other => panic!("{other:?}"),
    }
}

#[test]
fn shards_can_be_split_and_instances_are_a_cache() {
    let all = workload(|_| true, 200);
    let mut low = workload(|slot| slot < 2048, 399);
    let high = workload(|slot| slot >= 2048, 0);
    assert!(!low.is_empty() && !high.is_empty());
    low.extend(high);
    assert_eq!(low, all);
}

#[test]
fn a_set_of_statements_happens_all_or_not_at_all() {
    let host = host("write").config(
        "statements",
        "INSERT INTO latest VALUES (:user, 0, 0, 0, 0);
         INSERT INTO readings VALUES (:user, :time, 0, 0, :temperature)",
    );
    let mut sql = Sql::init().unwrap();
    let before = host.state();
    let null = record(&[
        ("user", Value::Text("t7")),
        ("time", Value::Int(1)),
        ("temperature", Value::Null),
    ]);
    let refused = send(&host, &mut sql, "t7", 1, &null);
    let why = "column temperature: is NULL, must have a value".to_string();
    assert_eq!(
        (error(&refused), refused.sent.len()),
        ((status::MALFORMED, why), 0)
    );
    assert_eq!(host.state(), before);
    send(&host, &mut sql, "t7", 2, &reading("t7", 1, 1.0));
    let before = host.state();
    let again = send(&host, &mut sql, "t7", 3, &reading("t7", 2, 1.0));
    assert_eq!(
        error(&again),
        (
            status::REFUSED,
            "table latest: already has a row with this primary key".into()
        )
    );
    assert_eq!(host.state(), before);
}

#[test]
fn faults_of_the_configuration_are_named() {
    for (name, value, why) in [
        (
            "schema",
            "CREATE TABLE t (a INT PRIMARY KEY)",
            "schema with other statements than",
        ),
        (
            "schema",
            "CREATE TABLE IF NOT EXISTS t (a INT)",
            "no primary key",
        ),
        ("before", "DELETE FROM latest", "must be one SELECT"),
        ("before", "SELECT 1; SELECT 2", "must be one SELECT"),
        ("statements", "SELECT 1", "not an INSERT, UPDATE or DELETE"),
        ("statements", "DELETE FROM x", "table x: does not exist"),
        (
            "statements",
            "DELETE FROM latest WHERE user = ?",
            "must have a name",
        ),
        ("when-ema", "1 +", "syntax"),
        ("when-ema", "1 2", "after an expression"),
        ("when-spike", "user = 'x'", "columns without a table"),
        ("let-late", ":row", "late: needs itself"),
        ("let-late", ":late = 1", "late: needs itself"),
        ("allow", "anything", "anything"),
        ("scope", "user", "user"),
        ("to", "nowhere", "nowhere"),
    ] {
        let host = host("read").config(name, value);
        let _host = match value {
            ":row" => host.config("let-row", ":late"),
            _ => host,
        };
        let error = format!("{:?}", Sql::init().expect_err(value));
        assert!(error.contains(why), "{name}: {value}: {error}");
    }
}

/// Random bytes, damaged records, and statements built at random.
#[test]
fn no_payload_does_harm() {
    let texts = [
        "SELECT * FROM latest WHERE passed >= :time ORDER BY time DESC LIMIT 3",
        "UPDATE readings SET temperature = temperature + :time WHERE time < 9000",
        "DELETE FROM latest WHERE row_count % 2 = :time",
        "INSERT OR REPLACE INTO latest VALUES (:user, :time, 1, 2, 3)",
        "SELECT user, count(*), sum(temperature) FROM readings GROUP BY user HAVING count(*) > 1",
        "SELECT a.time FROM latest a JOIN readings b ON a.time = b.time WHERE a.user = :user",
        "CREATE TABLE IF NOT EXISTS t (a INT, b TEXT, PRIMARY KEY (b, a))",
        "CREATE INDEX IF NOT EXISTS i ON readings (temperature, time)",
        "DROP INDEX IF EXISTS i",
        "DROP TABLE IF EXISTS t",
        "INSERT INTO t VALUES (:time, :user)",
    ];
    let mut good: Vec<_> = (0..4)
        .map(|n| reading(["t1", "t2"][n % 2], n as i64, 17.0 + n as f64))
        .collect();
    good.extend(texts.map(|text| {
        record(&[
            ("user", Value::Text("t1")),
            ("time", Value::Int(1)),
            ("sql", Value::Text(text)),
        ])
    }));
    for (allow, has_scope) in [("read", true), ("write", true), ("write", false)] {
        let host = if has_scope {
            host(allow)
        } else {
            host_without_scope(allow)
        };
        let mut sql = Sql::init().unwrap();
        let counts = fuzz(&host, &mut sql, 5, 7000, &good);
        println!("allow {allow}, scope {has_scope}: {counts:?}");
        assert!(counts.iter().all(|count| *count > 300), "{counts:?}");
    }
}
