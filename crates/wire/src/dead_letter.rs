//! A message that was dead-lettered, as entries and answers to readers of dead letters carry it.

use crate::codec::{Reader, WireError, Write};
use crate::limits::REASON_LEN_MAX;
use crate::message::{decode_flag, decode_outcome, decode_topic, encode_topic, topic_len};
use crate::timer;
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_model::outbound::Answer;
use e3_model::topic::Topic;
use e3_model::{Outcome, Timestamp};

/// Bytes of a dead letter and its name beyond reason, key and payload, at most.
pub const HEADER_LEN: usize = 51;

/// A message that was dead-lettered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// When it was dead-lettered, since the Unix epoch.
    pub at: Timestamp,
    /// [`Outcome::Failed`], [`Outcome::Expired`] or [`Outcome::Unknown`].
    pub outcome: Outcome,
    /// Why, in words; at most [`REASON_LEN_MAX`] bytes.
    pub reason: String,
    /// The message's key.
    pub key: Vec<u8>,
    /// The message's payload.
    pub payload: Vec<u8>,
    /// Name of the timer whose request it was; empty if there was none.
    pub timer: String,
    /// The answer to an outbound request, if it brought one: the payload is its content.
    pub answer: Option<Answer>,
    /// The topic of the publication that it brought, if it did.
    pub topic: Option<Box<Topic>>,
}

fn decode_answer(r: &mut Reader<'_>) -> Result<Option<Answer>, WireError> {
    if !decode_flag(r)? {
        return Ok(None);
    }
    Ok(Some(Answer {
        outcome: decode_outcome(r)?,
        status: r.u32()?,
    }))
}

impl DeadLetter {
    /// Bytes that it takes in a datagram of [`crate::client::DeadLetters`], at most.
    pub(crate) fn len_estimate(&self) -> usize {
        let topic = self.topic.as_ref().map_or(0, |topic| topic_len(topic));
        let text = self.reason.len() + self.timer.len() + topic;
        HEADER_LEN + text + self.key.len() + self.payload.len()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.at.0);
        out.put_u8(self.outcome.code());
        out.put_short(self.reason.as_bytes());
        out.put_short(&self.key);
        out.put_long(&self.payload);
        out.put_short(self.timer.as_bytes());
        out.put_u8(u8::from(self.answer.is_some()));
        if let Some(answer) = self.answer {
            out.put_u8(answer.outcome.code());
            out.put_u32(answer.status);
        }
        out.put_u8(u8::from(self.topic.is_some()));
        if let Some(topic) = &self.topic {
            encode_topic(out, topic);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<DeadLetter, WireError> {
        Ok(DeadLetter {
            at: Timestamp(r.u64()?),
            outcome: decode_outcome(r)?,
            reason: str::from_utf8(r.short_bytes("reason", REASON_LEN_MAX)?)
                .map_err(|_| WireError::Text("reason"))?
                .to_owned(),
            key: r.short_bytes("key", KEY_LEN_MAX)?.to_vec(),
            payload: r.long_bytes("payload", PAYLOAD_LEN_MAX)?.to_vec(),
            timer: timer::decode_name(r)?,
            answer: decode_answer(r)?,
            topic: if decode_flag(r)? {
                Some(Box::new(decode_topic(r)?))
            } else {
                None
            },
        })
    }
}
