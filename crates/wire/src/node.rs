//! Ids of nodes in datagrams and records: 20 bits.
//!
//! The low 16 bits have a field of their own. The upper 4 share a field with a number that leaves
//! them free, so that a small id has the bytes that it had when ids were 16 bits long.

use e3_model::limits::{NODES_MAX, SLOTS};
use e3_model::{NodeId, Slot};

/// Code of [`NodeId::NOBODY`]. Ids from here on are one less than their code.
const NOBODY: u32 = u16::MAX as u32;
/// Bits of a code's upper part.
pub(crate) const HIGH_BITS: u32 = 4;
const SLOT_BITS: u32 = u16::BITS - HIGH_BITS;

const _: () = assert!(NODES_MAX < 1 << (16 + HIGH_BITS), "a code has 20 bits");
const _: () = assert!(SLOTS as u32 <= 1 << SLOT_BITS, "a slot leaves 4 bits free");

/// The lower and the upper part of a node's code.
pub(crate) fn code(node: NodeId) -> (u16, u8) {
    let code = match node {
        NodeId::NOBODY => NOBODY,
        NodeId(id) => id + u32::from(id >= NOBODY),
    };
    let high = code >> 16;
    debug_assert!(
        high < 1 << HIGH_BITS,
        "{node} is beyond what a topology may have"
    );
    (code as u16, high as u8)
}

/// The node with a code.
pub(crate) fn node(low: u16, high: u8) -> NodeId {
    let code = u32::from(high) << 16 | u32::from(low);
    match code {
        NOBODY => NodeId::NOBODY,
        _ => NodeId(code - u32::from(code > NOBODY)),
    }
}

/// A slot and the upper part of a code in one field.
pub(crate) fn with_slot(slot: Slot, high: u8) -> u16 {
    slot.0 | u16::from(high) << SLOT_BITS
}

/// The slot and the upper part in such a field.
pub(crate) fn slot_and_high(field: u16) -> (Slot, u8) {
    (
        Slot(field & ((1 << SLOT_BITS) - 1)),
        (field >> SLOT_BITS) as u8,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_comes_back_and_small_ones_are_16_bits() {
        let edge = u32::from(u16::MAX);
        for id in [0, 1, edge - 1, edge, edge + 1, NODES_MAX as u32 - 1] {
            let (low, high) = code(NodeId(id));
            assert_eq!(node(low, high), NodeId(id));
            assert_eq!((low, high) == (id as u16, 0), id < edge, "{id}");
        }
        assert_eq!(code(NodeId::NOBODY), (u16::MAX, 0));
        assert_eq!(node(u16::MAX, 0), NodeId::NOBODY);
    }

    #[test]
    fn a_slot_and_an_upper_part_share_a_field() {
        for slot in [Slot(0), Slot(SLOTS - 1)] {
            for high in [0, 3, 15] {
                assert_eq!(slot_and_high(with_slot(slot, high)), (slot, high));
            }
        }
    }
}
