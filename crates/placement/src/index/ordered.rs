//! Nodes in the order of a key that changes, found by the first or the last that fits.

use super::free::Free;
use crate::request::Demand;
use e3_model::NodeId;

/// Nodes of a block; a full one is split in two.
const BLOCK_MAX: usize = 128;

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: f64,
    id: NodeId,
    free: Free,
}

#[derive(Clone, Debug)]
struct Block {
    max: Free,
    entries: Vec<Entry>,
}

/// Nodes ordered by (key, id), in blocks with their maxima.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ordered {
    blocks: Vec<Block>,
}

impl Entry {
    fn is_before(&self, key: f64, id: NodeId) -> bool {
        (self.key, self.id) < (key, id)
    }
}

impl Block {
    fn of(entries: Vec<Entry>) -> Block {
        let mut block = Block {
            max: Free::NOTHING,
            entries,
        };
        block.measure();
        block
    }

    fn measure(&mut self) {
        let all = self.entries.iter().map(|e| e.free);
        self.max = all.fold(Free::NOTHING, Free::max);
    }
}

impl Ordered {
    /// The first block whose last entry is not before (key, id).
    fn block(&self, key: f64, id: NodeId) -> usize {
        self.blocks.partition_point(|b| {
            let last = b.entries.last().expect("no block is empty");
            last.is_before(key, id)
        })
    }

    /// Adds a node that is not in it.
    pub(crate) fn insert(&mut self, key: f64, id: NodeId, free: Free) {
        let entry = Entry { key, id, free };
        let at = self.block(key, id);
        if at == self.blocks.len() {
            match self.blocks.last_mut() {
                None => return self.blocks.push(Block::of(vec![entry])),
                Some(last) => last.entries.push(entry),
            }
        } else {
            let entries = &mut self.blocks[at].entries;
            let place = entries.partition_point(|e| e.is_before(key, id));
            entries.insert(place, entry);
        }
        let at = at.min(self.blocks.len() - 1);
        let block = &mut self.blocks[at];
        block.max = block.max.max(free);
        if block.entries.len() > BLOCK_MAX {
            let upper = block.entries.split_off(BLOCK_MAX / 2);
            block.measure();
            self.blocks.insert(at + 1, Block::of(upper));
        }
    }

    /// Removes a node that is in it under that key.
    pub(crate) fn remove(&mut self, key: f64, id: NodeId) {
        let at = self.block(key, id);
        let block = &mut self.blocks[at];
        let place = block.entries.partition_point(|e| e.is_before(key, id));
        let removed = block.entries.remove(place);
        debug_assert_eq!((removed.key, removed.id), (key, id));
        if block.entries.is_empty() {
            self.blocks.remove(at);
        } else {
            block.measure();
        }
    }

    /// The nodes in blocks, each with the most that one of its nodes has left.
    pub(crate) fn blocks(
        &self,
    ) -> impl DoubleEndedIterator<Item = (Free, impl Iterator<Item = NodeId>)> {
        let blocks = self.blocks.iter();
        blocks.map(|b| (b.max, b.entries.iter().map(|e| e.id)))
    }

    /// The first node from a key on that fits and is accepted.
    pub(crate) fn first(
        &self,
        from: f64,
        need: &Demand,
        mut accept: impl FnMut(NodeId) -> bool,
    ) -> Option<(f64, NodeId)> {
        let start = self.block(from, NodeId::default());
        let mut blocks = self.blocks[start..].iter();
        blocks.find_map(|b| {
            let fits = |e: &&Entry| e.key >= from && e.free.holds(need) && accept(e.id);
            let found = b.max.holds(need).then(|| b.entries.iter().find(fits));
            found.flatten().map(|e| (e.key, e.id))
        })
    }

    /// The node with the highest key that fits and is accepted; the lowest id of those with that key.
    pub(crate) fn last(
        &self,
        need: &Demand,
        mut accept: impl FnMut(NodeId) -> bool,
    ) -> Option<(f64, NodeId)> {
        let mut best: Option<(f64, NodeId)> = None;
        for block in self.blocks.iter().rev().filter(|b| b.max.holds(need)) {
            for e in block.entries.iter().rev() {
                if best.is_some_and(|(key, _)| e.key < key) {
                    return best;
                }
                if e.free.holds(need) && accept(e.id) {
                    best = Some((e.key, e.id));
                }
            }
        }
        best
    }
}
