//! Services compiled natively: where their host calls go.
//!
//! On targets other than wasm32 a service's crate is an ordinary library. Its host calls (docs/abi.md) go to
//! the thread's [`Host`]: that of [`testing`](crate::testing), or one that a program has installed with
//! [`install`], such as the benchmark that compares a service with itself in WebAssembly.

use std::any::Any;
use std::cell::RefCell;

use crate::testing_state::Inner;
use crate::{Request, Service};

/// Which host the thread's calls go to.
enum Current {
    Testing(Box<Inner>),
    Installed(Box<dyn Host>),
}

thread_local! {
    static CURRENT: RefCell<Current> = RefCell::new(Current::Testing(Box::default()));
}

/// Sends the thread's calls to this host from now on.
pub fn install(host: impl Host) {
    CURRENT.set(Current::Installed(Box::new(host)));
}

/// The thread's host, if it is an `H`.
pub fn with<H: Host, R>(f: impl FnOnce(&mut H) -> R) -> Option<R> {
    CURRENT.with_borrow_mut(|current| match current {
        Current::Installed(host) => {
            let host: &mut dyn Any = &mut **host;
            host.downcast_mut().map(f)
        }
        Current::Testing(_) => None,
    })
}

/// The testing host; an empty one takes the place of another host.
pub(crate) fn with_testing<R>(f: impl FnOnce(&mut Inner) -> R) -> R {
    CURRENT.with_borrow_mut(|current| {
        if let Current::Installed(_) = current {
            *current = Current::Testing(Box::default());
        }
        match current {
            Current::Testing(inner) => f(inner),
            Current::Installed(_) => unreachable!("was replaced"),
        }
    })
}

/// Makes a service as a module's `e3_init` does.
pub fn init<S: Service>() -> Result<S, crate::Error> {
    S::init()
}

/// Gives a service a request as a module's `e3_handle` does: 0 if it is to be committed.
pub fn handle<S: Service>(service: &mut S, payload: &[u8]) -> i32 {
    match service.handle(&Request::new(payload)) {
        Ok(()) => 0,
        Err(error) => error.code(),
    }
}

/// Declares the calls: as a trait's methods, and as functions that ask the thread's host.
macro_rules! calls {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        /// Answers the calls of docs/abi.md; pointers with lengths are slices here.
        #[allow(clippy::too_many_arguments, reason = "the service ABI's signatures")]
        pub trait Host: Any {
            $(
                #[doc = concat!("`", stringify!($name), "` of docs/abi.md.")]
                fn $name(&mut self, $($arg: $type),*) $(-> $answer)?;
            )*
        }

        /// The calls, to the thread's host.
        #[allow(clippy::too_many_arguments, reason = "the service ABI's signatures")]
        pub(crate) mod calls {
            use super::{CURRENT, Current, Host};

            $(
                pub(crate) fn $name($($arg: $type),*) $(-> $answer)? {
                    CURRENT.with_borrow_mut(|current| match current {
                        Current::Installed(host) => Host::$name(&mut **host, $($arg),*),
                        Current::Testing(inner) => Host::$name(&mut **inner, $($arg),*),
                    })
                }
            )*
        }
    };
}

calls! {
    fn now() -> i64;
    fn request_id(out: &mut [u8; 16]);
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
    fn outbound_service(name: &str, key: &[u8], service: &str, to: &[u8], payload: &[u8], timeout: i64) -> i32;
    fn outbound_application(name: &str, key: &[u8], application: &str, to: &[u8], payload: &[u8], timeout: i64) -> i32;
    fn outbound_http(name: &str, key: &[u8], method: &str, url: &str, headers: &[u8], body: &[u8], timeout: i64) -> i32;
    fn answer() -> i64;
    fn call(service: &str, key: &[u8], payload: &[u8]) -> i32;
    fn call_status() -> i32;
    fn call_answer(out: &mut [u8]) -> i32;
    fn collection(name: &str) -> i32;
    fn get(coll: i32, key: &[u8], out: &mut [u8]) -> i32;
    fn put(coll: i32, key: &[u8], value: &[u8]) -> i32;
    fn put_ttl(coll: i32, key: &[u8], value: &[u8], ttl: i64) -> i32;
    fn delete(coll: i32, key: &[u8]) -> i32;
    fn scan(coll: i32, from: &[u8], to: &[u8], limit: u32, reverse: bool, out: &mut [u8]) -> i32;
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
    fn accel_drop(handle: i32);
    fn aes_cbc_encrypt(key: i32, iv: &[u8; 16], blocks: &mut [u8]) -> i32;
    fn aes_cbc_decrypt(key: i32, iv: &[u8; 16], blocks: &mut [u8]) -> i32;
    fn aes_gcm_seal(key: i32, nonce: &[u8; 12], aad: &[u8], data: &mut [u8], tag: &mut [u8; 16]) -> i32;
    fn aes_gcm_open(key: i32, nonce: &[u8; 12], aad: &[u8], data: &mut [u8], tag: &[u8; 16]) -> i32;
    fn hmac(key: i32, data: &[u8], out: &mut [u8]) -> i32;
    fn crc32(before: u32, data: &[u8]) -> i64;
    fn match_set(packed: &[u8]) -> i32;
    fn match_find(set: i32, text: &[u8], out: &mut [u8]) -> i32;
}
