//! Accelerators, in place in the guest's memory.

use crate::accelerators::crc32;
use crate::context::Ctx;
use crate::limits::ACCEL_LEN_MAX;
use crate::memory::{array, bytes, found, import, parts, range};
use wasmtime::{Caller, Linker, Result};

/// Defines the imports.
pub(super) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker, accel_key(kind: i32, ptr: i32, len: i32) -> i32, |memory, ctx| {
        let here = ctx.shared.accelerators();
        ctx.accel.key(here, kind, bytes(memory, ptr, len)?)
    });
    linker.func_wrap("e3", "accel_drop", |mut c: Caller<'_, Ctx>, handle: i32| {
        c.data_mut().accel.release(handle)
    })?;
    define_ciphers(linker)?;
    define_sums(linker)?;
    define_match(linker)
}

fn define_ciphers(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker, aes_cbc_encrypt(key: i32, iv: i32, ptr: i32, len: i32) -> i32, |memory, ctx| {
        let (iv, data) = (array(memory, iv)?, range(memory.len(), ptr, len)?);
        ctx.accel.cbc(key, &iv, &mut memory[data], true)
    });
    import!(linker, aes_cbc_decrypt(key: i32, iv: i32, ptr: i32, len: i32) -> i32, |memory, ctx| {
        let (iv, data) = (array(memory, iv)?, range(memory.len(), ptr, len)?);
        ctx.accel.cbc(key, &iv, &mut memory[data], false)
    });
    define_gcm(linker, "aes_gcm_seal", true)?;
    define_gcm(linker, "aes_gcm_open", false)
}

fn define_gcm(linker: &mut Linker<Ctx>, name: &str, seal: bool) -> Result<()> {
    linker.func_wrap(
        "e3",
        name,
        move |mut c: Caller<'_, Ctx>, key, nonce, aad, aad_len, ptr, len, tag| {
            let (aad, data) = ((aad, aad_len), (ptr, len));
            Gcm {
                key,
                nonce,
                aad,
                data,
                tag,
            }
            .run(&mut c, seal)
        },
    )?;
    Ok(())
}

/// Arguments of AES-GCM as the guest passes them: handle of the key, addresses, and addresses with
/// lengths.
struct Gcm {
    key: i32,
    nonce: i32,
    aad: (i32, i32),
    data: (i32, i32),
    tag: i32,
}

impl Gcm {
    /// Seals (writes the tag) or opens (reads it): 1 = done, 0 = not authentic.
    fn run(self, caller: &mut Caller<'_, Ctx>, seal: bool) -> Result<i32> {
        let (memory, ctx) = parts(caller)?;
        let size = memory.len();
        let data = range(size, self.data.0, self.data.1)?;
        let aad = range(size, self.aad.0, self.aad.1)?;
        let tag_at = range(size, self.tag, 16)?;
        let nonce: [u8; 12] = array(memory, self.nonce)?;
        let given: [u8; 16] = array(memory, self.tag)?;
        if aad.len() > ACCEL_LEN_MAX {
            return Ok(ctx.accel.gcm_refuses(self.key));
        }
        let (aad, data) = match memory.get_disjoint_mut([aad.clone(), data.clone()]) {
            Ok([aad, data]) => (&*aad, data),
            // the two overlap, so the other text would change with the data: copy it
            Err(_) => {
                ctx.scratch.clear();
                ctx.scratch.extend_from_slice(&memory[aad]);
                (&*ctx.scratch, &mut memory[data])
            }
        };
        if !seal {
            return Ok(ctx.accel.gcm_open(self.key, &nonce, aad, data, &given));
        }
        match ctx.accel.gcm_seal(self.key, &nonce, aad, data) {
            Ok(tag) => memory[tag_at].copy_from_slice(&tag),
            Err(code) => return Ok(code),
        }
        Ok(1)
    }
}

fn define_sums(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker, hmac(key: i32, ptr: i32, len: i32, out: i32, cap: i32) -> i32, |memory, ctx| {
        let mut tag = [0; 32];
        match ctx.accel.hmac(key, bytes(memory, ptr, len)?, &mut tag) {
            Ok(len) => found(memory, Some(&tag[..len]), out, cap)?,
            Err(code) => code,
        }
    });
    import!(linker, crc32(before: i32, ptr: i32, len: i32) -> i64, |memory, ctx| {
        let here = ctx.shared.accelerators();
        crc32(here, before as u32, bytes(memory, ptr, len)?)
    });
    Ok(())
}

fn define_match(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker, match_set(ptr: i32, len: i32) -> i32, |memory, ctx| {
        let here = ctx.shared.accelerators();
        ctx.accel.match_set(here, bytes(memory, ptr, len)?)
    });
    import!(linker, match_find(set: i32, ptr: i32, len: i32, out: i32, cap: i32) -> i32,
        |memory, ctx| {
            let to = range(memory.len(), out, cap)?;
            match ctx.accel.match_find(set, bytes(memory, ptr, len)?) {
                Ok(len) => {
                    ctx.accel.matches_into(&mut memory[to]);
                    len as i32
                }
                Err(code) => code,
            }
        }
    );
    Ok(())
}
