//! Every accelerator on demand, for tests: the same requests go to a node with accelerators and to
//! one without, whose replies must be the same.
//!
//! A request is one byte, the operation, then its arguments, each preceded by its length
//! (32 bits, little endian). The reply is the result; an error is answered with status 1 and its
//! text.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::string::ToString;
use alloc::vec::Vec;
use e3_sdk::accel::{
    AesCbc, AesGcm, HmacSha1, HmacSha256, Match, MatchSet, Pattern, crc32_after, same_tag,
};
use e3_sdk::{Error, Request, Service, reply};

#[cfg(not(target_arch = "wasm32"))]
pub mod vectors;

/// The operations, with their arguments.
pub mod op {
    /// Key, initialisation vector, whole blocks.
    pub const CBC_ENCRYPT: u8 = 0;
    /// Key, initialisation vector, whole blocks.
    pub const CBC_DECRYPT: u8 = 1;
    /// Key, nonce, associated data, data; the result ends with the tag.
    pub const GCM_SEAL: u8 = 2;
    /// Key, nonce, associated data, data and tag; the result begins with 1 or 0 for a wrong tag.
    pub const GCM_OPEN: u8 = 3;
    /// Key, data.
    pub const HMAC_SHA1: u8 = 4;
    /// Key, data.
    pub const HMAC_SHA256: u8 = 5;
    /// CRC of what came before (little endian, as the result), data.
    pub const CRC32: u8 = 6;
    /// Text, then patterns, each after a byte that is 1 if case is of no matter. The result is
    /// pattern and end of each occurrence, 32 bits each.
    pub const MATCH: u8 = 7;
    /// Two tags; the result is whether they are the same.
    pub const SAME: u8 = 8;
}

/// A request for [`run`].
pub fn request(op: u8, arguments: &[&[u8]]) -> Vec<u8> {
    let mut request = Vec::from([op]);
    for argument in arguments {
        request.extend_from_slice(&(argument.len() as u32).to_le_bytes());
        request.extend_from_slice(argument);
    }
    request
}

/// The next argument; a truncated one is an error.
fn next<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    let (len, after) = rest.split_first_chunk().ok_or(Error::Length)?;
    let len = u32::from_le_bytes(*len) as usize;
    let (argument, after) = after.split_at_checked(len).ok_or(Error::Length)?;
    *rest = after;
    Ok(argument)
}

/// The next argument, of a fixed length.
fn fixed<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], Error> {
    next(rest)?.try_into().map_err(|_| Error::Length)
}

/// Executes a request.
pub fn run(request: &[u8]) -> Result<Vec<u8>, Error> {
    let (op, mut rest) = request.split_first().ok_or(Error::Length)?;
    let a = &mut rest;
    Ok(match *op {
        op::CBC_ENCRYPT => {
            let (key, iv, mut data) = (AesCbc::new(next(a)?)?, fixed(a)?, next(a)?.to_vec());
            key.encrypt(iv, &mut data)?;
            data
        }
        op::CBC_DECRYPT => {
            let (key, iv, mut data) = (AesCbc::new(next(a)?)?, fixed(a)?, next(a)?.to_vec());
            key.decrypt(iv, &mut data)?;
            data
        }
        op::GCM_SEAL => {
            let (key, nonce, aad) = (AesGcm::new(next(a)?)?, fixed(a)?, next(a)?);
            let mut data = next(a)?.to_vec();
            let tag = key.seal(nonce, aad, &mut data)?;
            data.extend_from_slice(&tag);
            data
        }
        op::GCM_OPEN => {
            let (key, nonce, aad) = (AesGcm::new(next(a)?)?, fixed(a)?, next(a)?);
            let (data, tag) = next(a)?.split_last_chunk().ok_or(Error::Length)?;
            let mut result = Vec::from([0]);
            result.extend_from_slice(data);
            result[0] = u8::from(key.open(nonce, aad, &mut result[1..], tag)?);
            result
        }
        op::HMAC_SHA1 => HmacSha1::new(next(a)?)?.tag(next(a)?)?.to_vec(),
        op::HMAC_SHA256 => HmacSha256::new(next(a)?)?.tag(next(a)?)?.to_vec(),
        op::CRC32 => {
            let before = u32::from_le_bytes(*fixed(a)?);
            crc32_after(before, next(a)?)?.to_le_bytes().to_vec()
        }
        op::MATCH => {
            let text = next(a)?;
            let mut patterns = Vec::new();
            while !a.is_empty() {
                let (nocase, bytes) = next(a)?.split_first().ok_or(Error::Length)?;
                let nocase = *nocase == 1;
                patterns.push(Pattern { bytes, nocase });
            }
            let mut found: Vec<Match> = Vec::new();
            MatchSet::new(&patterns)?.find(text, &mut found)?;
            let pairs = found.iter().flat_map(|m| [m.pattern, m.end]);
            pairs.flat_map(u32::to_le_bytes).collect()
        }
        op::SAME => Vec::from([u8::from(same_tag(next(a)?, next(a)?))]),
        _ => return Err(Error::Index),
    })
}

/// The service.
#[derive(Debug)]
pub struct AccelCheck;

impl Service for AccelCheck {
    fn init() -> Result<Self, Error> {
        Ok(AccelCheck)
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        match run(request.payload()) {
            Ok(result) => reply(0, &result),
            Err(error) => reply(1, error.to_string().as_bytes()),
        }
    }
}

e3_sdk::service!(AccelCheck, request_capacity = 65536);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::{VECTORS, bytes};

    #[test]
    fn vectors_hold_on_the_portable_side() {
        for vector in VECTORS {
            assert_eq!(
                run(&vector.request()),
                Ok(bytes(vector.result)),
                "{}",
                vector.source
            );
        }
    }

    #[test]
    fn lengths_that_are_not_allowed_are_told() {
        for key_len in [0, 15, 17, 24, 31, 33] {
            let request = request(op::CBC_ENCRYPT, &[&[0; 33][..key_len], &[0; 16], &[0; 16]]);
            assert_eq!(run(&request), Err(Error::Length), "key of {key_len}");
        }
        let odd = request(op::CBC_ENCRYPT, &[&[0; 16], &[0; 16], &[0; 17]]);
        assert_eq!(run(&odd), Err(Error::Length));
        let empty = request(op::MATCH, &[b"text", &[0]]);
        assert_eq!(run(&empty), Err(Error::Length));
    }

    #[test]
    fn tags_compare_by_content_and_length() {
        let same = |a: &[u8], b: &[u8]| run(&request(op::SAME, &[a, b])).unwrap() == [1];
        assert!(same(b"abc", b"abc") && same(b"", b""));
        assert!(!same(b"abc", b"abd") && !same(b"abc", b"ab") && !same(b"", b"a"));
    }
}
