//! The allocator: free lists by size for short blocks, so that a request's vectors and texts cost a few
//! instructions each. All other blocks, and new short ones, come from an underlying allocator.

#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;

/// Sizes are rounded up to multiples of this; blocks with a larger alignment are not kept.
const STEP: usize = 8;
/// Longest block that is kept.
const BLOCK_LEN_MAX: usize = 1024;

/// An allocator with free lists over the allocator `below`.
pub(crate) struct FreeLists<A> {
    below: A,
    /// For each size the block that was freed last, which holds the address of the one before it.
    free: UnsafeCell<[*mut u8; BLOCK_LEN_MAX / STEP]>,
}

// SAFETY: a module has one thread.
unsafe impl<A: Sync> Sync for FreeLists<A> {}

impl<A> FreeLists<A> {
    pub(crate) const fn new(below: A) -> FreeLists<A> {
        FreeLists {
            below,
            free: UnsafeCell::new([null_mut(); BLOCK_LEN_MAX / STEP]),
        }
    }
}

impl<A: GlobalAlloc> FreeLists<A> {
    /// A block from below. If there is none, all free blocks are returned first, so that their memory can
    /// serve other sizes.
    ///
    /// # Safety
    ///
    /// As for [`GlobalAlloc::alloc`].
    unsafe fn fresh(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            let block = self.below.alloc(layout);
            if block.is_null() && self.release() {
                self.below.alloc(layout)
            } else {
                block
            }
        }
    }

    /// Returns all free blocks to the allocator below; true if there were any.
    #[cold]
    fn release(&self) -> bool {
        let mut any = false;
        for at in 0..BLOCK_LEN_MAX / STEP {
            // SAFETY: one thread; each block of the list holds the address of the next, came from
            // below, and is not used any more.
            unsafe {
                let mut block = core::mem::replace(&mut (*self.free.get())[at], null_mut());
                while !block.is_null() {
                    any = true;
                    let next = block.cast::<*mut u8>().read();
                    self.below.dealloc(block, whole(at));
                    block = next;
                }
            }
        }
        any
    }
}

/// The list for a layout; none if its blocks are not kept.
#[inline]
fn list(layout: Layout) -> Option<usize> {
    let kept = layout.size() <= BLOCK_LEN_MAX && layout.align() <= STEP;
    kept.then(|| layout.size().saturating_sub(1) / STEP)
}

/// The layout of all blocks of a list.
fn whole(list: usize) -> Layout {
    // SAFETY: the alignment is a power of two, and the size far from the largest.
    unsafe { Layout::from_size_align_unchecked((list + 1) * STEP, STEP) }
}

// SAFETY: a block is in a list only while it is free, and all blocks of a list have one size, come from
// below and are aligned to `STEP`.
unsafe impl<A: GlobalAlloc> GlobalAlloc for FreeLists<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(at) = list(layout) else {
            // SAFETY: the caller's promise.
            return unsafe { self.fresh(layout) };
        };
        // SAFETY: one thread; a block in the list holds an address and is long enough for it.
        unsafe {
            let head = &mut (*self.free.get())[at];
            let block = *head;
            if block.is_null() {
                return self.fresh(whole(at));
            }
            *head = block.cast::<*mut u8>().read();
            block
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(at) = list(layout) else {
            // SAFETY: the caller's promise; it came from there.
            return unsafe { self.below.dealloc(block, layout) };
        };
        // SAFETY: one thread; the block belongs to the list now.
        unsafe {
            let head = &mut (*self.free.get())[at];
            block.cast::<*mut u8>().write(*head);
            *head = block;
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let next = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (list(layout), list(next)) {
            // SAFETY: the caller's promise; it came from there and stays there.
            (None, None) => unsafe {
                let other = self.below.realloc(block, layout, size);
                if other.is_null() && self.release() {
                    self.below.realloc(block, layout, size)
                } else {
                    other
                }
            },
            (old, new) if old == new => block,
            // SAFETY: the two do not overlap, and each has as many bytes.
            _ => unsafe {
                let other = self.alloc(next);
                if !other.is_null() {
                    other.copy_from_nonoverlapping(block, layout.size().min(size));
                    self.dealloc(block, layout);
                }
                other
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Host;
    use std::alloc::System;

    #[test]
    fn blocks_in_use_never_overlap() {
        let allocator = FreeLists::new(System);
        let host = Host::new();
        let draw = |bound: usize| host.random() as usize % bound;
        // each block is filled with its own number
        let mut used: Vec<(*mut u8, Layout, u8)> = Vec::new();
        let check = |&(block, layout, fill): &(*mut u8, Layout, u8), len: usize| {
            assert!(block.addr().is_multiple_of(layout.align()));
            // SAFETY: the block is in use and was filled.
            let bytes = unsafe { core::slice::from_raw_parts(block, len) };
            assert!(bytes.iter().all(|b| *b == fill), "{layout:?}");
        };
        for turn in 0..20_000 {
            let longest = if draw(4) == 0 { 3000 } else { 100 };
            let len = 1 + draw(longest);
            let fill = turn as u8;
            match draw(5) {
                0 | 1 => {
                    let layout = Layout::from_size_align(len, 1 << draw(5)).unwrap();
                    // SAFETY: the size is not zero, and the block is as long.
                    let block = unsafe {
                        let block = allocator.alloc(layout);
                        block.write_bytes(fill, len);
                        block
                    };
                    used.push((block, layout, fill));
                }
                2 if !used.is_empty() => {
                    let at = draw(used.len());
                    let (block, old, fill) = used[at];
                    let layout = Layout::from_size_align(len, old.align()).unwrap();
                    // SAFETY: the block is in use.
                    let block = unsafe { allocator.realloc(block, old, len) };
                    check(&(block, layout, fill), len.min(old.size()));
                    // SAFETY: the block is as long.
                    unsafe { block.write_bytes(fill, len) };
                    used[at] = (block, layout, fill);
                }
                _ if !used.is_empty() => {
                    let freed = used.swap_remove(draw(used.len()));
                    check(&freed, freed.1.size());
                    // SAFETY: it is in use, and no more from here on.
                    unsafe { allocator.dealloc(freed.0, freed.1) };
                }
                _ => {}
            }
        }
        assert!(used.len() > 10);
        for freed in used {
            check(&freed, freed.1.size());
            // SAFETY: as above.
            unsafe { allocator.dealloc(freed.0, freed.1) };
        }
    }

    /// An allocator with a limited number of bytes.
    struct Bounded(core::cell::Cell<usize>);

    // SAFETY: the system's, or none.
    unsafe impl GlobalAlloc for Bounded {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let Some(left) = self.0.get().checked_sub(layout.size()) else {
                return null_mut();
            };
            self.0.set(left);
            // SAFETY: the caller's promise.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            self.0.set(self.0.get() + layout.size());
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(block, layout) }
        }
    }

    #[test]
    fn free_blocks_are_returned_when_memory_runs_out() {
        let allocator = FreeLists::new(Bounded(core::cell::Cell::new(1000)));
        let layout = |len| Layout::from_size_align(len, 8).unwrap();
        // SAFETY: each block is freed once, with its layout.
        unsafe {
            let short: Vec<_> = (0..100).map(|_| allocator.alloc(layout(10))).collect();
            assert_eq!(short.iter().filter(|r| r.is_null()).count(), 38);
            for block in short.into_iter().filter(|r| !r.is_null()) {
                allocator.dealloc(block, layout(10));
            }
            let other = allocator.alloc(layout(500));
            assert!(!other.is_null());
            allocator.dealloc(other, layout(500));
            let long = allocator.alloc(layout(400));
            let longer = allocator.realloc(long, layout(400), 990);
            assert!(longer.is_null(), "the two together are too long");
            allocator.dealloc(long, layout(400));
            assert!(!allocator.alloc(layout(1000)).is_null());
        }
    }

    #[test]
    fn a_short_block_is_reused() {
        let allocator = FreeLists::new(System);
        let layout = |len| Layout::from_size_align(len, 8).unwrap();
        // SAFETY: each block is freed once, with its layout.
        unsafe {
            let first = allocator.alloc(layout(20));
            allocator.dealloc(first, layout(20));
            assert_eq!(allocator.alloc(layout(24)), first);
            assert_eq!(allocator.realloc(first, layout(24), 17), first);
            let other = allocator.alloc(layout(24));
            assert_ne!(other, first);
            allocator.dealloc(other, layout(24));
            allocator.dealloc(first, layout(17));
        }
    }
}
