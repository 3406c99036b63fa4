//! Network address translation and routing for IPv4: outbound packets get a public address and port,
//! inbound packets are translated back, and a route table gives the next hop.
//!
//! - *Translation* by RFC 3022 and 4787: an inside address and port keeps one public address and port for
//!   all destinations ([`mappings`]), unique for each public address and protocol, until no packet has left
//!   by it for the idle time. TCP, UDP and ICMP queries; fragments and packets without ports are refused.
//!   Checksums are updated for the change (RFC 1624).
//! - *Routing* by longest-prefix match, [`e3_packet::routes`]. Forwarding decrements the time to live in
//!   both directions; a packet with a time to live of 0 or 1 is dropped (RFC 1812, 5.3.1): the status is
//!   REFUSED, and no mapping is made or renewed. No ICMP message is sent to its source.
//! - *Slots*: a mapping is made in the slot of the request's key, and that slot owns its ports
//!   ([`pool`]). All packets of an inside host should have the same key; an inbound packet must have a key
//!   of the slot that owns its destination port.
//!
//! Input: an IPv4 packet, which is translated and forwarded, or a query. The reply to a packet, if this is
//! the last stage: `direction` (`out`, `in`), `source`, `source-port`, `destination`,
//! `destination-port` after translation, `next-hop` (`out` only), `packet` (its bytes). Queries:
//! `get` with `protocol` (number), `address`, `port`: `public`, `public-port`, `used-ns` of that mapping in
//! the key's slot; `report`: `tcp`, `udp`, `icmp` (ports in use) and `share` (all ports, for each protocol)
//! of the key's slot; `route` with `address`: `next-hop`.
//!
//! Configuration: `public` (addresses or prefixes, required), `ports` (default `1024-65535`), `inside`
//! (prefixes, default those of RFC 1918), `idle-tcp-s` (7440, RFC 5382), `idle-udp-s` (300, RFC
//! 4787), `idle-icmp-s` (60, RFC 5508). Collections: hash maps `mappings`, `ports`. Asset: `routes`.
//! The mapping of an idle flow ends between 1 and 9/8 idle times after its last outbound packet. If
//! `public` or `ports` change, flows in progress get other public ports.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod limits;
pub mod mappings;
pub mod pool;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use e3_packet::prefix::Prefix;
use e3_packet::routes::{Bytes, Routes};
use e3_packet::{Flow, Packet, Transport, protocol, rewrite};
use e3_pipeline::{Builder, Query, Record, RecordError, Stage, Value, status};
use e3_sdk::{Asset, Error, Request, Service, config, config_or, now, reply};

use limits::{IDLE_S_MAX, INSIDE_MAX};
use mappings::{Idle, Inside, Mappings};
use pool::Pool;

/// The compiled route table.
#[derive(Clone, Copy, Debug)]
struct Table(Asset);

impl Bytes for Table {
    type Error = Error;

    fn length(&self) -> u64 {
        self.0.len()
    }

    fn read_exact(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        match self.0.read(offset, out)? {
            len if len == out.len() => Ok(()),
            len => Err(Error::Short {
                len,
                cap: out.len(),
            }),
        }
    }
}

/// Address translation and routing.
#[derive(Debug)]
pub struct Natv4 {
    stage: Stage,
    pool: Pool,
    inside: Vec<Prefix>,
    mappings: Mappings,
    routes: Routes<Table>,
    idle_tcp: Idle,
    idle_udp: Idle,
    idle_icmp: Idle,
    out: Vec<u8>,
}

/// Why a packet is refused: status and reason.
type Refusal = (u32, String);

impl Service for Natv4 {
    fn init() -> Result<Self, Error> {
        let text = |name, default: &str| config(name).unwrap_or_else(|| default.into());
        let wrong = |reason: String| Error::Asset {
            name: "routes",
            line: 0,
            reason,
        };
        let routes = Asset::open("routes").ok_or_else(|| wrong("is not in the manifest".into()))?;
        let inside = text("inside", "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16");
        let prefixes: Result<Vec<_>, _> = inside
            .split(',')
            .map(|word| Prefix::parse(word.trim()))
            .collect();
        Ok(Self {
            stage: Stage::open()?,
            pool: Pool::parse(&text("public", ""), &text("ports", "1024-65535"))?,
            inside: match prefixes {
                Ok(prefixes) if prefixes.len() <= INSIDE_MAX => prefixes,
                _ => {
                    return Err(Error::Config {
                        name: "inside",
                        value: inside,
                    });
                }
            },
            mappings: Mappings::open()?,
            routes: Routes::open(Table(routes))?.map_err(wrong)?,
            idle_tcp: idle("idle-tcp-s", 7440)?,
            idle_udp: idle("idle-udp-s", 300)?,
            idle_icmp: idle("idle-icmp-s", 60)?,
            out: Vec::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let payload = request.payload();
        if e3_packet::is_record(payload) {
            return match Record::parse(payload) {
                Ok(record) => self.on_record(request, &record),
                Err(error) => self.stage.refuse(&error),
            };
        }
        let translated = match Packet::parse(payload) {
            Ok(packet) => self.translate(request, &packet)?,
            Err(error) => Err((status::MALFORMED, error.to_string())),
        };
        match translated {
            Ok(next_hop) => {
                let out = &self.out;
                self.stage
                    .forward_and_reply(request, out, || answer(out, next_hop))
            }
            Err((status, reason)) => reply(status, reason.as_bytes()),
        }
    }
}

fn idle(name: &'static str, default_s: u32) -> Result<Idle, Error> {
    match config_or(name, default_s)? {
        seconds @ 1..=IDLE_S_MAX => Ok(Idle(i64::from(seconds) * 1_000_000_000)),
        seconds => Err(Error::Config {
            name,
            value: seconds.to_string(),
        }),
    }
}

impl Natv4 {
    fn is_inside(&self, address: Ipv4Addr) -> bool {
        self.inside.iter().any(|prefix| prefix.contains(address))
    }

    fn idle(&self, number: u8) -> Idle {
        match number {
            protocol::TCP => self.idle_tcp,
            protocol::UDP => self.idle_udp,
            _ => self.idle_icmp,
        }
    }

    /// Writes the packet, translated, to `out`. The next hop is that of an outbound packet.
    fn translate(
        &mut self,
        request: &Request<'_>,
        packet: &Packet<'_>,
    ) -> Result<Result<Option<Ipv4Addr>, Refusal>, Error> {
        let flow = match translatable(packet) {
            Ok(flow) => flow,
            Err(error) => return Ok(Err((status::MALFORMED, error.to_string()))),
        };
        if let Err(error) = packet.forwardable() {
            return Ok(Err((status::REFUSED, format!("{error}, {flow}"))));
        }
        let (inside, public) = (self.is_inside(flow.source), self.pool.has(flow.destination));
        match (inside, public) {
            (true, false) => self.outbound(request, packet, flow),
            (false, true) => self.inbound(request, packet, flow),
            (true, true) => Ok(Err((
                status::REFUSED,
                format!("packet: {flow} goes from inside to a public address"),
            ))),
            (false, false) => Ok(Err((
                status::REFUSED,
                format!("packet: {flow} is neither from inside nor to a public address"),
            ))),
        }
    }

    fn outbound(
        &mut self,
        request: &Request<'_>,
        packet: &Packet<'_>,
        flow: Flow,
    ) -> Result<Result<Option<Ipv4Addr>, Refusal>, Error> {
        let Some(next_hop) = self.routes.next_hop(flow.destination)? else {
            let reason = format!("packet: no route to {}", flow.destination);
            return Ok(Err((status::NOT_FOUND, reason)));
        };
        let inside = Inside {
            slot: request.slot(),
            protocol: flow.protocol,
            address: flow.source,
            port: flow.source_port,
        };
        let idle = self.idle(flow.protocol);
        let number = self.mappings.on_outbound(inside, &self.pool, idle, now())?;
        let Some((address, port)) = number.and_then(|number| self.pool.endpoint(number)) else {
            let (slot, share) = (inside.slot, self.pool.share(inside.slot));
            let reason = format!("packet: {flow}: all {share} ports of slot {slot} are in use");
            return Ok(Err((status::REFUSED, reason)));
        };
        self.write(packet, |out| rewrite::source(out, address, port));
        Ok(Ok(Some(next_hop)))
    }

    fn inbound(
        &mut self,
        request: &Request<'_>,
        packet: &Packet<'_>,
        flow: Flow,
    ) -> Result<Result<Option<Ipv4Addr>, Refusal>, Error> {
        let none = || {
            Ok(Err((
                status::NOT_FOUND,
                format!("packet: no mapping for {flow}"),
            )))
        };
        let number = self.pool.number_of(flow.destination, flow.destination_port);
        let Some(number) = number else {
            return none();
        };
        let (owner, _) = Pool::owner(number);
        let slot = request.slot();
        if owner != slot {
            let reason = format!("packet: {flow}: key has slot {slot}, port is of slot {owner}");
            return Ok(Err((status::REFUSED, reason)));
        }
        let idle = self.idle(flow.protocol);
        let found = self
            .mappings
            .on_inbound(flow.protocol, number, idle, now())?;
        let Some(inside) = found else {
            return none();
        };
        self.write(packet, |out| {
            rewrite::destination(out, inside.address, inside.port)
        });
        Ok(Ok(None))
    }

    fn write(
        &mut self,
        packet: &Packet<'_>,
        change: impl FnOnce(&mut [u8]) -> Result<(), e3_packet::PacketError>,
    ) {
        self.out.clear();
        self.out.extend_from_slice(packet.bytes());
        let changed = change(&mut self.out).and_then(|()| rewrite::forward(&mut self.out));
        // `translate` has looked at all that a change needs
        debug_assert_eq!(changed, Ok(()));
    }

    fn on_record(&self, request: &Request<'_>, record: &Record<'_>) -> Result<(), Error> {
        let op = match self.stage.query(request, record)? {
            Query::Mine(op) => op,
            Query::Forwarded => return Ok(()),
            Query::None => return self.stage.refuse(&RecordError::Missing("op".into())),
        };
        let mut out = Builder::new();
        let slot = request.slot();
        let answered = match op {
            "report" => {
                let count = |number| Value::Int(i64::from(self.mappings.in_use(slot, number)));
                out.field("tcp", count(protocol::TCP))
                    .field("udp", count(protocol::UDP))
                    .field("icmp", count(protocol::ICMP))
                    .field("share", Value::Int(i64::from(self.pool.share(slot))));
                Ok(true)
            }
            "route" => match address(record) {
                Ok(address) => {
                    let next_hop = self.routes.next_hop(address)?;
                    if let Some(next_hop) = next_hop {
                        out.field("next-hop", Value::Text(&next_hop.to_string()));
                    }
                    Ok(next_hop.is_some())
                }
                Err(error) => Err(error),
            },
            "get" => match inside(slot, record) {
                Ok(inside) => {
                    let found = self.mappings.find(inside)?;
                    let public = found.and_then(|(n, used)| Some((self.pool.endpoint(n)?, used)));
                    if let Some(((address, port), used)) = public {
                        out.field("public", Value::Text(&address.to_string()))
                            .field("public-port", Value::Int(i64::from(port)))
                            .field("used-ns", Value::Int(used));
                    }
                    Ok(public.is_some())
                }
                Err(error) => Err(error),
            },
            other => Err(RecordError::value(
                "op",
                format!("is {other:?}, must be get, report or route"),
            )),
        };
        match answered {
            Ok(true) => reply(status::OK, out.bytes()),
            Ok(false) => reply(status::NOT_FOUND, b"there is none"),
            Err(error) => self.stage.refuse(&error),
        }
    }
}

/// The flow of a packet that can be translated: whole, with a right header, with ports.
fn translatable(packet: &Packet<'_>) -> Result<Flow, e3_packet::PacketError> {
    packet.check_header()?;
    if packet.is_fragment() {
        return Err(e3_packet::PacketError::Fragment {
            offset: packet.fragment_offset(),
        });
    }
    match packet.transport()? {
        Transport::Tcp(_) | Transport::Udp(_) => packet.flow(),
        Transport::Icmp(icmp) if icmp.is_query() => packet.flow(),
        Transport::Icmp(_) | Transport::Other(_) => Err(e3_packet::PacketError::NoPorts {
            protocol: packet.protocol(),
            destination: packet.destination(),
        }),
    }
}

fn answer(bytes: &[u8], next_hop: Option<Ipv4Addr>) -> Builder {
    let mut out = Builder::new();
    let direction = if next_hop.is_some() { "out" } else { "in" };
    out.field("direction", Value::Text(direction));
    if let Ok(flow) = Packet::parse(bytes).and_then(|p| p.flow()) {
        out.field("source", Value::Text(&flow.source.to_string()))
            .field("source-port", Value::Int(i64::from(flow.source_port)))
            .field("destination", Value::Text(&flow.destination.to_string()))
            .field(
                "destination-port",
                Value::Int(i64::from(flow.destination_port)),
            );
    }
    if let Some(next_hop) = next_hop {
        out.field("next-hop", Value::Text(&next_hop.to_string()));
    }
    out.field("packet", Value::Bytes(bytes));
    out
}

fn address(record: &Record<'_>) -> Result<Ipv4Addr, RecordError> {
    let text = record.text("address")?;
    text.parse()
        .map_err(|_| RecordError::value("address", format!("is {text:?}, must be an IPv4 address")))
}

fn inside(slot: u16, record: &Record<'_>) -> Result<Inside, RecordError> {
    let number = |field, max| match record.int(field)? {
        n if (0..=i64::from(max)).contains(&n) => Ok(n as u16),
        n => Err(RecordError::value(
            field,
            format!("is {n}, must be 0..={max}"),
        )),
    };
    Ok(Inside {
        slot,
        protocol: number("protocol", 255)? as u8,
        address: address(record)?,
        port: number("port", u16::MAX)?,
    })
}

// a jumbo frame
e3_sdk::service!(Natv4, request_capacity = 9216);
