//! Requests and replies as lines of JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e3_ingress::record::{from_cbor, to_cbor};
use serde::{Deserialize, Serialize};

/// A request. Key and payload as text, as Base64, or the payload as a record, which becomes CBOR.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Line {
    /// Routing key, as text (default: `key`).
    pub key: Option<String>,
    /// The same as Base64.
    pub key_base64: Option<String>,
    /// Content, as text.
    pub text: Option<String>,
    /// The same as Base64.
    pub payload_base64: Option<String>,
    /// The same as a record.
    pub record: Option<serde_json::Value>,
    /// The handler's time, nanoseconds since the Unix epoch; never goes back.
    pub now_ns: Option<u64>,
    /// Edge that it arrives on; none or -1 = from a client.
    pub edge: Option<i32>,
}

impl Line {
    /// Key and payload.
    pub fn content(&self) -> Result<(Vec<u8>, Vec<u8>), String> {
        let decode = |text: &String| STANDARD.decode(text).map_err(|e| e.to_string());
        let key = match (&self.key, &self.key_base64) {
            (Some(key), None) => key.clone().into_bytes(),
            (None, Some(key)) => decode(key)?,
            (None, None) => b"key".to_vec(),
            _ => return Err("give either key or keyBase64, not both".into()),
        };
        let payload = match (&self.text, &self.payload_base64, &self.record) {
            (Some(text), None, None) => text.clone().into_bytes(),
            (None, Some(payload), None) => decode(payload)?,
            (None, None, Some(record)) => to_cbor(record),
            (None, None, None) => Vec::new(),
            _ => return Err("give only one of text, payloadBase64 and record".into()),
        };
        Ok((key, payload))
    }
}

/// Bytes, with their text or record if they hold one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    base64: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<serde_json::Value>,
}

impl Content {
    /// The content of these bytes.
    pub fn of(bytes: &[u8]) -> Content {
        let record = from_cbor(bytes);
        let text = String::from_utf8(bytes.to_vec()).ok();
        Content {
            base64: STANDARD.encode(bytes),
            text: text.filter(|t| record.is_none() && !t.contains('\0')),
            record,
        }
    }
}
