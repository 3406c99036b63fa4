//! What the simulated services and the checks both know: where services count, how payloads begin, and
//! which keys messages have.

/// The collection of bytes written beside the effects.
pub(crate) const FILL: u16 = 1;
/// The collection that counts the timers that fired, and what becomes of outbound requests.
pub(crate) const FIRED: u16 = 2;

/// Bytes of a payload that identify the request; its path follows.
pub(crate) const TAG_LEN: usize = 8;

/// The key of a message that a handler sends on. It differs from step to step, so that the messages
/// of one request reach several shards.
pub(crate) fn key_after(key: &[u8], step: [u8; 2]) -> Vec<u8> {
    if step == [0, 0] {
        return key.to_vec();
    }
    let mut key = key.to_vec();
    key.extend(step);
    key
}
