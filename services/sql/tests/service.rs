//! The service: rows, triggers, questions, faults.

use e3_iot_messages::{
    AnalysisMessage, Query, Reading, Reply, SqlMessage, Value, routing_key, status,
};
use e3_sdk::testing::{Call, Host, Kind, Outcome};
use e3_sdk::{RequestId, Service};
use e3_service_sql::Sql;

fn host() -> Host {
    Host::new()
        .channel("ema")
        .channel("spike")
        .channel("recommend")
        .collection("tables", Kind::Ordered)
}

fn send(host: &Host, sql: &mut Sql, sequence: u64, message: &SqlMessage<'_>) -> Outcome {
    let mut payload = Vec::new();
    message.encode(&mut payload);
    let id = RequestId {
        client: u64::MAX,
        sequence,
    };
    host.call(
        sql,
        &Call {
            id,
            payload,
            ..Call::default()
        },
    )
}

fn reading(thermostat: u32, hour: i64, temperature_c: f64) -> SqlMessage<'static> {
    SqlMessage::Store(Reading {
        thermostat,
        reading_time_s: hour * 3600,
        temperature_c,
    })
}

fn answer(outcome: &Outcome) -> Reply {
    assert_eq!((&outcome.result, outcome.replies.len()), (&Ok(()), 1));
    Reply::decode(outcome.replies[0].0, &outcome.replies[0].1).unwrap()
}

fn triggered(outcome: &Outcome) -> Vec<&str> {
    let channels = outcome.sent.iter().map(|sent| sent.channel.as_str());
    channels.collect()
}

#[test]
fn stores_a_row_for_each_update_and_triggers_on_thresholds() {
    let host = host();
    let mut sql = Sql::init().unwrap();
    let steps: [(i64, f64, u64, &[&str]); 7] = [
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
    for (sequence, (hour, temperature_c, row_id, channels)) in steps.into_iter().enumerate() {
        if sequence == 4 {
            // Instance memory may vanish at any time.
            sql = Sql::init().unwrap();
        }
        let message = reading(7, hour, temperature_c);
        let outcome = send(&host, &mut sql, sequence as u64, &message);
        assert_eq!(answer(&outcome), Reply::Stored { row_id });
        assert_eq!(triggered(&outcome), channels, "{hour}");
        for sent in &outcome.sent {
            assert_eq!(sent.key, routing_key(7));
            let SqlMessage::Store(reading) = message else {
                unreachable!()
            };
            let got = AnalysisMessage::decode(&sent.payload);
            assert_eq!(got, Ok(AnalysisMessage::Reading(reading)));
        }
    }
}

#[test]
fn a_select_sees_the_rows_of_its_thermostat() {
    let host = host();
    let mut sql = Sql::init().unwrap();
    let ask = |sql: &mut Sql, thermostat, text, parameters: &[Value]| {
        let query = SqlMessage::Query {
            thermostat,
            query: Query::Sql {
                text,
                parameters: parameters.to_vec(),
            },
        };
        answer(&send(&host, sql, 1000, &query))
    };
    let count = "SELECT count(*) FROM readings";
    let rows = |reply: &Reply| match reply {
        Reply::Rows { rows, .. } => rows.clone(),
        other => panic!("no rows: {other:?}"),
    };
    // Before anything is stored.
    let reply = ask(&mut sql, 7, count, &[]);
    assert_eq!(rows(&reply), [[Value::Integer(0)]]);
    for n in 0..30 {
        send(
            &host,
            &mut sql,
            n,
            &reading(7 + n as u32 % 2, n as i64, 12.0),
        );
    }
    let reply = ask(&mut sql, 7, count, &[]);
    assert_eq!(rows(&reply), [[Value::Integer(15)]]);
    // The ledger of the load generator reads identities back.
    let text = "SELECT client, sequence FROM readings WHERE reading_time_s > ? LIMIT 2";
    let reply = ask(&mut sql, 8, text, &[Value::Integer(3 * 3600)]);
    let client = Value::Integer(u64::MAX as i64);
    assert_eq!(
        rows(&reply),
        [
            [client.clone(), Value::Integer(5)],
            [client, Value::Integer(7)]
        ]
    );
    let reply = ask(&mut sql, 7, "SELECT max(row_count) FROM latest", &[]);
    assert_eq!(rows(&reply), [[Value::Integer(15)]]);

    let before = host.state();
    for text in ["DELETE FROM readings", "SELECT nothing FROM readings", "x"] {
        let reply = ask(&mut sql, 7, text, &[]);
        assert_eq!(reply.status(), status::SQL, "{text}: {reply:?}");
    }
    assert_eq!(host.state(), before);
}

#[test]
fn other_questions_go_to_whom_they_concern() {
    let host = host();
    let mut sql = Sql::init().unwrap();
    for (query, channel, from_time_s) in [
        (Query::Spikes { from_time_s: 9 }, "spike", 9),
        (Query::Ema, "ema", 0),
        (Query::Recommendation, "recommend", 0),
    ] {
        let message = SqlMessage::Query {
            thermostat: 7,
            query,
        };
        let outcome = send(&host, &mut sql, 1, &message);
        assert_eq!(triggered(&outcome), [channel]);
        assert_eq!(
            AnalysisMessage::decode(&outcome.sent[0].payload),
            Ok(AnalysisMessage::Query {
                thermostat: 7,
                from_time_s
            })
        );
    }
}

#[test]
fn malformed_messages_change_nothing() {
    let host = host();
    let mut sql = Sql::init().unwrap();
    let before = host.state();
    for payload in [vec![], vec![0x11], vec![0xff; 100]] {
        let call = Call {
            payload,
            ..Call::default()
        };
        let outcome = host.call(&mut sql, &call);
        assert_eq!(answer(&outcome).status(), status::MALFORMED);
    }
    assert_eq!(host.state(), before);
}
