//! The imports as docs/abi.md declares them.

#[link(wasm_import_module = "e3")]
unsafe extern "C" {
    pub fn accel_key(kind: i32, key: *const u8, key_len: usize) -> i32;
    pub fn accel_drop(handle: i32) -> i32;
    pub fn aes_cbc_encrypt(key: i32, iv: *const u8, ptr: *mut u8, len: usize) -> i32;
    pub fn aes_cbc_decrypt(key: i32, iv: *const u8, ptr: *mut u8, len: usize) -> i32;
    pub fn aes_gcm_seal(
        key: i32,
        nonce: *const u8,
        aad: *const u8,
        aad_len: usize,
        ptr: *mut u8,
        len: usize,
        tag: *mut u8,
    ) -> i32;
    pub fn aes_gcm_open(
        key: i32,
        nonce: *const u8,
        aad: *const u8,
        aad_len: usize,
        ptr: *mut u8,
        len: usize,
        tag: *const u8,
    ) -> i32;
    pub fn hmac(key: i32, ptr: *const u8, len: usize, out: *mut u8, cap: usize) -> i32;
    pub fn crc32(before: u32, ptr: *const u8, len: usize) -> i64;
    pub fn match_set(ptr: *const u8, len: usize) -> i32;
    pub fn match_find(set: i32, ptr: *const u8, len: usize, out: *mut u8, cap: usize) -> i32;
    pub fn now() -> i64;
    pub fn request_id(out: *mut u8);
    pub fn request_slot() -> i32;
    pub fn request_edge() -> i32;
    pub fn request_key(out: *mut u8, cap: usize) -> i32;
    pub fn reply(status: u32, ptr: *const u8, len: usize) -> i32;
    pub fn channel(name: *const u8, len: usize) -> i32;
    pub fn send(channel: i32, key: *const u8, key_len: usize, ptr: *const u8, len: usize) -> i32;
    pub fn timer_set(
        name: *const u8,
        name_len: usize,
        key: *const u8,
        key_len: usize,
        at: i64,
        ptr: *const u8,
        len: usize,
    ) -> i32;
    pub fn timer_cron(
        name: *const u8,
        name_len: usize,
        key: *const u8,
        key_len: usize,
        cron: *const u8,
        cron_len: usize,
        ptr: *const u8,
        len: usize,
    ) -> i32;
    pub fn timer_cancel(name: *const u8, name_len: usize, key: *const u8, key_len: usize) -> i32;
    pub fn timer_name(out: *mut u8, cap: usize) -> i32;
    pub fn call(
        service: *const u8,
        service_len: usize,
        key: *const u8,
        key_len: usize,
        ptr: *const u8,
        len: usize,
    ) -> i32;
    pub fn call_status() -> i32;
    pub fn call_answer(out: *mut u8, cap: usize) -> i32;
    pub fn collection(name: *const u8, len: usize) -> i32;
    pub fn get(coll: i32, key: *const u8, key_len: usize, out: *mut u8, cap: usize) -> i32;
    pub fn put(coll: i32, key: *const u8, key_len: usize, ptr: *const u8, len: usize) -> i32;
    pub fn put_ttl(
        coll: i32,
        key: *const u8,
        key_len: usize,
        ptr: *const u8,
        len: usize,
        ttl: i64,
    ) -> i32;
    pub fn delete(coll: i32, key: *const u8, key_len: usize) -> i32;
    pub fn scan(
        coll: i32,
        from: *const u8,
        from_len: usize,
        to: *const u8,
        to_len: usize,
        limit: u32,
        reverse: u32,
        out: *mut u8,
        cap: usize,
    ) -> i32;
    pub fn array_len(coll: i32, key: *const u8, key_len: usize) -> i64;
    pub fn array_get(
        coll: i32,
        key: *const u8,
        key_len: usize,
        index: i64,
        out: *mut u8,
        cap: usize,
    ) -> i32;
    pub fn array_scan(
        coll: i32,
        key: *const u8,
        key_len: usize,
        from: i64,
        out: *mut u8,
        cap: usize,
    ) -> i32;
    pub fn array_push(coll: i32, key: *const u8, key_len: usize, ptr: *const u8, len: usize)
    -> i32;
    pub fn array_put(
        coll: i32,
        key: *const u8,
        key_len: usize,
        index: i64,
        ptr: *const u8,
        len: usize,
    ) -> i32;
    pub fn array_pop_front(coll: i32, key: *const u8, key_len: usize) -> i32;
    pub fn counter_add(coll: i32, key: *const u8, key_len: usize, delta: i64) -> i64;
    pub fn counter_get(coll: i32, key: *const u8, key_len: usize) -> i64;
    pub fn asset(name: *const u8, len: usize) -> i32;
    pub fn asset_len(asset: i32) -> i64;
    pub fn asset_read(asset: i32, offset: i64, out: *mut u8, cap: usize) -> i32;
    pub fn secret(name: *const u8, len: usize, out: *mut u8, cap: usize) -> i32;
    pub fn config(name: *const u8, len: usize, out: *mut u8, cap: usize) -> i32;
    pub fn random(out: *mut u8, len: usize) -> i32;
    pub fn log(level: i32, ptr: *const u8, len: usize);
}
