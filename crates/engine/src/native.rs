//! The host of a service that is compiled natively: the reference of `e3 bench services`.
//!
//! The service has the same queue, collections, buffers and accelerators as an instance in
//! WebAssembly. The caller takes a payload from [`Native::turn`], passes it to the handler, returns
//! it by [`Native::handled`], and so on. The handler's calls go to the methods that are named as in
//! docs/abi.md. Only what WebAssembly adds is missing: the instance's own memory with the copies
//! into and out of it, checks of bounds, and preemption.

use crate::accelerators::crc32;
use crate::codes::{NO_HANDLE, UNAVAILABLE};
use crate::config::EngineConfig;
use crate::context::{Asked, Ctx, HttpParts, Scan, code, handle, number, there, time_to_live};
use crate::shared::{Core, Shared};
use crate::spec::{InstanceId, InstanceSpec};
use e3_collections::State;
use e3_invocation::{Completion, HandlerError, Invocation};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The host of one service.
pub struct Native {
    ctx: Ctx,
    status: i32,
}

/// Copies a value to `out` if it fits; its length, or -1 if there is no value.
fn give(value: Option<&[u8]>, out: &mut [u8]) -> i32 {
    let Some(value) = value else { return -1 };
    if let Some(to) = out.get_mut(..value.len()) {
        to.copy_from_slice(value);
    }
    value.len() as i32
}

impl Native {
    /// A host with empty collections. `config` is that of an engine.
    pub fn new(spec: InstanceSpec, config: &EngineConfig) -> Native {
        let now = Instant::now();
        let state = State::new(&spec.collections);
        let core = Rc::new(Core::new(config, now));
        let shared = Shared::new(InstanceId(0), spec, core, Rc::default());
        shared.has_started.set(true);
        Native {
            ctx: Ctx::new(Rc::new(shared), Rc::new(RefCell::new(state)), now),
            status: 0,
        }
    }

    /// Queues an invocation.
    pub fn submit(&mut self, invocation: Invocation) {
        self.ctx.shared.queue.borrow_mut().push_back(invocation);
    }

    /// Lets [`Native::turn`] take requests for so long.
    pub fn resume(&mut self, max_wall: Duration) {
        let now = Instant::now();
        self.ctx.shared.resumed.set(now);
        self.ctx.shared.core.run_until.set(now + max_wall);
    }

    /// Commits the request that was handled, and takes the next one: its payload. None if the queue
    /// is empty or the time is up.
    pub fn turn(&mut self) -> Result<Option<Vec<u8>>, HandlerError> {
        let payload = self.ctx.turn(Instant::now(), self.status);
        payload.map(|p| p.map(std::mem::take))
    }

    /// Takes the status that the handler returned, and its payload for reuse.
    pub fn handled(&mut self, payload: Vec<u8>, status: i32) {
        if let Some(invocation) = &mut self.ctx.invocation {
            invocation.payload = payload;
        }
        self.status = status;
    }

    /// Adds the completions since the last call to `done`.
    pub fn completions(&mut self, done: &mut Vec<Completion>) {
        let mut completions = self.ctx.shared.core.completions.borrow_mut();
        done.extend(completions.drain(..).map(|(_, completion)| completion));
    }

    /// A buffer with this content.
    pub fn buffer(&mut self, content: &[u8]) -> Vec<u8> {
        self.ctx.shared.core.buffer_with(content)
    }

    /// Gives a buffer back for reuse.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.ctx.shared.core.recycle(buffer);
    }
}

/// The calls of docs/abi.md.
#[expect(missing_docs, reason = "docs/abi.md says what each does")]
impl Native {
    pub fn now(&self) -> i64 {
        self.ctx.now()
    }

    pub fn request_id(&self) -> [u8; 16] {
        self.ctx.request_id()
    }

    pub fn request_key(&self, out: &mut [u8]) -> i32 {
        give(Some(self.ctx.request_key()), out)
    }

    pub fn request_slot(&self) -> i32 {
        self.ctx.request_slot()
    }

    pub fn request_edge(&self) -> i32 {
        self.ctx.request_edge()
    }

    pub fn reply(&mut self, status: u32, payload: &[u8]) -> i32 {
        self.ctx.reply(status, payload)
    }

    pub fn channel(&self, name: &str) -> i32 {
        self.ctx.channel(name.as_bytes())
    }

    pub fn send(&mut self, channel: i32, key: &[u8], payload: &[u8]) -> i32 {
        self.ctx.send(channel, key, payload)
    }

    pub fn timer_set(&mut self, name: &str, key: &[u8], at: i64, payload: &[u8]) -> i32 {
        self.ctx.timer_set(name.as_bytes(), key, at, payload)
    }

    pub fn timer_cron(&mut self, name: &str, key: &[u8], cron: &str, payload: &[u8]) -> i32 {
        let (name, cron) = (name.as_bytes(), cron.as_bytes());
        self.ctx.timer_cron(name, key, cron, payload)
    }

    pub fn timer_cancel(&mut self, name: &str, key: &[u8]) -> i32 {
        self.ctx.timer_cancel(name.as_bytes(), key)
    }

    pub fn timer_name(&self, out: &mut [u8]) -> i32 {
        give(self.ctx.timer_name(), out)
    }

    pub fn publish(&mut self, topic: &str, key: &[u8], payload: &[u8]) -> i32 {
        self.ctx.publish(topic.as_bytes(), key, payload)
    }

    pub fn topic(&self, out: &mut [u8]) -> i32 {
        give(self.ctx.topic().as_deref().map(str::as_bytes), out)
    }

    pub fn outbound_service(
        &mut self,
        name: &str,
        key: &[u8],
        service: &str,
        to: &[u8],
        payload: &[u8],
        timeout: i64,
    ) -> i32 {
        let asked = Asked::new(name, key, payload, timeout);
        self.ctx.outbound_service(&asked, service.as_bytes(), to)
    }

    pub fn outbound_application(
        &mut self,
        name: &str,
        key: &[u8],
        application: &str,
        to: &[u8],
        payload: &[u8],
        timeout: i64,
    ) -> i32 {
        let asked = Asked::new(name, key, payload, timeout);
        let application = application.as_bytes();
        self.ctx.outbound_application(&asked, application, to)
    }

    #[expect(clippy::too_many_arguments, reason = "the service ABI's signatures")]
    pub fn outbound_http(
        &mut self,
        name: &str,
        key: &[u8],
        method: &str,
        url: &str,
        headers: &[u8],
        payload: &[u8],
        timeout: i64,
    ) -> i32 {
        let asked = Asked::new(name, key, payload, timeout);
        let http = HttpParts {
            method: method.as_bytes(),
            url: url.as_bytes(),
            headers,
        };
        self.ctx.outbound_http(&asked, &http)
    }

    pub fn answer(&self) -> i64 {
        self.ctx.answer()
    }

    /// Nobody serves what it calls.
    pub fn call(&self, service: &str, _key: &[u8], _payload: &[u8]) -> i32 {
        if self.ctx.shared.spec.calls.iter().any(|c| c == service) {
            UNAVAILABLE
        } else {
            NO_HANDLE
        }
    }

    pub fn call_status(&self) -> i32 {
        self.ctx.call_status()
    }

    pub fn call_answer(&self, out: &mut [u8]) -> i32 {
        give(self.ctx.call_answer(), out)
    }

    pub fn collection(&self, name: &str) -> i32 {
        self.ctx.collection(name.as_bytes())
    }

    pub fn get(&self, coll: i32, key: &[u8], out: &mut [u8]) -> i32 {
        let state = self.ctx.state.borrow();
        match self.ctx.txn.get(&state, handle(coll), key) {
            Ok(value) => give(value, out),
            Err(e) => e.code(),
        }
    }

    pub fn put(&mut self, coll: i32, key: &[u8], value: &[u8]) -> i32 {
        let state = self.ctx.state.borrow();
        code(self.ctx.txn.put(&state, handle(coll), key, value))
    }

    pub fn put_ttl(&mut self, coll: i32, key: &[u8], value: &[u8], ttl: i64) -> i32 {
        let state = self.ctx.state.borrow();
        let ttl = time_to_live(ttl);
        code(self.ctx.txn.put_for(&state, handle(coll), key, value, ttl))
    }

    pub fn delete(&mut self, coll: i32, key: &[u8]) -> i32 {
        let state = self.ctx.state.borrow();
        there(self.ctx.txn.delete(&state, handle(coll), key))
    }

    pub fn scan(
        &mut self,
        coll: i32,
        from: &[u8],
        to: &[u8],
        limit: u32,
        reverse: bool,
        out: &mut [u8],
    ) -> i32 {
        let scan = Scan {
            from,
            to,
            limit,
            reverse,
        };
        self.ctx.scan(coll, scan, out)
    }

    pub fn array_len(&self, coll: i32, key: &[u8]) -> i64 {
        let state = self.ctx.state.borrow();
        let len = self.ctx.txn.array_len(&state, handle(coll), key);
        number(len.map(|len| len as i64))
    }

    pub fn array_get(&self, coll: i32, key: &[u8], index: i64, out: &mut [u8]) -> i32 {
        let state = self.ctx.state.borrow();
        let element = self
            .ctx
            .txn
            .array_get(&state, handle(coll), key, index as u64);
        match element {
            Ok(value) => give(value, out),
            Err(e) => e.code(),
        }
    }

    pub fn array_scan(&self, coll: i32, key: &[u8], from: i64, out: &mut [u8]) -> i32 {
        self.ctx.array_scan(coll, key, from, out)
    }

    pub fn array_push(&mut self, coll: i32, key: &[u8], value: &[u8]) -> i32 {
        let state = self.ctx.state.borrow();
        code(self.ctx.txn.array_push(&state, handle(coll), key, value))
    }

    pub fn array_put(&mut self, coll: i32, key: &[u8], index: i64, value: &[u8]) -> i32 {
        let state = self.ctx.state.borrow();
        let (coll, index) = (handle(coll), index as u64);
        code(self.ctx.txn.array_put(&state, coll, key, index, value))
    }

    pub fn array_pop_front(&mut self, coll: i32, key: &[u8]) -> i32 {
        let state = self.ctx.state.borrow();
        there(self.ctx.txn.array_pop_front(&state, handle(coll), key))
    }

    pub fn counter_add(&mut self, coll: i32, key: &[u8], delta: i64) -> i64 {
        let state = self.ctx.state.borrow();
        number(self.ctx.txn.counter_add(&state, handle(coll), key, delta))
    }

    pub fn counter_get(&self, coll: i32, key: &[u8]) -> i64 {
        let state = self.ctx.state.borrow();
        number(self.ctx.txn.counter_get(&state, handle(coll), key))
    }

    pub fn asset(&self, name: &str) -> i32 {
        self.ctx.asset(name.as_bytes())
    }

    pub fn asset_len(&self, asset: i32) -> i64 {
        let content = self.ctx.asset_from(asset, 0);
        content.map_or(-1, |content| content.len() as i64)
    }

    pub fn asset_read(&self, asset: i32, offset: i64, out: &mut [u8]) -> i32 {
        let Some(rest) = self.ctx.asset_from(asset, offset) else {
            return -1;
        };
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        len as i32
    }

    pub fn secret(&self, name: &str, out: &mut [u8]) -> i32 {
        give(self.ctx.secret(name.as_bytes()), out)
    }

    pub fn config(&self, name: &str, out: &mut [u8]) -> i32 {
        give(self.ctx.config(name.as_bytes()), out)
    }

    pub fn random(&mut self, out: &mut [u8]) -> i32 {
        self.ctx.random(out)
    }

    pub fn log(&mut self, level: i32, text: &[u8]) {
        self.ctx.log(level, text);
    }

    pub fn accel_key(&mut self, kind: i32, key: &[u8]) -> i32 {
        let here = self.ctx.shared.accelerators();
        self.ctx.accel.key(here, kind, key)
    }

    pub fn accel_drop(&mut self, handle: i32) -> i32 {
        self.ctx.accel.release(handle)
    }

    pub fn aes_cbc_encrypt(&self, key: i32, iv: &[u8; 16], blocks: &mut [u8]) -> i32 {
        self.ctx.accel.cbc(key, iv, blocks, true)
    }

    pub fn aes_cbc_decrypt(&self, key: i32, iv: &[u8; 16], blocks: &mut [u8]) -> i32 {
        self.ctx.accel.cbc(key, iv, blocks, false)
    }

    pub fn aes_gcm_seal(
        &self,
        key: i32,
        nonce: &[u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &mut [u8; 16],
    ) -> i32 {
        match self.ctx.accel.gcm_seal(key, nonce, aad, data) {
            Ok(made) => {
                *tag = made;
                1
            }
            Err(code) => code,
        }
    }

    pub fn aes_gcm_open(
        &self,
        key: i32,
        nonce: &[u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; 16],
    ) -> i32 {
        self.ctx.accel.gcm_open(key, nonce, aad, data, tag)
    }

    pub fn hmac(&self, key: i32, data: &[u8], out: &mut [u8]) -> i32 {
        let mut tag = [0; 32];
        match self.ctx.accel.hmac(key, data, &mut tag) {
            Ok(len) => give(Some(&tag[..len]), out),
            Err(code) => code,
        }
    }

    pub fn crc32(&self, before: u32, data: &[u8]) -> i64 {
        crc32(self.ctx.shared.accelerators(), before, data)
    }

    pub fn match_set(&mut self, packed: &[u8]) -> i32 {
        let here = self.ctx.shared.accelerators();
        self.ctx.accel.match_set(here, packed)
    }

    pub fn match_find(&mut self, set: i32, text: &[u8], out: &mut [u8]) -> i32 {
        match self.ctx.accel.match_find(set, text) {
            Ok(len) => {
                self.ctx.accel.matches_into(out);
                len as i32
            }
            Err(code) => code,
        }
    }
}
