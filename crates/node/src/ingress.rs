//! The HTTP ingress in a thread of its own, at the TCP port of the same number as the data path's UDP
//! port.

use crate::config::NodeError;
use crate::essential;
use crate::limits::PORTS_TRIED;
use crate::system;
use e3_clock::Clock;
use e3_ingress::limits::ClientLimits;
use e3_ingress::{Door, http, pair};
use e3_model::Token;
use e3_net::{Doorbell, NetError, Socket};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::thread::JoinHandle;

/// The node's ends of the ingress.
pub(crate) struct Ingress {
    /// Requests and answers.
    pub(crate) door: Rc<Door>,
    thread: JoinHandle<()>,
}

/// Binds a UDP socket and a TCP listener with the same number, on loopback.
pub(crate) fn bind() -> Result<(Socket, TcpListener), NetError> {
    let mut tried = 0;
    loop {
        let socket = Socket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = socket.local_address();
        let address = address.map_err(|source| NetError::Socket {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            source,
        })?;
        tried += 1;
        match TcpListener::bind(address) {
            Ok(listener) => return Ok((socket, listener)),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && tried < PORTS_TRIED => {}
            Err(source) => return Err(NetError::Socket { address, source }),
        }
    }
}

impl Ingress {
    /// Starts to serve.
    pub(crate) fn start(
        listener: TcpListener,
        clock: Clock,
        bell: &Doorbell,
        token: Token,
    ) -> Result<Ingress, NodeError> {
        let mut client = [0; 8];
        rustix::rand::getrandom(&mut client, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| system("HTTP ingress")(e.into()))?;
        let bell = bell.clone();
        let client = u64::from_le_bytes(client);
        let (gate, events, door) = pair(client, move || clock.now(), move || bell.ring());
        // A panic in a connection ends that connection only: its task is the runtime's.
        let thread = essential::spawn("e3-ingress", move || {
            let served = http::serve(listener, gate, events, token, ClientLimits::default());
            if let Err(e) = served {
                // The process ends: a node without its HTTP port must not seem well.
                panic!("the HTTP ingress cannot serve: {e}");
            }
        })?;
        let door = Rc::new(door);
        Ok(Ingress { door, thread })
    }

    /// Tells clients that the node stops, and waits until they know.
    pub(crate) fn stop(self) {
        self.door.close();
        // It ends by itself soon after.
        let _ = self.thread.join();
    }
}
