//! IPsec gateway: ESP in tunnel mode with AES-128-CBC and HMAC-SHA1-96 ([`esp`]; RFC 4303, 3602,
//! 2404), one end of a tunnel between two addresses.
//!
//! A request is an IPv4 packet. With `direction: out` it is sealed and passed on as an ESP packet;
//! with `direction: in` it is an ESP packet, which is verified, checked against replay
//! ([`window`]), opened, and passed on as the packet inside. A last stage answers with a record:
//! `spi`, `sequence`, and `bytes`, the length of the packet that came of it; a dummy packet (next
//! header 59) goes no further and is answered with `bytes` 0. A packet that is malformed, repeated,
//! too old, forged or not for this end is answered with an error and changes nothing.
//!
//! **Security associations and shards.** Sequence numbers must never repeat under an SA, so no two
//! shards may draw from the same. The slots of keys are divided evenly over `sas` SAs: slot `s`
//! belongs to SA `s * sas / 4096`, whose SPI is `spi` plus that index, and what an SA has sent or
//! received is kept under its SPI. With 4096 SAs (the default) a shard can be split anywhere; with
//! fewer, shards must not be split within an SA's slots, so `sas` must be at least the number of
//! shards that the service will ever have, and shards of equal size. At the receiving end a packet
//! must come under a key of its SA's slots: the sender's key does.
//!
//! A request with `op: report` is answered with `spi` and, going out, `sequence`, the last number
//! that was used; coming in, `sequence`, the highest received, and `received`, how many of the 64
//! numbers up to it were.
//!
//! Configuration: `direction` (`out` or `in`), `source` and `destination` (addresses of the tunnel's
//! ends, in that direction), `spi` (default 256; not below, those are reserved), `sas` (a power of
//! two, `1..=4096`; default 4096); and `to` and `reply`, see [`e3_stage::Stage`]. Secrets: `master`,
//! at least 16 bytes, from which each SA's keys are derived: the first 16 bytes of
//! HMAC-SHA256(master, "e3 ipsec" 1 SPI) for the cipher, the first 20 of
//! HMAC-SHA256(master, "e3 ipsec" 2 SPI) for the tag (SPI in network byte order); or, with one SA,
//! `keys`, these 36 bytes themselves. Collections: going out a counter `sequences`, coming in a
//! hash-map `windows`. Accelerators: `aes-cbc`, `hmac-sha1`; `hmac-sha256` to derive keys.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod esp;
pub mod window;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::str::FromStr;

use e3_sdk::accel::HmacSha256;
use e3_sdk::limits::SLOTS;
use e3_sdk::{Counter, Error, HashMap, Request, Service, config, config_or, reply, secret};
use e3_stage::{Builder, Fault, Question, Record, Stage, Value, status};
use esp::{CIPHER_KEY_LEN, Keys, Sealed, TAG_KEY_LEN, Tunnel};
use window::Window;

/// SPIs below are reserved (RFC 4303, section 2.1).
const SPI_MIN: u32 = 256;
/// Least bytes of the secret that keys are derived from.
const MASTER_LEN_MIN: usize = 16;

/// Where the tunnel is entered or left.
#[derive(Debug)]
enum End {
    /// Numbers used so far, by SPI.
    Out(Counter),
    /// Windows, by SPI.
    In(HashMap),
}

/// What `direction` says.
enum Direction {
    Out,
    In,
}

impl FromStr for Direction {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "out" => Ok(Self::Out),
            "in" => Ok(Self::In),
            _ => Err(()),
        }
    }
}

/// Where keys come from.
enum Source {
    /// The only SA's keys.
    Given(Vec<u8>),
    /// Derives them.
    Master(HmacSha256),
}

impl Source {
    fn open(sas: u16) -> Result<Source, Error> {
        if sas == 1
            && let Ok(keys) = secret("keys")
        {
            return match keys.len() == CIPHER_KEY_LEN + TAG_KEY_LEN {
                true => Ok(Source::Given(keys)),
                false => Err(Error::SecretLength {
                    name: "keys",
                    len: keys.len(),
                    must_be: "36",
                }),
            };
        }
        let master = secret("master")?;
        match master.len() >= MASTER_LEN_MIN {
            true => HmacSha256::new(&master).map(Source::Master),
            false => Err(Error::SecretLength {
                name: "master",
                len: master.len(),
                must_be: "at least 16",
            }),
        }
    }

    fn keys(&self, spi: u32) -> Result<Keys, Error> {
        let (mut cipher, mut tag) = ([0; CIPHER_KEY_LEN], [0; TAG_KEY_LEN]);
        match self {
            Source::Given(keys) => {
                cipher.copy_from_slice(&keys[..CIPHER_KEY_LEN]);
                tag.copy_from_slice(&keys[CIPHER_KEY_LEN..]);
            }
            Source::Master(master) => {
                let derive = |purpose: u8| {
                    let mut label = *b"e3 ipsec.SPI_";
                    label[8] = purpose;
                    label[9..].copy_from_slice(&spi.to_be_bytes());
                    master.tag(&label)
                };
                cipher.copy_from_slice(&derive(1)?[..CIPHER_KEY_LEN]);
                tag.copy_from_slice(&derive(2)?[..TAG_KEY_LEN]);
            }
        }
        Keys::new(&cipher, &tag)
    }
}

/// The service.
pub struct Ipsec {
    end: End,
    tunnel: Tunnel,
    spi: u32,
    sas: u16,
    source: Source,
    /// Keys of the SAs that were used.
    keys: Vec<Option<Box<Keys>>>,
    stage: Stage,
    out: Vec<u8>,
    record: Builder,
}

impl Service for Ipsec {
    fn init() -> Result<Self, Error> {
        let direction = config("direction").unwrap_or_default();
        let end = match direction.parse() {
            Ok(Direction::Out) => End::Out(Counter::open("sequences")?),
            Ok(Direction::In) => End::In(HashMap::open("windows")?),
            Err(()) => {
                return Err(Error::Config {
                    name: "direction",
                    value: direction,
                });
            }
        };
        let sas: u16 = config_or("sas", SLOTS)?;
        if !sas.is_power_of_two() || sas > SLOTS {
            return Err(Error::Config {
                name: "sas",
                value: sas.to_string(),
            });
        }
        let spi: u32 = config_or("spi", SPI_MIN)?;
        if spi < SPI_MIN || spi.checked_add(u32::from(sas)).is_none() {
            return Err(Error::Config {
                name: "spi",
                value: spi.to_string(),
            });
        }
        Ok(Self {
            end,
            tunnel: Tunnel {
                source: address("source")?,
                destination: address("destination")?,
            },
            spi,
            sas,
            source: Source::open(sas)?,
            keys: (0..sas).map(|_| None).collect(),
            stage: Stage::open()?,
            out: Vec::new(),
            record: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        match request.payload().first() {
            // not a packet, whose first half byte is 4
            Some(0xa0..=0xb7) => match Record::parse(request.payload()) {
                Ok(record) => self.on_query(request, &record),
                Err(fault) => self.stage.refuse(&fault),
            },
            _ => match self.end {
                End::Out(sequences) => self.on_plain(request, sequences),
                End::In(windows) => self.on_sealed(request, windows),
            },
        }
    }
}

fn address(name: &'static str) -> Result<Ipv4Addr, Error> {
    let address: Ipv4Addr = config_or(name, Ipv4Addr::UNSPECIFIED)?;
    match address.is_unspecified() {
        false => Ok(address),
        true => Err(Error::Config {
            name,
            value: address.to_string(),
        }),
    }
}

/// The keys of an SA, made when they are first needed.
fn keys_of<'a>(
    keys: &'a mut [Option<Box<Keys>>],
    source: &Source,
    index: u16,
    spi: u32,
) -> Result<&'a Keys, Error> {
    let entry = &mut keys[usize::from(index)];
    if entry.is_none() {
        *entry = Some(Box::new(source.keys(spi)?));
    }
    entry.as_deref().ok_or(Error::Index)
}

fn refuse(spi: u32, why: &str) -> Result<(), Error> {
    reply(status::REFUSED, format!("spi {spi}: {why}").as_bytes())
}

fn on_fault(fault: esp::Fault) -> Result<(), Error> {
    let status = match fault.is_refusal() {
        true => status::REFUSED,
        false => status::MALFORMED,
    };
    reply(status, fault.to_string().as_bytes())
}

impl Ipsec {
    /// Index of the SA that the request's slot belongs to.
    fn index(&self, request: &Request<'_>) -> u16 {
        (u32::from(request.slot()) * u32::from(self.sas) / u32::from(SLOTS)) as u16
    }

    /// A packet that is to be sealed.
    fn on_plain(&mut self, request: &Request<'_>, sequences: Counter) -> Result<(), Error> {
        let packet = match esp::plain(request.payload()) {
            Ok(packet) => packet,
            Err(fault) => return on_fault(fault),
        };
        let index = self.index(request);
        let spi = self.spi + u32::from(index);
        let used = sequences.fetch_add(&spi.to_be_bytes(), 1);
        if used < 0 {
            return Err(Error::Code(used as i32));
        }
        let Ok(sequence @ 1..) = u32::try_from(used + 1) else {
            // never again from 1: a new SA is needed
            sequences.fetch_add(&spi.to_be_bytes(), -1);
            return refuse(spi, "all 4294967295 sequence numbers are used");
        };
        let keys = keys_of(&mut self.keys, &self.source, index, spi)?;
        esp::seal(keys, &self.tunnel, spi, sequence, &packet, &mut self.out)?;
        self.stage.send(request, &self.out)?;
        self.answer(spi, sequence, self.out.len())
    }

    /// A packet that is to be opened.
    fn on_sealed(&mut self, request: &Request<'_>, windows: HashMap) -> Result<(), Error> {
        let sealed = match Sealed::parse(request.payload(), &self.tunnel) {
            Ok(sealed) => sealed,
            Err(fault) => return on_fault(fault),
        };
        let index = self.index(request);
        let spi = self.spi + u32::from(index);
        if sealed.spi != spi {
            return refuse(sealed.spi, &format!("the request's key belongs to {spi}"));
        }
        let mut room = [0; Window::BYTES];
        let stored = windows.get(&spi.to_be_bytes(), &mut room)?;
        let window = stored.and_then(Window::from_bytes).unwrap_or_default();
        if !window.is_new(sealed.sequence) {
            let (number, highest) = (sealed.sequence, window.highest);
            let why = format!("sequence number {number} is repeated or too old, after {highest}");
            return refuse(spi, &why);
        }
        let keys = keys_of(&mut self.keys, &self.source, index, spi)?;
        let packet = match sealed.open(keys, &mut self.out)? {
            Ok(packet) => packet,
            Err(fault) => return on_fault(fault),
        };
        let window = window.with(sealed.sequence);
        windows.put(&spi.to_be_bytes(), &window.to_bytes())?;
        let len = packet.map_or(0, <[u8]>::len);
        match packet {
            Some(packet) => self.stage.send(request, packet)?,
            // it has come to its end, whatever comes after
            None if !self.stage.replies() => return reply(status::OK, &[]),
            None => {}
        }
        self.answer(spi, sealed.sequence, len)
    }

    fn answer(&mut self, spi: u32, sequence: u32, bytes: usize) -> Result<(), Error> {
        if !self.stage.replies() {
            return Ok(());
        }
        let record = self.record.clear();
        record
            .field("spi", Value::Int(spi.into()))
            .field("sequence", Value::Int(sequence.into()))
            .field("bytes", Value::Int(bytes as i64));
        reply(status::OK, record.bytes())
    }

    fn on_query(&mut self, request: &Request<'_>, query: &Record<'_>) -> Result<(), Error> {
        match self.stage.question(request, query)? {
            Question::Mine("report") => {}
            Question::Mine(other) => {
                let why = format!("is {other:?}, must be \"report\"");
                return self.stage.refuse(&Fault::value("op", why));
            }
            Question::PassedOn => return Ok(()),
            Question::None => return self.stage.refuse(&Fault::Missing("op".into())),
        }
        let spi = self.spi + u32::from(self.index(request));
        let record = self.record.clear().field("spi", Value::Int(spi.into()));
        match self.end {
            End::Out(sequences) => {
                let sequence = sequences.get(&spi.to_be_bytes());
                record.field("sequence", Value::Int(sequence));
            }
            End::In(windows) => {
                let mut room = [0; Window::BYTES];
                let stored = windows.get(&spi.to_be_bytes(), &mut room)?;
                let window = stored.and_then(Window::from_bytes).unwrap_or_default();
                let received = i64::from(window.received.count_ones());
                record
                    .field("sequence", Value::Int(window.highest.into()))
                    .field("received", Value::Int(received));
            }
        }
        reply(status::OK, record.bytes())
    }
}

e3_sdk::service!(Ipsec, request_capacity = 32 * 1024);

#[cfg(test)]
mod tests;
