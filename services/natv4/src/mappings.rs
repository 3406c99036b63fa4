//! The flow table: maps inside addresses and ports to public ones.
//!
//! A mapping is two entries of `mappings`, one by the inside and one by the public end, both with the
//! time of the last outbound packet. The time is renewed when it is older than an eighth of the idle
//! time, so nearly every packet costs one look-up and no write. A bitmap in `ports` holds the ports in use
//! of a slot. When all are in use, idle mappings are removed.
//!
//! | collection | key | value (little endian) |
//! |---|---|---|
//! | `mappings` | slot, `o`, protocol, inside address, inside port | number in the pool u32, time i64 |
//! | `mappings` | slot, `i`, protocol, number in the pool | inside address, inside port, time i64 |
//! | `ports` | slot, protocol | a bit for each index of the slot's share |
//!
//! Keys are big endian. All of them begin with the slot of the request that wrote them.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use e3_sdk::{Error, HashMap};

use crate::limits::RECLAIMED_MAX;
use crate::pool::Pool;

/// An inside address and port of a protocol, within one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Slot of the request.
    pub slot: u16,
    /// Number of the protocol.
    pub protocol: u8,
    /// The address.
    pub address: Ipv4Addr,
    /// The port, or the identifier of an ICMP query.
    pub port: u16,
}

impl Inside {
    fn key(self) -> [u8; 10] {
        let [s0, s1] = self.slot.to_be_bytes();
        let [a, b, c, d] = self.address.octets();
        let [p0, p1] = self.port.to_be_bytes();
        [s0, s1, b'o', self.protocol, a, b, c, d, p0, p1]
    }
}

fn outside_key(slot: u16, protocol: u8, number: u32) -> [u8; 8] {
    let [s0, s1] = slot.to_be_bytes();
    let [n0, n1, n2, n3] = number.to_be_bytes();
    [s0, s1, b'i', protocol, n0, n1, n2, n3]
}

fn ports_key(slot: u16, protocol: u8) -> [u8; 3] {
    let [s0, s1] = slot.to_be_bytes();
    [s0, s1, protocol]
}

fn outside_value(inside: Inside, used_ns: i64) -> [u8; 14] {
    let mut value = [0; 14];
    value[..4].copy_from_slice(&inside.address.octets());
    value[4..6].copy_from_slice(&inside.port.to_be_bytes());
    value[6..].copy_from_slice(&used_ns.to_le_bytes());
    value
}

fn inside_value(number: u32, used_ns: i64) -> [u8; 12] {
    let mut value = [0; 12];
    value[..4].copy_from_slice(&number.to_le_bytes());
    value[4..].copy_from_slice(&used_ns.to_le_bytes());
    value
}

/// The time that a mapping may be idle, in nanoseconds, and with it the times of its entries.
#[derive(Clone, Copy, Debug)]
pub struct Idle(pub i64);

impl Idle {
    /// Whether an entry written at `used_ns` should be written again.
    fn is_due(self, used_ns: i64, now_ns: i64) -> bool {
        now_ns.saturating_sub(used_ns) > self.0 / 8
    }

    /// When a mapping last renewed at `used_ns` ends: its last packet may have come an eighth later.
    fn end(self, used_ns: i64) -> i64 {
        used_ns.saturating_add(self.0).saturating_add(self.0 / 8)
    }
}

/// The flow table.
#[derive(Debug)]
pub struct Mappings {
    mappings: HashMap,
    ports: HashMap,
    /// By slot and protocol without a free port: the time before which none becomes free. A cache.
    full_until: BTreeMap<(u16, u8), i64>,
}

impl Mappings {
    /// Opens the collections.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            mappings: HashMap::open("mappings")?,
            ports: HashMap::open("ports")?,
            full_until: BTreeMap::new(),
        })
    }

    /// Number of the public port of a mapping, idle or not, and when it was last renewed.
    pub fn find(&self, inside: Inside) -> Result<Option<(u32, i64)>, Error> {
        let mut buffer = [0; 12];
        let value = self.mappings.get(&inside.key(), &mut buffer)?;
        Ok(value.and_then(|value| {
            let (number, used) = value.split_first_chunk()?;
            let used = i64::from_le_bytes(used.try_into().ok()?);
            Some((u32::from_le_bytes(*number), used))
        }))
    }

    /// Number of the public port of an outbound packet: that of its mapping, which is made if there
    /// is none. `None` if the slot has no port left.
    pub fn on_outbound(
        &mut self,
        inside: Inside,
        pool: &Pool,
        idle: Idle,
        now_ns: i64,
    ) -> Result<Option<u32>, Error> {
        // one of a pool that was configured before is none
        let found = self.find(inside)?;
        let number = match found.filter(|(number, _)| pool.endpoint(*number).is_some()) {
            // An idle mapping whose port nobody else took yet comes alive again.
            Some((number, used)) if !idle.is_due(used, now_ns) => return Ok(Some(number)),
            Some((number, _)) => number,
            None => match self.take_port(inside, pool, idle, now_ns)? {
                Some(number) => number,
                None => return Ok(None),
            },
        };
        let outside = outside_key(inside.slot, inside.protocol, number);
        self.mappings
            .put(&inside.key(), &inside_value(number, now_ns))?;
        self.mappings
            .put(&outside, &outside_value(inside, now_ns))?;
        Ok(Some(number))
    }

    /// Inside address and port of an inbound packet to a public port, unless there is no mapping
    /// or it is idle for too long.
    pub fn on_inbound(
        &self,
        protocol: u8,
        number: u32,
        idle: Idle,
        now_ns: i64,
    ) -> Result<Option<Inside>, Error> {
        let (slot, _) = Pool::owner(number);
        let found = self.behind(slot, protocol, number)?;
        Ok(found
            .filter(|(_, used)| now_ns <= idle.end(*used))
            .map(|(inside, _)| inside))
    }

    /// Ports in use by a slot for a protocol, idle ones among them.
    pub fn in_use(&self, slot: u16, protocol: u8) -> u32 {
        let bits = self.ports.get_vec(&ports_key(slot, protocol));
        bits.map_or(0, |bits| bits.iter().map(|b| b.count_ones()).sum())
    }

    fn behind(&self, slot: u16, protocol: u8, number: u32) -> Result<Option<(Inside, i64)>, Error> {
        let mut buffer = [0; 14];
        let key = outside_key(slot, protocol, number);
        let value = self.mappings.get(&key, &mut buffer)?;
        Ok(value.and_then(|value| {
            let (address, rest) = value.split_first_chunk::<4>()?;
            let (port, used) = rest.split_first_chunk()?;
            let inside = Inside {
                slot,
                protocol,
                address: (*address).into(),
                port: u16::from_be_bytes(*port),
            };
            Some((inside, i64::from_le_bytes(used.try_into().ok()?)))
        }))
    }

    fn take_port(
        &mut self,
        inside: Inside,
        pool: &Pool,
        idle: Idle,
        now_ns: i64,
    ) -> Result<Option<u32>, Error> {
        let (slot, protocol) = (inside.slot, inside.protocol);
        let key = ports_key(slot, protocol);
        let share = pool.share(slot);
        let mut bits = self.ports.get_vec(&key).unwrap_or_default();
        bits.resize((share as usize).div_ceil(8), 0);
        let free = |bits: &[u8]| {
            let byte = bits.iter().position(|b| *b != 0xff)?;
            let index = byte as u32 * 8 + bits[byte].trailing_ones();
            (index < share).then_some(index)
        };
        let index = match free(&bits) {
            Some(index) => index,
            None => {
                let until = self.full_until.get(&(slot, protocol));
                if until.is_some_and(|until| now_ns <= *until) {
                    return Ok(None);
                }
                let given_back = self.reclaim(slot, protocol, share, idle, now_ns)?;
                for index in &given_back {
                    bits[*index as usize / 8] &= !(1 << (index % 8));
                }
                match given_back.first() {
                    Some(index) => *index,
                    None => return Ok(None),
                }
            }
        };
        bits[index as usize / 8] |= 1 << (index % 8);
        self.ports.put(&key, &bits)?;
        Ok(Some(Pool::number(slot, index)))
    }

    /// Takes out mappings that are idle for too long; returns their indices in the slot's share.
    fn reclaim(
        &mut self,
        slot: u16,
        protocol: u8,
        share: u32,
        idle: Idle,
        now_ns: i64,
    ) -> Result<Vec<u32>, Error> {
        let mut given_back = vec![];
        let mut next_end = i64::MAX;
        for index in 0..share {
            let number = Pool::number(slot, index);
            if let Some((inside, used)) = self.behind(slot, protocol, number)? {
                let end = idle.end(used);
                if now_ns <= end {
                    next_end = next_end.min(end);
                    continue;
                }
                // with another pool than today's, the inside may have got another number since
                if self.find(inside)?.is_some_and(|(found, _)| found == number) {
                    self.mappings.delete(&inside.key())?;
                }
                self.mappings.delete(&outside_key(slot, protocol, number))?;
            }
            given_back.push(index);
            if given_back.len() == RECLAIMED_MAX {
                break;
            }
        }
        if given_back.is_empty() {
            self.full_until.insert((slot, protocol), next_end);
        }
        Ok(given_back)
    }
}
