//! Packs frames into datagrams: one open datagram for each peer, closed when it is full or when the
//! worker's turn ends.

use crate::limits::*;
use e3_model::plan::Peer;
use e3_model::{Address, Format, NodeId};
use e3_wire::datagram::{HEADER_LEN, Header, Kind, seal};
use e3_wire::frame::Frame;
use std::collections::{BTreeMap, VecDeque};

/// Frames on their way into datagrams.
#[derive(Debug)]
pub(crate) struct Packer {
    cluster: u64,
    node: NodeId,
    incarnation: u32,
    /// The cluster's active one.
    format: Format,
    pub(crate) peers: BTreeMap<NodeId, Peer>,
    open: BTreeMap<NodeId, Vec<u8>>,
    /// Whole datagrams for other nodes.
    pub(crate) remote: VecDeque<(Address, Vec<u8>)>,
    /// Whole datagrams for this node itself, without checksum.
    local: VecDeque<Vec<u8>>,
    /// Empty buffers.
    spare: Vec<Vec<u8>>,
}

impl Packer {
    /// Without peers.
    pub(crate) fn new(node: NodeId, cluster: u64, incarnation: u32) -> Packer {
        Packer {
            cluster,
            node,
            incarnation,
            format: Format::default(),
            peers: BTreeMap::new(),
            open: BTreeMap::new(),
            remote: VecDeque::new(),
            local: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Changes the format of all datagrams from now on. What is open is closed in the one before.
    pub(crate) fn set_format(&mut self, format: Format) {
        if format != self.format {
            self.flush();
            self.format = format;
        }
    }

    /// Appends a frame for a node. Frames for unknown nodes are dropped: what must arrive is
    /// retransmitted by its channel.
    pub(crate) fn frame(&mut self, to: NodeId, frame: &Frame<'_>) {
        let Some(to_incarnation) = self.peers.get(&to).map(|p| p.incarnation) else {
            return;
        };
        let len = frame.encoded_len();
        let open = self.open.get(&to).map_or(0, Vec::len);
        if open + len > DATAGRAM_LEN_GOAL {
            self.close(to);
        }
        let (node, cluster, incarnation) = (self.node, self.cluster, self.incarnation);
        let spare = &mut self.spare;
        let buffer = self.open.entry(to).or_insert_with(|| {
            let mut buffer = spare.pop().unwrap_or_default();
            buffer.reserve(HEADER_LEN + len.max(512));
            Header {
                kind: Kind::Peer,
                from: node,
                cluster,
                incarnation,
                to_incarnation,
            }
            .encode(&mut buffer);
            buffer
        });
        frame.encode(buffer);
    }

    /// Closes all open datagrams.
    pub(crate) fn flush(&mut self) {
        while let Some(to) = self.open.keys().next().copied() {
            self.close(to);
        }
    }

    fn close(&mut self, to: NodeId) {
        let Some(mut buffer) = self.open.remove(&to) else {
            return;
        };
        if to == self.node {
            self.local.push_back(buffer);
        } else if let Some(peer) = self.peers.get(&to) {
            seal(self.format, &mut buffer);
            self.remote.push_back((peer.address, buffer));
        }
    }

    /// The next datagram for this node itself.
    pub(crate) fn pop_local(&mut self) -> Option<Vec<u8>> {
        self.local.pop_front()
    }

    /// An empty buffer.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes back a buffer that has been sent.
    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS_MAX && buffer.capacity() > 0 {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::{AppId, ServiceId, ShardId};
    use e3_wire::frame::{Ends, Link};

    fn packer() -> Packer {
        let mut packer = Packer::new(NodeId(0), 7, 1);
        let peer = Peer {
            name: String::new(),
            server: 0,
            incarnation: 1,
            address: Address::default(),
        };
        packer.peers.insert(NodeId(1), peer);
        packer
    }

    fn data(body: &[u8]) -> Frame<'_> {
        Frame::Data {
            link: Link {
                app: AppId(1),
                ends: Ends::Ingress {
                    node: NodeId(0),
                    service: ServiceId(0),
                    shard: ShardId(0),
                },
                from_incarnation: 1,
                to_incarnation: 1,
            },
            epoch: 0,
            seq: 1,
            behind: 0,
            body,
        }
    }

    #[test]
    fn a_datagram_is_filled_up_to_its_length() {
        let room = DATAGRAM_LEN_GOAL - HEADER_LEN;
        let half = vec![7; room / 2 - data(&[]).encoded_len()];
        for (frames, datagrams) in [(2, 1), (3, 2), (4, 2)] {
            let mut packer = packer();
            for _ in 0..frames {
                packer.frame(NodeId(1), &data(&half));
            }
            packer.flush();
            assert_eq!(packer.remote.len(), datagrams, "{frames} frames");
            let (_, first) = &packer.remote[0];
            assert_eq!(first.len(), DATAGRAM_LEN_GOAL);
        }
    }

    #[test]
    fn buffers_are_used_again_and_no_more_are_kept_than_are_of_use() {
        let mut packer = packer();
        packer.recycle(Vec::new());
        assert_eq!(packer.spare.len(), 0, "it holds nothing");
        packer.recycle(vec![7; 1_000]);
        let buffer = packer.buffer();
        assert!(buffer.is_empty() && buffer.capacity() >= 1_000);
        for _ in 0..2 * SPARE_BUFFERS_MAX {
            packer.recycle(vec![7; 9]);
        }
        assert_eq!(packer.spare.len(), SPARE_BUFFERS_MAX);
    }
}
