//! Scans of collections, packed as the service ABI has them.

use super::{Ctx, position};
use crate::codes::NO_HANDLE;
use e3_collections::TxnError;
use e3_invocation::HandlerError;
use e3_model::Nanos;
use e3_model::limits::NAME_LEN_MAX;

/// Collection ids have 16 bits; a larger handle does not exist.
pub(crate) fn handle(collection: i32) -> u16 {
    u16::try_from(collection).unwrap_or(u16::MAX)
}

/// A time to live in nanoseconds; a negative one is none, which is an error.
pub(crate) fn time_to_live(ttl: i64) -> Nanos {
    Nanos(u64::try_from(ttl).unwrap_or(0))
}

/// 0, or the code of an error.
pub(crate) fn code(done: Result<(), TxnError>) -> i32 {
    done.map_or_else(TxnError::code, |()| 0)
}

/// 1 if there was something, 0 if not, or the code of an error.
pub(crate) fn there(done: Result<bool, TxnError>) -> i32 {
    done.map_or_else(TxnError::code, i32::from)
}

/// A number, or the code of an error.
pub(crate) fn number(done: Result<i64, TxnError>) -> i64 {
    done.unwrap_or_else(|e| i64::from(e.code()))
}

/// Which entries of a map a scan visits.
pub(crate) struct Scan<'a> {
    /// First key.
    pub(crate) from: &'a [u8],
    /// Key behind the last one; empty = to the end.
    pub(crate) to: &'a [u8],
    /// Most entries; 0 = all.
    pub(crate) limit: u32,
    /// From the last to the first.
    pub(crate) reverse: bool,
}

impl Ctx {
    /// Handle of a collection by name.
    pub(crate) fn collection(&self, name: &[u8]) -> i32 {
        let names = self.shared.spec.collections.iter().map(|s| &*s.name);
        let handle = position(names, name);
        if handle == NO_HANDLE {
            let name = String::from_utf8_lossy(&name[..name.len().min(NAME_LEN_MAX)]);
            *self.unknown.borrow_mut() = Some(name.into_owned());
        }
        handle
    }

    /// Why a handler failed that returned this.
    #[cold]
    pub(crate) fn failed(&self, code: i32) -> HandlerError {
        let unknown = self.unknown.borrow_mut().take();
        if let Some((collection, error)) = self.txn.refused() {
            let spec = self.shared.spec.collections.get(usize::from(collection));
            let collection = spec.map_or_else(|| format!("#{collection}"), |s| s.name.clone());
            return HandlerError::Refused {
                collection,
                error,
                code,
            };
        }
        match unknown {
            Some(collection) => HandlerError::Refused {
                collection,
                error: TxnError::NoCollection,
                code,
            },
            None => HandlerError::Code(code),
        }
    }

    /// Packs the entries of a scan into `out`.
    pub(crate) fn scan(&mut self, coll: i32, scan: Scan<'_>, out: &mut [u8]) -> i32 {
        self.note_read();
        let state = self.state.borrow();
        let Scan { from, to, .. } = scan;
        let limit = if scan.limit == 0 {
            u32::MAX
        } else {
            scan.limit
        };
        let (mut packed, mut count) = (Packed::new(out), 0);
        let visit = |key: &[u8], value: &[u8]| {
            count += 1;
            packed.push([key, value]) && count < limit
        };
        let scanned = self
            .txn
            .scan(&state, handle(coll), from, to, scan.reverse, visit);
        packed.answer(scanned)
    }

    /// Packs elements into `out`, from an index on; [`NO_MORE`] follows the last one.
    pub(crate) fn array_scan(&self, coll: i32, key: &[u8], from: i64, out: &mut [u8]) -> i32 {
        self.note_read();
        let state = self.state.borrow();
        let mut packed = Packed::new(out);
        let visit = |element: &[u8]| packed.push([element]);
        let scanned = (self.txn).array_scan(&state, handle(coll), key, from as u64, visit);
        if scanned.is_ok() {
            packed.end();
        }
        packed.answer(scanned)
    }
}

/// Entries on their way into the guest's memory: the lengths of an entry's parts, then the parts.
struct Packed<'o> {
    out: &'o mut [u8],
    at: usize,
    /// Bytes of the entry that did not fit.
    needed: usize,
}

impl<'o> Packed<'o> {
    fn new(out: &'o mut [u8]) -> Packed<'o> {
        let (at, needed) = (0, 0);
        Packed { out, at, needed }
    }

    /// Whether it fitted.
    #[inline(always)]
    fn push<const PARTS: usize>(&mut self, parts: [&[u8]; PARTS]) -> bool {
        let len = 4 * PARTS + parts.iter().map(|part| part.len()).sum::<usize>();
        let Some(room) = self.out.get_mut(self.at..self.at + len) else {
            self.needed = len;
            return false;
        };
        let (lens, mut room) = room.split_at_mut(4 * PARTS);
        for (len, part) in lens.as_chunks_mut().0.iter_mut().zip(parts) {
            *len = (part.len() as u32).to_le_bytes();
            let (body, rest) = room.split_at_mut(part.len());
            body.copy_from_slice(part);
            room = rest;
        }
        self.at += len;
        true
    }

    /// Marks the end by [`NO_MORE`], if that fits.
    fn end(&mut self) {
        if self.needed == 0
            && let Some(room) = self.out.get_mut(self.at..self.at + 4)
        {
            room.copy_from_slice(&NO_MORE.to_le_bytes());
            self.at += 4;
        }
    }

    /// Bytes written. If not even the first entry fitted, its bytes negated: keys and values are
    /// far below 2 GiB.
    fn answer(self, scanned: Result<(), TxnError>) -> i32 {
        match scanned {
            Ok(()) if self.at == 0 => -i32::try_from(self.needed).unwrap_or(i32::MAX),
            Ok(()) => self.at as i32,
            Err(e) => e.code(),
        }
    }
}

/// Stands in the place of an element's length: there are no more.
const NO_MORE: u32 = u32::MAX;
