//! The imports of docs/abi.md as safe functions over slices.
//!
//! Every block is sound for one reason: the host reads or writes only the ranges that it is
//! given, within the call, and each range is a live slice of the right mutability. The head of a
//! request, which it writes between calls, says its own.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;

#[path = "sys_wasm_outbound.rs"]
mod outbound;
#[path = "sys_wasm_raw.rs"]
mod raw;

pub(crate) use outbound::*;

/// What the host writes before each request: docs/abi.md, `e3_request_head`.
#[repr(C)]
struct RequestHead {
    id: [u8; 16],
    now: i64,
    edge: i32,
    slot: u16,
    key_len: u16,
    key: [u8; 64],
}

/// No key is as long: the host has not written the head yet, or does not know of it.
const NOT_WRITTEN: u16 = u16::MAX;

struct HeadRoom(UnsafeCell<RequestHead>);

// SAFETY: a module has one thread, and the host writes only between calls.
unsafe impl Sync for HeadRoom {}

static HEAD: HeadRoom = HeadRoom(UnsafeCell::new(RequestHead {
    id: [0; 16],
    now: 0,
    edge: 0,
    slot: 0,
    key_len: NOT_WRITTEN,
    key: [0; 64],
}));

/// Where the host is to write it.
pub(crate) fn request_head() -> i32 {
    HEAD.0.get() as i32
}

fn head() -> Option<&'static RequestHead> {
    // SAFETY: the host writes only between calls, and what is returned is looked at within one.
    let head = unsafe { &*HEAD.0.get() };
    (head.key_len != NOT_WRITTEN).then_some(head)
}

pub(crate) fn now() -> i64 {
    // SAFETY: takes no memory.
    head().map_or_else(|| unsafe { raw::now() }, |head| head.now)
}

pub(crate) fn request_id(out: &mut [u8; 16]) {
    match head() {
        Some(head) => *out = head.id,
        // SAFETY: the host writes 16 bytes, which `out` has.
        None => unsafe { raw::request_id(out.as_mut_ptr()) },
    }
}

/// The key, if it is a short one as most are.
pub(crate) fn request_key_here() -> Option<&'static [u8]> {
    let head = head()?;
    head.key.get(..usize::from(head.key_len))
}

pub(crate) fn request_key(out: &mut [u8]) -> i32 {
    if let Some(key) = request_key_here()
        && let Some(part) = out.get_mut(..key.len())
    {
        part.copy_from_slice(key);
        return key.len() as i32;
    }
    // SAFETY: a live mutable slice.
    unsafe { raw::request_key(out.as_mut_ptr(), out.len()) }
}

pub(crate) fn request_slot() -> i32 {
    // SAFETY: takes no memory.
    head().map_or_else(|| unsafe { raw::request_slot() }, |head| head.slot.into())
}

pub(crate) fn request_edge() -> i32 {
    // SAFETY: takes no memory.
    head().map_or_else(|| unsafe { raw::request_edge() }, |head| head.edge)
}

pub(crate) fn reply(status: u32, payload: &[u8]) -> i32 {
    // SAFETY: a live slice.
    unsafe { raw::reply(status, payload.as_ptr(), payload.len()) }
}

pub(crate) fn channel(name: &str) -> i32 {
    // SAFETY: a live slice.
    unsafe { raw::channel(name.as_ptr(), name.len()) }
}

pub(crate) fn send(channel: i32, key: &[u8], payload: &[u8]) -> i32 {
    // SAFETY: live slices.
    unsafe {
        raw::send(
            channel,
            key.as_ptr(),
            key.len(),
            payload.as_ptr(),
            payload.len(),
        )
    }
}

pub(crate) fn timer_set(name: &str, key: &[u8], at: i64, payload: &[u8]) -> i32 {
    let (name, name_len) = (name.as_ptr(), name.len());
    let (key, key_len) = (key.as_ptr(), key.len());
    // SAFETY: live slices.
    unsafe {
        raw::timer_set(
            name,
            name_len,
            key,
            key_len,
            at,
            payload.as_ptr(),
            payload.len(),
        )
    }
}

pub(crate) fn timer_cron(name: &str, key: &[u8], cron: &str, payload: &[u8]) -> i32 {
    // SAFETY: live slices.
    unsafe {
        raw::timer_cron(
            name.as_ptr(),
            name.len(),
            key.as_ptr(),
            key.len(),
            cron.as_ptr(),
            cron.len(),
            payload.as_ptr(),
            payload.len(),
        )
    }
}

pub(crate) fn timer_cancel(name: &str, key: &[u8]) -> i32 {
    // SAFETY: live slices.
    unsafe { raw::timer_cancel(name.as_ptr(), name.len(), key.as_ptr(), key.len()) }
}

pub(crate) fn timer_name(out: &mut [u8]) -> i32 {
    // SAFETY: a live mutable slice.
    unsafe { raw::timer_name(out.as_mut_ptr(), out.len()) }
}

pub(crate) fn call(service: &str, key: &[u8], payload: &[u8]) -> i32 {
    // SAFETY: live slices.
    unsafe {
        raw::call(
            service.as_ptr(),
            service.len(),
            key.as_ptr(),
            key.len(),
            payload.as_ptr(),
            payload.len(),
        )
    }
}

pub(crate) fn call_status() -> i32 {
    // SAFETY: takes no memory.
    unsafe { raw::call_status() }
}

pub(crate) fn call_answer(out: &mut [u8]) -> i32 {
    // SAFETY: a live mutable slice.
    unsafe { raw::call_answer(out.as_mut_ptr(), out.len()) }
}

pub(crate) fn collection(name: &str) -> i32 {
    // SAFETY: a live slice.
    unsafe { raw::collection(name.as_ptr(), name.len()) }
}

pub(crate) fn get(coll: i32, key: &[u8], out: &mut [u8]) -> i32 {
    // SAFETY: live slices, `out` mutable.
    unsafe { raw::get(coll, key.as_ptr(), key.len(), out.as_mut_ptr(), out.len()) }
}

pub(crate) fn put(coll: i32, key: &[u8], value: &[u8]) -> i32 {
    // SAFETY: live slices.
    unsafe { raw::put(coll, key.as_ptr(), key.len(), value.as_ptr(), value.len()) }
}

pub(crate) fn put_ttl(coll: i32, key: &[u8], value: &[u8], ttl: i64) -> i32 {
    let (ptr, len) = (value.as_ptr(), value.len());
    // SAFETY: live slices.
    unsafe { raw::put_ttl(coll, key.as_ptr(), key.len(), ptr, len, ttl) }
}

pub(crate) fn delete(coll: i32, key: &[u8]) -> i32 {
    // SAFETY: a live slice.
    unsafe { raw::delete(coll, key.as_ptr(), key.len()) }
}

pub(crate) fn scan(
    coll: i32,
    from: &[u8],
    to: &[u8],
    limit: u32,
    reverse: bool,
    out: &mut [u8],
) -> i32 {
    // SAFETY: live slices, `out` mutable.
    unsafe {
        raw::scan(
            coll,
            from.as_ptr(),
            from.len(),
            to.as_ptr(),
            to.len(),
            limit,
            u32::from(reverse),
            out.as_mut_ptr(),
            out.len(),
        )
    }
}

pub(crate) fn array_len(coll: i32, key: &[u8]) -> i64 {
    // SAFETY: a live slice.
    unsafe { raw::array_len(coll, key.as_ptr(), key.len()) }
}

pub(crate) fn array_get(coll: i32, key: &[u8], index: i64, out: &mut [u8]) -> i32 {
    // SAFETY: live slices, `out` mutable.
    unsafe {
        raw::array_get(
            coll,
            key.as_ptr(),
            key.len(),
            index,
            out.as_mut_ptr(),
            out.len(),
        )
    }
}

pub(crate) fn array_scan(coll: i32, key: &[u8], from: i64, out: &mut [u8]) -> i32 {
    let (key, key_len, cap) = (key.as_ptr(), key.len(), out.len());
    // SAFETY: live slices, `out` mutable.
    unsafe { raw::array_scan(coll, key, key_len, from, out.as_mut_ptr(), cap) }
}

pub(crate) fn array_push(coll: i32, key: &[u8], value: &[u8]) -> i32 {
    // SAFETY: live slices.
    unsafe { raw::array_push(coll, key.as_ptr(), key.len(), value.as_ptr(), value.len()) }
}

pub(crate) fn array_put(coll: i32, key: &[u8], index: i64, value: &[u8]) -> i32 {
    // SAFETY: live slices.
    unsafe {
        raw::array_put(
            coll,
            key.as_ptr(),
            key.len(),
            index,
            value.as_ptr(),
            value.len(),
        )
    }
}

pub(crate) fn array_pop_front(coll: i32, key: &[u8]) -> i32 {
    // SAFETY: a live slice.
    unsafe { raw::array_pop_front(coll, key.as_ptr(), key.len()) }
}

pub(crate) fn counter_add(coll: i32, key: &[u8], delta: i64) -> i64 {
    // SAFETY: a live slice.
    unsafe { raw::counter_add(coll, key.as_ptr(), key.len(), delta) }
}

pub(crate) fn counter_get(coll: i32, key: &[u8]) -> i64 {
    // SAFETY: a live slice.
    unsafe { raw::counter_get(coll, key.as_ptr(), key.len()) }
}

pub(crate) fn asset(name: &str) -> i32 {
    // SAFETY: a live slice.
    unsafe { raw::asset(name.as_ptr(), name.len()) }
}

pub(crate) fn asset_len(asset: i32) -> i64 {
    // SAFETY: takes no memory.
    unsafe { raw::asset_len(asset) }
}

pub(crate) fn asset_read(asset: i32, offset: i64, out: &mut [u8]) -> i32 {
    // SAFETY: a live mutable slice.
    unsafe { raw::asset_read(asset, offset, out.as_mut_ptr(), out.len()) }
}

pub(crate) fn secret(name: &str, out: &mut [u8]) -> i32 {
    // SAFETY: live slices, `out` mutable.
    unsafe { raw::secret(name.as_ptr(), name.len(), out.as_mut_ptr(), out.len()) }
}

pub(crate) fn config(name: &str, out: &mut [u8]) -> i32 {
    // SAFETY: live slices, `out` mutable.
    unsafe { raw::config(name.as_ptr(), name.len(), out.as_mut_ptr(), out.len()) }
}

pub(crate) fn random(out: &mut [u8]) -> i32 {
    // SAFETY: a live mutable slice.
    unsafe { raw::random(out.as_mut_ptr(), out.len()) }
}

pub(crate) fn log(level: i32, text: &[u8]) {
    // SAFETY: a live slice.
    unsafe { raw::log(level, text.as_ptr(), text.len()) }
}

pub(crate) fn accel_key(kind: i32, key: &[u8]) -> i32 {
    // SAFETY: a live slice.
    unsafe { raw::accel_key(kind, key.as_ptr(), key.len()) }
}

pub(crate) fn accel_drop(handle: i32) {
    // SAFETY: takes no memory.
    unsafe { raw::accel_drop(handle) };
}

pub(crate) fn aes_cbc_encrypt(key: i32, iv: &[u8; 16], blocks: &mut [u8]) -> i32 {
    // SAFETY: 16 bytes and a live mutable slice.
    unsafe { raw::aes_cbc_encrypt(key, iv.as_ptr(), blocks.as_mut_ptr(), blocks.len()) }
}

pub(crate) fn aes_cbc_decrypt(key: i32, iv: &[u8; 16], blocks: &mut [u8]) -> i32 {
    // SAFETY: 16 bytes and a live mutable slice.
    unsafe { raw::aes_cbc_decrypt(key, iv.as_ptr(), blocks.as_mut_ptr(), blocks.len()) }
}

pub(crate) fn aes_gcm_seal(
    key: i32,
    nonce: &[u8; 12],
    aad: &[u8],
    data: &mut [u8],
    tag: &mut [u8; 16],
) -> i32 {
    // SAFETY: live slices, `data` and `tag` mutable; nonce and tag have 12 and 16 bytes.
    unsafe {
        raw::aes_gcm_seal(
            key,
            nonce.as_ptr(),
            aad.as_ptr(),
            aad.len(),
            data.as_mut_ptr(),
            data.len(),
            tag.as_mut_ptr(),
        )
    }
}

pub(crate) fn aes_gcm_open(
    key: i32,
    nonce: &[u8; 12],
    aad: &[u8],
    data: &mut [u8],
    tag: &[u8; 16],
) -> i32 {
    // SAFETY: live slices, `data` mutable; nonce and tag have 12 and 16 bytes.
    unsafe {
        raw::aes_gcm_open(
            key,
            nonce.as_ptr(),
            aad.as_ptr(),
            aad.len(),
            data.as_mut_ptr(),
            data.len(),
            tag.as_ptr(),
        )
    }
}

pub(crate) fn hmac(key: i32, data: &[u8], out: &mut [u8]) -> i32 {
    // SAFETY: live slices, `out` mutable.
    unsafe { raw::hmac(key, data.as_ptr(), data.len(), out.as_mut_ptr(), out.len()) }
}

pub(crate) fn crc32(before: u32, data: &[u8]) -> i64 {
    // SAFETY: a live slice.
    unsafe { raw::crc32(before, data.as_ptr(), data.len()) }
}

pub(crate) fn match_set(packed: &[u8]) -> i32 {
    // SAFETY: a live slice.
    unsafe { raw::match_set(packed.as_ptr(), packed.len()) }
}

pub(crate) fn match_find(set: i32, text: &[u8], out: &mut [u8]) -> i32 {
    // SAFETY: live slices, `out` mutable.
    unsafe { raw::match_find(set, text.as_ptr(), text.len(), out.as_mut_ptr(), out.len()) }
}
