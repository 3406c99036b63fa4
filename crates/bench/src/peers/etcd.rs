//! etcd of three members: a write counts when two of them have it on disk.
//!
//! It is asked as its own clients ask it, over gRPC: HTTP/2 (RFC 9113) with header blocks that use no
//! dynamic table (RFC 7541), one call of `etcdserverpb.KV/Put` a write, at the leader.

use super::{KEYS, Load, Peer, PeerError, Protocol, Server, VALUE_LEN, key, load, text};
use super::{free_port, version, wait_ready};
use e3_random::Random;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

const PROGRAM: &str = "etcd";
const PACKAGE: &str = "etcd-server";
const MEMBERS: usize = 3;
/// Writes in flight on a connection. They fit the window that a server grants at first, which it
/// renews long before it is used up.
const DEPTH: usize = 16;

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
/// Flags of frames.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const FRAME_HEAD_LEN: usize = 9;
/// Bytes that the server may send before it must be told that it may send more: all of a load.
const WINDOW: u32 = 1 << 30;

/// A cluster.
pub struct Etcd {
    _members: Vec<Server>,
    leader: SocketAddr,
}

impl Etcd {
    /// Starts it, with the data of all members in a directory.
    pub fn start(dir: &Path) -> Result<Etcd, PeerError> {
        let (clients, peers) = (free_ports()?, free_ports()?);
        let cluster: Vec<String> = peers
            .iter()
            .enumerate()
            .map(|(at, peer)| format!("m{at}=http://{peer}"))
            .collect();
        let cluster = cluster.join(",");
        let start = |at: usize| {
            let (client, peer) = (
                format!("http://{}", clients[at]),
                format!("http://{}", peers[at]),
            );
            let data = text(&dir.join(format!("m{at}")));
            let name = format!("m{at}");
            let args = [
                ["--name", &name],
                ["--data-dir", &data],
                ["--listen-client-urls", &client],
                ["--advertise-client-urls", &client],
                ["--listen-peer-urls", &peer],
                ["--initial-advertise-peer-urls", &peer],
                ["--initial-cluster", &cluster],
                ["--initial-cluster-state", "new"],
            ];
            let args: Vec<String> = args.iter().flatten().map(|a| a.to_string()).collect();
            Server::start(PROGRAM, PACKAGE, &args)
        };
        let members = (0..MEMBERS).map(start).collect::<Result<Vec<_>, _>>()?;
        let leads = |at: &&SocketAddr| is_leader(**at).unwrap_or(false);
        let leader = wait_ready(PROGRAM, || clients.iter().find(leads).copied())?;
        Ok(Etcd {
            _members: members,
            leader,
        })
    }
}

fn free_ports() -> Result<Vec<SocketAddr>, std::io::Error> {
    (0..MEMBERS).map(|_| free_port()).collect()
}

/// Whether a member leads, by its metrics.
fn is_leader(member: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(member)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    Ok(text.lines().any(|line| line == "etcd_server_is_leader 1"))
}

impl Peer for Etcd {
    fn about(&self) -> String {
        let version = version(PROGRAM);
        format!(
            "{version}, {MEMBERS} members, Put over gRPC at the leader, {DEPTH} clients a connection"
        )
    }

    fn load(&mut self, clients: usize, length: Duration) -> Result<Load, PeerError> {
        let connections = clients.div_ceil(DEPTH);
        let protocols = (0..connections as u64).map(|seed| Grpc {
            random: Random::new(seed),
            block: header_block(self.leader),
            next_stream: 1,
            has_message: BTreeSet::new(),
        });
        load::run(self.leader, protocols, clients / connections, length)
    }
}

struct Grpc {
    random: Random,
    /// The header block of every call.
    block: Vec<u8>,
    next_stream: u32,
    /// Streams on which an answer has arrived, but not its end. A call that failed has none.
    has_message: BTreeSet<u32>,
}

impl Protocol for Grpc {
    fn hello(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        // SETTINGS_INITIAL_WINDOW_SIZE, for all streams.
        let mut settings = vec![0, 4];
        settings.extend_from_slice(&WINDOW.to_be_bytes());
        frame(out, SETTINGS, 0, 0, &settings);
        frame(out, WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes());
    }

    fn write(&mut self, out: &mut Vec<u8>) -> u64 {
        let stream = self.next_stream;
        self.next_stream += 2;
        frame(out, HEADERS, END_HEADERS, stream, &self.block);
        let put = put_request(key(self.random.below(KEYS)).as_bytes(), &[b'v'; VALUE_LEN]);
        let mut message = vec![0];
        message.extend_from_slice(&(put.len() as u32).to_be_bytes());
        message.extend_from_slice(&put);
        frame(out, DATA, END_STREAM, stream, &message);
        stream.into()
    }

    fn take(
        &mut self,
        arrived: &[u8],
        done: &mut Vec<u64>,
        out: &mut Vec<u8>,
    ) -> Result<usize, PeerError> {
        let mut used = 0;
        while let Some((head, rest)) = arrived[used..].split_first_chunk::<FRAME_HEAD_LEN>() {
            let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *head;
            let len = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            let stream = u32::from_be_bytes([s0, s1, s2, s3]);
            let Some(body) = rest.get(..len) else {
                break;
            };
            used += FRAME_HEAD_LEN + len;
            let failed = |what: &str| PeerError::Answer {
                program: PROGRAM,
                answer: what.to_string(),
            };
            match kind {
                SETTINGS if flags & ACK == 0 => frame(out, SETTINGS, ACK, 0, &[]),
                PING if flags & ACK == 0 => frame(out, PING, ACK, 0, body),
                DATA if !body.is_empty() => {
                    self.has_message.insert(stream);
                }
                RST_STREAM => return Err(failed("with a reset of the stream")),
                GOAWAY => return Err(failed("that it closes the connection")),
                _ => {}
            }
            if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                if !self.has_message.remove(&stream) {
                    return Err(failed("with an error to Put"));
                }
                done.push(stream.into());
            }
        }
        Ok(used)
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, body: &[u8]) {
    let [_, l0, l1, l2] = (body.len() as u32).to_be_bytes();
    out.extend_from_slice(&[l0, l1, l2, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(body);
}

/// The headers of a call: entries of the static table where it has them, literals otherwise.
fn header_block(authority: SocketAddr) -> Vec<u8> {
    // :method POST, :scheme http
    let mut block = vec![0x83, 0x86];
    let mut literal = |name: &[u8], value: &str| {
        block.extend_from_slice(name);
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    };
    // :path, :authority, content-type by their numbers in the table
    literal(&[0x04], "/etcdserverpb.KV/Put");
    literal(&[0x01], &authority.to_string());
    literal(&[0x0f, 0x10], "application/grpc");
    literal(b"\x00\x02te", "trailers");
    block
}

/// `PutRequest { key = 1, value = 2 }` in protobuf; both are shorter than 128 bytes.
fn put_request(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    for (tag, bytes) in [(0x0a, key), (0x12, value)] {
        message.extend_from_slice(&[tag, bytes.len() as u8]);
        message.extend_from_slice(bytes);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Grpc {
        Grpc {
            random: Random::new(1),
            block: header_block(SocketAddr::from(([127, 0, 0, 1], 2379))),
            next_stream: 1,
            has_message: BTreeSet::new(),
        }
    }

    #[test]
    fn a_call_is_done_at_the_end_of_its_stream_if_it_was_answered() {
        let mut client = client();
        let (mut out, mut done) = (Vec::new(), Vec::new());
        assert_eq!([client.write(&mut out), client.write(&mut out)], [1, 3]);
        let mut bytes = Vec::new();
        frame(&mut bytes, SETTINGS, 0, 0, &[]);
        frame(&mut bytes, HEADERS, END_HEADERS, 3, &[]);
        frame(&mut bytes, DATA, 0, 3, b"answer");
        frame(&mut bytes, HEADERS, END_HEADERS | END_STREAM, 3, &[]);
        out.clear();
        // Cut anywhere, nothing is lost.
        for cut in 0..bytes.len() {
            let used = client.take(&bytes[..cut], &mut done, &mut Vec::new());
            assert!(used.unwrap() <= cut);
            client.has_message.clear();
        }
        assert!(done.is_empty());
        let used = client.take(&bytes, &mut done, &mut out).unwrap();
        assert_eq!((used, &done[..]), (bytes.len(), &[3][..]));
        assert_eq!(out, [0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]);
        // An error comes without a message.
        let mut bytes = Vec::new();
        frame(&mut bytes, HEADERS, END_HEADERS | END_STREAM, 1, &[]);
        let error = client.take(&bytes, &mut done, &mut out).unwrap_err();
        assert_eq!(error.to_string(), "etcd answered with an error to Put");
    }
}
