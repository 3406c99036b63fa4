//! Records that the IPsec gateway receives and sends.

use crate::oracles::gateway::Address;
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CountQuery {
    pub(super) op: &'static str,
    pub(super) at: &'static str,
    pub(super) which: &'static str,
    pub(super) source: String,
    pub(super) source_port: u16,
    pub(super) destination: String,
    pub(super) destination_port: u16,
    pub(super) protocol: u8,
}

#[derive(Serialize)]
pub(super) struct RouteQuery {
    pub(super) op: &'static str,
    pub(super) at: &'static str,
    pub(super) address: String,
}

#[derive(Deserialize)]
pub(super) struct Sealed {
    pub(super) spi: u64,
    pub(super) sequence: u64,
    pub(super) bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Route {
    pub(super) next_hop: Address,
}

/// Bytes of the ESP packet that a packet becomes (RFC 4303, tunnel mode): an outer header, SPI and
/// number, vector, the packet with its padding, the padding's length and the next header in whole
/// blocks, and the tag.
pub(super) fn sealed_len(bytes: usize) -> u64 {
    (20 + 8 + 16 + (bytes + 2).next_multiple_of(16) + 12) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn esp_packets_are_whole_blocks() {
        // RFC 4303: 64 bytes and the two behind the padding take five blocks
        assert_eq!(sealed_len(64), 20 + 8 + 16 + 80 + 12);
        assert_eq!(sealed_len(62), 20 + 8 + 16 + 64 + 12);
    }
}
