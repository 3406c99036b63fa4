//! Clients of a peer on one thread: each connection has some writes in flight, and sends the next when
//! one is answered.

use super::PeerError;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Longest wait for an answer after the end of a load.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Bytes read at a time.
const READ_LEN: usize = 64 * 1024;
/// Events taken at a time.
const EVENTS_MAX: usize = 256;

/// What came of a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Writes answered per second.
    pub rps: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile in microseconds.
    pub p99_us: f64,
}

impl Load {
    /// Of the latencies of all writes that were answered within `length`.
    ///
    /// # Panics
    /// If none was.
    pub fn of(mut latencies: Vec<Duration>, length: Duration) -> Load {
        latencies.sort_unstable();
        let at = |part: f64| {
            let last = latencies.len() - 1;
            latencies[(part * last as f64) as usize].as_secs_f64() * 1e6
        };
        Load {
            rps: latencies.len() as f64 / length.as_secs_f64(),
            p50_us: at(0.5),
            p99_us: at(0.99),
        }
    }
}

/// The protocol of one connection.
pub(super) trait Protocol {
    /// What is sent before the first write.
    fn hello(&mut self, out: &mut Vec<u8>);
    /// Appends a write of a key that it draws; returns its number.
    fn write(&mut self, out: &mut Vec<u8>) -> u64;
    /// Takes whole answers from the front of what has arrived, and gives the numbers of the writes that
    /// are done. What must be sent at once is appended to `out`.
    fn take(
        &mut self,
        arrived: &[u8],
        done: &mut Vec<u64>,
        out: &mut Vec<u8>,
    ) -> Result<usize, PeerError>;
}

struct Connection<P> {
    stream: TcpStream,
    protocol: P,
    arrived: Vec<u8>,
    sent: BTreeMap<u64, Instant>,
}

impl<P: Protocol> Connection<P> {
    fn open(to: SocketAddr, mut protocol: P) -> Result<Connection<P>, PeerError> {
        let mut stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        let mut hello = Vec::new();
        protocol.hello(&mut hello);
        stream.write_all(&hello)?;
        Ok(Connection {
            stream,
            protocol,
            arrived: Vec::new(),
            sent: BTreeMap::new(),
        })
    }

    /// Sends so many writes. They are short, and the socket has room for all that may be in flight.
    fn send(&mut self, writes: usize, mut out: Vec<u8>) -> Result<(), PeerError> {
        let now = Instant::now();
        for _ in 0..writes {
            self.sent.insert(self.protocol.write(&mut out), now);
        }
        self.stream.set_nonblocking(false)?;
        self.stream.write_all(&out)?;
        Ok(self.stream.set_nonblocking(true)?)
    }

    /// Reads once; returns the latencies of the writes that are done, and what must be sent.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        latencies: &mut Vec<Duration>,
    ) -> Result<(usize, Vec<u8>), PeerError> {
        let len = match self.stream.read(buffer) {
            Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(len) => len,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(e) => return Err(e.into()),
        };
        self.arrived.extend_from_slice(&buffer[..len]);
        let (mut done, mut out) = (Vec::new(), Vec::new());
        let used = self.protocol.take(&self.arrived, &mut done, &mut out)?;
        self.arrived.drain(..used);
        let now = Instant::now();
        let known = done.iter().filter_map(|number| self.sent.remove(number));
        latencies.extend(known.map(|sent| now - sent));
        Ok((done.len(), out))
    }
}

/// Runs a load: `connections` with `depth` writes in flight each.
pub(super) fn run<P: Protocol>(
    to: SocketAddr,
    protocols: impl Iterator<Item = P>,
    depth: usize,
    length: Duration,
) -> Result<Load, PeerError> {
    let mut all = protocols
        .map(|p| Connection::open(to, p))
        .collect::<Result<Vec<_>, _>>()?;
    let errno = |e: Errno| PeerError::Io(e.into());
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(errno)?;
    for (at, connection) in all.iter().enumerate() {
        let data = EventData::new_u64(at as u64);
        epoll::add(&epoll, connection.stream.as_fd(), data, EventFlags::IN).map_err(errno)?;
    }
    let begin = Instant::now();
    for connection in &mut all {
        connection.send(depth, Vec::new())?;
    }
    let (mut latencies, mut buffer) = (Vec::new(), vec![0; READ_LEN]);
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let wait = Timespec {
        tv_sec: DRAIN_MAX.as_secs() as i64,
        tv_nsec: 0,
    };
    while begin.elapsed() < length {
        events.clear();
        match epoll::wait(
            &epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&wait),
        ) {
            Ok(0) => return Err(io::Error::from(ErrorKind::TimedOut).into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(errno(e)),
        }
        for event in &events {
            let connection = &mut all[event.data.u64() as usize];
            let (done, out) = connection.receive(&mut buffer, &mut latencies)?;
            if done > 0 || !out.is_empty() {
                connection.send(done, out)?;
            }
        }
    }
    if latencies.is_empty() {
        return Err(io::Error::from(ErrorKind::TimedOut).into());
    }
    Ok(Load::of(latencies, begin.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_latencies() {
        let latencies = (1..=101).rev().map(Duration::from_micros).collect();
        let load = Load::of(latencies, Duration::from_secs(2));
        assert_eq!((load.rps, load.p50_us, load.p99_us), (50.5, 51.0, 100.0));
    }
}
