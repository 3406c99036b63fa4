//! Dead letters, read and replayed at the primary of their shard.
//!
//! A node that does not serve the shard stays silent, so a request that goes unanswered asks where
//! the shard is and is sent there. A replay has an identity like any request: it takes effect once.

use crate::ClientError;
use crate::limits::{DEADLINE, REFRESH_INTERVAL};
use crate::socket::{Socket, address, unique};
use e3_client_core::limits::ANSWER_GRACE;
use e3_client_core::{Event, Requests, Routes};
use e3_model::{MessageId, ShardKey, Timestamp};
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::Reply;
use std::net::SocketAddr;

/// Says where the primary of the shard is; asked until it replies. None if no node serves it now.
pub type Route<'a> = &'a mut dyn FnMut() -> Option<SocketAddr>;

/// A client for dead letters.
pub struct DeadLetterClient {
    requests: Requests,
    socket: Socket,
}

impl DeadLetterClient {
    /// A client on a socket of its own.
    pub fn new() -> Result<DeadLetterClient, ClientError> {
        Ok(DeadLetterClient {
            requests: Requests::new(unique()?, Routes::default()),
            socket: Socket::bind()?,
        })
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.socket.now()
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
            self.find(shard, route)?;
            let now = self.now();
            let seq = self
                .requests
                .read_dead_letters(now, now + DEADLINE, shard, skip);
            let Some(Event::DeadLetters(page)) = self.outcome(seq, shard, route)? else {
                return Err(not_served(shard));
            };
            let page = page.letters;
            let last = page.letters.is_empty() || skip + page.letters.len() as u32 >= page.total;
            all.extend(page.letters);
            if last {
                return Ok(all);
            }
        }
    }

    /// Replays a dead letter; the reply is its outcome.
    pub fn replay(
        &mut self,
        shard: ShardKey,
        letter: &(MessageId, DeadLetter),
        route: Route<'_>,
    ) -> Result<Reply, ClientError> {
        self.find(shard, route)?;
        let now = self.now();
        let seq = self.requests.replay(now, now + DEADLINE, shard, letter);
        match self.outcome(seq, shard, route)? {
            Some(Event::Completed(completed)) => completed.reply.ok_or(not_served(shard)),
            _ => Err(not_served(shard)),
        }
    }

    /// Asks where the primary is.
    fn find(&mut self, shard: ShardKey, route: Route<'_>) -> Result<(), ClientError> {
        if let Some(node) = route() {
            let node = address(node)?;
            let routes = Routes {
                primaries: [(shard, node)].into(),
                nodes: vec![node],
                ..Routes::default()
            };
            self.requests.set_routes(self.now(), routes);
        }
        Ok(())
    }

    /// The event that ends a request; None if nobody replied.
    fn outcome(
        &mut self,
        seq: u64,
        shard: ShardKey,
        route: Route<'_>,
    ) -> Result<Option<Event>, ClientError> {
        loop {
            let now = self.now();
            self.socket
                .drive(&mut self.requests, now + REFRESH_INTERVAL)?;
            while let Some(event) = self.requests.poll_event() {
                match &event {
                    Event::DeadLetters(page) if page.seq == seq => return Ok(Some(event)),
                    Event::Completed(c) if c.seq == seq => {
                        return Ok(c.reply.is_some().then_some(event));
                    }
                    _ => {}
                }
            }
            if self.requests.wants_routes() {
                self.find(shard, route)?;
            }
        }
    }
}

fn not_served(shard: ShardKey) -> ClientError {
    ClientError::NotServed {
        shard,
        waited_s: (DEADLINE + ANSWER_GRACE).as_secs(),
    }
}
