//! Accelerators: the host's functions for ciphers, checksums and pattern matching, with a portable
//! implementation for nodes without them (docs/abi.md, "Accelerators").
//!
//! A value is made once, usually in [`Service::init`](crate::Service::init), and holds its key or
//! patterns ready, on the host or in the instance. The result is the same on both sides. What a
//! service does not use is not linked into its module. Fetch-and-add is an accelerator too: it is
//! [`Counter::fetch_add`](crate::Counter::fetch_add).
//!
//! ```
//! use e3_sdk::accel::{HmacSha256, MatchSet, Pattern, crc32};
//!
//! let tag = HmacSha256::new(b"Jefe")?.tag(b"what do ya want for nothing?")?;
//! assert_eq!(tag[..4], [0x5b, 0xdc, 0xc1, 0x46]);
//! assert_eq!(crc32(b"123456789")?, 0xcbf4_3926);
//!
//! let set = MatchSet::new(&[Pattern::new(b"he"), Pattern::nocase(b"SHE")])?;
//! let mut found = Vec::new();
//! set.find(b"ushers", &mut found)?;
//! let found: Vec<_> = found.iter().map(|m| (m.pattern, m.end)).collect();
//! assert_eq!(found, [(0, 4), (1, 4)]);
//! # Ok::<(), e3_sdk::Error>(())
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::accel_portable as portable;
use crate::limits::ACCEL_BYTES_MAX;
use crate::{Error, check, sys};

/// Kinds of keys, as the ABI numbers them.
const AES_CBC: i32 = 1;
const AES_GCM: i32 = 2;
const HMAC_SHA1: i32 = 3;
const HMAC_SHA256: i32 = 4;

/// A key or a set of patterns, prepared by the host.
#[derive(Debug)]
struct Handle(i32);

impl Drop for Handle {
    fn drop(&mut self) {
        sys::accel_drop(self.0);
    }
}

/// Held by the host, or by this instance.
#[derive(Debug)]
enum Side<P> {
    Host(Handle),
    Guest(Box<P>),
}

impl<P> Side<P> {
    /// On the host if it has the accelerator and a free handle, else here.
    fn of(code: i32, here: impl FnOnce() -> Result<P, Error>) -> Result<Side<P>, Error> {
        match check(code) {
            Ok(_) => Ok(Side::Host(Handle(code))),
            Err(Error::Absent | Error::Bound) => here().map(|p| Side::Guest(Box::new(p))),
            Err(error) => Err(error),
        }
    }

    fn of_key(
        kind: i32,
        key: &[u8],
        here: impl FnOnce(&[u8]) -> Option<P>,
    ) -> Result<Side<P>, Error> {
        fits(key)?;
        Side::of(sys::accel_key(kind, key), || here(key).ok_or(Error::Length))
    }
}

/// The bound of what an accelerator takes at once holds on both sides.
fn fits(data: &[u8]) -> Result<(), Error> {
    if data.len() <= ACCEL_BYTES_MAX {
        Ok(())
    } else {
        Err(Error::Length)
    }
}

/// AES in cipher block chaining (NIST SP 800-38A), whole blocks, no padding.
#[derive(Debug)]
pub struct AesCbc(Side<portable::Cbc>);

impl AesCbc {
    /// With a key of 16 or 32 bytes; another length is [`Error::Length`].
    pub fn new(key: &[u8]) -> Result<Self, Error> {
        Side::of_key(AES_CBC, key, portable::Cbc::new).map(Self)
    }

    /// Encrypts in place; a length that is no multiple of 16 is [`Error::Length`].
    pub fn encrypt(&self, iv: &[u8; 16], blocks: &mut [u8]) -> Result<(), Error> {
        match &self.0 {
            Side::Host(key) => check(sys::aes_cbc_encrypt(key.0, iv, blocks)).map(drop),
            Side::Guest(key) => {
                whole(blocks)?;
                key.encrypt(iv, blocks);
                Ok(())
            }
        }
    }

    /// Decrypts in place; a length that is no multiple of 16 is [`Error::Length`].
    pub fn decrypt(&self, iv: &[u8; 16], blocks: &mut [u8]) -> Result<(), Error> {
        match &self.0 {
            Side::Host(key) => check(sys::aes_cbc_decrypt(key.0, iv, blocks)).map(drop),
            Side::Guest(key) => {
                whole(blocks)?;
                key.decrypt(iv, blocks);
                Ok(())
            }
        }
    }
}

fn whole(blocks: &[u8]) -> Result<(), Error> {
    fits(blocks)?;
    if blocks.len().is_multiple_of(16) {
        Ok(())
    } else {
        Err(Error::Length)
    }
}

/// AES in Galois/counter mode (NIST SP 800-38D) with nonces of 12 and tags of 16 bytes.
#[derive(Debug)]
pub struct AesGcm(Side<portable::Gcm>);

impl AesGcm {
    /// With a key of 16 or 32 bytes; another length is [`Error::Length`].
    pub fn new(key: &[u8]) -> Result<Self, Error> {
        Side::of_key(AES_GCM, key, portable::Gcm::new).map(Self)
    }

    /// Encrypts in place; the tag, which also covers `aad`. A nonce must not repeat under a key.
    pub fn seal(&self, nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> Result<[u8; 16], Error> {
        let mut tag = [0; 16];
        match &self.0 {
            Side::Host(key) => {
                check(sys::aes_gcm_seal(key.0, nonce, aad, data, &mut tag))?;
            }
            Side::Guest(key) => {
                fits(aad).and(fits(data))?;
                tag = key.seal(nonce, aad, data).ok_or(Error::Length)?;
            }
        }
        Ok(tag)
    }

    /// Decrypts in place and is true if the tag is right; else leaves the data as they are.
    pub fn open(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; 16],
    ) -> Result<bool, Error> {
        match &self.0 {
            Side::Host(key) => {
                check(sys::aes_gcm_open(key.0, nonce, aad, data, tag)).map(|code| code == 1)
            }
            Side::Guest(key) => {
                fits(aad).and(fits(data))?;
                Ok(key.open(nonce, aad, data, tag))
            }
        }
    }
}

/// HMAC with SHA-1 (RFC 2104).
#[derive(Debug)]
pub struct HmacSha1(Side<portable::HmacSha1>);

impl HmacSha1 {
    /// With a key of any length.
    pub fn new(key: &[u8]) -> Result<Self, Error> {
        Side::of_key(HMAC_SHA1, key, portable::HmacSha1::new).map(Self)
    }

    /// The tag of a text.
    pub fn tag(&self, data: &[u8]) -> Result<[u8; 20], Error> {
        match &self.0 {
            Side::Host(key) => {
                let mut tag = [0; 20];
                check(sys::hmac(key.0, data, &mut tag)).map(|_| tag)
            }
            Side::Guest(key) => fits(data).map(|()| key.tag(data)),
        }
    }
}

/// HMAC with SHA-256 (RFC 2104).
#[derive(Debug)]
pub struct HmacSha256(Side<portable::HmacSha256>);

impl HmacSha256 {
    /// With a key of any length.
    pub fn new(key: &[u8]) -> Result<Self, Error> {
        Side::of_key(HMAC_SHA256, key, portable::HmacSha256::new).map(Self)
    }

    /// The tag of a text.
    pub fn tag(&self, data: &[u8]) -> Result<[u8; 32], Error> {
        match &self.0 {
            Side::Host(key) => {
                let mut tag = [0; 32];
                check(sys::hmac(key.0, data, &mut tag)).map(|_| tag)
            }
            Side::Guest(key) => fits(data).map(|()| key.tag(data)),
        }
    }
}

/// Whether two tags are the same, in a time that does not depend on where they differ.
pub fn same_tag(a: &[u8], b: &[u8]) -> bool {
    let differ = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && core::hint::black_box(differ) == 0
}

/// CRC-32 of IEEE 802.3.
pub fn crc32(data: &[u8]) -> Result<u32, Error> {
    crc32_after(0, data)
}

/// CRC-32 of a text that goes on, after what had the CRC `before`.
pub fn crc32_after(before: u32, data: &[u8]) -> Result<u32, Error> {
    fits(data)?;
    match u32::try_from(sys::crc32(before, data)) {
        Ok(crc) => Ok(crc),
        Err(_) => Ok(portable::crc32(before, data)),
    }
}

/// A pattern to look for; it must not be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Whether the case of ASCII letters does not matter.
    pub nocase: bool,
}

impl<'a> Pattern<'a> {
    /// A pattern that is compared exactly.
    pub fn new(bytes: &'a [u8]) -> Self {
        let nocase = false;
        Self { bytes, nocase }
    }

    /// A pattern whose ASCII letters match in either case.
    pub fn nocase(bytes: &'a [u8]) -> Self {
        let nocase = true;
        Self { bytes, nocase }
    }
}

/// An occurrence of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    /// Offset of the byte after its last.
    pub end: u32,
    /// The pattern's index in its set.
    pub pattern: u32,
}

/// Patterns that are looked for together, in one pass.
#[derive(Debug)]
pub struct MatchSet(Side<portable::Set>);

impl MatchSet {
    /// Compiles a set: an empty pattern is [`Error::Length`], more than
    /// [`limits::PATTERNS_MAX`](crate::limits::PATTERNS_MAX) or more bytes than
    /// [`limits::PATTERN_BYTES_MAX`](crate::limits::PATTERN_BYTES_MAX) are [`Error::Bound`].
    pub fn new(patterns: &[Pattern<'_>]) -> Result<Self, Error> {
        let bytes: usize = patterns.iter().map(|p| 8 + p.bytes.len()).sum();
        let mut packed = Vec::with_capacity(bytes);
        for pattern in patterns {
            packed.extend_from_slice(&u32::from(pattern.nocase).to_le_bytes());
            packed.extend_from_slice(&(pattern.bytes.len() as u32).to_le_bytes());
            packed.extend_from_slice(pattern.bytes);
        }
        let code = sys::match_set(&packed);
        drop(packed);
        Side::of(code, || portable::Set::new(patterns)).map(Self)
    }

    /// Replaces `out` by all occurrences in `text`, overlapping ones too, by their ends and then
    /// by the index of the pattern. More than
    /// [`limits::MATCHES_MAX`](crate::limits::MATCHES_MAX) are [`Error::Bound`].
    pub fn find(&self, text: &[u8], out: &mut Vec<Match>) -> Result<(), Error> {
        out.clear();
        let set = match &self.0 {
            Side::Host(set) => set.0,
            Side::Guest(set) => {
                fits(text)?;
                return set.find(text, out);
            }
        };
        let mut buffer = [0; 512];
        let bytes = check(sys::match_find(set, text, &mut buffer))? as usize;
        match buffer.get(..bytes) {
            Some(pairs) => out.extend(unpack(pairs)),
            None => {
                let mut buffer = alloc::vec![0; bytes];
                check(sys::match_find(set, text, &mut buffer))?;
                out.extend(unpack(&buffer));
            }
        }
        Ok(())
    }
}

fn unpack(pairs: &[u8]) -> impl Iterator<Item = Match> {
    let (pairs, _) = pairs.as_chunks::<8>();
    pairs.iter().map(|pair| {
        let pair = u64::from_le_bytes(*pair);
        let (pattern, end) = (pair as u32, (pair >> 32) as u32);
        Match { end, pattern }
    })
}
