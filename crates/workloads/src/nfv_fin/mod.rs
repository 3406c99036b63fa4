//! The workload of flow monitoring (NFV-FIN): packets are counted by flow, searched for attacks, and
//! sealed into an IPsec tunnel.
//!
//! The ESP sequence numbers of one security association must have no gap and no duplicate. Flows are the
//! same in all loads, so the counts of all three services are read before the load. After it they are
//! read from every shard, and from every security association that was used.

mod oracle;

use crate::inputs::Inputs;
use crate::load::{Generator, Load};
use crate::packets::{FLOWS, Packets, Sent, flow};
use e3_loadgen::workload::Call;
use oracle::{InFlight, Monitor};

fn key(rank: u32) -> Vec<u8> {
    flow(rank).canonical().to_bytes().to_vec()
}

/// The packets of a seed.
pub(crate) fn load(inputs: &Inputs) -> Load<Packets, Monitor> {
    Load::new(Packets::new(inputs.seed), Monitor::new())
}

impl Generator<Monitor> for Packets {
    fn describe(&self) -> String {
        format!("packets of {FLOWS} flows by Zipf's law, simple IMIX, 1 % attacks")
    }

    fn next(&mut self, _: &mut Monitor) -> Option<(Call, InFlight)> {
        let Sent {
            flow: rank,
            bytes: payload,
            attack,
        } = self.next_packet();
        let len = payload.len();
        let call = Call {
            tag: 0,
            key: key(rank),
            payload,
        };
        Some((call, InFlight { rank, len, attack }))
    }
}
