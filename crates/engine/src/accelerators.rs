//! Accelerators: AES, HMAC, CRC-32 and multi-pattern match with this machine's instructions.
//!
//! Sources: FIPS 197 and NIST SP 800-38A (AES-CBC), SP 800-38D (GCM), RFC 2104 (HMAC), IEEE 802.3
//! (CRC-32), Aho and Corasick 1975 (match). Keys and pattern sets are prepared once and
//! then held by handle, for the instance's life. The libraries choose the machine's instructions (AES-NI,
//! SHA, CLMUL, and those of ARM) when they run.

use crate::codes::{ABSENT, BOUND, LENGTH, NO_HANDLE, WRONG_KIND};
use crate::limits::{ACCEL_HANDLES_MAX, ACCEL_LEN_MAX, MATCHES_MAX};
use crate::pattern_set::PatternSet;
use aes::cipher::{Array, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};
use aes::{Aes128, Aes256};
use aes_gcm::{AeadInOut, Aes128Gcm, Aes256Gcm, KeyInit};
use e3_model::{Accelerator, Accelerators};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::Sha256;

/// Runs a block mode over whole blocks.
macro_rules! blocks {
    ($mode:ident, $run:ident, $key:expr, $iv:expr, $data:expr) => {{
        let (blocks, _) = Array::slice_as_chunks_mut($data);
        match $key {
            Either::Short(key) => cbc::$mode::inner_iv_init(key, $iv).$run(blocks),
            Either::Long(key) => cbc::$mode::inner_iv_init(key, $iv).$run(blocks),
        }
    }};
}

/// AES with a key of either length.
enum Either<A, B> {
    Short(A),
    Long(B),
}

/// What a handle stands for. Boxed, since the sizes differ and handles are few.
enum Held {
    Cbc(Box<Either<Aes128, Aes256>>),
    Gcm(Box<Either<Aes128Gcm, Aes256Gcm>>),
    HmacSha1(Box<Hmac<Sha1>>),
    HmacSha256(Box<Hmac<Sha256>>),
    Set(Box<PatternSet>),
}

/// What an instance holds by handle.
#[derive(Default)]
pub(crate) struct Accel {
    held: Vec<Option<Held>>,
    /// Free list of handles.
    free: Vec<i32>,
    /// Bytes of the patterns in all sets.
    pattern_bytes: usize,
    /// Occurrences found last.
    matches: Vec<(u32, u32)>,
}

impl Accel {
    fn get(&self, handle: i32) -> Result<&Held, i32> {
        let held = self.held.get(handle as u32 as usize);
        held.and_then(Option::as_ref).ok_or(NO_HANDLE)
    }

    fn hold(&mut self, held: Held) -> i32 {
        if let Some(handle) = self.free.pop() {
            self.held[handle as usize] = Some(held);
            return handle;
        }
        if self.held.len() >= ACCEL_HANDLES_MAX {
            return BOUND;
        }
        self.held.push(Some(held));
        self.held.len() as i32 - 1
    }

    pub(crate) fn release(&mut self, handle: i32) -> i32 {
        let held = self.held.get_mut(handle as u32 as usize);
        let Some(held) = held.and_then(Option::take) else {
            return 0;
        };
        if let Held::Set(set) = held {
            self.pattern_bytes -= set.pattern_bytes();
        }
        self.free.push(handle);
        1
    }

    pub(crate) fn key(&mut self, here: Accelerators, kind: i32, content: &[u8]) -> i32 {
        let Some(kind) = key_kind(kind) else {
            return WRONG_KIND;
        };
        if !here.has(kind) {
            return ABSENT;
        }
        if content.len() > ACCEL_LEN_MAX {
            return LENGTH;
        }
        key(kind, content).map_or(LENGTH, |key| self.hold(key))
    }

    pub(crate) fn cbc(&self, key: i32, iv: &[u8; 16], data: &mut [u8], encrypt: bool) -> i32 {
        let key = match self.get(key) {
            Ok(Held::Cbc(key)) => &**key,
            Ok(_) => return WRONG_KIND,
            Err(code) => return code,
        };
        if data.len() > ACCEL_LEN_MAX || !data.len().is_multiple_of(16) {
            return LENGTH;
        }
        let iv = &Array::from(*iv);
        if encrypt {
            blocks!(Encryptor, encrypt_blocks, key, iv, data);
        } else {
            blocks!(Decryptor, decrypt_blocks, key, iv, data);
        }
        0
    }

    /// Encrypts the data in place; their tag.
    pub(crate) fn gcm_seal(
        &self,
        key: i32,
        nonce: &[u8; 12],
        aad: &[u8],
        data: &mut [u8],
    ) -> Result<[u8; 16], i32> {
        let key = self.gcm_key(key, aad, data)?;
        let (nonce, data) = (&Array::from(*nonce), data.into());
        let tag = match key {
            Either::Short(key) => key.encrypt_inout_detached(nonce, aad, data),
            Either::Long(key) => key.encrypt_inout_detached(nonce, aad, data),
        };
        tag.map(Into::into).map_err(|_| LENGTH)
    }

    /// 1 = opened, 0 = not authentic.
    pub(crate) fn gcm_open(
        &self,
        key: i32,
        nonce: &[u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; 16],
    ) -> i32 {
        let key = match self.gcm_key(key, aad, data) {
            Ok(key) => key,
            Err(code) => return code,
        };
        let (nonce, data, tag) = (&Array::from(*nonce), data.into(), &Array::from(*tag));
        let opened = match key {
            Either::Short(key) => key.decrypt_inout_detached(nonce, aad, data, tag),
            Either::Long(key) => key.decrypt_inout_detached(nonce, aad, data, tag),
        };
        i32::from(opened.is_ok())
    }

    /// The code for a text that is too long for this key.
    pub(crate) fn gcm_refuses(&self, key: i32) -> i32 {
        self.gcm_key(key, &[], &[]).err().unwrap_or(LENGTH)
    }

    fn gcm_key(
        &self,
        key: i32,
        aad: &[u8],
        data: &[u8],
    ) -> Result<&Either<Aes128Gcm, Aes256Gcm>, i32> {
        match self.get(key)? {
            Held::Gcm(_) if data.len() > ACCEL_LEN_MAX || aad.len() > ACCEL_LEN_MAX => Err(LENGTH),
            Held::Gcm(key) => Ok(key),
            _ => Err(WRONG_KIND),
        }
    }

    /// Writes the tag of the data to `out`; its length, or a code.
    pub(crate) fn hmac(&self, key: i32, data: &[u8], out: &mut [u8; 32]) -> Result<usize, i32> {
        if data.len() > ACCEL_LEN_MAX {
            return Err(LENGTH);
        }
        match self.get(key)? {
            Held::HmacSha1(key) => {
                let tag = Hmac::clone(key).chain_update(data).finalize().into_bytes();
                out[..20].copy_from_slice(&tag);
                Ok(20)
            }
            Held::HmacSha256(key) => {
                let tag = Hmac::clone(key).chain_update(data).finalize().into_bytes();
                out.copy_from_slice(&tag);
                Ok(32)
            }
            _ => Err(WRONG_KIND),
        }
    }

    pub(crate) fn match_set(&mut self, here: Accelerators, packed: &[u8]) -> i32 {
        if !here.has(Accelerator::Match) {
            return ABSENT;
        }
        let set = match PatternSet::parse(packed, self.pattern_bytes) {
            Ok(set) => set,
            Err(code) => return code,
        };
        let bytes = set.pattern_bytes();
        let handle = self.hold(Held::Set(Box::new(set)));
        if handle >= 0 {
            self.pattern_bytes += bytes;
        }
        handle
    }

    /// Searches for the set's patterns; bytes of the occurrences, or a code.
    pub(crate) fn match_find(&mut self, set: i32, text: &[u8]) -> Result<usize, i32> {
        if text.len() > ACCEL_LEN_MAX {
            return Err(LENGTH);
        }
        let mut matches = std::mem::take(&mut self.matches);
        matches.clear();
        let found = match self.get(set) {
            Ok(Held::Set(set)) if set.find(text, MATCHES_MAX, &mut matches) => {
                Ok(matches.len() * 8)
            }
            Ok(Held::Set(_)) => Err(BOUND),
            Ok(_) => Err(WRONG_KIND),
            Err(code) => Err(code),
        };
        self.matches = matches;
        found
    }

    /// Writes the occurrences found last, if all of them fit.
    pub(crate) fn matches_into(&self, out: &mut [u8]) {
        if self.matches.len() * 8 <= out.len() {
            for (pair, (end, pattern)) in out.chunks_exact_mut(8).zip(&self.matches) {
                pair[..4].copy_from_slice(&pattern.to_le_bytes());
                pair[4..].copy_from_slice(&end.to_le_bytes());
            }
        }
    }
}

pub(crate) fn crc32(here: Accelerators, before: u32, data: &[u8]) -> i64 {
    if !here.has(Accelerator::Crc32) {
        return i64::from(ABSENT);
    }
    if data.len() > ACCEL_LEN_MAX {
        return i64::from(LENGTH);
    }
    let mut crc = crc32fast::Hasher::new_with_initial(before);
    crc.update(data);
    i64::from(crc.finalize())
}

/// The accelerator of a key's kind, as the ABI numbers them.
fn key_kind(kind: i32) -> Option<Accelerator> {
    match kind {
        1 => Some(Accelerator::AesCbc),
        2 => Some(Accelerator::AesGcm),
        3 => Some(Accelerator::HmacSha1),
        4 => Some(Accelerator::HmacSha256),
        _ => None,
    }
}

fn either<A: KeyInit, B: KeyInit>(key: &[u8]) -> Option<Either<A, B>> {
    let short = A::new_from_slice(key).map(Either::Short);
    short
        .or_else(|_| B::new_from_slice(key).map(Either::Long))
        .ok()
}

/// A prepared key; none if its length is not allowed.
fn key(kind: Accelerator, key: &[u8]) -> Option<Held> {
    Some(match kind {
        Accelerator::AesCbc => Held::Cbc(Box::new(either(key)?)),
        Accelerator::AesGcm => Held::Gcm(Box::new(either(key)?)),
        Accelerator::HmacSha1 => Held::HmacSha1(Box::new(KeyInit::new_from_slice(key).ok()?)),
        Accelerator::HmacSha256 => Held::HmacSha256(Box::new(KeyInit::new_from_slice(key).ok()?)),
        Accelerator::Crc32 | Accelerator::Match => return None,
    })
}
