//! Redis with one replica: a write counts when the replica has it (`WAIT 1`), in memory only.
//!
//! The protocol is RESP (redis.io, "Redis serialization protocol specification").

use super::{KEYS, Load, Peer, PeerError, Protocol, Server, VALUE_LEN, key, load, text};
use super::{free_port, version, wait_ready};
use e3_random::Random;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const PROGRAM: &str = "redis-server";
const PACKAGE: &str = "redis-server";
/// How long `WAIT` waits, in milliseconds; reached, it is an error.
const WAIT_MS: u32 = 5_000;

/// A primary and its replica.
pub struct Redis {
    _servers: [Server; 2],
    primary: SocketAddr,
}

impl Redis {
    /// Starts both in a directory, without persistence.
    pub fn start(dir: &Path) -> Result<Redis, PeerError> {
        let (primary, replica) = (free_port()?, free_port()?);
        let start = |at: SocketAddr, of: Option<SocketAddr>| {
            let dir = text(dir);
            let port = at.port().to_string();
            let mut args = vec!["--bind", "127.0.0.1", "--port", &port, "--dir", &dir];
            args.extend(["--save", "", "--appendonly", "no"]);
            args.extend(["--repl-diskless-sync-delay", "0"]);
            let of = of.map(|of| format!("127.0.0.1 {}", of.port()));
            if let Some(of) = &of {
                args.extend(["--replicaof", of]);
            }
            let args: Vec<String> = args.into_iter().map(String::from).collect();
            Server::start(PROGRAM, PACKAGE, &args)
        };
        let servers = [start(primary, None)?, start(replica, Some(primary))?];
        // The first write that the replica confirms.
        wait_ready(PROGRAM, || {
            let once = Duration::from_millis(1);
            load::run(primary, clients(1), 1, once).ok()
        })?;
        Ok(Redis {
            _servers: servers,
            primary,
        })
    }
}

impl Peer for Redis {
    fn about(&self) -> String {
        let version = version(PROGRAM);
        format!("{version}, one replica, SET and WAIT 1 over a connection for each client")
    }

    fn load(&mut self, count: usize, length: Duration) -> Result<Load, PeerError> {
        load::run(self.primary, clients(count), 1, length)
    }
}

fn clients(count: usize) -> impl Iterator<Item = Resp> {
    (0..count as u64).map(|seed| Resp {
        random: Random::new(seed),
        next: 0,
        answered: 0,
        is_set: false,
    })
}

struct Resp {
    random: Random,
    next: u64,
    answered: u64,
    /// The answer to `SET` has come, that to `WAIT` has not.
    is_set: bool,
}

impl Protocol for Resp {
    fn hello(&mut self, _: &mut Vec<u8>) {}

    fn write(&mut self, out: &mut Vec<u8>) -> u64 {
        let key = key(self.random.below(KEYS));
        let wait = WAIT_MS.to_string();
        let (of_key, of_wait, value) = (key.len(), wait.len(), [b'v'; VALUE_LEN]);
        let _ = write!(
            out,
            "*3\r\n$3\r\nSET\r\n${of_key}\r\n{key}\r\n${VALUE_LEN}\r\n"
        );
        out.extend_from_slice(&value);
        let _ = write!(
            out,
            "\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n${of_wait}\r\n{wait}\r\n"
        );
        self.next += 1;
        self.next - 1
    }

    fn take(
        &mut self,
        arrived: &[u8],
        done: &mut Vec<u64>,
        _: &mut Vec<u8>,
    ) -> Result<usize, PeerError> {
        let mut used = 0;
        while let Some(len) = arrived[used..].windows(2).position(|w| w == b"\r\n") {
            let line = &arrived[used..used + len];
            used += len + 2;
            match (self.is_set, line) {
                (false, b"+OK") => self.is_set = true,
                (true, b":1") => {
                    self.is_set = false;
                    done.push(self.answered);
                    self.answered += 1;
                }
                _ => {
                    return Err(PeerError::Answer {
                        program: PROGRAM,
                        answer: format!("{:?} to SET and WAIT 1", String::from_utf8_lossy(line)),
                    });
                }
            }
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_done_when_the_replica_has_it() {
        let mut client = clients(1).next().unwrap();
        let (mut out, mut done) = (Vec::new(), Vec::new());
        assert_eq!(client.write(&mut out), 0);
        assert!(out.ends_with(b"\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n5000\r\n"));
        let mut take =
            |bytes: &[u8], done: &mut Vec<u64>| client.take(bytes, done, &mut Vec::new());
        assert_eq!(take(b"+OK\r\n:", &mut done).unwrap(), 5);
        assert!(done.is_empty());
        assert_eq!(take(b":1\r\n", &mut done).unwrap(), 4);
        assert_eq!(done, [0]);
        // The replica is gone.
        let error = take(b"+OK\r\n:0\r\n", &mut done).unwrap_err().to_string();
        assert_eq!(error, "redis-server answered \":0\" to SET and WAIT 1");
    }
}
