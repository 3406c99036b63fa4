//! Collections: reads see the request's own writes, writes are buffered.

use crate::context::{Ctx, Scan, code, handle, number, there, time_to_live};
use crate::limits::KEY_LEN_MAX;
use crate::memory::{bytes, cut, found, import, parts, range};
use wasmtime::{Caller, Linker, Result};

/// Defines the imports.
pub(super) fn define(linker: &mut Linker<Ctx>) -> Result<()> {
    define_maps(linker)?;
    define_array_reads(linker)?;
    define_array_writes(linker)?;
    define_counters(linker)
}

fn define_maps(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker, collection(name: i32, len: i32) -> i32, |memory, ctx| {
        ctx.collection(bytes(memory, name, len)?)
    });
    import!(linker, get(coll: i32, key: i32, key_len: i32, out: i32, cap: i32) -> i32,
        |memory, ctx| {
            ctx.note_read();
            let state = ctx.state.borrow();
            let key = bytes(memory, key, key_len)?;
            match ctx.txn.get(&state, handle(coll), key) {
                Ok(value) => found(memory, value, out, cap)?,
                Err(e) => e.code(),
            }
        }
    );
    import!(linker, put(coll: i32, key: i32, key_len: i32, ptr: i32, len: i32) -> i32,
        |memory, ctx| {
            ctx.in_request("put")?;
            let state = ctx.state.borrow();
            let (key, value) = (bytes(memory, key, key_len)?, bytes(memory, ptr, len)?);
            code(ctx.txn.put(&state, handle(coll), key, value))
        }
    );
    import!(linker,
        put_ttl(coll: i32, key: i32, key_len: i32, ptr: i32, len: i32, ttl: i64) -> i32,
        |memory, ctx| {
            ctx.in_request("put_ttl")?;
            let state = ctx.state.borrow();
            let (key, value) = (bytes(memory, key, key_len)?, bytes(memory, ptr, len)?);
            let ttl = time_to_live(ttl);
            code(ctx.txn.put_for(&state, handle(coll), key, value, ttl))
        }
    );
    import!(linker, delete(coll: i32, key: i32, key_len: i32) -> i32, |memory, ctx| {
        ctx.in_request("delete")?;
        let state = ctx.state.borrow();
        let key = bytes(memory, key, key_len)?;
        there(ctx.txn.delete(&state, handle(coll), key))
    });
    linker.func_wrap("e3", "scan", scan)?;
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the service ABI's signature")]
fn scan(
    mut caller: Caller<'_, Ctx>,
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
    let (memory, ctx) = parts(&mut caller)?;
    let mut bounds = std::mem::take(&mut ctx.scratch);
    bounds.clear();
    bounds.extend_from_slice(cut(bytes(memory, from, from_len)?, KEY_LEN_MAX));
    let split = bounds.len();
    bounds.extend_from_slice(cut(bytes(memory, to, to_len)?, KEY_LEN_MAX));
    let (from, to) = bounds.split_at(split);
    let out = range(memory.len(), out, cap)?;
    let scan = Scan {
        from,
        to,
        limit: limit.max(0) as u32,
        reverse: reverse != 0,
    };
    let answer = ctx.scan(coll, scan, &mut memory[out]);
    ctx.scratch = bounds;
    Ok(answer)
}

fn define_array_reads(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker, array_len(coll: i32, key: i32, key_len: i32) -> i64, |memory, ctx| {
        ctx.note_read();
        let state = ctx.state.borrow();
        let key = bytes(memory, key, key_len)?;
        let len = ctx.txn.array_len(&state, handle(coll), key);
        number(len.map(|len| len as i64))
    });
    import!(linker,
        array_get(coll: i32, key: i32, key_len: i32, index: i64, out: i32, cap: i32) -> i32,
        |memory, ctx| {
            ctx.note_read();
            let state = ctx.state.borrow();
            let key = bytes(memory, key, key_len)?;
            match ctx.txn.array_get(&state, handle(coll), key, index as u64) {
                Ok(value) => found(memory, value, out, cap)?,
                Err(e) => e.code(),
            }
        }
    );
    import!(linker,
        array_scan(coll: i32, key: i32, key_len: i32, from: i64, out: i32, cap: i32) -> i32,
        |memory, ctx| {
            let mut copy = std::mem::take(&mut ctx.scratch);
            copy.clear();
            copy.extend_from_slice(cut(bytes(memory, key, key_len)?, KEY_LEN_MAX));
            let out = range(memory.len(), out, cap)?;
            let answer = ctx.array_scan(coll, &copy, from, &mut memory[out]);
            ctx.scratch = copy;
            answer
        }
    );
    Ok(())
}

fn define_array_writes(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker, array_push(coll: i32, key: i32, key_len: i32, ptr: i32, len: i32) -> i32,
        |memory, ctx| {
            ctx.in_request("array_push")?;
            let state = ctx.state.borrow();
            let (key, value) = (bytes(memory, key, key_len)?, bytes(memory, ptr, len)?);
            code(ctx.txn.array_push(&state, handle(coll), key, value))
        }
    );
    import!(linker,
        array_put(coll: i32, key: i32, key_len: i32, index: i64, ptr: i32, len: i32) -> i32,
        |memory, ctx| {
            ctx.in_request("array_put")?;
            let state = ctx.state.borrow();
            let (key, value) = (bytes(memory, key, key_len)?, bytes(memory, ptr, len)?);
            let index = index as u64; // a negative one is out of range too
            code(ctx.txn.array_put(&state, handle(coll), key, index, value))
        }
    );
    import!(linker, array_pop_front(coll: i32, key: i32, key_len: i32) -> i32, |memory, ctx| {
        ctx.in_request("array_pop_front")?;
        let state = ctx.state.borrow();
        let key = bytes(memory, key, key_len)?;
        there(ctx.txn.array_pop_front(&state, handle(coll), key))
    });
    Ok(())
}

fn define_counters(linker: &mut Linker<Ctx>) -> Result<()> {
    import!(linker, counter_add(coll: i32, key: i32, key_len: i32, delta: i64) -> i64,
        |memory, ctx| {
            ctx.in_request("counter_add")?;
            let state = ctx.state.borrow();
            let key = bytes(memory, key, key_len)?;
            number(ctx.txn.counter_add(&state, handle(coll), key, delta))
        }
    );
    import!(linker, counter_get(coll: i32, key: i32, key_len: i32) -> i64, |memory, ctx| {
        ctx.note_read();
        let state = ctx.state.borrow();
        let key = bytes(memory, key, key_len)?;
        number(ctx.txn.counter_get(&state, handle(coll), key))
    });
    Ok(())
}
