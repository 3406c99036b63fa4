//! Receives heartbeats: decodes them and passes them to [`e3_control::Hearing`].

use crate::core::Core;
use crate::limits::{BATCHES_MAX, HEARTBEAT_LEN_MAX, HEARTBEATS_TOGETHER_MAX};
use crate::shared::Shared;
use e3_control::{Command, NodeLoad, Pulse, Sender};
use e3_model::timing::SILENCE_CHECK_INTERVAL;
use e3_model::{Format, Formats, Timestamp};
use e3_wire::heartbeat::{self, Received};
use tokio::net::UdpSocket;

impl Core {
    /// Takes datagrams that have arrived where heartbeats do.
    fn on_datagrams<'a>(&mut self, now: Timestamp, datagrams: impl Iterator<Item = &'a [u8]>) {
        let formats = self.heartbeat_formats(now);
        let mut pulses = Vec::with_capacity(HEARTBEATS_TOGETHER_MAX);
        for datagram in datagrams {
            let keys = self.secret_key.heartbeat_keys();
            match heartbeat::decode(formats, keys, datagram) {
                Ok(received) => pulses.push(pulse(&received)),
                Err(_) => self.garbage += 1,
            }
        }
        let mut heard = Vec::with_capacity(pulses.len());
        self.hearing
            .on_pulses(now, &self.control, &pulses, &mut heard);
        for (pulse, heard) in pulses.iter().zip(&heard) {
            if let Some(applied) = heard.missing {
                self.on_missing(pulse.node, applied);
            }
            match heard.sender {
                Sender::Present | Sender::Late => {}
                Sender::Silent => self.on_return(now, pulse),
                Sender::Stranger => self.garbage += 1,
            }
        }
    }

    /// The formats of heartbeats that count. Once the active one has tags, those without are forged; but
    /// nodes need a moment to learn that it was raised.
    fn heartbeat_formats(&self, now: Timestamp) -> Formats {
        let tagged = Format::HEARTBEAT_TAGS;
        if self.control.format < tagged || now < self.tagless_until {
            return self.formats;
        }
        Formats::new(tagged, self.formats.newest()).expect("the active format is one of them")
    }

    /// A member that counts as silent is heard.
    fn on_return(&mut self, now: Timestamp, pulse: &Pulse) {
        let (node, incarnation) = (pulse.node, pulse.incarnation);
        // An earlier heartbeat may have shown it.
        if self.control.is_up(node) || !self.has_heard_nodes() {
            return;
        }
        if self
            .receipts
            .withholds(node, incarnation, pulse.plan_version_low)
        {
            return;
        }
        let name = self.node_name(node);
        let hear = Command::Hear {
            node,
            incarnation,
            at: now,
        };
        match self.execute(&hear) {
            Ok(_) => tracing::info!(node = name, incarnation, "node heard again"),
            Err(e) => self.complain(format!("the return of node {name} is not stored: {e}")),
        }
    }
}

fn pulse(received: &Received) -> Pulse {
    let (header, beat) = (&received.header, &received.heartbeat);
    Pulse {
        cluster: header.cluster,
        node: header.from,
        incarnation: header.incarnation,
        sequence: received.sequence,
        load: NodeLoad {
            queue_len: beat.queue_len,
            busy_permille: beat.busy_permille,
            port_permille: beat.port_permille,
        },
        plan_version_low: beat.plan_version_low,
    }
}

/// Receives heartbeats and notices silence. All heartbeats that wait, up to a bound, are taken together:
/// the state is locked and the clock read once for them.
pub(crate) async fn hear(shared: Shared, socket: UdpSocket) {
    let mut datagrams = Datagrams::default();
    let mut look = tokio::time::interval(SILENCE_CHECK_INTERVAL.into());
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut taken = 0;
    loop {
        let may_receive = taken < BATCHES_MAX;
        tokio::select! {
            biased;
            // First takes what has arrived: after a pause the silence may be this process's own.
            received = socket.readable(), if may_receive => {
                taken += 1;
                if received.is_err() {
                    continue;
                }
                if !datagrams.receive(&socket) {
                    taken = 0;
                }
                let mut core = shared.core();
                let now = core.clock.now();
                core.on_datagrams(now, datagrams.all());
            }
            _ = look.tick() => {
                let mut core = shared.core();
                let now = core.clock.now();
                core.look(now);
                taken = 0;
            }
            // Whatever arrives, the requests of others have their turns.
            () = tokio::task::yield_now(), if !may_receive => taken = 0,
        }
    }
}

/// Datagrams that are taken together.
struct Datagrams {
    buffers: Vec<[u8; HEARTBEAT_LEN_MAX]>,
    lens: Vec<usize>,
}

impl Default for Datagrams {
    fn default() -> Datagrams {
        Datagrams {
            buffers: vec![[0; HEARTBEAT_LEN_MAX]; HEARTBEATS_TOGETHER_MAX],
            lens: Vec::with_capacity(HEARTBEATS_TOGETHER_MAX),
        }
    }
}

impl Datagrams {
    /// Takes those that have arrived, in place of those before. Whether more may wait.
    fn receive(&mut self, socket: &UdpSocket) -> bool {
        self.lens.clear();
        for buffer in &mut self.buffers {
            match socket.try_recv(buffer) {
                Ok(len) => self.lens.push(len),
                // None is left, or the system reports an error of a datagram that was sent.
                Err(_) => return false,
            }
        }
        true
    }

    fn all(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.buffers.iter().zip(&self.lens);
        all.map(|(buffer, len)| &buffer[..*len])
    }
}
