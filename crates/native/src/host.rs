//! The native host of the engine, as the host that the SDK calls.

use e3_engine::Native;
use e3_sdk::native::Host;

/// See [`Native`].
pub struct EngineHost(pub Native);

/// Forwards each call.
macro_rules! forward {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        $(
            fn $name(&mut self, $($arg: $type),*) $(-> $answer)? {
                self.0.$name($($arg),*)
            }
        )*
    };
}

impl Host for EngineHost {
    fn request_id(&mut self, out: &mut [u8; 16]) {
        *out = self.0.request_id();
    }

    fn accel_drop(&mut self, handle: i32) {
        self.0.accel_drop(handle);
    }

    forward! {
        fn now() -> i64;
        fn request_key(out: &mut [u8]) -> i32;
        fn request_slot() -> i32;
        fn request_edge() -> i32;
        fn reply(status: u32, payload: &[u8]) -> i32;
        fn channel(name: &str) -> i32;
        fn send(channel: i32, key: &[u8], payload: &[u8]) -> i32;
        fn timer_set(name: &str, key: &[u8], at: i64, payload: &[u8]) -> i32;
        fn timer_cron(name: &str, key: &[u8], cron: &str, payload: &[u8]) -> i32;
        fn timer_cancel(name: &str, key: &[u8]) -> i32;
        fn timer_name(out: &mut [u8]) -> i32;
        fn publish(topic: &str, key: &[u8], payload: &[u8]) -> i32;
        fn topic(out: &mut [u8]) -> i32;
        fn outbound_service(n: &str, k: &[u8], service: &str, to: &[u8], p: &[u8], t: i64) -> i32;
        fn outbound_application(n: &str, k: &[u8], app: &str, to: &[u8], p: &[u8], t: i64) -> i32;
        fn outbound_http(
            name: &str, key: &[u8], method: &str, url: &str, headers: &[u8], body: &[u8], t: i64
        ) -> i32;
        fn answer() -> i64;
        fn call(service: &str, key: &[u8], payload: &[u8]) -> i32;
        fn call_status() -> i32;
        fn call_answer(out: &mut [u8]) -> i32;
        fn collection(name: &str) -> i32;
        fn get(coll: i32, key: &[u8], out: &mut [u8]) -> i32;
        fn put(coll: i32, key: &[u8], value: &[u8]) -> i32;
        fn put_ttl(coll: i32, key: &[u8], value: &[u8], ttl: i64) -> i32;
        fn delete(coll: i32, key: &[u8]) -> i32;
        fn scan(c: i32, from: &[u8], to: &[u8], limit: u32, reverse: bool, out: &mut [u8]) -> i32;
        fn array_len(coll: i32, key: &[u8]) -> i64;
        fn array_get(coll: i32, key: &[u8], index: i64, out: &mut [u8]) -> i32;
        fn array_scan(coll: i32, key: &[u8], from: i64, out: &mut [u8]) -> i32;
        fn array_push(coll: i32, key: &[u8], value: &[u8]) -> i32;
        fn array_put(coll: i32, key: &[u8], index: i64, value: &[u8]) -> i32;
        fn array_pop_front(coll: i32, key: &[u8]) -> i32;
        fn counter_add(coll: i32, key: &[u8], delta: i64) -> i64;
        fn counter_get(coll: i32, key: &[u8]) -> i64;
        fn asset(name: &str) -> i32;
        fn asset_len(asset: i32) -> i64;
        fn asset_read(asset: i32, offset: i64, out: &mut [u8]) -> i32;
        fn secret(name: &str, out: &mut [u8]) -> i32;
        fn config(name: &str, out: &mut [u8]) -> i32;
        fn random(out: &mut [u8]) -> i32;
        fn log(level: i32, text: &[u8]);
        fn accel_key(kind: i32, key: &[u8]) -> i32;
        fn aes_cbc_encrypt(key: i32, iv: &[u8; 16], blocks: &mut [u8]) -> i32;
        fn aes_cbc_decrypt(key: i32, iv: &[u8; 16], blocks: &mut [u8]) -> i32;
        fn aes_gcm_seal(k: i32, iv: &[u8; 12], a: &[u8], d: &mut [u8], t: &mut [u8; 16]) -> i32;
        fn aes_gcm_open(k: i32, iv: &[u8; 12], a: &[u8], d: &mut [u8], t: &[u8; 16]) -> i32;
        fn hmac(key: i32, data: &[u8], out: &mut [u8]) -> i32;
        fn crc32(before: u32, data: &[u8]) -> i64;
        fn match_set(packed: &[u8]) -> i32;
        fn match_find(set: i32, text: &[u8], out: &mut [u8]) -> i32;
    }
}
