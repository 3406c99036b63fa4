//! Records: length, checksum (CRC-32C over number and bytes), number, bytes; little endian.

/// Bytes of a record beside its content.
pub(crate) const HEADER_LEN: usize = 16;

/// Whole records of a file.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) records: Vec<(u64, Vec<u8>)>,
    /// End of the last whole record.
    pub(crate) end: u64,
}

/// The record's bytes.
pub(crate) fn encode(number: u64, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + content.len());
    out.extend_from_slice(&(content.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(content);
    let checksum = checksum(&out);
    out[4..8].copy_from_slice(&checksum.to_le_bytes());
    out
}

/// Over everything but itself.
fn checksum(record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record[..4]), &record[8..])
}

/// Reads records until the end, or until one is cut short. A damaged one is an error: where, what.
pub(crate) fn scan(bytes: &[u8], found: &mut Scan) -> Result<(), (u64, &'static str)> {
    let mut rest = bytes;
    while rest.len() >= HEADER_LEN {
        let offset = (bytes.len() - rest.len()) as u64;
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
        let len = word(0) as usize;
        if rest.len() - HEADER_LEN < len {
            // Cut short, or a damaged length. After a cut nothing readable follows.
            if readable_follows(&rest[1..]) {
                return Err((offset, "a record's length is damaged"));
            }
            break;
        }
        // File systems may make a file longer before its bytes arrive.
        if rest.iter().all(|b| *b == 0) {
            break;
        }
        let (record, after) = rest.split_at(HEADER_LEN + len);
        if checksum(record) != word(4) {
            return Err((offset, "a record's checksum is wrong"));
        }
        let number = u64::from_le_bytes(record[8..16].try_into().expect("8 bytes"));
        found.records.push((number, record[HEADER_LEN..].to_vec()));
        rest = after;
        found.end = (bytes.len() - rest.len()) as u64;
    }
    Ok(())
}

/// Whether a whole record begins anywhere in these bytes.
fn readable_follows(bytes: &[u8]) -> bool {
    (0..bytes.len().saturating_sub(HEADER_LEN - 1)).any(|at| {
        let rest = &bytes[at..];
        let len = u32::from_le_bytes(rest[..4].try_into().expect("4 bytes")) as usize;
        let stored = u32::from_le_bytes(rest[4..8].try_into().expect("4 bytes"));
        rest.len() - HEADER_LEN >= len && checksum(&rest[..HEADER_LEN + len]) == stored
    })
}
