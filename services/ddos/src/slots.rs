//! The state, separate for each slot.
//!
//! | collection | key | value (little endian) |
//! |---|---|---|
//! | `addresses`, counters | slot, `s` or `d`, address | 31 bits stamp, 1 bit 0, 32 bits count |
//! | `seen`, arrays | slot | `s` or `d`, address, stamp u32: a queue of addresses to remove |
//! | `now`, hash map | slot | window in progress: number, packets, sums, each u64 |
//! | `past`, ordered map | slot | complete windows: the same, and a byte: alarm; oldest first |
//!
//! Keys are big endian. The stamp is the number of the window; a counter with an older stamp counts as 0.
//! The first packet of an address in a window appends it to the queue `seen`. When an entry reaches the
//! front in a later window and the address has no packets there, its counter is removed. So a slot keeps
//! the addresses of about two windows, however many there are over time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use e3_sdk::{Array, Counter, Error, HashMap, OrderedMap};

use crate::entropy::{Sums, Weights};
use crate::limits::FORGOTTEN_MAX;
use crate::verdict::Window;

const COUNT: i64 = (1 << 32) - 1;
const STAMP_SHIFT: u32 = 33;
const NOW_BYTES: usize = 32;
const PAST_BYTES: usize = NOW_BYTES + 1;

/// The collections.
#[derive(Debug)]
pub struct Slots {
    addresses: Counter,
    seen: Array,
    now: HashMap,
    past: OrderedMap,
    weights: Weights,
    /// Windows in the history.
    history: u64,
}

fn stamp(window: u64) -> i64 {
    (window & 0x7fff_ffff) as i64
}

/// The stamp of a counter, whose highest bit is the counter's sign.
fn stamp_of(counter: i64) -> i64 {
    (counter as u64 >> STAMP_SHIFT) as i64
}

fn now_bytes(window: u64, sums: Sums) -> [u8; NOW_BYTES] {
    let mut bytes = [0; NOW_BYTES];
    let numbers = [window, sums.packets, sums.sources, sums.destinations];
    let (parts, _) = bytes.as_chunks_mut();
    for (part, number) in parts.iter_mut().zip(numbers) {
        *part = number.to_le_bytes();
    }
    bytes
}

fn now_from(bytes: &[u8]) -> Option<(u64, Sums)> {
    let (parts, _) = bytes.as_chunks();
    let &[window, packets, sources, destinations] = parts else {
        return None;
    };
    let sums = Sums {
        packets: u64::from_le_bytes(packets),
        sources: u64::from_le_bytes(sources),
        destinations: u64::from_le_bytes(destinations),
    };
    Some((u64::from_le_bytes(window), sums))
}

fn past_from(bytes: &[u8]) -> impl Iterator<Item = Window> {
    let (entries, _) = bytes.as_chunks::<PAST_BYTES>();
    entries.iter().filter_map(|entry| {
        let (number, sums) = now_from(&entry[..NOW_BYTES])?;
        Some(Window {
            number,
            sums,
            alarm: Some(entry[NOW_BYTES] != 0),
        })
    })
}

impl Slots {
    /// Opens the collections.
    pub fn open(history: u64) -> Result<Self, Error> {
        Ok(Self {
            addresses: Counter::open("addresses")?,
            seen: Array::open("seen")?,
            now: HashMap::open("now")?,
            past: OrderedMap::open("past")?,
            weights: Weights::new(),
            history,
        })
    }

    /// Counts a packet; returns the sums of the slot's window. `judged` are the windows before.
    pub fn add(
        &self,
        slot: u16,
        window: u64,
        source: [u8; 4],
        destination: [u8; 4],
        judged: &[Window],
    ) -> Result<Sums, Error> {
        let key = slot.to_be_bytes();
        let mut buffer = [0; NOW_BYTES];
        let before = self.now.get(&key, &mut buffer)?.and_then(now_from);
        let mut sums = match before {
            Some((number, sums)) if number == window => sums,
            before => {
                self.remember(slot, window, before, judged)?;
                Sums::default()
            }
        };
        sums.packets += 1;
        sums.sources += self.weights.step(self.count(slot, window, b's', source)?);
        sums.destinations += self
            .weights
            .step(self.count(slot, window, b'd', destination)?);
        self.now.put(&key, &now_bytes(window, sums))?;
        Ok(sums)
    }

    /// Adds 1 to an address; returns its packets in the window.
    fn count(&self, slot: u16, window: u64, end: u8, address: [u8; 4]) -> Result<u64, Error> {
        let [s0, s1] = slot.to_be_bytes();
        let [a, b, c, d] = address;
        let key = [s0, s1, end, a, b, c, d];
        let before = self.addresses.fetch_add(&key, 1);
        if stamp_of(before) == stamp(window) && before & COUNT != 0 {
            if before & COUNT == COUNT {
                self.addresses.fetch_add(&key, -1);
                return Ok(COUNT as u64);
            }
            return Ok((before & COUNT) as u64 + 1);
        }
        let fresh = stamp(window) << STAMP_SHIFT | 1;
        if before != fresh - 1 {
            let delta = fresh.wrapping_sub(before.wrapping_add(1));
            self.addresses.fetch_add(&key, delta);
        }
        let mut element = [end, a, b, c, d, 0, 0, 0, 0];
        element[5..].copy_from_slice(&(stamp(window) as u32).to_le_bytes());
        self.seen.push(&[s0, s1], &element)?;
        self.forget(slot, window)?;
        Ok(1)
    }

    /// Removes some addresses of past windows.
    fn forget(&self, slot: u16, window: u64) -> Result<(), Error> {
        let [s0, s1] = slot.to_be_bytes();
        for _ in 0..FORGOTTEN_MAX {
            let mut buffer = [0; 9];
            let Some(&[end, a, b, c, d, ref when @ ..]) =
                self.seen.get(&[s0, s1], 0, &mut buffer)?
            else {
                return Ok(());
            };
            let when = when.try_into().map_or(0, u32::from_le_bytes);
            if i64::from(when) == stamp(window) {
                return Ok(());
            }
            let key = [s0, s1, end, a, b, c, d];
            if stamp_of(self.addresses.get(&key)) == i64::from(when) {
                self.addresses.delete(&key)?;
            }
            self.seen.pop_front(&[s0, s1])?;
        }
        Ok(())
    }

    /// Moves the slot's last window to the history.
    fn remember(
        &self,
        slot: u16,
        window: u64,
        before: Option<(u64, Sums)>,
        judged: &[Window],
    ) -> Result<(), Error> {
        let key = slot.to_be_bytes();
        let Some((number, sums)) = before else {
            // this entry makes the slot visible to reports
            return self.past.put(&key, &[]);
        };
        let mut buffer = [0; PAST_BYTES * *crate::limits::HISTORY.end() as usize];
        let old = self.past.get(&key, &mut buffer)?.unwrap_or_default();
        let oldest = window.saturating_sub(self.history);
        let mut value = Vec::with_capacity(old.len() + PAST_BYTES);
        let found = judged.iter().find(|w| w.number == number);
        let last = Window {
            number,
            sums,
            alarm: found.and_then(|w| w.alarm),
        };
        for w in past_from(old).chain([last]).filter(|w| w.number >= oldest) {
            value.extend_from_slice(&now_bytes(w.number, w.sums));
            value.push(u8::from(w.alarm == Some(true)));
        }
        self.past.put(&key, &value)
    }

    /// The sums of all slots for the window in progress and for the ones before, oldest first.
    pub fn windows(&self, current: u64) -> Result<(Sums, Vec<Window>), Error> {
        let oldest = current.saturating_sub(self.history);
        let mut sum = Sums::default();
        let mut windows: BTreeMap<u64, Window> = BTreeMap::new();
        let mut add = |window: Window| {
            if (oldest..current).contains(&window.number) {
                let entry = windows.entry(window.number).or_insert(Window {
                    sums: Sums::default(),
                    ..window
                });
                entry.sums.add(window.sums);
                entry.alarm = match (entry.alarm, window.alarm) {
                    (Some(a), Some(b)) => Some(a || b),
                    (a, b) => a.or(b),
                };
            }
        };
        let mut scan = self.past.scan(&[], &[]);
        while let Some((key, value)) = scan.next()? {
            past_from(value).for_each(&mut add);
            let mut buffer = [0; NOW_BYTES];
            match self.now.get(key, &mut buffer)?.and_then(now_from) {
                Some((number, sums)) if number == current => sum.add(sums),
                Some((number, sums)) => add(Window {
                    number,
                    sums,
                    alarm: None,
                }),
                None => {}
            }
        }
        Ok((sum, windows.into_values().collect()))
    }
}
