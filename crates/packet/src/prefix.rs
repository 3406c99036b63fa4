//! IPv4 prefixes as text.

use alloc::format;
use alloc::string::String;
use core::net::Ipv4Addr;

use crate::number::decimal;

/// The addresses that begin with `len` bits of `address`; the other bits of it are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    /// Its first address.
    pub address: Ipv4Addr,
    /// Its length in bits.
    pub len: u8,
}

impl Prefix {
    /// Reads `ADDRESS/LEN`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (address, len) = text
            .split_once('/')
            .ok_or_else(|| format!("prefix is {text:?}, must be ADDRESS/LEN"))?;
        let len = match decimal::<u8>(len) {
            Some(len @ 0..=32) => len,
            _ => return Err(format!("length is {len:?}, must be 0..=32")),
        };
        let address: Ipv4Addr = address
            .parse()
            .map_err(|_| format!("address is {address:?}, must be four numbers below 256"))?;
        let prefix = Self { address, len };
        match address.to_bits() & !prefix.mask() {
            0 => Ok(prefix),
            _ => Err(format!("{text} has bits set after the first {len}")),
        }
    }

    /// Ones for the bits of the prefix.
    pub fn mask(self) -> u32 {
        (!0u64 << (32 - u32::from(self.len))) as u32
    }

    /// Whether it contains an address.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask() == self.address.to_bits()
    }

    /// Its addresses.
    pub fn count(self) -> u64 {
        1 << (32 - u32::from(self.len))
    }
}
