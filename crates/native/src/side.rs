//! The two sides of a comparison: a service in WebAssembly on the engine, and the same crate
//! compiled natively on the engine's native host.

use crate::NativeError;
use crate::host::EngineHost;
use e3_engine::{EngineConfig, InstanceSpec, Native, RandomFn, Solo, Ticker};
use e3_invocation::{Completion, Invocation};
use e3_random::Random;
use e3_sdk::Service;
use e3_sdk::native;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Longer than any batch takes.
const TURN: Duration = Duration::from_secs(60);

/// Handles batches of requests.
pub trait Side {
    /// Handles requests in order and appends their completions to `ended`.
    fn call_all(
        &mut self,
        requests: &mut Vec<Invocation>,
        ended: &mut Vec<Completion>,
    ) -> Result<(), NativeError>;

    /// A buffer with this content, recycled if possible.
    fn buffer(&mut self, content: &[u8]) -> Vec<u8>;

    /// Takes a buffer back.
    fn recycle(&mut self, buffer: Vec<u8>);
}

impl Side for Solo {
    fn call_all(
        &mut self,
        requests: &mut Vec<Invocation>,
        ended: &mut Vec<Completion>,
    ) -> Result<(), NativeError> {
        Ok(Solo::call_all(self, requests.drain(..), ended)?)
    }

    fn buffer(&mut self, content: &[u8]) -> Vec<u8> {
        Solo::buffer(self, content)
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        Solo::recycle(self, buffer);
    }
}

/// A native service. The calls of a thread go to its host, so a thread can have only one.
pub struct NativeSide<S> {
    service: S,
}

/// Random bytes that are the same on both sides, so that effects can be compared.
pub fn same_random() -> RandomFn {
    let random = RefCell::new(Random::new(1));
    Rc::new(move |out: &mut [u8]| out.fill_with(|| random.borrow_mut().next_u64() as u8))
}

/// Starts the native side on this thread.
pub fn start<S: Service + 'static>(spec: InstanceSpec) -> Result<Box<dyn Side>, NativeError> {
    let tick = Duration::from_millis(1);
    // the ticker sleeps, since no engine is busy with it
    let mut config = EngineConfig::new(Ticker::new(tick).map_err(e3_engine::SoloError::from)?);
    config.random = same_random();
    native::install(EngineHost(Native::new(spec, &config)));
    let service = native::init::<S>().map_err(|e| NativeError::Init(e.to_string()))?;
    Ok(Box::new(NativeSide { service }))
}

fn host<R>(f: impl FnOnce(&mut Native) -> R) -> R {
    let answer = native::with(|host: &mut EngineHost| f(&mut host.0));
    answer.expect("was installed when the side was started")
}

impl<S: Service> Side for NativeSide<S> {
    fn call_all(
        &mut self,
        requests: &mut Vec<Invocation>,
        ended: &mut Vec<Completion>,
    ) -> Result<(), NativeError> {
        host(|host| {
            for request in requests.drain(..) {
                host.submit(request);
            }
            host.resume(TURN);
        });
        while let Some(payload) = host(Native::turn)? {
            let status = native::handle(&mut self.service, &payload);
            host(|host| host.handled(payload, status));
        }
        host(|host| host.completions(ended));
        Ok(())
    }

    fn buffer(&mut self, content: &[u8]) -> Vec<u8> {
        host(|host| host.buffer(content))
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        host(|host| host.recycle(buffer));
    }
}
