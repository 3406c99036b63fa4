//! The file of a backup: a header, then frames, each with its length and a checksum, and a last one
//! that says how many there were.
//!
//! The first frame is the head. The contents of the files that it names follow, in its order, in frames
//! of data. A checksum covers the frame and its place in the file, so that frames cannot be exchanged.

use crate::part::checksum;

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"E3BACKUP";
/// Version of the format.
pub const ARCHIVE_VERSION: u32 = 1;
/// Bytes of the header: magic number and version.
pub const HEADER_LEN: usize = 12;
/// Bytes of a frame beside its content: kind and length before, checksum behind.
pub const FRAME_OVERHEAD_LEN: usize = FRAME_HEAD_LEN + 4;
/// Bytes of kind and length.
pub const FRAME_HEAD_LEN: usize = 5;
/// Bytes of a frame of data.
pub const DATA_LEN_MAX: usize = 1 << 20;
/// Bytes of the head.
pub const HEAD_LEN_MAX: usize = 16 << 20;

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// The head, in JSON.
    Head,
    /// Bytes of a file.
    Data,
    /// The number of frames before. Nothing follows.
    End,
}

/// What is wrong at a place of a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Another file.
    #[error("this is no backup of an application")]
    Magic,
    /// Of a later program.
    #[error("the format has version {0}, this program reads version {ARCHIVE_VERSION}")]
    Version(u32),
    /// The file ends in the middle.
    #[error("the file is cut short")]
    Short,
    /// The bytes are not those that were written.
    #[error(
        "the bytes here are damaged: their checksum is {computed:#010x}, must be {stated:#010x}"
    )]
    Checksum {
        /// What is written.
        stated: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A kind that is not defined, or one at the wrong place.
    #[error("a frame of kind {0} is not expected here")]
    Kind(u8),
    /// A frame that is too long.
    #[error("a frame has {len} bytes, must have at most {max}")]
    TooLong {
        /// What is written.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// The last frame counts others.
    #[error("the last frame says that {stated} frames are before it, there are {found}")]
    Frames {
        /// What it says.
        stated: u64,
        /// What is there.
        found: u64,
    },
    /// Bytes behind the last frame.
    #[error("there are bytes behind the end of the backup")]
    Trailing,
}

impl FrameKind {
    fn number(self) -> u8 {
        match self {
            FrameKind::Head => 1,
            FrameKind::Data => 2,
            FrameKind::End => 3,
        }
    }

    fn len_max(self) -> usize {
        match self {
            FrameKind::Head => HEAD_LEN_MAX,
            FrameKind::Data => DATA_LEN_MAX,
            FrameKind::End => 8,
        }
    }
}

/// The header of a file.
pub fn header() -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(&MAGIC);
    header[8..].copy_from_slice(&ARCHIVE_VERSION.to_le_bytes());
    header
}

/// Checks the header of a file.
pub fn check_header(header: &[u8; HEADER_LEN]) -> Result<(), ArchiveError> {
    let (magic, version) = header.split_at(8);
    if magic != MAGIC {
        return Err(ArchiveError::Magic);
    }
    let version = version.try_into().map(u32::from_le_bytes);
    match version.expect("4 bytes") {
        ARCHIVE_VERSION => Ok(()),
        other => Err(ArchiveError::Version(other)),
    }
}

/// A frame at this offset of the file.
pub fn encode_frame(offset: u64, kind: FrameKind, content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).expect("a frame is bounded");
    let mut out = Vec::with_capacity(content.len() + FRAME_OVERHEAD_LEN);
    out.push(kind.number());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(content);
    let sum = checksum(checksum(0, &offset.to_le_bytes()), &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Kind and length of a frame.
pub fn decode_frame_head(head: &[u8; FRAME_HEAD_LEN]) -> Result<(FrameKind, usize), ArchiveError> {
    let [kind, len @ ..] = head;
    let kind = match kind {
        1 => FrameKind::Head,
        2 => FrameKind::Data,
        3 => FrameKind::End,
        other => return Err(ArchiveError::Kind(*other)),
    };
    let (len, max) = (u32::from_le_bytes(*len) as usize, kind.len_max());
    if len > max {
        return Err(ArchiveError::TooLong { len, max });
    }
    Ok((kind, len))
}

/// Checks a frame at this offset: its head, its content, and the checksum behind it.
pub fn check_frame(
    offset: u64,
    head: &[u8; FRAME_HEAD_LEN],
    content: &[u8],
    stated: [u8; 4],
) -> Result<(), ArchiveError> {
    let computed = checksum(checksum(0, &offset.to_le_bytes()), head);
    let (computed, stated) = (checksum(computed, content), u32::from_le_bytes(stated));
    if computed == stated {
        Ok(())
    } else {
        Err(ArchiveError::Checksum { stated, computed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_bit_of_a_frame_is_found() {
        let frame = encode_frame(99, FrameKind::Data, b"some state");
        let check = |offset, frame: &[u8]| {
            let (head, rest) = frame.split_first_chunk().unwrap();
            let (content, stated) = rest.split_last_chunk().unwrap();
            let (_, len) = decode_frame_head(head)?;
            if len == content.len() {
                check_frame(offset, head, content, *stated)
            } else {
                Err(ArchiveError::Short)
            }
        };
        assert_eq!(check(99, &frame), Ok(()));
        assert!(check(98, &frame).is_err(), "at another place");
        for bit in 0..frame.len() * 8 {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(check(99, &changed).is_err(), "bit {bit}");
        }
        assert_eq!(check_header(&header()), Ok(()));
        for byte in 0..HEADER_LEN {
            let mut changed = header();
            changed[byte] ^= 1;
            assert!(check_header(&changed).is_err(), "byte {byte}");
        }
    }
}
