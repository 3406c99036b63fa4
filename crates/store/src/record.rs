//! Records: a header and the content. The header holds its own checksum (CRC-32C), the length of the
//! content, the record's number, the number of the last record that was durable before this one, and
//! the content's checksum; little endian.
//!
//! After a power cut, any sectors of the records that were not durable may be missing. Such records
//! are dropped. If a later record says that an unreadable one was durable, the file is damaged.

/// Bytes of a record beside its content.
pub(crate) const HEADER_LEN: usize = 28;
/// What a disk writes whole or not at all.
const SECTOR_LEN: usize = 512;

/// A record as it is read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) number: u64,
    /// Number of the last record that was durable when this one was written.
    durable: u64,
    pub(crate) content: Vec<u8>,
    /// Where it ends in the file.
    end: u64,
}

/// Whole records of a file.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) records: Vec<Record>,
    /// End of the last whole record.
    pub(crate) end: u64,
}

impl Scan {
    /// Where the records begin of which no other one says that they were durable. If their sync failed, they
    /// may be read without being on the disk, and no later sync writes them: the system has dropped them.
    pub(crate) fn unproved(&self) -> u64 {
        let durable = self.records.iter().map(|r| r.durable).max();
        let proved = |r: &&Record| Some(r.number) <= durable;
        let proved = self.records.iter().take_while(proved).last();
        proved.map_or(0, |r| r.end)
    }
}

/// The record's bytes.
pub(crate) fn encode(number: u64, durable: u64, content: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.reserve(HEADER_LEN + content.len());
    out.extend_from_slice(&(content.len() as u32).to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&durable.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(content).to_le_bytes());
    let checksum = crc32c::crc32c(&out[4..]);
    out[..4].copy_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(content);
    out
}

/// Reads records until the end, or until one that a power cut left unfinished. A damaged one is an
/// error: where, what. `first` is the number that the first record should have.
pub(crate) fn scan(bytes: &[u8], first: u64, found: &mut Scan) -> Result<(), (u64, &'static str)> {
    let mut at = 0;
    while at < bytes.len() {
        match read(&bytes[at..]) {
            Ok((record, len)) => {
                at += len;
                found.end = at as u64;
                let end = found.end;
                found.records.push(Record { end, ..record });
            }
            Err(unreadable) => {
                let number = found.records.last().map_or(first, |r| r.number + 1);
                let is_torn = match unreadable {
                    Unreadable::Short => true,
                    Unreadable::Header => has_empty_sector(bytes, at, at + HEADER_LEN),
                    Unreadable::Content(len) => has_empty_sector(bytes, at, at + len),
                };
                if is_torn && !is_proved_durable(&bytes[at + 1..], number) {
                    return Ok(());
                }
                return Err((at as u64, unreadable.what()));
            }
        }
    }
    Ok(())
}

/// Why no record can be read.
#[derive(Clone, Copy, Debug)]
enum Unreadable {
    /// It would end after the file.
    Short,
    /// The header's checksum is wrong.
    Header,
    /// The content's checksum is wrong; bytes of the record.
    Content(usize),
}

impl Unreadable {
    fn what(self) -> &'static str {
        match self {
            Unreadable::Short => "a record is cut short, and later ones are there",
            Unreadable::Header => "a record's header is damaged",
            Unreadable::Content(_) => "a record's content is damaged",
        }
    }
}

/// The record at the beginning of these bytes, and its length.
fn read(bytes: &[u8]) -> Result<(Record, usize), Unreadable> {
    if bytes.len() < HEADER_LEN {
        return Err(Unreadable::Short);
    }
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    if crc32c::crc32c(&bytes[4..HEADER_LEN]) != word(0) {
        return Err(Unreadable::Header);
    }
    let len = HEADER_LEN + word(4) as usize;
    if bytes.len() < len {
        return Err(Unreadable::Short);
    }
    let content = &bytes[HEADER_LEN..len];
    if crc32c::crc32c(content) != word(24) {
        return Err(Unreadable::Content(len));
    }
    let record = Record {
        number: long(8),
        durable: long(16),
        content: content.to_vec(),
        end: len as u64,
    };
    Ok((record, len))
}

/// Whether some sector of this range was never written: from the range's beginning it is empty to its
/// end, or to that of the file.
fn has_empty_sector(bytes: &[u8], from: usize, to: usize) -> bool {
    let mut at = from;
    while at < to {
        let end = bytes.len().min((at / SECTOR_LEN + 1) * SECTOR_LEN);
        if bytes[at..end].iter().all(|b| *b == 0) {
            return true;
        }
        at = end;
    }
    false
}

/// Whether some record in these bytes was written when the one with this number was durable. Records
/// of one batch prove nothing about each other.
fn is_proved_durable(bytes: &[u8], number: u64) -> bool {
    (0..bytes.len()).any(|at| {
        let record = read(&bytes[at..]);
        record.is_ok_and(|(r, _)| r.durable >= number)
    })
}
