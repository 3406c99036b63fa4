//! Every message survives its encoding; damaged ones are refused, never panicked on.

use e3_iot_messages::{
    AnalysisMessage, ClientMessage, DecodeError, Query, Reading, Recommendation, Reply, Spike,
    SqlMessage, Token, TokenError, Value, limits, status,
};

const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

fn reading() -> Reading {
    Reading {
        thermostat: 7,
        reading_time_s: 1_262_304_000,
        temperature_c: 8.5,
    }
}

fn queries() -> Vec<Query<'static>> {
    vec![
        Query::Sql {
            text: "SELECT count(*) FROM readings WHERE thermostat = ?",
            parameters: vec![
                Value::Integer(7),
                Value::Real(0.5),
                Value::Null,
                Value::Text("ü".into()),
            ],
        },
        Query::Spikes { from_time_s: -1 },
        Query::Ema,
        Query::Recommendation,
    ]
}

fn client_messages() -> Vec<ClientMessage<'static>> {
    let token = Token::mint(KEY, 7, 100);
    let mut messages = vec![ClientMessage::Update {
        token,
        reading: reading(),
    }];
    messages.extend(
        queries()
            .into_iter()
            .map(|query| ClientMessage::Query { token, query }),
    );
    messages
}

fn sql_messages() -> Vec<SqlMessage<'static>> {
    let mut messages = vec![SqlMessage::Store(reading())];
    messages.extend(queries().into_iter().map(|query| SqlMessage::Query {
        thermostat: 7,
        query,
    }));
    messages
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Stored { row_id: 3 },
        Reply::Rows {
            columns: vec!["thermostat".into(), "count(*)".into()],
            rows: vec![
                vec![Value::Integer(7), Value::Integer(12)],
                vec![Value::Null, Value::Text("x".into())],
            ],
            more: true,
        },
        Reply::Spikes {
            spikes: vec![Spike {
                reading_time_s: 1,
                temperature_c: 30.0,
                z: 9.25,
            }],
            more: false,
        },
        Reply::Ema {
            average_c: 11.25,
            updated_s: 5,
            samples: 9,
        },
        Reply::Recommendation(Recommendation {
            programme: 3,
            set_point_c: 19.5,
            hour: 12,
            rating: 8.25,
        }),
        Reply::Unauthorized("a".into()),
        Reply::RateLimited("b".into()),
        Reply::Malformed("c".into()),
        Reply::Sql("d".into()),
        Reply::NotFound("e".into()),
    ]
}

fn encoded(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[test]
fn messages_survive_their_encoding() {
    for message in client_messages() {
        let bytes = encoded(|out| message.encode(out));
        assert_eq!(ClientMessage::decode(&bytes), Ok(message));
    }
    for message in sql_messages() {
        let bytes = encoded(|out| message.encode(out));
        assert_eq!(SqlMessage::decode(&bytes), Ok(message));
    }
    for message in [
        AnalysisMessage::Reading(reading()),
        AnalysisMessage::Query {
            thermostat: 7,
            from_time_s: 3,
        },
    ] {
        let bytes = encoded(|out| message.encode(out));
        assert_eq!(AnalysisMessage::decode(&bytes), Ok(message));
    }
    for reply in replies() {
        let bytes = encoded(|out| reply.encode(out));
        assert_eq!(Reply::decode(reply.status(), &bytes), Ok(reply));
    }
}

#[test]
fn every_truncation_and_every_extra_byte_is_refused() {
    for message in client_messages() {
        let mut bytes = encoded(|out| message.encode(out));
        for len in 0..bytes.len() {
            assert!(
                ClientMessage::decode(&bytes[..len]).is_err(),
                "{len} of {message:?}"
            );
        }
        bytes.push(0);
        assert_eq!(
            ClientMessage::decode(&bytes),
            Err(DecodeError::Trailing { extra: 1 })
        );
    }
}

/// Flips every bit, and feeds pseudo-random bytes: a decoder may say anything but may not panic.
#[test]
fn decoders_are_total() {
    let feed = |bytes: &[u8]| {
        let _ = ClientMessage::decode(bytes);
        let _ = SqlMessage::decode(bytes);
        let _ = AnalysisMessage::decode(bytes);
        for status in 0..8 {
            let _ = Reply::decode(status, bytes);
        }
    };
    let mut samples: Vec<Vec<u8>> = Vec::new();
    samples.extend(
        client_messages()
            .iter()
            .map(|m| encoded(|out| m.encode(out))),
    );
    samples.extend(sql_messages().iter().map(|m| encoded(|out| m.encode(out))));
    samples.extend(replies().iter().map(|m| encoded(|out| m.encode(out))));
    for sample in &mut samples {
        for bit in 0..sample.len() * 8 {
            sample[bit / 8] ^= 1 << (bit % 8);
            feed(sample);
            sample[bit / 8] ^= 1 << (bit % 8);
        }
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..20_000_usize {
        let bytes: Vec<u8> = (0..round % 97)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        feed(&bytes);
    }
}

#[test]
fn a_temperature_out_of_range_is_refused() {
    for temperature_c in [f64::NAN, f64::INFINITY, 100.5, -1e300] {
        let message = SqlMessage::Store(Reading {
            temperature_c,
            ..reading()
        });
        let bytes = encoded(|out| message.encode(out));
        assert!(SqlMessage::decode(&bytes).is_err(), "{temperature_c}");
    }
}

#[test]
fn rows_beyond_a_reply_are_left_out_and_said_so() {
    let reply = Reply::Rows {
        columns: vec!["a".into()],
        rows: vec![vec![Value::Integer(1)]; 10_000],
        more: false,
    };
    let bytes = encoded(|out| reply.encode(out));
    assert!(bytes.len() <= limits::REPLY_BYTES_MAX);
    let Ok(Reply::Rows { rows, more, .. }) = Reply::decode(status::OK, &bytes) else {
        panic!("not rows");
    };
    assert!(more);
    assert!(rows.len() > 3_000);
}

#[test]
fn a_token_holds_for_its_key_its_thermostat_and_its_time() {
    let token = Token::mint(KEY, 7, 100);
    assert_eq!(token.verify(KEY, 99), Ok(()));
    assert_eq!(
        token.verify(KEY, 100),
        Err(TokenError::Expired { expires_s: 100 })
    );
    assert_eq!(token.verify(b"another key", 99), Err(TokenError::Forged));
    let other = Token {
        thermostat: 8,
        ..token
    };
    assert_eq!(other.verify(KEY, 99), Err(TokenError::Forged));
    let longer = Token {
        expires_s: 101,
        ..token
    };
    assert_eq!(longer.verify(KEY, 99), Err(TokenError::Forged));
}
