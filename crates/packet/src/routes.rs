//! Longest-prefix match by DIR-24-8 (Gupta, Lin, McKeown: "Routing Lookups in Hardware at Memory
//! Access Speeds", INFOCOM 1998): a table indexed by the first 24 bits of an address gives most results,
//! and each of the few blocks of 256 addresses with longer routes has a table indexed by the last 8 bits.
//!
//! The tables take 32 MiB and more, so they are not state of an instance but an asset, which all
//! instances of a node share. It is compiled from text ([`compile`]), one `PREFIX/LEN NEXTHOP` a
//! line; empty lines and text after a `#` are ignored. Its layout:
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 64 | `E3DIR248`, then little endian u32: next hops, blocks, routes; zeros |
//! | 64 | 32768 * 4 | addresses of the next hops as they are sent, from number 1 on; zeros |
//! | 131136 | 2^24 * 2 | first level, u16 little endian by the first 24 bits of an address |
//! | 33685568 | blocks * 512 | second level, for each block u16 little endian by the last 8 bits |
//!
//! An entry is the number of a next hop, 0 = no route; in the first level bit 15 says that the other
//! 15 are the number of a block. A look-up reads 2 bytes, rarely twice, and the address of the next hop.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv4Addr;

use crate::prefix::Prefix;

/// Most next hops of a table: 15 bits without 0.
pub const NEXT_HOPS_MAX: usize = (1 << 15) - 1;
/// Blocks of 256 addresses that have routes longer than /24.
pub const BLOCKS_MAX: usize = 1 << 15;

const MAGIC: &[u8; 8] = b"E3DIR248";
const HEADER_BYTES: u64 = 64;
const NEXT_HOPS_AT: u64 = HEADER_BYTES;
const FIRST_AT: u64 = NEXT_HOPS_AT + (NEXT_HOPS_MAX as u64 + 1) * 4;
const SECOND_AT: u64 = FIRST_AT + (1 << 24) * 2;
const BLOCK: u16 = 1 << 15;
const _: () = assert!(BLOCKS_MAX == BLOCK as usize && NEXT_HOPS_MAX < BLOCK as usize);

/// Random access to the bytes of a compiled table.
pub trait Bytes {
    /// The error of a read.
    type Error;
    /// Its length.
    fn length(&self) -> u64;
    /// Reads from `offset` on until `out` is full.
    fn read_exact(&self, offset: u64, out: &mut [u8]) -> Result<(), Self::Error>;
}

/// A compiled route table.
#[derive(Clone, Copy, Debug)]
pub struct Routes<B> {
    bytes: B,
}

/// An error in a table as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteError {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl core::error::Error for RouteError {}

impl<B: Bytes> Routes<B> {
    /// Opens a compiled table; the inner error says why it is invalid.
    pub fn open(bytes: B) -> Result<Result<Self, String>, B::Error> {
        let len = bytes.length();
        let mut header = [0; HEADER_BYTES as usize];
        if len >= HEADER_BYTES {
            bytes.read_exact(0, &mut header)?;
        }
        if header[..8] != MAGIC[..] {
            let why = "is not a compiled route table, must begin with E3DIR248";
            return Ok(Err(why.into()));
        }
        let [next_hops, blocks] = [8, 12].map(|at| {
            let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u64::from(u32::from_le_bytes(bytes))
        });
        let must_be = SECOND_AT + blocks * 512;
        if next_hops > NEXT_HOPS_MAX as u64 || blocks > BLOCKS_MAX as u64 || len != must_be {
            return Ok(Err(format!(
                "has {len} bytes, {blocks} blocks and {next_hops} next hops, must be {must_be} \
                 bytes, at most {BLOCKS_MAX} blocks and {NEXT_HOPS_MAX} next hops"
            )));
        }
        Ok(Ok(Self { bytes }))
    }

    /// The next hop of the longest prefix of the address.
    pub fn next_hop(&self, address: Ipv4Addr) -> Result<Option<Ipv4Addr>, B::Error> {
        let address = u64::from(address.to_bits());
        let mut entry = self.entry(FIRST_AT + (address >> 8) * 2)?;
        if entry & BLOCK != 0 {
            let block = u64::from(entry & !BLOCK);
            entry = self.entry(SECOND_AT + block * 512 + (address & 0xff) * 2)?;
        }
        if entry == 0 {
            return Ok(None);
        }
        self.read(NEXT_HOPS_AT + u64::from(entry & !BLOCK) * 4)
            .map(|octets: [u8; 4]| Some(octets.into()))
    }

    fn entry(&self, at: u64) -> Result<u16, B::Error> {
        self.read(at).map(u16::from_le_bytes)
    }

    fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], B::Error> {
        let mut bytes = [0; N];
        self.bytes.read_exact(at, &mut bytes)?;
        Ok(bytes)
    }
}

/// Compiles a text table. An error names the line and the reason.
pub fn compile(text: &str) -> Result<Vec<u8>, RouteError> {
    let table = Table::read(text)?;
    let (first, second) = table.levels()?;
    Ok(table.encode(&first, &second))
}

fn error<T>(line: usize, reason: String) -> Result<T, RouteError> {
    Err(RouteError { line, reason })
}

/// A text table.
#[derive(Default)]
struct Table {
    /// Number of each next hop, from 1 on.
    numbers: BTreeMap<Ipv4Addr, u16>,
    /// Next hop and line of each prefix. Ordered by length: a longer prefix overwrites the shorter ones
    /// that contain it.
    routes: BTreeMap<(u8, Ipv4Addr), (u16, usize)>,
}

impl Table {
    fn read(text: &str) -> Result<Table, RouteError> {
        let mut table = Table::default();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.split('#').next().unwrap_or_default();
            let words: Vec<&str> = content.split_whitespace().collect();
            match words[..] {
                [] => {}
                [prefix, hop] => table.add(line, prefix, hop)?,
                _ => {
                    let words = words.len();
                    return error(
                        line,
                        format!("has {words} words, must be PREFIX/LEN NEXTHOP"),
                    );
                }
            }
        }
        Ok(table)
    }

    fn add(&mut self, line: usize, text: &str, hop: &str) -> Result<(), RouteError> {
        let prefix = Prefix::parse(text).or_else(|reason| error(line, reason))?;
        let Ok(address) = hop.parse() else {
            return error(line, format!("next hop is {hop:?}, must be an address"));
        };
        let next = self.numbers.len() + 1;
        let number = *self.numbers.entry(address).or_insert(next as u16);
        if usize::from(number) > NEXT_HOPS_MAX {
            let reason = format!("next hop number {next}, must be at most {NEXT_HOPS_MAX}");
            return error(line, reason);
        }
        let route = (number, line);
        if let Some((_, before)) = self.routes.insert((prefix.len, prefix.address), route) {
            return error(line, format!("{text} is a duplicate of line {before}"));
        }
        Ok(())
    }

    /// Both levels of the compiled table.
    fn levels(&self) -> Result<(Vec<u16>, Vec<[u16; 256]>), RouteError> {
        let mut first = vec![0u16; 1 << 24];
        let mut second: Vec<[u16; 256]> = Vec::new();
        for ((len, address), (number, line)) in &self.routes {
            let address = address.to_bits() as usize;
            if *len <= 24 {
                first[address >> 8..][..1 << (24 - len)].fill(*number);
                continue;
            }
            let entry = &mut first[address >> 8];
            if *entry & BLOCK == 0 {
                if second.len() == BLOCKS_MAX {
                    let count = BLOCKS_MAX + 1;
                    return error(
                        *line,
                        format!("block {count}, must be at most {BLOCKS_MAX}"),
                    );
                }
                second.push([*entry; 256]);
                *entry = BLOCK | (second.len() - 1) as u16;
            }
            let block = &mut second[usize::from(*entry & !BLOCK)];
            block[address & 0xff..][..1 << (32 - len)].fill(*number);
        }
        Ok((first, second))
    }

    fn encode(&self, first: &[u16], second: &[[u16; 256]]) -> Vec<u8> {
        let mut out = Vec::with_capacity(SECOND_AT as usize + second.len() * 512);
        out.extend_from_slice(MAGIC);
        for count in [self.numbers.len(), second.len(), self.routes.len()] {
            out.extend_from_slice(&(count as u32).to_le_bytes());
        }
        out.resize(FIRST_AT as usize, 0);
        for (hop, number) in &self.numbers {
            let at = NEXT_HOPS_AT as usize + usize::from(*number) * 4;
            out[at..at + 4].copy_from_slice(&hop.octets());
        }
        let entries = first.iter().chain(second.as_flattened());
        out.extend(entries.flat_map(|entry| entry.to_le_bytes()));
        out
    }
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
