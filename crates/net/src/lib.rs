//! UDP sockets and doorbells: bytes in, bytes out, and a way to sleep until there are some.

pub mod limits;

use e3_model::Address;
use limits::{DATAGRAM_LEN_MAX, SOCKET_BUFFER_LEN};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Why a socket is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Until the data path is encrypted, nothing listens beyond loopback.
    #[error("address {0} is not loopback; nothing listens beyond loopback yet")]
    NotLoopback(SocketAddr),
    /// The address is taken.
    #[error("address {0} is in use")]
    InUse(SocketAddr),
    /// Anything else.
    #[error("socket on {address}: {source}")]
    Socket {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

/// A non-blocking UDP socket.
#[derive(Debug)]
pub struct Socket {
    socket: UdpSocket,
    buffer: Vec<u8>,
}

impl Socket {
    /// Binds to a loopback address; port 0 chooses a free one.
    pub fn bind(address: SocketAddr) -> Result<Socket, NetError> {
        if !address.ip().is_loopback() {
            return Err(NetError::NotLoopback(address));
        }
        let error = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => NetError::InUse(address),
            _ => NetError::Socket { address, source },
        };
        let socket = UdpSocket::bind(address).map_err(error)?;
        socket.set_nonblocking(true).map_err(error)?;
        // The kernel grants what its limits allow; less is slower, not wrong.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_LEN);
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_LEN);
        Ok(Socket {
            socket,
            buffer: vec![0; DATAGRAM_LEN_MAX],
        })
    }

    /// Where it listens.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The next datagram that has arrived, if one has.
    pub fn receive(&mut self) -> Option<(Address, &[u8])> {
        match self.socket.recv_from(&mut self.buffer) {
            Ok((len, from)) => Some((address(from), &self.buffer[..len])),
            // A refused port of a peer that is gone is reported here; there is nothing to read.
            Err(_) => None,
        }
    }

    /// Sends a datagram; false if the system's buffer was full, which counts as a lost datagram.
    pub fn send(&self, to: Address, bytes: &[u8]) -> bool {
        self.socket.send_to(bytes, socket_addr(to)).is_ok()
    }

    /// Another thread's way to send from the same address.
    pub fn sender(&self) -> io::Result<Sender> {
        self.socket.try_clone().map(Sender)
    }
}

/// See [`Socket::sender`].
#[derive(Debug)]
pub struct Sender(UdpSocket);

impl Sender {
    /// As [`Socket::send`].
    pub fn send(&self, to: Address, bytes: &[u8]) -> bool {
        self.0.send_to(bytes, socket_addr(to)).is_ok()
    }
}

/// Wakes a thread that sleeps in [`Doorbell::wait`].
#[derive(Clone, Debug)]
pub struct Doorbell(Arc<OwnedFd>);

impl Doorbell {
    /// A silent doorbell.
    pub fn new() -> io::Result<Doorbell> {
        Ok(Doorbell(Arc::new(eventfd(
            0,
            EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
        )?)))
    }

    /// Rings. Rings before anyone waits are kept.
    pub fn ring(&self) {
        // Full means that it rings already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Sleeps until it rings, a datagram is there, or the time is over.
    pub fn wait(&self, socket: &Socket, at_most: Duration) {
        self.wait_for_any(socket, None, at_most);
    }

    /// The same with another socket, if there is one.
    pub fn wait_for_any(&self, socket: &Socket, other: Option<&Socket>, at_most: Duration) {
        let other = &other.unwrap_or(socket).socket;
        let mut fds = [
            PollFd::new(&*self.0, PollFlags::IN),
            PollFd::new(&socket.socket, PollFlags::IN),
            PollFd::new(other, PollFlags::IN),
        ];
        let timeout = Timespec::try_from(at_most).ok();
        // Interrupted or not: the caller looks at everything anyway.
        let _ = poll(&mut fds, timeout.as_ref());
        if fds[0].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&*self.0, &mut [0u8; 8]);
        }
    }
}

/// A socket address as plain data.
pub fn address(a: SocketAddr) -> Address {
    let ip = match a.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    Address {
        ip: ip.octets(),
        port: a.port(),
    }
}

/// Plain data as a socket address.
pub fn socket_addr(a: Address) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::from(a.ip).to_canonical(), a.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_pass_and_the_doorbell_wakes() {
        let mut a = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let b = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = address(a.local_address().unwrap());
        assert_eq!(socket_addr(to), a.local_address().unwrap());
        let bell = Doorbell::new().unwrap();
        assert!(b.send(to, b"hello"));
        bell.wait(&a, Duration::from_secs(10));
        assert_eq!(a.receive().unwrap().1, b"hello");
        let ringer = bell.clone();
        let thread = std::thread::spawn(move || ringer.ring());
        bell.wait(&a, Duration::from_secs(10));
        thread.join().unwrap();
        assert!(a.receive().is_none());
    }

    #[test]
    fn only_loopback_and_only_once() {
        let any = Socket::bind("0.0.0.0:0".parse().unwrap());
        assert!(matches!(any, Err(NetError::NotLoopback(_))));
        let first = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let second = Socket::bind(first.local_address().unwrap());
        assert!(matches!(second, Err(NetError::InUse(_))));
    }
}
