//! The way of a message between nodes: ports, switches, traffic managers and PCIe.

use crate::arena::{Arena, Message, What};
use crate::event::Kind;
use crate::faults::chosen;
use crate::fifo::Fifo;
use crate::limits::COPY_PART_BYTES;
use crate::model::{Model, wire};
use crate::simulator::Simulator;
use crate::station::Station;
use e3_hardware::link::Link;
use e3_hardware::network::{Hop, ecmp};
use e3_hardware::pcie::DmaEngines;
use e3_hardware::traffic_manager::{TrafficManager, Verdict};
use e3_model::NodeKind;

/// A port of a node, and what is behind it.
struct Port {
    tx: Link,
    rx: Link,
    /// Messages that the traffic manager holds.
    held: Fifo,
    held_count: u32,
    station: Station,
    /// Some only at a SmartNIC with a host.
    dma: Option<Box<DmaEngines>>,
}

/// All ports, and the links between racks.
pub(crate) struct Paths {
    ports: Vec<Port>,
    /// By rack, then by uplink.
    up: Vec<Link>,
    down: Vec<Link>,
    uplinks: usize,
    uplink_ns_per_byte: f64,
    manager: TrafficManager,
}

impl Paths {
    pub fn new(model: &Model) -> Paths {
        let guesses = &model.options.guesses;
        let uplinks = guesses.uplinks_per_rack.round() as usize;
        let between = if model.racks > 1 {
            model.racks * uplinks
        } else {
            0
        };
        let gbps = model.rack_gbps / guesses.oversubscription / uplinks as f64;
        let port = |node: &crate::model::Node| Port {
            tx: Link::default(),
            rx: Link::default(),
            held: Fifo::default(),
            held_count: 0,
            station: Station::default(),
            dma: node.is_managed.then(|| Box::new(DmaEngines::new(guesses))),
        };
        Paths {
            ports: model.nodes.iter().map(port).collect(),
            up: vec![Link::default(); between],
            down: vec![Link::default(); between],
            uplinks,
            uplink_ns_per_byte: 8.0 / gbps,
            manager: TrafficManager::new(guesses),
        }
    }

    /// Time that a node's port was busy, in its busier direction.
    pub fn port_busy(&self, node: usize, now: u64) -> (u64, u64) {
        let port = &self.ports[node];
        (port.tx.busy(now), port.rx.busy(now))
    }

    /// Time that the DMA engines of a SmartNIC were busy.
    pub fn dma_busy(&self, node: usize, now: u64) -> u64 {
        self.ports[node].dma.as_ref().map_or(0, |d| d.busy(now))
    }

    /// Highest use of a link between racks until now, 0 to 1.
    pub fn uplink_busy(&self, now: u64) -> u64 {
        let links = self.up.iter().chain(&self.down);
        links.map(|l| l.busy(now)).max().unwrap_or(0)
    }

    /// Messages that a node's traffic manager holds.
    pub fn held(&self, node: usize) -> u32 {
        self.ports[node].held_count
    }

    pub fn obeys_little(&mut self, now: u64, messages: &Arena<Message>) -> bool {
        let links = self.up.iter_mut().chain(&mut self.down);
        let mut all = links.map(|l| l.obeys_little(now));
        let ports = self.ports.iter_mut().all(|p| {
            let dma = p.dma.as_mut().is_none_or(|d| d.obeys_little(now));
            let links = p.tx.obeys_little(now) && p.rx.obeys_little(now);
            let held = p.held.iter(messages).map(|id| messages[id].entered);
            dma && links && p.station.obeys_little(now, held)
        });
        ports && all.all(|ok| ok)
    }

    pub fn memory_bytes(&self) -> usize {
        let dma = self.ports.iter().filter(|p| p.dma.is_some()).count();
        self.ports.len() * size_of::<Port>()
            + dma * size_of::<DmaEngines>()
            + (self.up.len() + self.down.len()) * size_of::<Link>()
    }
}

impl Simulator {
    fn bytes(&self, id: u32) -> u32 {
        let message = &self.messages[id];
        if self.plane.is_some() {
            return wire(message.work);
        }
        wire(match message.what {
            What::Work | What::Back | What::Reply => self.model.request_bytes,
            What::Entry => self.model.services[usize::from(message.service)].entry_bytes,
            What::Chunk => COPY_PART_BYTES as u32,
            What::Ack | What::Ghost | What::Datagram => 0,
        })
    }

    /// The port that a flow of a node takes.
    #[inline]
    fn port_of(&self, node: u32, from: u32, to: u32) -> usize {
        let ports = &self.model.nodes[node as usize].ports;
        if self.outages.is_calm {
            return ports.port(from, to);
        }
        let all = ports.all();
        let is_avoided = |at: usize| self.outages.avoids_port(all[at] as usize, self.now);
        all[chosen([from, to], all.len(), is_avoided)] as usize
    }

    /// Whether what is sent through a node's port is lost.
    #[inline]
    fn is_cut(&self, node: usize) -> bool {
        !self.outages.is_calm && !self.outages.port_works(node)
    }

    /// A message leaves its node for another one, or stays.
    pub(crate) fn send(&mut self, id: u32) {
        let Message { from, to, .. } = self.messages[id];
        let (hop, us) = self.model.hop(from, to);
        match hop {
            Hop::Local => self.accept(id),
            Hop::Pcie => {
                let nodes = &self.model.nodes;
                let nic = match nodes[from as usize].kind {
                    NodeKind::SmartNic => from,
                    NodeKind::Host => to,
                };
                let at = self.cross_pcie(nic as usize, id) + (us * 1e3) as u64;
                self.schedule(at, Kind::Deliver, id);
            }
            Hop::SmartNics | Hop::Mixed | Hop::Hosts => self.depart(id),
        }
    }

    fn cross_pcie(&mut self, nic: usize, id: u32) -> u64 {
        let bytes = self.bytes(id);
        let now = self.now;
        let dma = self.paths.ports[nic].dma.as_mut();
        dma.map_or(now, |dma| dma.push(now, bytes))
    }

    /// A message leaves its server.
    pub(crate) fn depart(&mut self, id: u32) {
        let Message { from, to, .. } = self.messages[id];
        let port = self.port_of(from, from, to);
        if port == from as usize {
            self.leave(id);
        } else {
            let at = self.cross_pcie(port, id);
            self.schedule(at, Kind::PcieOut, id);
        }
    }

    /// A message is at the port through which it leaves.
    pub(crate) fn leave(&mut self, id: u32) {
        let Message { from, to, what, .. } = self.messages[id];
        let bytes = self.bytes(id);
        let at = self.port_of(from, from, to);
        if self.is_cut(at) {
            return self.lose(id);
        }
        let ns_per_byte = self.model.nodes[at].ns_per_byte;
        let interconnect = self.model.options.interconnect;
        let port = &mut self.paths.ports[at];
        let batch = interconnect.batch(port.tx.queued(self.now));
        let card_ns = interconnect.message_ns(batch, &self.model.options.guesses);
        let time = (f64::from(bytes) * ns_per_byte).max(card_ns) as u64;
        let left = port.tx.push(self.now, time);
        if what == What::Reply {
            let reached = left + self.model.client_ns(from);
            return self.answer(id, reached);
        }
        let (_, us) = self.model.hop(from, to);
        let us = interconnect.latency_us(us, bytes, batch);
        let racks = |node: u32| self.model.nodes[node as usize].rack;
        let is_near = racks(from) == racks(to);
        self.messages[id].stage = if is_near { 2 } else { 0 };
        self.schedule(left + (us * 1e3) as u64, Kind::Switch, id);
    }

    /// A message is at a switch.
    pub(crate) fn on_switch(&mut self, id: u32) {
        let Message {
            from, to, stage, ..
        } = self.messages[id];
        if stage == 2 {
            return self.ingress(id);
        }
        let time = (f64::from(self.bytes(id)) * self.paths.uplink_ns_per_byte) as u64;
        let rack = |node: u32| usize::from(self.model.nodes[node as usize].rack);
        let paths = &mut self.paths;
        let link = if self.outages.is_calm {
            ecmp(from, to, paths.uplinks)
        } else {
            let racks = [rack(from), rack(to)];
            let (link, works) = self.outages.uplink([from, to], racks, self.now);
            if !works[usize::from(stage)] {
                return self.lose(id);
            }
            link
        };
        let link = match stage {
            0 => &mut paths.up[rack(from) * paths.uplinks + link],
            _ => &mut paths.down[rack(to) * paths.uplinks + link],
        };
        let at = link.push(self.now, time);
        self.messages[id].stage += 1;
        self.schedule(at, Kind::Switch, id);
    }

    /// A message is at the switch of its rack and goes through a port of its server.
    pub(crate) fn ingress(&mut self, id: u32) {
        let Message { from, to, .. } = self.messages[id];
        let at = self.port_of(to, from, to);
        if self.is_cut(at) {
            return self.lose(id);
        }
        let node = &self.model.nodes[at];
        let time = (f64::from(self.bytes(id)) * node.ns_per_byte) as u64;
        let kind = if node.is_managed {
            Kind::Port
        } else {
            Kind::Deliver
        };
        let through = self.paths.ports[at].rx.push(self.now, time);
        self.schedule(through, kind, id);
    }

    /// A message is at a traffic manager.
    pub(crate) fn on_port(&mut self, id: u32) {
        let Message { from, to, .. } = self.messages[id];
        let at = self.port_of(to, from, to);
        if !self.outages.is_calm && self.outages.is_down(at as u32) {
            return self.lose(id);
        }
        match self.judge(at, id, self.paths.ports[at].held_count) {
            Verdict::Pass => self.pass(at, id),
            Verdict::Hold => {
                let now = self.now;
                self.messages[id].entered = now;
                let port = &mut self.paths.ports[at];
                port.held.push(id, &mut self.messages);
                port.held_count += 1;
                port.station.enter(now);
            }
        }
    }

    fn judge(&self, nic: usize, id: u32, held: u32) -> Verdict {
        let is_for_host = self.messages[id].to as usize != nic;
        let waiting = self.threads.waiting(nic);
        self.paths.manager.judge(is_for_host, held, waiting)
    }

    fn pass(&mut self, nic: usize, id: u32) {
        if self.messages[id].to as usize == nic {
            self.accept(id);
        } else {
            let at = self.cross_pcie(nic, id);
            self.schedule(at, Kind::PcieIn, id);
        }
    }

    /// Takes what the traffic manager of a node holds.
    pub(crate) fn take_held(&mut self, node: usize) -> Vec<u32> {
        let port = &mut self.paths.ports[node];
        let mut all = Vec::new();
        while let Some(id) = port.held.pop(&self.messages) {
            port.station.leave(self.now, self.messages[id].entered);
            all.push(id);
        }
        port.held_count = 0;
        all
    }

    /// The cores of a SmartNIC have room again.
    pub(crate) fn release(&mut self, nic: usize) {
        while let Some(id) = self.paths.ports[nic].held.first()
            && self.judge(nic, id, 0) == Verdict::Pass
        {
            let port = &mut self.paths.ports[nic];
            port.held.pop(&self.messages);
            port.held_count -= 1;
            port.station.leave(self.now, self.messages[id].entered);
            self.pass(nic, id);
        }
    }
}
