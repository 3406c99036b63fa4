//! Records: CBOR maps (RFC 8949), as services take and give them.

use serde::Serialize;

/// Writes a record.
pub fn record(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    // a vector takes whatever is written to it
    let written = ciborium::into_writer(value, &mut bytes);
    debug_assert!(written.is_ok());
    bytes
}
