//! A call of a service and its answer. Neither is a message of a channel: what is lost is asked again.

use crate::codec::{Reader, WireError, Write};
use crate::limits::REASON_LEN_MAX;
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_model::{AppId, RequestId, ServiceId, Timestamp};

/// Bytes of a call beside key and payload, with the kind of its frame.
pub const HEADER_LEN: usize = 1 + 8 + 2 + 2 + 16 + 8 + 8 + 2 + 4;

/// A handler asks the shard of a service that owns a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call<'a> {
    /// Names the call at the process that asks; the answer returns it.
    pub token: u64,
    /// Application.
    pub app: AppId,
    /// The service that is called.
    pub service: ServiceId,
    /// The request that the calling handler works on.
    pub request: RequestId,
    /// The calling handler's clock.
    pub sent: Timestamp,
    /// When nobody waits for the answer any more.
    pub deadline: Timestamp,
    /// Routing key.
    pub key: &'a [u8],
    /// Content.
    pub payload: &'a [u8],
}

/// The answer to a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallAnswer<'a> {
    /// From the call.
    pub token: u64,
    /// What came of it.
    pub result: CallResult<'a>,
}

/// What came of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallResult<'a> {
    /// The called handler replied.
    Replied {
        /// 0 = ok, 1.. = errors of the application.
        status: u32,
        /// Payload.
        payload: &'a [u8],
    },
    /// The called handler failed. The text says why.
    Failed(&'a str),
}

impl<'a> Call<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.token);
        out.put_u16(self.app.0);
        out.put_u16(self.service.0);
        out.put_u64(self.request.client);
        out.put_u64(self.request.seq);
        out.put_u64(self.sent.0);
        out.put_u64(self.deadline.0);
        out.put_short(self.key);
        out.put_long(self.payload);
    }

    pub(crate) fn encoded_len(&self) -> usize {
        HEADER_LEN - 1 + self.key.len() + self.payload.len()
    }

    pub(crate) fn decode(r: &mut Reader<'a>) -> Result<Call<'a>, WireError> {
        Ok(Call {
            token: r.u64()?,
            app: AppId(r.u16()?),
            service: ServiceId(r.u16()?),
            request: RequestId {
                client: r.u64()?,
                seq: r.u64()?,
            },
            sent: Timestamp(r.u64()?),
            deadline: Timestamp(r.u64()?),
            key: r.short_bytes("key", KEY_LEN_MAX)?,
            payload: r.long_bytes("payload", PAYLOAD_LEN_MAX)?,
        })
    }
}

impl<'a> CallAnswer<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.token);
        match &self.result {
            CallResult::Replied { status, payload } => {
                out.put_u8(0);
                out.put_u32(*status);
                out.put_long(payload);
            }
            CallResult::Failed(reason) => {
                out.put_u8(1);
                out.put_short(reason.as_bytes());
            }
        }
    }

    pub(crate) fn encoded_len(&self) -> usize {
        9 + match &self.result {
            CallResult::Replied { payload, .. } => 8 + payload.len(),
            CallResult::Failed(reason) => 2 + reason.len(),
        }
    }

    pub(crate) fn decode(r: &mut Reader<'a>) -> Result<CallAnswer<'a>, WireError> {
        let token = r.u64()?;
        let result = match r.u8()? {
            0 => CallResult::Replied {
                status: r.u32()?,
                payload: r.long_bytes("payload", PAYLOAD_LEN_MAX)?,
            },
            1 => {
                let reason = str::from_utf8(r.short_bytes("reason", REASON_LEN_MAX)?);
                CallResult::Failed(reason.map_err(|_| WireError::Text("reason"))?)
            }
            other => {
                return Err(WireError::Unknown {
                    what: "answer to a call",
                    value: other.into(),
                });
            }
        };
        Ok(CallAnswer { token, result })
    }
}
