//! The operating system's side of a client: socket, clock, random bytes.

use crate::ClientError;
use crate::limits::{DATAGRAM_LEN_MAX, DATAGRAMS_PER_TURN, SOCKET_BUFFER_LEN};
use e3_client_core::Requests;
use e3_clock::Clock;
use e3_model::{Address, Nanos, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// A non-blocking UDP socket on loopback, with a clock.
pub(crate) struct Socket {
    socket: UdpSocket,
    clock: Clock,
    buffer: Vec<u8>,
}

impl Socket {
    /// Binds a socket.
    pub(crate) fn bind() -> Result<Socket, ClientError> {
        let io = |what| move |source| ClientError::Io { what, source };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io("bind a UDP socket"))?;
        socket
            .set_nonblocking(true)
            .map_err(io("set up a UDP socket"))?;
        // The kernel may grant less; requests whose datagrams are lost are retried.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_LEN);
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_LEN);
        Ok(Socket {
            socket,
            clock: Clock::new(),
            buffer: vec![0; DATAGRAM_LEN_MAX],
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Drives requests: sends what is due, waits for replies until `wake` at the latest, and takes
    /// them.
    pub(crate) fn drive(
        &mut self,
        requests: &mut Requests,
        wake: Timestamp,
    ) -> Result<(), ClientError> {
        requests.on_timer(self.now());
        self.send(requests)?;
        self.wait(requests.next_deadline().map_or(wake, |at| wake.min(at)))?;
        self.receive(requests)
    }

    fn send(&self, requests: &mut Requests) -> Result<(), ClientError> {
        while let Some((to, bytes)) = requests.poll_transmit() {
            match self.socket.send_to(&bytes, socket_address(to)) {
                Ok(_) => {}
                // The same as a lost datagram: the timer retries the requests.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::WouldBlock
                            | ErrorKind::ConnectionRefused
                            | ErrorKind::Interrupted
                    ) => {}
                Err(source) => {
                    let what = "send a request";
                    return Err(ClientError::Io { what, source });
                }
            }
        }
        Ok(())
    }

    fn wait(&self, wake: Timestamp) -> Result<(), ClientError> {
        let wait = wake.since(self.now());
        if wait == Nanos(0) {
            return Ok(());
        }
        let timeout = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: (wait.0 % 1_000_000_000) as _,
        };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(ClientError::Io {
                what: "wait for replies",
                source: e.into(),
            }),
        }
    }

    fn receive(&mut self, requests: &mut Requests) -> Result<(), ClientError> {
        for _ in 0..DATAGRAMS_PER_TURN {
            match self.socket.recv_from(&mut self.buffer) {
                Ok((len, _)) => requests.on_datagram(self.clock.now(), &self.buffer[..len]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // An ICMP message says that a node is gone: its requests are retried.
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    let what = "receive a reply";
                    return Err(ClientError::Io { what, source });
                }
            }
        }
        Ok(())
    }
}

/// The address of a node, which must be on loopback.
pub(crate) fn address(of: SocketAddr) -> Result<Address, ClientError> {
    if !of.ip().is_loopback() {
        return Err(ClientError::NotLoopback { address: of });
    }
    let ip = match of.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let port = of.port();
    Ok(Address { ip, port })
}

fn socket_address(address: Address) -> SocketAddr {
    let ip = Ipv6Addr::from(address.ip);
    let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
    SocketAddr::new(ip, address.port)
}

/// A unique random number: for client ids, and for seeds that nobody chose.
pub fn unique() -> Result<u64, ClientError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(|e| {
        ClientError::Io {
            what: "random number",
            source: e.into(),
        }
    })?;
    Ok(u64::from_le_bytes(bytes))
}
