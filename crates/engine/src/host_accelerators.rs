//! The accelerators' part of the service ABI: AES, HMAC, CRC-32 and multi-pattern match with this
//! machine's instructions, in place in the guest's memory.
//!
//! Sources: FIPS 197 and NIST SP 800-38A (AES-CBC), SP 800-38D (GCM), RFC 2104 (HMAC), IEEE 802.3
//! (CRC-32), Aho and Corasick 1975 (match). Keys and pattern sets are made ready once and then
//! held by handle, for the instance's life. The libraries pick the machine's instructions (AES-NI,
//! SHA, CLMUL, and those of ARM) when they run.

use crate::host::{C, Ctx, bytes, found, parts, range};
use crate::limits::{ACCEL_HANDLES_MAX, ACCEL_LEN_MAX, MATCHES_MAX};
use crate::pattern_set::PatternSet;
use aes::cipher::{Array, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};
use aes::{Aes128, Aes256};
use aes_gcm::{AeadInOut, Aes128Gcm, Aes256Gcm, KeyInit};
use e3_model::Accelerator;
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::Sha256;
use wasmtime::{Linker, Result};

/// Code for a handle that does not exist.
const NO_HANDLE: i32 = -1;
/// Code for a bound that is reached.
const BOUND: i32 = -2;
/// Code for a handle of another kind.
const WRONG_KIND: i32 = -3;
/// Code for an accelerator that this node does not have.
const ABSENT: i32 = -5;
/// Code for a length that is not allowed.
const LENGTH: i32 = -6;

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
    /// Handles that were given back.
    free: Vec<i32>,
    /// Bytes of the patterns in all sets.
    pattern_bytes: usize,
    /// Occurrences on their way out.
    matches: Vec<(u32, u32)>,
}

impl Accel {
    fn get(&self, handle: i32) -> std::result::Result<&Held, i32> {
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

    fn release(&mut self, handle: i32) -> i32 {
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

/// A key made ready; none if its length is not allowed.
fn key(kind: Accelerator, key: &[u8]) -> Option<Held> {
    Some(match kind {
        Accelerator::AesCbc => Held::Cbc(Box::new(either(key)?)),
        Accelerator::AesGcm => Held::Gcm(Box::new(either(key)?)),
        Accelerator::HmacSha1 => Held::HmacSha1(Box::new(KeyInit::new_from_slice(key).ok()?)),
        Accelerator::HmacSha256 => Held::HmacSha256(Box::new(KeyInit::new_from_slice(key).ok()?)),
        Accelerator::Crc32 | Accelerator::Match => return None,
    })
}

/// Defines the imports.
pub(crate) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    define_handles(linker)?;
    define_ciphers(linker)?;
    define_sums(linker)?;
    define_match(linker)
}

fn define_handles(linker: &mut Linker<Ctx>) -> Result<()> {
    linker.func_wrap(
        "e3",
        "accel_key",
        |mut c: C<'_>, kind: i32, ptr: i32, len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            let content = bytes(memory, ptr, len)?;
            let Some(kind) = key_kind(kind) else {
                return Ok(WRONG_KIND);
            };
            if !ctx.shared.core.accelerators.has(kind) {
                return Ok(ABSENT);
            }
            if content.len() > ACCEL_LEN_MAX {
                return Ok(LENGTH);
            }
            Ok(match key(kind, content) {
                Some(key) => ctx.accel.hold(key),
                None => LENGTH,
            })
        },
    )?;
    linker.func_wrap("e3", "accel_drop", |mut c: C<'_>, handle: i32| {
        c.data_mut().accel.release(handle)
    })?;
    Ok(())
}

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

fn cbc(c: &mut C<'_>, handle: i32, iv: i32, ptr: i32, len: i32, encrypt: bool) -> Result<i32> {
    let (memory, ctx) = parts(c)?;
    let data = range(memory.len(), ptr, len)?;
    let iv = bytes(memory, iv, 16)?;
    let iv = &Array::try_from(iv).expect("16 bytes");
    let key = match ctx.accel.get(handle) {
        Ok(Held::Cbc(key)) => &**key,
        Ok(_) => return Ok(WRONG_KIND),
        Err(code) => return Ok(code),
    };
    if data.len() > ACCEL_LEN_MAX || !data.len().is_multiple_of(16) {
        return Ok(LENGTH);
    }
    let data = &mut memory[data];
    match encrypt {
        true => blocks!(Encryptor, encrypt_blocks, key, iv, data),
        false => blocks!(Decryptor, decrypt_blocks, key, iv, data),
    }
    Ok(0)
}

/// Seals (`tag` receives the tag) or opens (`tag` holds it); 1 = done, 0 = not authentic.
#[expect(clippy::too_many_arguments, reason = "the service ABI's signature")]
fn gcm(
    c: &mut C<'_>,
    handle: i32,
    nonce: i32,
    aad: i32,
    aad_len: i32,
    ptr: i32,
    len: i32,
    tag: i32,
    seal: bool,
) -> Result<i32> {
    let (memory, ctx) = parts(c)?;
    let size = memory.len();
    let (data, aad) = (range(size, ptr, len)?, range(size, aad, aad_len)?);
    let tag_at = range(size, tag, 16)?;
    let nonce = Array::try_from(bytes(memory, nonce, 12)?).expect("12 bytes");
    let key = match ctx.accel.get(handle) {
        Ok(Held::Gcm(key)) => &**key,
        Ok(_) => return Ok(WRONG_KIND),
        Err(code) => return Ok(code),
    };
    if data.len() > ACCEL_LEN_MAX || aad.len() > ACCEL_LEN_MAX {
        return Ok(LENGTH);
    }
    let given = Array::try_from(&memory[tag_at.clone()]).expect("16 bytes");
    let (aad, data) = match memory.get_disjoint_mut([aad.clone(), data.clone()]) {
        Ok([aad, data]) => (&*aad, data),
        // the data change under the other text only if the two overlap: then it is copied
        Err(_) => {
            ctx.scratch.clear();
            ctx.scratch.extend_from_slice(&memory[aad]);
            (&*ctx.scratch, &mut memory[data])
        }
    };
    let made = match (seal, key) {
        (true, Either::Short(key)) => key.encrypt_inout_detached(&nonce, aad, data.into()),
        (true, Either::Long(key)) => key.encrypt_inout_detached(&nonce, aad, data.into()),
        (false, Either::Short(key)) => {
            let opened = key.decrypt_inout_detached(&nonce, aad, data.into(), &given);
            return Ok(i32::from(opened.is_ok()));
        }
        (false, Either::Long(key)) => {
            let opened = key.decrypt_inout_detached(&nonce, aad, data.into(), &given);
            return Ok(i32::from(opened.is_ok()));
        }
    };
    match made {
        Ok(tag) => memory[tag_at].copy_from_slice(&tag),
        Err(_) => return Ok(LENGTH),
    }
    Ok(1)
}

fn define_ciphers(linker: &mut Linker<Ctx>) -> Result<()> {
    linker.func_wrap(
        "e3",
        "aes_cbc_encrypt",
        |mut c: C<'_>, key: i32, iv: i32, ptr: i32, len: i32| cbc(&mut c, key, iv, ptr, len, true),
    )?;
    linker.func_wrap(
        "e3",
        "aes_cbc_decrypt",
        |mut c: C<'_>, key: i32, iv: i32, ptr: i32, len: i32| cbc(&mut c, key, iv, ptr, len, false),
    )?;
    linker.func_wrap(
        "e3",
        "aes_gcm_seal",
        |mut c: C<'_>, k: i32, nonce: i32, aad: i32, al: i32, ptr: i32, len: i32, tag: i32| {
            gcm(&mut c, k, nonce, aad, al, ptr, len, tag, true)
        },
    )?;
    linker.func_wrap(
        "e3",
        "aes_gcm_open",
        |mut c: C<'_>, k: i32, nonce: i32, aad: i32, al: i32, ptr: i32, len: i32, tag: i32| {
            gcm(&mut c, k, nonce, aad, al, ptr, len, tag, false)
        },
    )?;
    Ok(())
}

fn define_sums(linker: &mut Linker<Ctx>) -> Result<()> {
    linker.func_wrap(
        "e3",
        "hmac",
        |mut c: C<'_>, key: i32, ptr: i32, len: i32, out: i32, cap: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            let data = bytes(memory, ptr, len)?;
            if data.len() > ACCEL_LEN_MAX {
                return Ok(LENGTH);
            }
            match ctx.accel.get(key) {
                Ok(Held::HmacSha1(key)) => {
                    let tag = Hmac::clone(key).chain_update(data).finalize().into_bytes();
                    Ok(found(memory, Some(&tag), out, cap)?)
                }
                Ok(Held::HmacSha256(key)) => {
                    let tag = Hmac::clone(key).chain_update(data).finalize().into_bytes();
                    Ok(found(memory, Some(&tag), out, cap)?)
                }
                Ok(_) => Ok(WRONG_KIND),
                Err(code) => Ok(code),
            }
        },
    )?;
    linker.func_wrap(
        "e3",
        "crc32",
        |mut c: C<'_>, before: i32, ptr: i32, len: i32| -> Result<i64> {
            let (memory, ctx) = parts(&mut c)?;
            let data = bytes(memory, ptr, len)?;
            if !ctx.shared.core.accelerators.has(Accelerator::Crc32) {
                return Ok(i64::from(ABSENT));
            }
            if data.len() > ACCEL_LEN_MAX {
                return Ok(i64::from(LENGTH));
            }
            let mut crc = crc32fast::Hasher::new_with_initial(before as u32);
            crc.update(data);
            Ok(i64::from(crc.finalize()))
        },
    )?;
    Ok(())
}

fn define_match(linker: &mut Linker<Ctx>) -> Result<()> {
    linker.func_wrap(
        "e3",
        "match_set",
        |mut c: C<'_>, ptr: i32, len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            let packed = bytes(memory, ptr, len)?;
            if !ctx.shared.core.accelerators.has(Accelerator::Match) {
                return Ok(ABSENT);
            }
            let set = match PatternSet::parse(packed, ctx.accel.pattern_bytes) {
                Ok(set) => set,
                Err(code) => return Ok(code),
            };
            let bytes = set.pattern_bytes();
            let handle = ctx.accel.hold(Held::Set(Box::new(set)));
            if handle >= 0 {
                ctx.accel.pattern_bytes += bytes;
            }
            Ok(handle)
        },
    )?;
    linker.func_wrap(
        "e3",
        "match_find",
        |mut c: C<'_>, set: i32, ptr: i32, len: i32, out: i32, cap: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            let data = bytes(memory, ptr, len)?;
            let to = range(memory.len(), out, cap)?;
            if data.len() > ACCEL_LEN_MAX {
                return Ok(LENGTH);
            }
            let mut matches = std::mem::take(&mut ctx.accel.matches);
            matches.clear();
            let code = match ctx.accel.get(set) {
                Ok(Held::Set(set)) if set.find(data, MATCHES_MAX, &mut matches) => {
                    (matches.len() * 8) as i32
                }
                Ok(Held::Set(_)) => BOUND,
                Ok(_) => WRONG_KIND,
                Err(code) => code,
            };
            if code > 0 && code as usize <= to.len() {
                let pairs = memory[to].chunks_exact_mut(8);
                for (pair, (end, pattern)) in pairs.zip(&matches) {
                    pair[..4].copy_from_slice(&pattern.to_le_bytes());
                    pair[4..].copy_from_slice(&end.to_le_bytes());
                }
            }
            ctx.accel.matches = matches;
            Ok(code)
        },
    )?;
    Ok(())
}
