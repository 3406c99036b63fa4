//! Dead letters, read and replayed: asks the node of a shard's primary over the data path.
//!
//! A node that does not serve the shard stays silent, so a question is repeated, each time where the
//! shard is then. A replay is known by its identity like any request: its repeats change nothing.

use crate::ClientError;
use crate::limits::{DEADLINE, LETTERS_RETRY_AFTER};
use crate::udp::{Clock, loopback_socket, unique};
use e3_model::{MessageId, RequestId, ShardKey, Slot, Timestamp};
use e3_wire::client::{ClientFrame, Replay};
use e3_wire::datagram::{Header, open};
use e3_wire::entry::{DeadLetter, Reply};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Says where the primary of the shard is; asked before each attempt. None if nobody serves it now.
pub type Route<'a> = &'a mut dyn FnMut() -> Option<SocketAddr>;

/// A client for dead letters.
pub struct LetterClient {
    socket: UdpSocket,
    clock: Clock,
    client: u64,
    seq: u64,
    buffer: Vec<u8>,
}

impl LetterClient {
    /// Binds a socket on loopback.
    pub fn new() -> Result<LetterClient, ClientError> {
        let socket = loopback_socket()?;
        let wait = Duration::from_nanos(LETTERS_RETRY_AFTER.0);
        let set = socket.set_read_timeout(Some(wait));
        set.map_err(|source| ClientError::Io {
            what: "set up a UDP socket",
            source,
        })?;
        Ok(LetterClient {
            socket,
            clock: Clock::new(),
            client: unique()?,
            seq: 0,
            buffer: vec![0; 1 << 16],
        })
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The dead letters of a shard, oldest first. Some may be missing if others are replayed
    /// meanwhile.
    pub fn read(
        &mut self,
        shard: ShardKey,
        route: Route<'_>,
    ) -> Result<Vec<(MessageId, DeadLetter)>, ClientError> {
        let mut all = Vec::new();
        loop {
            let skip = all.len() as u32;
            let ask = |_| ClientFrame::ReadLetters { shard, skip };
            let until = self.now() + DEADLINE;
            let page = self.exchange(shard, until, route, ask, |frame| match frame {
                ClientFrame::Letters(l) if l.shard == shard && l.skipped == skip => Some(l),
                _ => None,
            })?;
            let last = page.letters.is_empty() || skip + page.letters.len() as u32 >= page.total;
            all.extend(page.letters);
            if last {
                return Ok(all);
            }
        }
    }

    /// Has a dead letter handled once more; what came of it.
    pub fn replay(
        &mut self,
        shard: ShardKey,
        (letter, content): &(MessageId, DeadLetter),
        route: Route<'_>,
    ) -> Result<Reply, ClientError> {
        self.seq += 1;
        let id = RequestId {
            client: self.client,
            seq: self.seq,
        };
        let deadline = self.now() + DEADLINE;
        let ask = |attempt| {
            ClientFrame::Replay(Replay {
                shard,
                letter: *letter,
                slot: Slot::of(&content.key),
                id,
                attempt,
                deadline,
            })
        };
        self.exchange(shard, deadline, route, ask, |frame| match frame {
            ClientFrame::Reply { id: of, reply, .. } if of == id => Some(reply),
            _ => None,
        })
    }

    fn exchange<T>(
        &mut self,
        shard: ShardKey,
        until: Timestamp,
        route: Route<'_>,
        ask: impl Fn(u16) -> ClientFrame,
        mut take: impl FnMut(ClientFrame) -> Option<T>,
    ) -> Result<T, ClientError> {
        let io = |what| move |source| ClientError::Io { what, source };
        for attempt in 0.. {
            if self.now() > until {
                break;
            }
            if let Some(to) = route() {
                if !to.ip().is_loopback() {
                    return Err(ClientError::NotLoopback { address: to });
                }
                let bytes = ask(attempt).to_datagram();
                self.socket
                    .send_to(&bytes, to)
                    .map_err(io("send a request"))?;
            }
            let again = self.now() + LETTERS_RETRY_AFTER;
            while self.now() < again {
                match self.socket.recv_from(&mut self.buffer) {
                    Ok((len, _)) => {
                        if let Some(found) = frames(&self.buffer[..len]).find_map(&mut take) {
                            return Ok(found);
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(source) => return Err(io("take an answer")(source)),
                }
            }
        }
        Err(ClientError::NotServed {
            shard,
            waited_s: DEADLINE.as_secs(),
        })
    }
}

/// What a datagram holds, as far as it can be read.
fn frames(bytes: &[u8]) -> impl Iterator<Item = ClientFrame> {
    let mut reader = match open(bytes) {
        Ok((Header::CLIENT, reader)) => Some(reader),
        _ => None,
    };
    std::iter::from_fn(move || {
        let rest = reader.as_mut().filter(|r| !r.is_empty())?;
        ClientFrame::decode(rest).ok()
    })
}
