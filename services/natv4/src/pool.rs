//! The pool of public addresses and ports, divided among the slots.
//!
//! The ports of all addresses are numbered, `number = (port - first) * addresses + address`, and slot `s`
//! owns the numbers with `number % 4096 == s`. So a public address and port determine their slot, no two
//! slots assign the same port, and a shard can be split with the entries of its slots alone.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use e3_sdk::Error;
use e3_sdk::limits::SLOTS;

use crate::limits::ADDRESSES_MAX;
use e3_packet::number::decimal;
use e3_packet::prefix::Prefix;

/// The public addresses with their ports.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Invariant: in order, each once.
    addresses: Vec<Ipv4Addr>,
    first: u16,
    last: u16,
}

impl Pool {
    /// Reads addresses (`ADDRESS` or `PREFIX/LEN`, separated by commas) and the range of ports
    /// (`FIRST-LAST`). There must be a port for every slot.
    pub fn parse(public: &str, ports: &str) -> Result<Self, Error> {
        let wrong = |name, value: &str| Error::Config {
            name,
            value: value.to_string(),
        };
        let mut addresses = Vec::new();
        for word in public.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let text = if word.contains('/') {
                String::from(word)
            } else {
                alloc::format!("{word}/32")
            };
            let prefix = Prefix::parse(&text).map_err(|_| wrong("public", public))?;
            if prefix.count() + addresses.len() as u64 > ADDRESSES_MAX as u64 {
                return Err(wrong("public", public));
            }
            let from = prefix.address.to_bits();
            addresses.extend((0..prefix.count() as u32).map(|i| Ipv4Addr::from_bits(from + i)));
        }
        addresses.sort_unstable();
        addresses.dedup();
        let (first, last) = ports
            .split_once('-')
            .and_then(|(a, b)| Some((decimal(a.trim())?, decimal(b.trim())?)))
            .filter(|(first, last): &(u16, u16)| *first > 0 && first <= last)
            .ok_or_else(|| wrong("ports", ports))?;
        let pool = Self {
            addresses,
            first,
            last,
        };
        if pool.addresses.is_empty() {
            return Err(wrong("public", public));
        }
        if pool.len() < u32::from(SLOTS) {
            Err(wrong("ports", ports))
        } else {
            Ok(pool)
        }
    }

    /// Numbers in all.
    fn len(&self) -> u32 {
        (u32::from(self.last - self.first) + 1) * self.addresses.len() as u32
    }

    /// Whether an address is one of the public ones.
    pub fn has(&self, address: Ipv4Addr) -> bool {
        self.addresses.binary_search(&address).is_ok()
    }

    /// Numbers that a slot owns: `slot`, `slot + 4096` and so on.
    pub fn share(&self, slot: u16) -> u32 {
        (self.len() - u32::from(slot)).div_ceil(u32::from(SLOTS))
    }

    /// A slot's number at an index below its share.
    pub fn number(slot: u16, index: u32) -> u32 {
        u32::from(slot) + index * u32::from(SLOTS)
    }

    /// Slot that owns a number, and its index there.
    pub fn owner(number: u32) -> (u16, u32) {
        let slots = u32::from(SLOTS);
        ((number % slots) as u16, number / slots)
    }

    /// Address and port of a number.
    pub fn endpoint(&self, number: u32) -> Option<(Ipv4Addr, u16)> {
        let count = self.addresses.len() as u32;
        let port = u32::from(self.first) + number / count;
        let address = self.addresses.get((number % count) as usize)?;
        (port <= u32::from(self.last)).then_some((*address, port as u16))
    }

    /// Number of an address and port, if they are of the pool.
    pub fn number_of(&self, address: Ipv4Addr, port: u16) -> Option<u32> {
        let address = self.addresses.binary_search(&address).ok()? as u32;
        let ports = self.first..=self.last;
        let port = ports.contains(&port).then(|| port - self.first)?;
        Some(u32::from(port) * self.addresses.len() as u32 + address)
    }
}
