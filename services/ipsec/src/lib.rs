//! IPsec gateway: ESP in tunnel mode with AES-128-CBC and HMAC-SHA1-96 ([`esp`]; RFC 4303, 3602,
//! 2404), one end of a tunnel between two addresses.
//!
//! Input: an IPv4 packet. With `direction: out` it is sealed and forwarded as an ESP packet;
//! with `direction: in` it is an ESP packet, which is verified, checked against replay
//! ([`window`]), opened, and forwarded as the inner packet. The last stage replies with a record:
//! `spi`, `sequence`, and `bytes`, the length of the resulting packet. A dummy packet (next header 59) is
//! not forwarded; its reply has `bytes` 0. A packet that is malformed, repeated, too old, forged or not for
//! this end is answered with an error and changes nothing.
//!
//! **Security associations and shards.** Sequence numbers must never repeat under an SA, so two shards
//! must not share one. The slots of keys are divided evenly over `sas` SAs: slot `s` belongs to SA
//! `s * sas / 4096`, whose SPI is `spi` plus that index, and the state of an SA is stored under its SPI.
//! With 4096 SAs (the default) a shard can be split anywhere; with fewer, shards must not be split within
//! the slots of an SA, so `sas` must be at least the largest number of shards, and shards must have equal
//! size. At the receiving end a packet must come under a key of its SA's slots: the sender's key is one.
//!
//! **Epochs and keys.** The first packet of an SA draws an epoch of 16 random bytes, which is stored with
//! the SA's sequence number ([`association`]). If the numbers start over because the state is lost, the
//! epoch is new, and so are the keys. They are the first 36 bytes of HKDF-SHA256 (RFC 5869), 16 for the
//! cipher and 20 for the tag: the input is the secret `master` (at least 16 bytes), the salt the epoch,
//! the info "e3 ipsec keys", the SPI, `source` and `destination` (4 bytes each, network byte order).
//!
//! At the sender, the query `report`, whose key selects the SA, returns `spi`, `sequence` (the last number
//! used), `epoch` and `proof`, both as 32 hexadecimal digits. The proof is the first 16 bytes of HKDF with
//! the info "e3 ipsec epoch" instead. An SA without an epoch gets one. Replies to packets have the `epoch`
//! too.
//!
//! At the receiver, `op: accept` with `epoch` and `proof` sets the epoch of the SA; until then its packets
//! are refused. An epoch with a wrong proof is refused, and so is an epoch that was replaced. `report`
//! returns `spi`, `sequence` (the highest received), `received` (how many of the 64 numbers up to
//! it were) and the `epoch`, if there is one. A receiver that lost its state no longer knows what it has
//! received: deploy the sender again too, so that its epochs are new.
//!
//! With one SA the secret may be `keys` instead, the 36 bytes themselves, for a peer that derives no keys.
//! They do not change with the epoch: IVs do not repeat, but after a loss of state sequence numbers do.
//!
//! **Another value of the secret.** A new value of `master` or `keys` is used at once to seal. The receiver accepts
//! packets and proofs under the new value, and under the value before until that is retired. Epochs, sequence numbers and
//! windows go on, so a packet that came is refused under either key. If the two ends are different
//! applications, set the value at the receiver first: until it has it, it refuses packets under it.
//!
//! Configuration: `direction` (`out` or `in`), `source` and `destination` (addresses of the tunnel's
//! ends, in that direction), `spi` (default 256; lower ones are reserved), `sas` (a power of
//! two, `1..=4096`; default 4096); and `to` and `reply`, see [`e3_pipeline::Stage`]. Collections: hash map
//! `sequences` at the sender, `windows` at the receiver. Accelerators: `aes-cbc`, `hmac-sha1`;
//! `hmac-sha256` to derive keys.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod association;
pub mod esp;
pub mod window;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::str::FromStr;

use association::{Epoch, Receiver, Sender, Source, from_text, to_text};
use e3_pipeline::{Builder, Query, Record, RecordError, Stage, Value, status};
use e3_sdk::limits::SLOTS;
use e3_sdk::{Error, HashMap, Request, Service, config, config_or, reply};
use esp::{Keys, Sealed, Tunnel};

/// SPIs below are reserved (RFC 4303, section 2.1).
const SPI_MIN: u32 = 256;

/// Which end of the tunnel this is.
#[derive(Clone, Copy, Debug)]
enum End {
    /// [`Sender`]s, by SPI.
    Out(HashMap),
    /// [`Receiver`]s, by SPI; and an entry by SPI and epoch for each epoch that was replaced.
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

/// Keys of an SA in an epoch.
struct Derived {
    epoch: Epoch,
    /// The epoch as records have it.
    text: String,
    keys: Keys,
}

/// A value of the secret, and what was derived from it.
struct KeyRing {
    source: Source,
    /// Keys of the SAs used so far.
    derived: Vec<Option<Box<Derived>>>,
}

impl KeyRing {
    fn new(source: Source, sas: u16) -> KeyRing {
        let derived = (0..sas).map(|_| None).collect();
        KeyRing { source, derived }
    }

    /// The keys of an SA in an epoch, made when they are first needed.
    fn keys(
        &mut self,
        tunnel: &Tunnel,
        (spi, at): (u32, u16),
        epoch: &Epoch,
    ) -> Result<&Keys, Error> {
        let entry = &mut self.derived[usize::from(at)];
        if entry.as_ref().is_none_or(|known| known.epoch != *epoch) {
            *entry = Some(Box::new(Derived {
                epoch: *epoch,
                text: to_text(epoch),
                keys: self.source.keys(tunnel, spi, epoch)?,
            }));
        }
        Ok(&entry.as_deref().ok_or(Error::Index)?.keys)
    }
}

/// The service.
pub struct Ipsec {
    end: End,
    tunnel: Tunnel,
    spi: u32,
    sas: u16,
    present: KeyRing,
    /// Of the value before, while the receiver accepts what was made with it.
    previous: Option<KeyRing>,
    stage: Stage,
    out: Vec<u8>,
    record: Builder,
}

impl Service for Ipsec {
    fn init() -> Result<Self, Error> {
        let direction = config("direction").unwrap_or_default();
        let end = match direction.parse() {
            Ok(Direction::Out) => End::Out(HashMap::open("sequences")?),
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
        let source = Source::open(sas)?;
        Ok(Self {
            end,
            tunnel: Tunnel {
                source: address("source")?,
                destination: address("destination")?,
            },
            spi,
            sas,
            previous: match end {
                End::In(_) => source.previous().map(|source| KeyRing::new(source, sas)),
                End::Out(_) => None,
            },
            present: KeyRing::new(source, sas),
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
                Err(error) => self.stage.refuse(&error),
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
    if address.is_unspecified() {
        Err(Error::Config {
            name,
            value: address.to_string(),
        })
    } else {
        Ok(address)
    }
}

fn refuse(spi: u32, why: &str) -> Result<(), Error> {
    reply(status::REFUSED, format!("spi {spi}: {why}").as_bytes())
}

fn on_error(error: esp::EspError) -> Result<(), Error> {
    let status = if error.is_refusal() {
        status::REFUSED
    } else {
        status::MALFORMED
    };
    reply(status, error.to_string().as_bytes())
}

impl Ipsec {
    /// Index of the SA that the request's slot belongs to.
    fn index(&self, request: &Request<'_>) -> u16 {
        (u32::from(request.slot()) * u32::from(self.sas) / u32::from(SLOTS)) as u16
    }

    /// Verifies a packet with the keys of an epoch, or else with those of the secret's value before, and replaces
    /// `out` by what it carries.
    fn open<'b>(
        &mut self,
        index: u16,
        sealed: &Sealed<'_>,
        epoch: &Epoch,
        out: &'b mut Vec<u8>,
    ) -> Result<Result<Option<&'b [u8]>, esp::EspError>, Error> {
        let association = (self.spi + u32::from(index), index);
        let present = self.present.keys(&self.tunnel, association, epoch)?;
        match &mut self.previous {
            Some(previous) if !sealed.is_authentic(present)? => {
                let previous = previous.keys(&self.tunnel, association, epoch)?;
                sealed.open(previous, out)
            }
            _ => sealed.open(present, out),
        }
    }

    /// A packet that is to be sealed.
    fn on_plain(&mut self, request: &Request<'_>, sequences: HashMap) -> Result<(), Error> {
        let packet = match esp::plain(request.payload()) {
            Ok(packet) => packet,
            Err(error) => return on_error(error),
        };
        let index = self.index(request);
        let spi = self.spi + u32::from(index);
        let mut sender = sender(sequences, spi)?;
        let Some(sequence) = sender.sequence.checked_add(1) else {
            // numbers must not wrap within an epoch
            return refuse(spi, "all 4294967295 sequence numbers are used");
        };
        sender.sequence = sequence;
        sequences.put(&spi.to_be_bytes(), &sender.to_bytes())?;
        let mut out = core::mem::take(&mut self.out);
        let (tunnel, epoch) = (self.tunnel, sender.epoch);
        let keys = self.present.keys(&tunnel, (spi, index), &epoch)?;
        esp::seal(keys, &tunnel, (spi, &epoch), sequence, &packet, &mut out)?;
        self.stage.send(request, &out)?;
        self.out = out;
        self.answer(index, sequence, self.out.len())
    }

    /// A packet that is to be opened.
    fn on_sealed(&mut self, request: &Request<'_>, windows: HashMap) -> Result<(), Error> {
        let sealed = match Sealed::parse(request.payload(), &self.tunnel) {
            Ok(sealed) => sealed,
            Err(error) => return on_error(error),
        };
        let index = self.index(request);
        let spi = self.spi + u32::from(index);
        if sealed.spi != spi {
            return refuse(sealed.spi, &format!("the request's key belongs to {spi}"));
        }
        let receiver = match (receiver(windows, spi)?, &self.present.source) {
            (Some(receiver), _) => receiver,
            (None, Source::Given(_)) => Receiver::default(),
            (None, Source::Master(_)) => {
                return refuse(
                    spi,
                    "has no epoch yet; send op accept with the epoch of the sender's report",
                );
            }
        };
        let window = receiver.window;
        if !window.is_new(sealed.sequence) {
            let (number, highest) = (sealed.sequence, window.highest);
            let why = format!("sequence number {number} is repeated or too old, after {highest}");
            return refuse(spi, &why);
        }
        let mut out = core::mem::take(&mut self.out);
        let packet = match self.open(index, &sealed, &receiver.epoch, &mut out)? {
            Ok(packet) => packet,
            Err(error) => return on_error(error),
        };
        let receiver = Receiver {
            window: window.with(sealed.sequence),
            ..receiver
        };
        windows.put(&spi.to_be_bytes(), &receiver.to_bytes())?;
        let len = packet.map_or(0, <[u8]>::len);
        match packet {
            Some(packet) => self.stage.send(request, packet)?,
            // a dummy packet ends here, with or without downstream routes
            None if !self.stage.replies() => return reply(status::OK, &[]),
            None => {}
        }
        self.out = out;
        self.answer(index, sealed.sequence, len)
    }

    fn answer(&mut self, index: u16, sequence: u32, bytes: usize) -> Result<(), Error> {
        if !self.stage.replies() {
            return Ok(());
        }
        let spi = self.spi + u32::from(index);
        let record = self.record.clear();
        record
            .field("spi", Value::Int(spi.into()))
            .field("sequence", Value::Int(sequence.into()))
            .field("bytes", Value::Int(bytes as i64));
        if let (End::Out(_), Some(derived)) = (self.end, &self.present.derived[usize::from(index)])
        {
            record.field("epoch", Value::Text(&derived.text));
        }
        reply(status::OK, record.bytes())
    }

    fn on_query(&mut self, request: &Request<'_>, query: &Record<'_>) -> Result<(), Error> {
        let spi = self.spi + u32::from(self.index(request));
        let end = self.end;
        let (op, ops) = match (self.stage.query(request, query)?, end) {
            (Query::Mine(op), End::Out(_)) => (op, "\"report\""),
            (Query::Mine(op), End::In(_)) => (op, "\"report\" or \"accept\""),
            (Query::Forwarded, _) => return Ok(()),
            (Query::None, _) => return self.stage.refuse(&RecordError::Missing("op".into())),
        };
        match (op, end) {
            ("report", End::Out(sequences)) => self.on_report_out(spi, sequences),
            ("report", End::In(windows)) => self.on_report_in(spi, windows),
            ("accept", End::In(windows)) => self.on_accept(spi, query, windows),
            (other, _) => {
                let why = format!("is {other:?}, must be {ops}");
                self.stage.refuse(&RecordError::value("op", why))
            }
        }
    }

    fn on_report_out(&mut self, spi: u32, sequences: HashMap) -> Result<(), Error> {
        let sender = sender(sequences, spi)?;
        // stored, so that the first packet has the reported epoch
        sequences.put(&spi.to_be_bytes(), &sender.to_bytes())?;
        let proof = self
            .present
            .source
            .proof(&self.tunnel, spi, &sender.epoch)?;
        let record = self.record.clear();
        record
            .field("spi", Value::Int(spi.into()))
            .field("sequence", Value::Int(sender.sequence.into()))
            .field("epoch", Value::Text(&to_text(&sender.epoch)));
        if let Some(proof) = &proof {
            record.field("proof", Value::Text(&to_text(proof)));
        }
        reply(status::OK, record.bytes())
    }

    fn on_report_in(&mut self, spi: u32, windows: HashMap) -> Result<(), Error> {
        let stored = receiver(windows, spi)?;
        let window = stored.unwrap_or_default().window;
        let record = self.record.clear();
        record
            .field("spi", Value::Int(spi.into()))
            .field("sequence", Value::Int(window.highest.into()))
            .field("received", Value::Int(window.received.count_ones().into()));
        if let (Some(receiver), Source::Master(_)) = (&stored, &self.present.source) {
            record.field("epoch", Value::Text(&to_text(&receiver.epoch)));
        }
        reply(status::OK, record.bytes())
    }

    /// Accepts the epoch that the sender has reported.
    fn on_accept(&mut self, spi: u32, query: &Record<'_>, windows: HashMap) -> Result<(), Error> {
        let field = |name: &str| {
            let text = query.text(name)?;
            let why = || format!("is {text:?}, must be 32 hexadecimal digits");
            from_text(text).ok_or_else(|| RecordError::value(name, why()))
        };
        let fields = field("epoch").and_then(|epoch| Ok((epoch, field("proof")?)));
        let (epoch, proof) = match fields {
            Ok(fields) => fields,
            Err(error) => return self.stage.refuse(&error),
        };
        if matches!(self.present.source, Source::Given(_)) {
            return refuse(spi, "uses configured keys, so it has no epoch");
        }
        let mut is_proved = self
            .present
            .source
            .proves(&self.tunnel, spi, &epoch, &proof)?;
        if let Some(previous) = &self.previous {
            is_proved |= previous.source.proves(&self.tunnel, spi, &epoch, &proof)?;
        }
        if !is_proved {
            return refuse(spi, "the proof does not match the epoch");
        }
        let of = |epoch: &Epoch| [&spi.to_be_bytes()[..], epoch].concat();
        let known = receiver(windows, spi)?;
        if known.is_none_or(|known| known.epoch != epoch) {
            if windows.get(&of(&epoch), &mut [])?.is_some() {
                // its window is gone: old packets would pass again
                return refuse(spi, "the epoch was replaced and cannot be accepted again");
            }
            if let Some(known) = known {
                windows.put(&of(&known.epoch), &[])?;
            }
            let receiver = Receiver {
                epoch,
                ..Receiver::default()
            };
            windows.put(&spi.to_be_bytes(), &receiver.to_bytes())?;
        }
        self.on_report_in(spi, windows)
    }
}

/// What is stored of an SA that goes out, or a new one.
fn sender(sequences: HashMap, spi: u32) -> Result<Sender, Error> {
    let mut buffer = [0; Sender::BYTES];
    Sender::stored(sequences.get(&spi.to_be_bytes(), &mut buffer)?)
}

/// What is stored of an SA that comes in.
fn receiver(windows: HashMap, spi: u32) -> Result<Option<Receiver>, Error> {
    let mut buffer = [0; Receiver::BYTES];
    let stored = windows.get(&spi.to_be_bytes(), &mut buffer)?;
    stored.map(Receiver::stored).transpose()
}

e3_sdk::service!(Ipsec, request_capacity = 32 * 1024);

#[cfg(test)]
mod tests;
