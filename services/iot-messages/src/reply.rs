//! What the services answer: a status beside the payload, and the payload.

use alloc::string::String;
use alloc::vec::Vec;

use crate::DecodeError;
use crate::codec::{Reader, Value, bound, cut, put_text};
use crate::limits::{COLUMNS_MAX, FAULT_BYTES_MAX, REPLY_BYTES_MAX, SPIKES_MAX, TEXT_BYTES_MAX};

/// Status codes of the replies. 0 is success; the payload of the others is a text in UTF-8.
pub mod status {
    /// The request did what it asks for.
    pub const OK: u32 = 0;
    /// The token is forged, expired or for another thermostat.
    pub const UNAUTHORIZED: u32 = 1;
    /// The thermostat sends faster than it may; the payload says when to try again.
    pub const RATE_LIMITED: u32 = 2;
    /// The message cannot be read or has a value out of range.
    pub const MALFORMED: u32 = 3;
    /// The SQL text cannot be run.
    pub const SQL: u32 = 4;
    /// There is nothing of that thermostat yet.
    pub const NOT_FOUND: u32 = 5;
}

/// One spike that was detected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// When the reading was taken, in seconds since the Unix epoch.
    pub reading_time_s: i64,
    /// The reading.
    pub temperature_c: f64,
    /// Its Z-score.
    pub z: f64,
}

/// The comfort programme that suits a thermostat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recommendation {
    /// Index of the programme.
    pub programme: u16,
    /// Its set-point.
    pub set_point_c: f64,
    /// First hour of the day (UTC) of its six hours: 0, 6, 12 or 18.
    pub hour: u8,
    /// The predicted rating, 0..=10.
    pub rating: f64,
}

/// A decoded reply of any service of the application.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// An update is stored.
    Stored {
        /// 1 for the thermostat's first row, 2 for its second and so on.
        row_id: u64,
    },
    /// The result of a SELECT.
    Rows {
        /// Names of the columns.
        columns: Vec<String>,
        /// Rows, each with as many values as there are columns.
        rows: Vec<Vec<Value>>,
        /// True if rows were left out because the reply was full: ask again from the last one.
        more: bool,
    },
    /// Detected spikes, by time.
    Spikes {
        /// The spikes.
        spikes: Vec<Spike>,
        /// True if there are more: ask again from the last one's time.
        more: bool,
    },
    /// The exponential moving average.
    Ema {
        /// The average.
        average_c: f64,
        /// Time of the last reading that entered it, in seconds since the Unix epoch.
        updated_s: i64,
        /// Readings that entered it.
        samples: u64,
    },
    /// The recommendation.
    Recommendation(Recommendation),
    /// `status::UNAUTHORIZED` with its reason.
    Unauthorized(String),
    /// `status::RATE_LIMITED` with its reason.
    RateLimited(String),
    /// `status::MALFORMED` with its reason.
    Malformed(String),
    /// `status::SQL` with its reason.
    Sql(String),
    /// `status::NOT_FOUND` with its reason.
    NotFound(String),
}

const STORED: u8 = 0x41;
const ROWS: u8 = 0x42;
const SPIKES: u8 = 0x43;
const EMA: u8 = 0x44;
const RECOMMENDATION: u8 = 0x45;

impl Reply {
    /// The status that goes with the reply.
    pub fn status(&self) -> u32 {
        match self {
            Self::Unauthorized(_) => status::UNAUTHORIZED,
            Self::RateLimited(_) => status::RATE_LIMITED,
            Self::Malformed(_) => status::MALFORMED,
            Self::Sql(_) => status::SQL,
            Self::NotFound(_) => status::NOT_FOUND,
            _ => status::OK,
        }
    }

    /// Appends the payload to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Stored { row_id } => {
                out.push(STORED);
                out.extend_from_slice(&row_id.to_le_bytes());
            }
            Self::Rows {
                columns,
                rows,
                more,
            } => {
                let mut writer = RowsWriter::new(out, columns);
                let fitted = rows.iter().all(|row| writer.row(row));
                writer.finish(*more || !fitted);
            }
            Self::Spikes { spikes, more } => {
                let fit = spikes.len().min(SPIKES_MAX);
                out.push(SPIKES);
                out.push(u8::from(*more || fit < spikes.len()));
                out.extend_from_slice(&(fit as u32).to_le_bytes());
                for spike in &spikes[..fit] {
                    out.extend_from_slice(&spike.reading_time_s.to_le_bytes());
                    out.extend_from_slice(&spike.temperature_c.to_le_bytes());
                    out.extend_from_slice(&spike.z.to_le_bytes());
                }
            }
            Self::Ema {
                average_c,
                updated_s,
                samples,
            } => {
                out.push(EMA);
                out.extend_from_slice(&average_c.to_le_bytes());
                out.extend_from_slice(&updated_s.to_le_bytes());
                out.extend_from_slice(&samples.to_le_bytes());
            }
            Self::Recommendation(recommendation) => {
                out.push(RECOMMENDATION);
                out.extend_from_slice(&recommendation.programme.to_le_bytes());
                out.extend_from_slice(&recommendation.set_point_c.to_le_bytes());
                out.push(recommendation.hour);
                out.extend_from_slice(&recommendation.rating.to_le_bytes());
            }
            Self::Unauthorized(fault)
            | Self::RateLimited(fault)
            | Self::Malformed(fault)
            | Self::Sql(fault)
            | Self::NotFound(fault) => {
                out.extend_from_slice(cut(fault, FAULT_BYTES_MAX).as_bytes());
            }
        }
    }

    /// Reads a reply's status and payload.
    pub fn decode(status: u32, payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        if status != status::OK {
            let fault = String::from(reader.rest_as_text(FAULT_BYTES_MAX, "fault")?);
            return match status {
                status::UNAUTHORIZED => Ok(Self::Unauthorized(fault)),
                status::RATE_LIMITED => Ok(Self::RateLimited(fault)),
                status::MALFORMED => Ok(Self::Malformed(fault)),
                status::SQL => Ok(Self::Sql(fault)),
                status::NOT_FOUND => Ok(Self::NotFound(fault)),
                status => Err(DecodeError::UnknownStatus { status }),
            };
        }
        let reply = match reader.u8("kind")? {
            STORED => Self::Stored {
                row_id: reader.u64("row id")?,
            },
            ROWS => decode_rows(&mut reader)?,
            SPIKES => decode_spikes(&mut reader)?,
            EMA => Self::Ema {
                average_c: reader.f64("average")?,
                updated_s: reader.i64("updated")?,
                samples: reader.u64("samples")?,
            },
            RECOMMENDATION => Self::Recommendation(Recommendation {
                programme: reader.u16("programme")?,
                set_point_c: reader.f64("set-point")?,
                hour: reader.u8("hour")?,
                rating: reader.f64("rating")?,
            }),
            kind => {
                return Err(DecodeError::UnknownKind {
                    field: "reply",
                    kind,
                });
            }
        };
        reader.end(reply)
    }
}

fn decode_rows(reader: &mut Reader<'_>) -> Result<Reply, DecodeError> {
    let more = reader.u8("more")? != 0;
    let row_count = reader.u32("rows")? as usize;
    let column_count = usize::from(reader.u8("columns")?);
    bound(column_count, COLUMNS_MAX, "columns")?;
    // A row has at least a byte for each column; without columns there are no rows.
    bound(
        row_count.saturating_mul(column_count.max(1)),
        REPLY_BYTES_MAX,
        "rows",
    )?;
    let columns = (0..column_count)
        .map(|_| reader.text(TEXT_BYTES_MAX, "column").map(String::from))
        .collect::<Result<_, _>>()?;
    let rows = (0..row_count)
        .map(|_| (0..column_count).map(|_| Value::decode(reader)).collect())
        .collect::<Result<_, _>>()?;
    Ok(Reply::Rows {
        columns,
        rows,
        more,
    })
}

fn decode_spikes(reader: &mut Reader<'_>) -> Result<Reply, DecodeError> {
    let more = reader.u8("more")? != 0;
    let count = reader.u32("spikes")? as usize;
    bound(count, SPIKES_MAX, "spikes")?;
    let spikes = (0..count)
        .map(|_| {
            Ok(Spike {
                reading_time_s: reader.i64("reading time")?,
                temperature_c: reader.f64("temperature")?,
                z: reader.f64("z")?,
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(Reply::Spikes { spikes, more })
}

/// Writes a `Rows` payload row by row, as long as it fits in a reply.
pub struct RowsWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    rows: u32,
    columns: usize,
}

impl<'a> RowsWriter<'a> {
    /// Starts the payload at the end of `out` with the names of the columns (at most
    /// [`COLUMNS_MAX`]; the rest is cut).
    pub fn new<S: AsRef<str>>(out: &'a mut Vec<u8>, columns: &[S]) -> Self {
        let start = out.len();
        let columns = &columns[..columns.len().min(COLUMNS_MAX)];
        out.push(ROWS);
        out.extend_from_slice(&[0; 5]);
        out.push(columns.len() as u8);
        for column in columns {
            // A column's name may be a whole expression; it is for people, so it may be cut.
            put_text(out, column.as_ref(), 64);
        }
        Self {
            out,
            start,
            rows: 0,
            columns: columns.len(),
        }
    }

    /// Appends one row of as many values as there are columns; false if the reply is full.
    pub fn row(&mut self, values: &[Value]) -> bool {
        let values = &values[..values.len().min(self.columns)];
        let len: usize = values.iter().map(Value::encoded_len).sum();
        if self.out.len() - self.start + len > REPLY_BYTES_MAX {
            return false;
        }
        for value in values {
            value.encode(self.out);
        }
        for _ in values.len()..self.columns {
            Value::Null.encode(self.out);
        }
        self.rows += 1;
        true
    }

    /// Ends the payload; `more` tells that rows were left out.
    pub fn finish(self, more: bool) {
        self.out[self.start + 1] = u8::from(more);
        self.out[self.start + 2..self.start + 6].copy_from_slice(&self.rows.to_le_bytes());
    }
}
