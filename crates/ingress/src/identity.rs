//! Identity of a request with an idempotency key: a function of the key and of what is asked, so
//! that every node, and every process of a node, gives a repeat the same one.

use e3_model::{AppId, RequestId};
use sha2::{Digest, Sha256};

/// The identity. Its `client` stands for the idempotency key, its `seq` for routing key and payload:
/// the shard that has one `client` with two `seq` knows that a key was used twice.
pub fn keyed(app: AppId, idempotency_key: &[u8], key: &[u8], payload: &[u8]) -> RequestId {
    RequestId {
        client: digest(&[b"idempotency key", &app.0.to_be_bytes(), idempotency_key]),
        // Numbers begin with 1.
        seq: digest(&[b"request", key, payload]).max(1),
    }
}

/// First bytes of the SHA-256 of some parts, each behind its length.
fn digest(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let bytes = hash.finalize();
    u64::from_be_bytes(bytes[..8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_tells_keys_applications_and_contents_apart() {
        let first = keyed(AppId(1), b"order-1", b"alice", b"pay");
        assert_eq!(first, keyed(AppId(1), b"order-1", b"alice", b"pay"));
        assert_ne!(
            first.client,
            keyed(AppId(2), b"order-1", b"alice", b"pay").client
        );
        assert_ne!(
            first.client,
            keyed(AppId(1), b"order-2", b"alice", b"pay").client
        );
        for (key, payload) in [
            ("alice", "pa"),
            ("alic", "epay"),
            ("alicep", "ay"),
            ("bob", "pay"),
        ] {
            let other = keyed(AppId(1), b"order-1", key.as_bytes(), payload.as_bytes());
            assert_eq!(first.client, other.client);
            assert_ne!(first.seq, other.seq, "{key} {payload}");
        }
    }
}
