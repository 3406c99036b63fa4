//! Counts items in windows of time: how often each item occurs, and how many different items there are,
//! in memory that does not grow with their number. Both come from a bitmap ([`bitmap`]).
//!
//! Each item is hashed to one of `bits` bits; each bit has a counter (*cell*).
//!
//! - *Frequency*: the cell of the item's bit. It is never less than the true count. It is more by the
//!   occurrences of other items with the same bit: on average `(N - f) / bits` of the window's `N`
//!   occurrences if the item itself has `f`, with the standard deviation `sqrt(F2 / bits)`, where `F2` is the
//!   sum of the squared counts of the others. With `n` different items it is exact with probability
//!   `(1 - 1/bits)^(n-1)`, about `e^(-n/bits)`; the report has it as `exact_share`.
//! - *Distinct items*: linear counting, with its standard error.
//!
//! Input: the field `field` (default `item`) is an item (text, bytes or a whole number) or an array of at
//! most 64 texts. The service adds `count` (config `result`): the occurrences of the item in this window so
//! far, including this one, among the requests of this routing key's slot; for an array, an array. If
//! requests are routed by the item, the count covers all of them.
//!
//! Queries ([`Stage::query`]) are answered from all slots of the shard, by `op`:
//! - `report`: `distinct`, `error` (standard error, in items), `exact_share`, `set_bits`, `bits`,
//!   `saturated` (all bits are set: `distinct` is only a lower bound), `slots`, `window_s` (start of the
//!   window, Unix time).
//! - `get` with the item: `count`, the sum over the slots, and `window_s`.
//!
//! Configuration: `field`, `result`, `bits` (default 16384; a power of two, 1024..=131072), `window-s`
//! (default 60; 0 = one window that never ends), and that of [`Stage`]. The estimate of distinct items is
//! useful up to about five items a bit, a frequency as long as there are fewer items than bits.
//!
//! Collections, both keyed by slot, so shards can be split: hash map `cells` (slot, block ->
//! window, 16 counters), ordered map `bitmaps` (slot -> window, bits), written only when a bit is newly
//! set. An entry of an earlier window is reset when it is next used, so the state never exceeds about
//! `bits * 5` bytes for each slot. Bitmaps of several slots are combined by OR, so an item in several of
//! them counts once.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod bitmap;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bitmap::{BLOCK_BYTES, BLOCK_CELLS, Block};
use e3_pipeline::{Builder, Query, Record, RecordError, Stage, Value, status};
use e3_sdk::{Error, HashMap, OrderedMap, Request, Service, config, config_or, now, reply};

/// Most items of a record.
pub const ITEMS_MAX: usize = 64;
/// Fewest bits of a bitmap.
pub const BITS_MIN: usize = 1024;
/// Most bits of a bitmap: one is a value of a collection.
pub const BITS_MAX: usize = 1 << 17;
const _: () = assert!(BITS_MAX / 8 + 8 <= e3_sdk::limits::VALUE_BYTES_MAX);

const NANOS: i64 = 1_000_000_000;

/// The service.
#[derive(Debug)]
pub struct Count {
    stage: Stage,
    field: String,
    result: String,
    bits: usize,
    window_s: i64,
    cells: HashMap,
    bitmaps: OrderedMap,
    out: Builder,
    counts: Vec<u32>,
}

impl Service for Count {
    fn init() -> Result<Self, Error> {
        let bits: usize = config_or("bits", 16_384)?;
        if !bits.is_power_of_two() || !(BITS_MIN..=BITS_MAX).contains(&bits) {
            let value = format!("{bits}");
            return Err(Error::Config {
                name: "bits",
                value,
            });
        }
        let window_s: i64 = config_or("window-s", 60)?;
        if !(0..=i64::MAX / NANOS).contains(&window_s) {
            let value = format!("{window_s}");
            return Err(Error::Config {
                name: "window-s",
                value,
            });
        }
        Ok(Self {
            stage: Stage::open()?,
            field: config("field").unwrap_or_else(|| "item".into()),
            result: config("result").unwrap_or_else(|| "count".into()),
            bits,
            window_s,
            cells: HashMap::open("cells")?,
            bitmaps: OrderedMap::open("bitmaps")?,
            out: Builder::new(),
            counts: Vec::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let record = match Record::parse(request.payload()) {
            Ok(record) => record,
            Err(error) => return self.stage.refuse(&error),
        };
        match self.stage.query(request, &record)? {
            Query::None => {}
            Query::Forwarded => return Ok(()),
            Query::Mine("report") => return self.on_report(),
            Query::Mine("get") => {
                return match item(&record, &self.field) {
                    Ok(hash) => self.on_get(hash),
                    Err(error) => self.stage.refuse(&error),
                };
            }
            Query::Mine(op) => {
                let why = format!("is {op:?}, must be \"report\" or \"get\"");
                return self.stage.refuse(&RecordError::value("op", why));
            }
        }
        match items(&record, &self.field) {
            Ok(items) => self.on_items(request, &record, &items),
            Err(error) => self.stage.refuse(&error),
        }
    }
}

/// Items of a record, hashed.
enum Items {
    One(u64),
    Many(Vec<u64>),
}

fn item(record: &Record<'_>, field: &str) -> Result<u64, RecordError> {
    if let Ok(bytes) = record.bytes(field) {
        return Ok(bitmap::hash(bytes));
    }
    match record.int(field) {
        Ok(int) => Ok(bitmap::hash(&int.to_le_bytes())),
        Err(RecordError::Type { field, is, .. }) => Err(RecordError::Type {
            field,
            is,
            must_be: "text, bytes, a whole number or an array of texts",
        }),
        Err(error) => Err(error),
    }
}

fn items(record: &Record<'_>, field: &str) -> Result<Items, RecordError> {
    if !record.is_array(field) {
        return item(record, field).map(Items::One);
    }
    let texts = record.texts(field, ITEMS_MAX)?;
    let hashes = texts.iter().map(|t| bitmap::hash(t.as_bytes()));
    Ok(Items::Many(hashes.collect()))
}

impl Count {
    /// Number of the current window.
    fn window(&self) -> i64 {
        now()
            .checked_div_euclid(self.window_s * NANOS)
            .unwrap_or_default()
    }

    fn bit(&self, hash: u64) -> usize {
        hash as usize & (self.bits - 1)
    }

    fn on_items(
        &mut self,
        request: &Request<'_>,
        record: &Record<'_>,
        items: &Items,
    ) -> Result<(), Error> {
        let slot = request.slot();
        let hashes = match items {
            Items::One(hash) => core::slice::from_ref(hash),
            Items::Many(hashes) => hashes,
        };
        let mut counts = core::mem::take(&mut self.counts);
        counts.clear();
        let mut fresh = Vec::new();
        for hash in hashes {
            let bit = self.bit(*hash);
            let count = self.add(slot, bit)?;
            if count == 1 {
                fresh.push(bit);
            }
            counts.push(count);
        }
        if !fresh.is_empty() {
            self.mark(slot, &fresh)?;
        }
        self.out.clear().copy(record, &[&self.result]);
        match items {
            Items::One(_) => {
                let count = i64::from(counts.first().copied().unwrap_or_default());
                self.out.field(&self.result, Value::Int(count))
            }
            Items::Many(_) => self.out.array(&self.result, counts.len(), |a| {
                counts.iter().for_each(|c| a.push(Value::Int((*c).into())));
            }),
        };
        self.counts = counts;
        self.stage.forward_record(request, &mut self.out)
    }

    /// Adds an occurrence; returns the count in the window.
    fn add(&self, slot: u16, bit: usize) -> Result<u32, Error> {
        let key = cell_key(slot, bit);
        let mut buffer = [0; BLOCK_BYTES];
        let window = self.window();
        let stored = self
            .cells
            .get(&key, &mut buffer)?
            .and_then(Block::from_bytes);
        let mut block = match stored {
            Some(block) if block.window >= window => block,
            _ => Block::new(window),
        };
        let cell = &mut block.cells[bit % BLOCK_CELLS];
        *cell = cell.saturating_add(1);
        let count = *cell;
        self.cells.put(&key, &block.to_bytes())?;
        Ok(count)
    }

    /// Sets bits in the bitmap of a slot.
    fn mark(&self, slot: u16, fresh: &[usize]) -> Result<(), Error> {
        let key = slot.to_be_bytes();
        let window = self.window();
        let stored = self.bitmaps.get_vec(&key).filter(|bytes| {
            bitmap::parse_bitmap(bytes, self.bits).is_some_and(|(w, _)| w >= window)
        });
        let mut bytes = stored.unwrap_or_else(|| bitmap::bitmap_bytes(window, self.bits));
        for bit in fresh {
            bitmap::set(&mut bytes[8..], *bit);
        }
        self.bitmaps.put(&key, &bytes)
    }

    /// Calls `see` with every slot that has items in this window, and its bitmap.
    fn each_slot(&self, mut see: impl FnMut(u16, &[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let window = self.window();
        let mut scan = self.bitmaps.scan(&[], &[]);
        while let Some((key, value)) = scan.next()? {
            let Some((stored, bits)) = bitmap::parse_bitmap(value, self.bits) else {
                continue;
            };
            if stored >= window
                && let Ok(slot) = key.try_into()
            {
                see(u16::from_be_bytes(slot), bits)?;
            }
        }
        Ok(())
    }

    fn on_report(&mut self) -> Result<(), Error> {
        let mut union = alloc::vec![0; self.bits / 8];
        let mut slots = 0;
        self.each_slot(|_, bits| {
            slots += 1;
            bitmap::merge(&mut union, bits);
            Ok(())
        })?;
        let distinct = bitmap::estimate(&union);
        let window_s = self.window().saturating_mul(self.window_s);
        let out = self.out.clear();
        out.field("distinct", Value::Float(distinct.items))
            .field("error", Value::Float(distinct.error))
            .field("exact_share", Value::Float(distinct.alone))
            .field("set_bits", Value::Int(bitmap::ones(&union).into()))
            .field("bits", Value::Int(self.bits as i64))
            .field("saturated", Value::Bool(distinct.saturated))
            .field("slots", Value::Int(slots))
            .field("window_s", Value::Int(window_s));
        reply(status::OK, out.bytes())
    }

    fn on_get(&mut self, hash: u64) -> Result<(), Error> {
        let bit = self.bit(hash);
        let window = self.window();
        let mut count = 0i64;
        let mut buffer = [0; BLOCK_BYTES];
        self.each_slot(|slot, bits| {
            if bits[bit / 8] >> (bit % 8) & 1 == 1 {
                let bytes = self.cells.get(&cell_key(slot, bit), &mut buffer)?;
                let block = bytes.and_then(Block::from_bytes);
                let cell = block.filter(|b| b.window >= window);
                count += cell.map_or(0, |b| i64::from(b.cells[bit % BLOCK_CELLS]));
            }
            Ok(())
        })?;
        let window_s = window.saturating_mul(self.window_s);
        let out = self.out.clear();
        out.field("count", Value::Int(count))
            .field("window_s", Value::Int(window_s));
        reply(status::OK, out.bytes())
    }
}

/// Key of the block that the bit belongs to.
fn cell_key(slot: u16, bit: usize) -> [u8; 4] {
    let [a, b] = slot.to_be_bytes();
    // at most BITS_MAX / BLOCK_CELLS blocks, which two bytes hold
    let [c, d] = ((bit / BLOCK_CELLS) as u16).to_be_bytes();
    [a, b, c, d]
}
const _: () = assert!(BITS_MAX / BLOCK_CELLS <= 1 << 16);

e3_sdk::service!(Count, request_capacity = 16384);
