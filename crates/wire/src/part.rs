//! The state of a shard in a backup: items of a replication stream, each behind its length.
//!
//! They are what a joining backup would get: a snapshot, and the entries up to the cut.
//! docs/design/017.

use crate::codec::WireError;
use crate::limits::BODY_LEN_MAX;

/// Appends an item, an encoded [`crate::replicated::Replicated`].
pub fn put_item(out: &mut Vec<u8>, item: &[u8]) {
    let len = u32::try_from(item.len()).expect("an item fits a frame");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(item);
}

/// The checksum of bytes behind others that have this one; zero for none.
pub fn checksum(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

/// Reads items from bytes that come in chunks.
#[derive(Debug, Default)]
pub struct Items {
    /// What came and is no whole item yet.
    rest: Vec<u8>,
}

impl Items {
    /// Takes the next bytes, and gives every item that they complete.
    pub fn take<E: From<WireError>>(
        &mut self,
        bytes: &[u8],
        mut item: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.rest.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((len, rest)) = self.rest[at..].split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize;
            if len > BODY_LEN_MAX {
                let (what, max) = ("item", BODY_LEN_MAX);
                return Err(WireError::TooLong { what, len, max }.into());
            }
            let Some(bytes) = rest.get(..len) else { break };
            item(bytes)?;
            at += 4 + len;
        }
        self.rest.drain(..at);
        Ok(())
    }

    /// Whether the last item is whole.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_the_same_in_chunks_of_any_length() {
        let items: Vec<Vec<u8>> = (0..20).map(|n| vec![n; usize::from(n) * 7]).collect();
        let mut bytes = Vec::new();
        items.iter().for_each(|item| put_item(&mut bytes, item));
        for chunk in 1..bytes.len() {
            let (mut reader, mut read) = (Items::default(), Vec::new());
            for chunk in bytes.chunks(chunk) {
                let taken = reader.take(chunk, |item| {
                    read.push(item.to_vec());
                    Ok::<(), WireError>(())
                });
                assert_eq!(taken, Ok(()));
            }
            assert!(reader.is_at_end() && read == items, "{chunk}");
        }
        let mut reader = Items::default();
        let taken = reader.take(&[0xff; 4], |_| Ok::<(), WireError>(()));
        assert!(matches!(taken, Err(WireError::TooLong { .. })));
        assert_eq!(checksum(checksum(0, b"ab"), b"c"), checksum(0, b"abc"));
    }
}
