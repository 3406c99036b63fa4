//! What [`service!`](crate::service) exports from a module: the statics behind the request
//! buffer and the service, the allocator and the panic handler. Exists on wasm32 only.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;

use crate::free_list::FreeLists;
use crate::{Level, Request, Service};
use dlmalloc::GlobalDlmalloc;

#[global_allocator]
static ALLOCATOR: FreeLists<GlobalDlmalloc> = FreeLists::new(GlobalDlmalloc);

#[panic_handler]
fn on_panic(info: &core::panic::PanicInfo<'_>) -> ! {
    crate::log!(Level::Error, "{info}");
    core::arch::wasm32::unreachable()
}

/// Compares bytes, eight at a time: the compiler's own compares single bytes, and each iteration also
/// checks for preemption. The rest is compared together with preceding bytes, which are known to be
/// equal.
///
/// # Safety
///
/// As C has it: both pointers are good for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    let eight = |at: usize| {
        // SAFETY: both have eight bytes from `at` on, which need not be aligned.
        let (x, y) = unsafe {
            let (a, b) = (a.add(at).cast::<u64>(), b.add(at).cast::<u64>());
            (a.read_unaligned(), b.read_unaligned())
        };
        // the first byte that differs decides
        u64::from_be(x).cmp(&u64::from_be(y)) as i32
    };
    let four = |at: usize| {
        // SAFETY: both have four bytes from `at` on, which need not be aligned.
        let (x, y) = unsafe {
            let (a, b) = (a.add(at).cast::<u32>(), b.add(at).cast::<u32>());
            (a.read_unaligned(), b.read_unaligned())
        };
        u32::from_be(x).cmp(&u32::from_be(y)) as i32
    };
    match len {
        0..4 => {
            let mut at = 0;
            while at < len {
                // SAFETY: `at` is below `len`.
                let (x, y) = unsafe { (*a.add(at), *b.add(at)) };
                if x != y {
                    return i32::from(x) - i32::from(y);
                }
                at += 1;
            }
            0
        }
        4..8 => match four(0) {
            0 => four(len - 4),
            order => order,
        },
        _ => {
            let mut at = 0;
            while at + 8 < len {
                match eight(at) {
                    0 => at += 8,
                    order => return order,
                }
            }
            eight(len - 8)
        }
    }
}

/// As [`memcmp`], where only equality counts.
///
/// # Safety
///
/// As for [`memcmp`].
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { memcmp(a, b, len) }
}

/// Where the host writes the head of a request: all but its payload.
pub fn request_head() -> i32 {
    crate::sys::request_head()
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
