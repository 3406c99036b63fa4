//! A count-min sketch for each slot and window, and a list of the flows that may be heavy (Cormode,
//! Muthukrishnan: "An Improved Data Stream Summary: The Count-Min Sketch and its Applications", 2005).
//!
//! A sketch has `depth` rows of `width` cells. A packet adds 1 to one cell of each row, and the count of a
//! flow is estimated by the minimum of its cells. The estimate is never too low, and with probability at
//! least `1 - exp(-depth)` too high by at most `e / width` of all packets. Sketches can be added cell by
//! cell, so each slot has its own, and a query adds the estimates of all slots: the sum is at most the
//! estimate of the summed sketch, so the bound holds for it too.
//!
//! A cell is a counter, so a packet costs one fetch-and-add a row and no read. From the highest bit:
//! 31 bits stamp, 1 bit `listed`, 32 bits count. The stamp is the number of the window; a cell with an older
//! stamp counts as 0, so nothing needs to be cleared. Windows alternate between two banks of cells, so the
//! last complete one can still be queried.
//!
//! *Heavy flows.* A flow with more than a share of all packets has more than that share of the packets in at
//! least one slot. So each slot keeps a list of the flows above the share of its packets. The bits `listed`
//! of a flow's cells say that it is in the list, so the list is rarely read. A flow whose cells are all
//! marked by other flows is missed, with a probability of at most `(flows listed / width) ^ depth`.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use e3_packet::FLOW_BYTES;
use e3_sdk::{Counter, Error, OrderedMap};

const LISTED: i64 = 1 << 32;
const COUNT: i64 = LISTED - 1;
const STAMP_SHIFT: u32 = 33;
/// The row that counts all packets.
const TOTAL: u8 = u8::MAX;

/// A flow's key.
pub type FlowKey = [u8; FLOW_BYTES];

/// Sketches of all slots.
#[derive(Debug)]
pub struct Sketch {
    /// By slot, bank, row, column.
    cells: Counter,
    /// By slot, bank: stamp u32, then flows.
    heavy: OrderedMap,
    width: u32,
    depth: u8,
    share: f64,
    seed: u64,
    buffer: Vec<u8>,
}

/// A slot's part of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The slot.
    pub slot: u16,
    /// Number of the window.
    pub window: u64,
}

impl Part {
    fn bank(self) -> u8 {
        (self.window & 1) as u8
    }

    fn stamp(self) -> i64 {
        (self.window & 0x7fff_ffff) as i64
    }

    fn list_key(self) -> [u8; 3] {
        let [s0, s1] = self.slot.to_be_bytes();
        [s0, s1, self.bank()]
    }

    fn cell_key(self, row: u8, column: u32) -> [u8; 8] {
        let [s0, s1] = self.slot.to_be_bytes();
        let [c0, c1, c2, c3] = column.to_be_bytes();
        [s0, s1, self.bank(), row, c0, c1, c2, c3]
    }

    /// The value of a cell, if it belongs to this window.
    fn current(self, cell: i64) -> i64 {
        // The stamp's highest bit is the sign of the cell.
        if (cell as u64 >> STAMP_SHIFT) as i64 == self.stamp() {
            cell
        } else {
            0
        }
    }
}

/// The counts of a flow after one of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its packets in the slot and window, estimated.
    pub estimate: u64,
    /// All packets in the slot and window.
    pub packets: u64,
}

/// A window over all slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// All packets.
    pub packets: u64,
    /// Flows above the share with their estimates, largest first.
    pub heavy: Vec<(FlowKey, u64)>,
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Sketch {
    /// Opens the collections `cells` and `heavy`. `seed` selects the hash functions.
    pub fn open(width: u32, depth: u8, share: f64, seed: u64) -> Result<Self, Error> {
        let mut sketch = Self {
            cells: Counter::open("cells")?,
            heavy: OrderedMap::open("heavy")?,
            width,
            depth,
            share,
            seed,
            buffer: vec![],
        };
        sketch.buffer = vec![0; 4 + sketch.listed_max() * FLOW_BYTES];
        Ok(sketch)
    }

    /// Flows in a list: at most `1 / (share - e / width)` are above the share with good estimates,
    /// and the configuration has `width` at least `2 * e / share`.
    fn listed_max(&self) -> usize {
        (2.0 / self.share) as usize + 1
    }

    /// Counts a packet.
    pub fn add(&mut self, part: Part, flow: &FlowKey) -> Result<Seen, Error> {
        let packets = self.count(part, &part.cell_key(TOTAL, 0)) & COUNT;
        let hash = self.hash(flow);
        let (mut least, mut listed) = (COUNT, LISTED);
        for row in 0..self.depth {
            let cell = self.count(part, &part.cell_key(row, self.column(hash, row)));
            least = least.min(cell & COUNT);
            listed &= cell;
        }
        if listed == 0 && least as f64 > self.share * packets as f64 {
            self.list(part, flow, packets)?;
        }
        Ok(Seen {
            estimate: least as u64,
            packets: packets as u64,
        })
    }

    /// Adds 1 to a cell; returns the new value.
    fn count(&self, part: Part, key: &[u8]) -> i64 {
        let before = self.cells.fetch_add(key, 1);
        let now = part.current(before);
        if now == 0 {
            let fresh = part.stamp() << STAMP_SHIFT | 1;
            if before != fresh - 1 {
                self.cells
                    .fetch_add(key, fresh.wrapping_sub(before.wrapping_add(1)));
            }
            return fresh;
        }
        if now & COUNT == COUNT {
            self.cells.fetch_add(key, -1);
            return now;
        }
        now + 1
    }

    fn hash(&self, flow: &FlowKey) -> u64 {
        let mut low = [0; 8];
        let mut high = [0; 8];
        low.copy_from_slice(&flow[..8]);
        high[..FLOW_BYTES - 8].copy_from_slice(&flow[8..]);
        mix(mix(u64::from_le_bytes(low) ^ mix(self.seed)) ^ u64::from_le_bytes(high))
    }

    fn column(&self, hash: u64, row: u8) -> u32 {
        let row = mix(hash.wrapping_add(u64::from(row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        (((row >> 32) * u64::from(self.width)) >> 32) as u32
    }

    fn cells_of(&self, part: Part, flow: &FlowKey) -> impl Iterator<Item = ([u8; 8], i64)> {
        let hash = self.hash(flow);
        (0..self.depth).map(move |row| {
            let key = part.cell_key(row, self.column(hash, row));
            (key, part.current(self.cells.get(&key)))
        })
    }

    /// A flow's packets in a slot and window.
    pub fn estimate(&self, part: Part, flow: &FlowKey) -> u64 {
        let counts = self.cells_of(part, flow).map(|(_, cell)| cell & COUNT);
        counts.min().unwrap_or_default() as u64
    }

    /// All packets of a slot and window.
    fn packets(&self, part: Part) -> u64 {
        (part.current(self.cells.get(&part.cell_key(TOTAL, 0))) & COUNT) as u64
    }

    fn mark(&self, part: Part, flow: &FlowKey, listed: bool) {
        for (key, cell) in self.cells_of(part, flow) {
            if cell != 0 && (cell & LISTED != 0) != listed {
                let delta = if listed { LISTED } else { -LISTED };
                self.cells.fetch_add(&key, delta);
            }
        }
    }

    /// Adds a flow to the list. If it is full, flows that are below the share now are removed.
    fn list(&mut self, part: Part, flow: &FlowKey, packets: i64) -> Result<(), Error> {
        let mut buffer = core::mem::take(&mut self.buffer);
        let list = self.heavy.get(&part.list_key(), &mut buffer);
        let mut flows: Vec<FlowKey> = match list? {
            Some(value) => flows_of(part, value),
            None => vec![],
        };
        self.buffer = buffer;
        if !flows.contains(flow) {
            if flows.len() >= self.listed_max() {
                self.prune(part, &mut flows, packets);
            }
            flows.push(*flow);
            let mut value = Vec::with_capacity(4 + flows.len() * FLOW_BYTES);
            value.extend_from_slice(&(part.stamp() as u32).to_le_bytes());
            value.extend_from_slice(flows.as_flattened());
            self.heavy.put(&part.list_key(), &value)?;
        }
        self.mark(part, flow, true);
        Ok(())
    }

    fn prune(&self, part: Part, flows: &mut Vec<FlowKey>, packets: i64) {
        let estimates: Vec<u64> = flows.iter().map(|f| self.estimate(part, f)).collect();
        let least = estimates.iter().min().copied().unwrap_or_default();
        // In rare cases none is below the share: then the smallest is removed.
        let bound = (self.share * packets as f64).max(least as f64);
        let mut estimates = estimates.into_iter();
        flows.retain(|flow| {
            let stays = estimates.next().is_some_and(|e| e as f64 > bound);
            if !stays {
                self.mark(part, flow, false);
            }
            stays
        });
    }

    /// The slots with packets in a window, with their lists.
    fn lists(&self, window: u64) -> Result<Vec<(Part, Vec<FlowKey>)>, Error> {
        let mut lists = vec![];
        let mut scan = self.heavy.scan(&[], &[]);
        while let Some((key, value)) = scan.next()? {
            let &[s0, s1, bank] = key else { continue };
            let slot = u16::from_be_bytes([s0, s1]);
            let part = Part { slot, window };
            if bank == part.bank() && is_of(part, value) {
                lists.push((part, flows_of(part, value)));
            }
        }
        Ok(lists)
    }

    /// A flow's packets in a window, over all slots, and all packets of the window.
    pub fn total_estimate(&self, window: u64, flow: &FlowKey) -> Result<(u64, u64), Error> {
        let lists = self.lists(window)?;
        let sum = |of: &dyn Fn(Part) -> u64| lists.iter().map(|(part, _)| of(*part)).sum();
        Ok((
            sum(&|part| self.estimate(part, flow)),
            sum(&|part| self.packets(part)),
        ))
    }

    /// All packets of a window, and the flows above the share of them. A flow whose packets come
    /// with several keys counts with the slots that list it.
    pub fn report(&self, window: u64) -> Result<Report, Error> {
        let lists = self.lists(window)?;
        let packets: u64 = lists.iter().map(|(part, _)| self.packets(*part)).sum();
        let mut estimates: BTreeMap<FlowKey, u64> = BTreeMap::new();
        for (part, flows) in &lists {
            for flow in flows {
                *estimates.entry(*flow).or_default() += self.estimate(*part, flow);
            }
        }
        let bound = self.share * packets as f64;
        let mut heavy: Vec<(FlowKey, u64)> = estimates.into_iter().collect();
        heavy.retain(|(_, estimate)| *estimate as f64 > bound);
        heavy.sort_by_key(|(_, estimate)| core::cmp::Reverse(*estimate));
        Ok(Report { packets, heavy })
    }
}

fn is_of(part: Part, list: &[u8]) -> bool {
    list.first_chunk() == Some(&(part.stamp() as u32).to_le_bytes())
}

/// The flows of a list, none if it is of another window.
fn flows_of(part: Part, list: &[u8]) -> Vec<FlowKey> {
    if is_of(part, list) {
        list[4..].as_chunks().0.to_vec()
    } else {
        vec![]
    }
}
