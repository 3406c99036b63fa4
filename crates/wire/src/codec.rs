//! Reading and writing integers and byte strings.

use e3_model::{DropReason, Format, Formats};

/// Why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end too early.
    #[error("cut short: {needed} more bytes expected, {left} left")]
    Short {
        /// Bytes that the next field needs.
        needed: usize,
        /// Bytes that are there.
        left: usize,
    },
    /// Not a datagram of this program.
    #[error("magic number is {0:#06x}, must be {magic:#06x}", magic = crate::datagram::MAGIC)]
    Magic(u16),
    /// A format that this process does not read.
    #[error(
        "format is {found}, this process reads {accepted}; {}",
        if *found > accepted.newest() {
            "start a newer release of the program"
        } else {
            "an older release wrote it: start that one, or one in between"
        }
    )]
    Format {
        /// What the bytes say.
        found: Format,
        /// What this process reads.
        accepted: Formats,
    },
    /// Truncated, or followed by other bytes.
    #[error("header says {stated} bytes, datagram has {len}")]
    Length {
        /// What the header says.
        stated: u16,
        /// Bytes that came.
        len: usize,
    },
    /// Damaged on the way.
    #[error("checksum is {stated:#010x}, the bytes give {computed:#010x}")]
    Checksum {
        /// What the header says.
        stated: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// The authentication tag is wrong.
    #[error("the authentication tag is not what the node's process would have made")]
    Tag,
    /// Bytes after the end of what should fill them.
    #[error("{0} bytes after the end")]
    Trailing(usize),
    /// Text that is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// Text that is no cron expression.
    #[error("a cron expression that cannot be read")]
    Cron,
    /// A discriminant that is not defined.
    #[error("{what} is {value}, which is not defined")]
    Unknown {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A length over its bound.
    #[error("{what} is {len} bytes, must be at most {max}")]
    TooLong {
        /// Which field.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The bound.
        max: usize,
    },
}

impl WireError {
    /// Name under which a datagram with this error in its header is counted.
    pub fn drop_reason(&self) -> DropReason {
        match self {
            WireError::Checksum { .. } => DropReason::Checksum,
            WireError::Length { .. } => DropReason::Length,
            WireError::Format { .. } => DropReason::Format,
            _ => DropReason::Header,
        }
    }
}

/// Reads fields from the front of a byte string.
pub struct Reader<'a>(pub &'a [u8]);

macro_rules! read_int {
    ($name:ident, $int:ty) => {
        #[doc = concat!("Next `", stringify!($int), "`.")]
        pub fn $name(&mut self) -> Result<$int, WireError> {
            const N: usize = size_of::<$int>();
            let bytes = self.bytes(N)?;
            Ok(<$int>::from_le_bytes(bytes.try_into().expect("N bytes")))
        }
    };
}

/// Refuses formats that this process does not read.
pub(crate) fn check_format(found: u8, accepted: Formats) -> Result<(), WireError> {
    let found = Format(found);
    if accepted.include(found) {
        Ok(())
    } else {
        Err(WireError::Format { found, accepted })
    }
}

impl<'a> Reader<'a> {
    read_int!(u8, u8);
    read_int!(u16, u16);
    read_int!(u32, u32);
    read_int!(u64, u64);
    read_int!(u128, u128);

    /// Next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(WireError::Short {
            needed: n,
            left: self.0.len(),
        })?;
        self.0 = rest;
        Ok(head)
    }

    /// Next byte string with a `u32` length before it, at most `max` long.
    pub fn long_bytes(&mut self, what: &'static str, max: usize) -> Result<&'a [u8], WireError> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(WireError::TooLong { what, len, max });
        }
        self.bytes(len)
    }

    /// Next byte string with a `u16` length before it, at most `max` long.
    pub fn short_bytes(&mut self, what: &'static str, max: usize) -> Result<&'a [u8], WireError> {
        let len = usize::from(self.u16()?);
        if len > max {
            return Err(WireError::TooLong { what, len, max });
        }
        self.bytes(len)
    }

    /// An error if something is left.
    pub fn end(&self) -> Result<(), WireError> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(WireError::Trailing(left)),
        }
    }

    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends fields to a vector.
pub trait Write {
    /// Appends bytes as they are.
    fn put(&mut self, bytes: &[u8]);
    /// Appends a `u8`.
    fn put_u8(&mut self, v: u8) {
        self.put(&[v]);
    }
    /// Appends a `u16`.
    fn put_u16(&mut self, v: u16) {
        self.put(&v.to_le_bytes());
    }
    /// Appends a `u32`.
    fn put_u32(&mut self, v: u32) {
        self.put(&v.to_le_bytes());
    }
    /// Appends a `u64`.
    fn put_u64(&mut self, v: u64) {
        self.put(&v.to_le_bytes());
    }
    /// Appends a `u128`.
    fn put_u128(&mut self, v: u128) {
        self.put(&v.to_le_bytes());
    }
    /// Appends a length as `u32`, then the bytes.
    fn put_long(&mut self, bytes: &[u8]) {
        self.put_u32(u32::try_from(bytes.len()).expect("bounded by the caller"));
        self.put(bytes);
    }
    /// Appends a length as `u16`, then the bytes.
    fn put_short(&mut self, bytes: &[u8]) {
        self.put_u16(u16::try_from(bytes.len()).expect("bounded by the caller"));
        self.put(bytes);
    }
}

impl Write for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
