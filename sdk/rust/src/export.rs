//! What [`service!`](crate::service) exports from a module: the statics behind the request
//! buffer and the service, the allocator and the panic handler. Exists on wasm32 only.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;

use crate::{Level, Request, Service};

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

#[panic_handler]
fn on_panic(info: &core::panic::PanicInfo<'_>) -> ! {
    crate::log!(Level::Error, "{info}");
    core::arch::wasm32::unreachable()
}

/// The request buffer of a module.
pub struct Buffer<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: a module has one thread, and the host enters it for one request at a time.
unsafe impl<const N: usize> Sync for Buffer<N> {}

impl<const N: usize> Buffer<N> {
    /// A zeroed buffer.
    #[expect(clippy::new_without_default, reason = "made in a static")]
    pub const fn new() -> Self {
        Self(UnsafeCell::new([0; N]))
    }

    /// Its address, for the host.
    pub fn address(&self) -> i32 {
        self.0.get() as i32
    }
}

/// Where a module keeps its service between requests.
pub struct Slot<S>(UnsafeCell<Option<S>>);

// SAFETY: as for `Buffer`.
unsafe impl<S> Sync for Slot<S> {}

impl<S: Service> Slot<S> {
    /// An empty slot.
    #[expect(clippy::new_without_default, reason = "made in a static")]
    pub const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// Makes the service; 0 if that worked.
    pub fn init(&self) -> i32 {
        match S::init() {
            Ok(service) => {
                // SAFETY: one thread, and no reference into the slot outlives a call.
                unsafe { *self.0.get() = Some(service) };
                0
            }
            Err(error) => {
                crate::log!(Level::Error, "init: {error}");
                error.code()
            }
        }
    }

    /// Handles the request in `buffer`; 0 if it is to be committed.
    pub fn handle<const N: usize>(&self, buffer: &Buffer<N>, len: i32) -> i32 {
        // SAFETY: one thread, and the host enters again only after this call has returned.
        let service = unsafe { &mut *self.0.get() };
        let Some(service) = service else {
            return match self.init() {
                0 => self.handle(buffer, len),
                code => code,
            };
        };
        // SAFETY: the host writes the buffer only between calls.
        let buffer = unsafe { &*buffer.0.get() };
        let payload = &buffer[..(len as u32 as usize).min(N)];
        match service.handle(&Request::new(payload)) {
            Ok(()) => 0,
            Err(error) => error.code(),
        }
    }
}
