//! The accelerators in portable code, executed by the instance itself. In WebAssembly the libraries
//! use their constant-time software versions; natively, as in tests, the machine's instructions.

use aes::cipher::{Array, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};
use aes::{Aes128, Aes256};
use aes_gcm::{AeadInOut, Aes128Gcm, Aes256Gcm, KeyInit};
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use hmac::{Hmac, Mac};

use crate::Error;
use crate::accel::{Match, Pattern};
use crate::limits::{DFA_PATTERN_BYTES_MAX, MATCHES_MAX, PATTERN_BYTES_MAX, PATTERNS_MAX};

/// Shows that there is a key, and nothing of it.
macro_rules! secretive {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    )*};
}

secretive!(Cbc, Gcm, HmacSha1, HmacSha256);

pub(crate) enum Cbc {
    Short(Aes128),
    Long(Aes256),
}

impl Cbc {
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let short = Aes128::new_from_slice(key).map(Cbc::Short);
        short
            .or_else(|_| Aes256::new_from_slice(key).map(Cbc::Long))
            .ok()
    }

    pub(crate) fn encrypt(&self, iv: &[u8; 16], blocks: &mut [u8]) {
        let (blocks, _) = Array::slice_as_chunks_mut(blocks);
        let iv = iv.into();
        match self {
            Cbc::Short(key) => cbc::Encryptor::inner_iv_init(key, iv).encrypt_blocks(blocks),
            Cbc::Long(key) => cbc::Encryptor::inner_iv_init(key, iv).encrypt_blocks(blocks),
        }
    }

    pub(crate) fn decrypt(&self, iv: &[u8; 16], blocks: &mut [u8]) {
        let (blocks, _) = Array::slice_as_chunks_mut(blocks);
        let iv = iv.into();
        match self {
            Cbc::Short(key) => cbc::Decryptor::inner_iv_init(key, iv).decrypt_blocks(blocks),
            Cbc::Long(key) => cbc::Decryptor::inner_iv_init(key, iv).decrypt_blocks(blocks),
        }
    }
}

pub(crate) enum Gcm {
    Short(Aes128Gcm),
    Long(Aes256Gcm),
}

impl Gcm {
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let short = Aes128Gcm::new_from_slice(key).map(Gcm::Short);
        short
            .or_else(|_| Aes256Gcm::new_from_slice(key).map(Gcm::Long))
            .ok()
    }

    pub(crate) fn seal(&self, nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> Option<[u8; 16]> {
        let (nonce, data) = (nonce.into(), data.into());
        let tag = match self {
            Gcm::Short(key) => key.encrypt_inout_detached(nonce, aad, data),
            Gcm::Long(key) => key.encrypt_inout_detached(nonce, aad, data),
        };
        tag.ok().map(Into::into)
    }

    pub(crate) fn open(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; 16],
    ) -> bool {
        let (nonce, data, tag) = (nonce.into(), data.into(), tag.into());
        let opened = match self {
            Gcm::Short(key) => key.decrypt_inout_detached(nonce, aad, data, tag),
            Gcm::Long(key) => key.decrypt_inout_detached(nonce, aad, data, tag),
        };
        opened.is_ok()
    }
}

pub(crate) struct HmacSha1(Hmac<sha1::Sha1>);

impl HmacSha1 {
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        KeyInit::new_from_slice(key).map(Self).ok()
    }

    pub(crate) fn tag(&self, data: &[u8]) -> [u8; 20] {
        let tag = self.0.clone().chain_update(data).finalize();
        tag.into_bytes().into()
    }
}

pub(crate) struct HmacSha256(Hmac<sha2::Sha256>);

impl HmacSha256 {
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        KeyInit::new_from_slice(key).map(Self).ok()
    }

    pub(crate) fn tag(&self, data: &[u8]) -> [u8; 32] {
        let tag = self.0.clone().chain_update(data).finalize();
        tag.into_bytes().into()
    }
}

pub(crate) fn crc32(before: u32, data: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new_with_initial(before);
    crc.update(data);
    crc.finalize()
}

/// As the engine's `pattern_set.rs` has it.
#[derive(Debug)]
pub(crate) struct Set {
    automaton: AhoCorasick,
    /// Patterns to be compared once more, by index; empty if the automaton does not fold case.
    exact: Vec<Option<Box<[u8]>>>,
}

impl Set {
    pub(crate) fn new(patterns: &[Pattern<'_>]) -> Result<Self, Error> {
        let bytes: usize = patterns.iter().map(|p| p.bytes.len()).sum();
        if patterns.len() > PATTERNS_MAX || bytes > PATTERN_BYTES_MAX {
            return Err(Error::Bound);
        }
        if patterns.iter().any(|p| p.bytes.is_empty()) {
            return Err(Error::Length);
        }
        let fold = patterns.iter().any(|p| p.nocase);
        let kind = match bytes {
            ..=DFA_PATTERN_BYTES_MAX => AhoCorasickKind::DFA,
            _ => AhoCorasickKind::ContiguousNFA,
        };
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(fold)
            .kind(Some(kind))
            .build(patterns.iter().map(|p| p.bytes))
            .map_err(|_| Error::Bound)?;
        let exact = if fold {
            patterns
                .iter()
                .map(|p| (!p.nocase).then(|| p.bytes.into()))
                .collect()
        } else {
            Vec::new()
        };
        Ok(Self { automaton, exact })
    }

    pub(crate) fn find(&self, text: &[u8], out: &mut Vec<Match>) -> Result<(), Error> {
        if self.automaton.patterns_len() == 0 {
            return Ok(());
        }
        for found in self.automaton.find_overlapping_iter(text) {
            let pattern = found.pattern().as_usize();
            let exact = self.exact.get(pattern).and_then(Option::as_deref);
            if exact.is_some_and(|p| *p != text[found.range()]) {
                continue;
            }
            if out.len() == MATCHES_MAX {
                out.clear();
                return Err(Error::Bound);
            }
            out.push(Match {
                end: found.end() as u32,
                pattern: pattern as u32,
            });
        }
        // by end already: this only orders what ends at the same place
        out.sort_unstable();
        Ok(())
    }
}
