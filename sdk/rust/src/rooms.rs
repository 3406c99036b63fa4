//! The allocator: short rooms that were given back wait in lists by size, so that a request's
//! vectors and texts cost a few instructions each. Everything else, and fresh rooms, come from an
//! allocator below.

#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;

/// Sizes are rounded up to multiples of this; what needs more alignment comes from below.
const STEP: usize = 8;
/// Longest room that is kept.
const ROOM_LEN_MAX: usize = 1024;

/// See the module.
pub(crate) struct Rooms<A> {
    below: A,
    /// For each size the room that was given back last, which holds the address of the one before.
    free: UnsafeCell<[*mut u8; ROOM_LEN_MAX / STEP]>,
}

// SAFETY: a module has one thread.
unsafe impl<A: Sync> Sync for Rooms<A> {}

impl<A> Rooms<A> {
    pub(crate) const fn new(below: A) -> Rooms<A> {
        Rooms {
            below,
            free: UnsafeCell::new([null_mut(); ROOM_LEN_MAX / STEP]),
        }
    }
}

impl<A: GlobalAlloc> Rooms<A> {
    /// A room from below; if there is none, those that wait are given back, so that they can become
    /// rooms of other sizes.
    ///
    /// # Safety
    ///
    /// As for [`GlobalAlloc::alloc`].
    unsafe fn fresh(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            let room = self.below.alloc(layout);
            match room.is_null() && self.give_back() {
                true => self.below.alloc(layout),
                false => room,
            }
        }
    }

    /// Empties the lists; whether there was anything.
    #[cold]
    fn give_back(&self) -> bool {
        let mut any = false;
        for at in 0..ROOM_LEN_MAX / STEP {
            // SAFETY: one thread; each room of the list holds the address of the one before, came
            // from below, and is nobody's from here on.
            unsafe {
                let mut room = core::mem::replace(&mut (*self.free.get())[at], null_mut());
                while !room.is_null() {
                    any = true;
                    let next = room.cast::<*mut u8>().read();
                    self.below.dealloc(room, whole(at));
                    room = next;
                }
            }
        }
        any
    }
}

/// The list of a room's size; none if it is not kept.
#[inline]
fn list(layout: Layout) -> Option<usize> {
    let kept = layout.size() <= ROOM_LEN_MAX && layout.align() <= STEP;
    kept.then(|| layout.size().saturating_sub(1) / STEP)
}

/// The layout of all rooms of a list.
fn whole(list: usize) -> Layout {
    // SAFETY: the alignment is a power of two, and the size far from the largest.
    unsafe { Layout::from_size_align_unchecked((list + 1) * STEP, STEP) }
}

// SAFETY: a room is in a list only while it is given back, and a list has rooms of one size only,
// all of them from below and aligned to `STEP`.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Rooms<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(at) = list(layout) else {
            // SAFETY: the caller's promise.
            return unsafe { self.fresh(layout) };
        };
        // SAFETY: one thread; a room in the list holds an address, and is as long as one.
        unsafe {
            let head = &mut (*self.free.get())[at];
            let room = *head;
            if room.is_null() {
                return self.fresh(whole(at));
            }
            *head = room.cast::<*mut u8>().read();
            room
        }
    }

    #[inline]
    unsafe fn dealloc(&self, room: *mut u8, layout: Layout) {
        let Some(at) = list(layout) else {
            // SAFETY: the caller's promise; it came from there.
            return unsafe { self.below.dealloc(room, layout) };
        };
        // SAFETY: one thread; the room is the list's from here on.
        unsafe {
            let head = &mut (*self.free.get())[at];
            room.cast::<*mut u8>().write(*head);
            *head = room;
        }
    }

    unsafe fn realloc(&self, room: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let next = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (list(layout), list(next)) {
            // SAFETY: the caller's promise; it came from there and stays there.
            (None, None) => unsafe {
                let other = self.below.realloc(room, layout, size);
                match other.is_null() && self.give_back() {
                    true => self.below.realloc(room, layout, size),
                    false => other,
                }
            },
            (old, new) if old == new => room,
            // SAFETY: the two do not overlap, and each has as many bytes.
            _ => unsafe {
                let other = self.alloc(next);
                if !other.is_null() {
                    other.copy_from_nonoverlapping(room, layout.size().min(size));
                    self.dealloc(room, layout);
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
    fn rooms_that_are_in_use_never_share_a_byte() {
        let rooms = Rooms::new(System);
        let host = Host::new();
        let draw = |bound: usize| host.random() as usize % bound;
        // each is filled with a number of its own
        let mut used: Vec<(*mut u8, Layout, u8)> = Vec::new();
        let check = |&(room, layout, fill): &(*mut u8, Layout, u8), len: usize| {
            assert!(room.addr().is_multiple_of(layout.align()));
            // SAFETY: the room is in use and was filled.
            let bytes = unsafe { core::slice::from_raw_parts(room, len) };
            assert!(bytes.iter().all(|b| *b == fill), "{layout:?}");
        };
        for turn in 0..20_000 {
            let longest = if draw(4) == 0 { 3000 } else { 100 };
            let len = 1 + draw(longest);
            let fill = turn as u8;
            match draw(5) {
                0 | 1 => {
                    let layout = Layout::from_size_align(len, 1 << draw(5)).unwrap();
                    // SAFETY: the size is not zero, and the room is as long.
                    let room = unsafe {
                        let room = rooms.alloc(layout);
                        room.write_bytes(fill, len);
                        room
                    };
                    used.push((room, layout, fill));
                }
                2 if !used.is_empty() => {
                    let at = draw(used.len());
                    let (room, old, fill) = used[at];
                    let layout = Layout::from_size_align(len, old.align()).unwrap();
                    // SAFETY: the room is in use.
                    let room = unsafe { rooms.realloc(room, old, len) };
                    check(&(room, layout, fill), len.min(old.size()));
                    // SAFETY: the room is as long.
                    unsafe { room.write_bytes(fill, len) };
                    used[at] = (room, layout, fill);
                }
                _ if !used.is_empty() => {
                    let given = used.swap_remove(draw(used.len()));
                    check(&given, given.1.size());
                    // SAFETY: it is in use, and no more from here on.
                    unsafe { rooms.dealloc(given.0, given.1) };
                }
                _ => {}
            }
        }
        assert!(used.len() > 10);
        for given in used {
            check(&given, given.1.size());
            // SAFETY: as above.
            unsafe { rooms.dealloc(given.0, given.1) };
        }
    }

    /// Has so many bytes at most.
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

        unsafe fn dealloc(&self, room: *mut u8, layout: Layout) {
            self.0.set(self.0.get() + layout.size());
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(room, layout) }
        }
    }

    #[test]
    fn rooms_that_wait_are_given_back_when_there_is_no_other() {
        let rooms = Rooms::new(Bounded(core::cell::Cell::new(1000)));
        let layout = |len| Layout::from_size_align(len, 8).unwrap();
        // SAFETY: each room is given back once, with its layout.
        unsafe {
            let short: Vec<_> = (0..100).map(|_| rooms.alloc(layout(10))).collect();
            assert_eq!(short.iter().filter(|r| r.is_null()).count(), 38);
            for room in short.into_iter().filter(|r| !r.is_null()) {
                rooms.dealloc(room, layout(10));
            }
            let other = rooms.alloc(layout(500));
            assert!(!other.is_null());
            rooms.dealloc(other, layout(500));
            let long = rooms.alloc(layout(400));
            let longer = rooms.realloc(long, layout(400), 990);
            assert!(longer.is_null(), "the two together are too long");
            rooms.dealloc(long, layout(400));
            assert!(!rooms.alloc(layout(1000)).is_null());
        }
    }

    #[test]
    fn a_short_room_is_used_again() {
        let rooms = Rooms::new(System);
        let layout = |len| Layout::from_size_align(len, 8).unwrap();
        // SAFETY: each room is given back once, with its layout.
        unsafe {
            let first = rooms.alloc(layout(20));
            rooms.dealloc(first, layout(20));
            assert_eq!(rooms.alloc(layout(24)), first);
            assert_eq!(rooms.realloc(first, layout(24), 17), first);
            let other = rooms.alloc(layout(24));
            assert_ne!(other, first);
            rooms.dealloc(other, layout(24));
            rooms.dealloc(first, layout(17));
        }
    }
}
