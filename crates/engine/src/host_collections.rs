//! The collections' part of the service ABI: reads see the request's own writes, writes are buffered.

use crate::host::{C, Ctx, bytes, found, parts, position, range};
use e3_collections::TxnError;
use wasmtime::{Linker, Result};

/// Collection ids are 16 bits; a handle above is none.
pub(crate) fn handle(collection: i32) -> u16 {
    u16::try_from(collection).unwrap_or(u16::MAX)
}

pub(crate) fn code(done: std::result::Result<(), TxnError>) -> i32 {
    match done {
        Ok(()) => 0,
        Err(e) => e.code(),
    }
}

/// Defines the imports.
pub(crate) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    define_maps(linker)?;
    define_arrays_and_counters(linker)
}

fn define_maps(linker: &mut Linker<Ctx>) -> Result<()> {
    linker.func_wrap(
        "e3",
        "collection",
        |mut c: C<'_>, ptr: i32, len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            Ok(ctx.collection(bytes(memory, ptr, len)?))
        },
    )?;
    linker.func_wrap(
        "e3",
        "get",
        |mut c: C<'_>, coll: i32, key: i32, key_len: i32, out: i32, cap: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.note_read();
            let state = ctx.state.borrow();
            let key = bytes(memory, key, key_len)?;
            match ctx.txn.get(&state, handle(coll), key) {
                Ok(value) => Ok(found(memory, value, out, cap)?),
                Err(e) => Ok(e.code()),
            }
        },
    )?;
    linker.func_wrap(
        "e3",
        "put",
        |mut c: C<'_>, coll: i32, key: i32, key_len: i32, ptr: i32, len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.in_request("put")?;
            let state = ctx.state.borrow();
            let (key, value) = (bytes(memory, key, key_len)?, bytes(memory, ptr, len)?);
            Ok(code(ctx.txn.put(&state, handle(coll), key, value)))
        },
    )?;
    linker.func_wrap(
        "e3",
        "delete",
        |mut c: C<'_>, coll: i32, key: i32, key_len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.in_request("delete")?;
            let state = ctx.state.borrow();
            let key = bytes(memory, key, key_len)?;
            Ok(match ctx.txn.delete(&state, handle(coll), key) {
                Ok(there) => i32::from(there),
                Err(e) => e.code(),
            })
        },
    )?;
    linker.func_wrap("e3", "scan", scan)?;
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the service ABI's signature")]
fn scan(
    mut c: C<'_>,
    coll: i32,
    from: i32,
    from_len: i32,
    to: i32,
    to_len: i32,
    limit: i32,
    reverse: i32,
    out: i32,
    cap: i32,
) -> Result<i32> {
    let (memory, ctx) = parts(&mut c)?;
    let mut bounds = std::mem::take(&mut ctx.scratch);
    bounds.clear();
    bounds.extend_from_slice(bytes(memory, from, from_len)?);
    let split = bounds.len();
    bounds.extend_from_slice(bytes(memory, to, to_len)?);
    let (from, to) = bounds.split_at(split);
    let out = range(memory.len(), out, cap)?;
    let limit = limit.max(0) as u32;
    let answer = ctx.scan(coll, from, to, limit, reverse != 0, &mut memory[out]);
    ctx.scratch = bounds;
    Ok(answer)
}

impl Ctx {
    pub(crate) fn collection(&self, name: &[u8]) -> i32 {
        let names = self.shared.spec.collections.iter().map(|s| &*s.name);
        position(names, name)
    }

    /// Packs entries into `out`, at most `limit` of them; 0 = no limit.
    pub(crate) fn scan(
        &mut self,
        coll: i32,
        from: &[u8],
        to: &[u8],
        limit: u32,
        reverse: bool,
        out: &mut [u8],
    ) -> i32 {
        self.note_read();
        let state = self.state.borrow();
        let limit = if limit == 0 { u32::MAX } else { limit };
        let (mut packed, mut count) = (Packed::new(out), 0);
        let visit = |key: &[u8], value: &[u8]| {
            count += 1;
            packed.push([key, value]) && count < limit
        };
        let scanned = self
            .txn
            .scan(&state, handle(coll), from, to, reverse, visit);
        packed.answer(scanned)
    }

    /// Packs elements into `out`, from an index on; behind the last one goes [`NO_MORE`].
    pub(crate) fn array_scan(&self, coll: i32, key: &[u8], from: i64, out: &mut [u8]) -> i32 {
        self.note_read();
        let state = self.state.borrow();
        let mut packed = Packed::new(out);
        let visit = |element: &[u8]| packed.push([element]);
        let scanned = (self.txn).array_scan(&state, handle(coll), key, from as u64, visit);
        if scanned.is_ok() {
            packed.end();
        }
        packed.answer(scanned)
    }
}

/// Entries on their way into the guest's memory: the lengths of an entry's parts, then the parts.
struct Packed<'o> {
    out: &'o mut [u8],
    at: usize,
    /// Bytes of the entry that had no room.
    needed: usize,
}

impl<'o> Packed<'o> {
    fn new(out: &'o mut [u8]) -> Packed<'o> {
        let (at, needed) = (0, 0);
        Packed { out, at, needed }
    }

    /// Whether there was room.
    #[inline(always)]
    fn push<const PARTS: usize>(&mut self, parts: [&[u8]; PARTS]) -> bool {
        let len = 4 * PARTS + parts.iter().map(|part| part.len()).sum::<usize>();
        let Some(room) = self.out.get_mut(self.at..self.at + len) else {
            self.needed = len;
            return false;
        };
        let (lens, mut room) = room.split_at_mut(4 * PARTS);
        for (len, part) in lens.as_chunks_mut().0.iter_mut().zip(parts) {
            *len = (part.len() as u32).to_le_bytes();
            let (body, rest) = room.split_at_mut(part.len());
            body.copy_from_slice(part);
            room = rest;
        }
        self.at += len;
        true
    }

    /// Behind the last entry of all goes [`NO_MORE`], if there is room.
    fn end(&mut self) {
        if self.needed == 0
            && let Some(room) = self.out.get_mut(self.at..self.at + 4)
        {
            room.copy_from_slice(&NO_MORE.to_le_bytes());
            self.at += 4;
        }
    }

    /// Bytes written; the first entry's negated if that had no room, as keys and values are far
    /// below 2 GiB.
    fn answer(self, scanned: std::result::Result<(), TxnError>) -> i32 {
        match scanned {
            Ok(()) if self.at == 0 => -i32::try_from(self.needed).unwrap_or(i32::MAX),
            Ok(()) => self.at as i32,
            Err(e) => e.code(),
        }
    }
}

/// In the place of an element's length: there are no more.
const NO_MORE: u32 = u32::MAX;

fn array_scan(
    mut c: C<'_>,
    coll: i32,
    key: i32,
    key_len: i32,
    from: i64,
    out: i32,
    cap: i32,
) -> Result<i32> {
    let (memory, ctx) = parts(&mut c)?;
    let mut copy = std::mem::take(&mut ctx.scratch);
    copy.clear();
    copy.extend_from_slice(bytes(memory, key, key_len)?);
    let out = range(memory.len(), out, cap)?;
    let answer = ctx.array_scan(coll, &copy, from, &mut memory[out]);
    ctx.scratch = copy;
    Ok(answer)
}

fn define_arrays_and_counters(linker: &mut Linker<Ctx>) -> Result<()> {
    linker.func_wrap(
        "e3",
        "array_len",
        |mut c: C<'_>, coll: i32, key: i32, key_len: i32| -> Result<i64> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.note_read();
            let state = ctx.state.borrow();
            let key = bytes(memory, key, key_len)?;
            Ok(match ctx.txn.array_len(&state, handle(coll), key) {
                Ok(len) => len as i64,
                Err(e) => i64::from(e.code()),
            })
        },
    )?;
    linker.func_wrap(
        "e3",
        "array_get",
        |mut c: C<'_>,
         coll: i32,
         key: i32,
         key_len: i32,
         index: i64,
         out: i32,
         cap: i32|
         -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.note_read();
            let state = ctx.state.borrow();
            let key = bytes(memory, key, key_len)?;
            match ctx.txn.array_get(&state, handle(coll), key, index as u64) {
                Ok(value) => Ok(found(memory, value, out, cap)?),
                Err(e) => Ok(e.code()),
            }
        },
    )?;
    linker.func_wrap("e3", "array_scan", array_scan)?;
    linker.func_wrap(
        "e3",
        "array_push",
        |mut c: C<'_>, coll: i32, key: i32, key_len: i32, ptr: i32, len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.in_request("array_push")?;
            let state = ctx.state.borrow();
            let (key, value) = (bytes(memory, key, key_len)?, bytes(memory, ptr, len)?);
            Ok(code(ctx.txn.array_push(&state, handle(coll), key, value)))
        },
    )?;
    linker.func_wrap(
        "e3",
        "array_put",
        |mut c: C<'_>,
         coll: i32,
         key: i32,
         key_len: i32,
         index: i64,
         ptr: i32,
         len: i32|
         -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.in_request("array_put")?;
            let state = ctx.state.borrow();
            let (key, value) = (bytes(memory, key, key_len)?, bytes(memory, ptr, len)?);
            let index = index as u64; // a negative one is out of range too
            let put = ctx.txn.array_put(&state, handle(coll), key, index, value);
            Ok(code(put))
        },
    )?;
    linker.func_wrap(
        "e3",
        "array_pop_front",
        |mut c: C<'_>, coll: i32, key: i32, key_len: i32| -> Result<i32> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.in_request("array_pop_front")?;
            let state = ctx.state.borrow();
            let key = bytes(memory, key, key_len)?;
            Ok(match ctx.txn.array_pop_front(&state, handle(coll), key) {
                Ok(there) => i32::from(there),
                Err(e) => e.code(),
            })
        },
    )?;
    linker.func_wrap(
        "e3",
        "counter_add",
        |mut c: C<'_>, coll: i32, key: i32, key_len: i32, delta: i64| -> Result<i64> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.in_request("counter_add")?;
            let state = ctx.state.borrow();
            let key = bytes(memory, key, key_len)?;
            let added = ctx.txn.counter_add(&state, handle(coll), key, delta);
            Ok(added.unwrap_or_else(|e| i64::from(e.code())))
        },
    )?;
    linker.func_wrap(
        "e3",
        "counter_get",
        |mut c: C<'_>, coll: i32, key: i32, key_len: i32| -> Result<i64> {
            let (memory, ctx) = parts(&mut c)?;
            ctx.note_read();
            let state = ctx.state.borrow();
            let key = bytes(memory, key, key_len)?;
            let value = ctx.txn.counter_get(&state, handle(coll), key);
            Ok(value.unwrap_or_else(|e| i64::from(e.code())))
        },
    )?;
    Ok(())
}
