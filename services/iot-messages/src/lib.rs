//! Messages of the IoT thermostat application, for its services and for its clients.
//!
//! A client sends [`ClientMessage`]s to `apigw`, which passes [`SqlMessage`]s to `sql`, which
//! passes [`AnalysisMessage`]s to `ema`, `spike` and `recommend`. A [`Reply`] comes back with a
//! status. The first byte of a message is its kind, numbers are little endian, decoders are
//! total: any bytes give a message or a [`DecodeError`]. All messages of a thermostat are routed
//! by its id ([`routing_key`]). `docs/services-iot-ts.md` has the flow.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod codec;
pub mod limits;
mod reply;
mod token;

use alloc::vec::Vec;
use core::fmt;

use codec::{Reader, bound, put_text};
use limits::{SQL_PARAMETERS_MAX, SQL_TEXT_BYTES_MAX, TEMPERATURE_C_MAX, TEMPERATURE_C_MIN};

pub use codec::Value;
pub use reply::{Recommendation, Reply, RowsWriter, Spike, status};
pub use token::{TOKEN_BYTES, Token, TokenError, TokenKey};

/// The key that all messages of a thermostat are routed by: its id, big endian.
pub fn routing_key(thermostat: u32) -> [u8; 4] {
    thermostat.to_be_bytes()
}

/// One reading of one thermostat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Whose reading it is.
    pub thermostat: u32,
    /// When it was taken, in seconds since the Unix epoch.
    pub reading_time_s: i64,
    /// What it is, within `limits::TEMPERATURE_C_MIN..=TEMPERATURE_C_MAX`.
    pub temperature_c: f64,
}

/// What a client may ask about its thermostat.
#[derive(Clone, Debug, PartialEq)]
pub enum Query<'a> {
    /// Run a SELECT over the thermostat's own rows; answered by [`Reply::Rows`].
    Sql {
        /// One SELECT statement, `?` for each parameter.
        text: &'a str,
        /// Values of the parameters, in order.
        parameters: Vec<Value>,
    },
    /// The detected spikes from a time on; answered by [`Reply::Spikes`].
    Spikes {
        /// First reading time of interest, in seconds since the Unix epoch.
        from_time_s: i64,
    },
    /// The moving average; answered by [`Reply::Ema`].
    Ema,
    /// The recommended programme; answered by [`Reply::Recommendation`].
    Recommendation,
}

/// What a client sends to `apigw`.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientMessage<'a> {
    /// A new reading; answered by [`Reply::Stored`].
    Update {
        /// Proof that the sender may speak for the thermostat.
        token: Token,
        /// The reading.
        reading: Reading,
    },
    /// A question about the token's thermostat.
    Query {
        /// Proof that the sender may speak for the thermostat.
        token: Token,
        /// The question.
        query: Query<'a>,
    },
}

/// What `apigw` sends to `sql`: authenticated and within the rate.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlMessage<'a> {
    /// Store a reading.
    Store(Reading),
    /// Answer a question, or pass it on to whom it concerns.
    Query {
        /// The thermostat asked about.
        thermostat: u32,
        /// The question.
        query: Query<'a>,
    },
}

/// What `sql` sends to `ema`, `spike` and `recommend`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnalysisMessage {
    /// A reading that passed the threshold of the service concerned; not answered.
    Reading(Reading),
    /// A question; answered to the client.
    Query {
        /// The thermostat asked about.
        thermostat: u32,
        /// Where to begin, for questions about a series; otherwise 0.
        from_time_s: i64,
    },
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The message ends within a field.
    Short {
        /// The field.
        field: &'static str,
        /// Bytes that the field needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// Bytes follow the last field.
    Trailing {
        /// How many.
        extra: usize,
    },
    /// A kind that this version does not know.
    UnknownKind {
        /// The field.
        field: &'static str,
        /// The kind.
        kind: u8,
    },
    /// A status that this version does not know.
    UnknownStatus {
        /// The status.
        status: u32,
    },
    /// NaN or an infinity.
    NotFinite {
        /// The field.
        field: &'static str,
    },
    /// A text that is not UTF-8.
    NotUtf8 {
        /// The field.
        field: &'static str,
    },
    /// A length or count beyond its bound.
    TooLarge {
        /// The field.
        field: &'static str,
        /// The value.
        value: usize,
        /// The bound.
        max: usize,
    },
    /// A temperature that no thermostat reads.
    Temperature {
        /// The value in thousandths of a degree, saturated.
        millidegrees_c: i64,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short {
                field,
                needed,
                left,
            } => write!(f, "{field}: needs {needed} bytes, {left} are left"),
            Self::Trailing { extra } => write!(f, "message: {extra} bytes too many"),
            Self::UnknownKind { field, kind } => write!(f, "{field}: unknown kind {kind}"),
            Self::UnknownStatus { status } => write!(f, "reply: unknown status {status}"),
            Self::NotFinite { field } => write!(f, "{field}: is not a finite number"),
            Self::NotUtf8 { field } => write!(f, "{field}: is not UTF-8"),
            Self::TooLarge { field, value, max } => {
                write!(f, "{field}: is {value}, must be at most {max}")
            }
            Self::Temperature { millidegrees_c } => write!(
                f,
                "temperature: is {millidegrees_c} millidegrees Celsius, must be {TEMPERATURE_C_MIN}..={TEMPERATURE_C_MAX} degrees"
            ),
        }
    }
}

impl core::error::Error for DecodeError {}

const UPDATE: u8 = 0x01;
const QUERY: u8 = 0x02;
const STORE: u8 = 0x11;
const SQL_QUERY: u8 = 0x12;
const ANALYSE: u8 = 0x21;
const ANALYSIS_QUERY: u8 = 0x22;

impl Reading {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.thermostat.to_le_bytes());
        out.extend_from_slice(&self.reading_time_s.to_le_bytes());
        out.extend_from_slice(&self.temperature_c.to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let thermostat = reader.u32("thermostat")?;
        let reading_time_s = reader.i64("reading time")?;
        let temperature_c = reader.f64("temperature")?;
        if !(TEMPERATURE_C_MIN..=TEMPERATURE_C_MAX).contains(&temperature_c) {
            return Err(DecodeError::Temperature {
                millidegrees_c: (temperature_c * 1000.0) as i64,
            });
        }
        Ok(Self {
            thermostat,
            reading_time_s,
            temperature_c,
        })
    }
}

impl<'a> Query<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sql { text, parameters } => {
                out.push(1);
                put_text(out, text, SQL_TEXT_BYTES_MAX);
                let fit = parameters.len().min(SQL_PARAMETERS_MAX);
                out.push(fit as u8);
                for parameter in &parameters[..fit] {
                    parameter.encode(out);
                }
            }
            Self::Spikes { from_time_s } => {
                out.push(2);
                out.extend_from_slice(&from_time_s.to_le_bytes());
            }
            Self::Ema => out.push(3),
            Self::Recommendation => out.push(4),
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match reader.u8("query")? {
            1 => {
                let text = reader.text(SQL_TEXT_BYTES_MAX, "sql")?;
                let count = usize::from(reader.u8("parameters")?);
                bound(count, SQL_PARAMETERS_MAX, "parameters")?;
                let parameters = (0..count)
                    .map(|_| Value::decode(reader))
                    .collect::<Result<_, _>>()?;
                Ok(Self::Sql { text, parameters })
            }
            2 => Ok(Self::Spikes {
                from_time_s: reader.i64("from time")?,
            }),
            3 => Ok(Self::Ema),
            4 => Ok(Self::Recommendation),
            kind => Err(DecodeError::UnknownKind {
                field: "query",
                kind,
            }),
        }
    }
}

impl<'a> ClientMessage<'a> {
    /// Appends the message to `out`. Texts and parameters beyond the limits are cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Update { token, reading } => {
                out.push(UPDATE);
                token.encode(out);
                reading.encode(out);
            }
            Self::Query { token, query } => {
                out.push(QUERY);
                token.encode(out);
                query.encode(out);
            }
        }
    }

    /// Reads a message.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8("kind")? {
            UPDATE => Self::Update {
                token: Token::decode(&mut reader)?,
                reading: Reading::decode(&mut reader)?,
            },
            QUERY => Self::Query {
                token: Token::decode(&mut reader)?,
                query: Query::decode(&mut reader)?,
            },
            kind => {
                return Err(DecodeError::UnknownKind {
                    field: "kind",
                    kind,
                });
            }
        };
        reader.end(message)
    }
}

impl<'a> SqlMessage<'a> {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Store(reading) => {
                out.push(STORE);
                reading.encode(out);
            }
            Self::Query { thermostat, query } => {
                out.push(SQL_QUERY);
                out.extend_from_slice(&thermostat.to_le_bytes());
                query.encode(out);
            }
        }
    }

    /// Reads a message.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8("kind")? {
            STORE => Self::Store(Reading::decode(&mut reader)?),
            SQL_QUERY => Self::Query {
                thermostat: reader.u32("thermostat")?,
                query: Query::decode(&mut reader)?,
            },
            kind => {
                return Err(DecodeError::UnknownKind {
                    field: "kind",
                    kind,
                });
            }
        };
        reader.end(message)
    }
}

impl AnalysisMessage {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Reading(reading) => {
                out.push(ANALYSE);
                reading.encode(out);
            }
            Self::Query {
                thermostat,
                from_time_s,
            } => {
                out.push(ANALYSIS_QUERY);
                out.extend_from_slice(&thermostat.to_le_bytes());
                out.extend_from_slice(&from_time_s.to_le_bytes());
            }
        }
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8("kind")? {
            ANALYSE => Self::Reading(Reading::decode(&mut reader)?),
            ANALYSIS_QUERY => Self::Query {
                thermostat: reader.u32("thermostat")?,
                from_time_s: reader.i64("from time")?,
            },
            kind => {
                return Err(DecodeError::UnknownKind {
                    field: "kind",
                    kind,
                });
            }
        };
        reader.end(message)
    }
}
