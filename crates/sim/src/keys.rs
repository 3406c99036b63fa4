//! Routing keys of messages.

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
