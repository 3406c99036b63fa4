//! The client on a UDP socket: one thread, many requests in flight.

use crate::ClientError;
use crate::limits::{REFRESH_INTERVAL, SOCKET_BUFFER_LEN};
use e3_client_core::requests::{Requests, Routes};
use e3_model::api::EndpointsView;
use e3_model::{Address, AppId, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Asks where the application's requests go now; None if nobody knows. Runs on its own thread.
pub type Refresh = Box<dyn FnMut() -> Option<EndpointsView> + Send>;

/// Datagrams taken in one turn, so that sending is never starved.
const DATAGRAMS_PER_TURN: usize = 1024;

/// A client of one application.
pub struct Client {
    /// Its requests.
    pub requests: Requests,
    socket: UdpSocket,
    clock: Clock,
    buffer: Vec<u8>,
    refresher: Option<(SyncSender<()>, Receiver<EndpointsView>)>,
    refreshed: Timestamp,
}

/// Time since the Unix epoch that never goes back.
pub(crate) struct Clock {
    epoch: Timestamp,
    started: Instant,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Clock {
            epoch: Timestamp::ZERO + since.into(),
            started: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.epoch + self.started.elapsed().into()
    }
}

impl Client {
    /// Binds a socket on loopback.
    pub fn new(endpoints: &EndpointsView, refresh: Option<Refresh>) -> Result<Client, ClientError> {
        let routes = routes(endpoints)?;
        if routes.nodes.is_empty() {
            return Err(ClientError::NoNodes {
                app: AppId(endpoints.app).to_string(),
            });
        }
        let io = |what| move |source| ClientError::Io { what, source };
        let socket = loopback_socket()?;
        socket
            .set_nonblocking(true)
            .map_err(io("set up a UDP socket"))?;
        // The kernel may grant less; lost datagrams are repeated.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_LEN);
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_LEN);
        let refresher = match refresh {
            None => None,
            Some(refresh) => Some(start_refresher(refresh).map_err(io("start a thread"))?),
        };
        Ok(Client {
            requests: Requests::new(unique()?, routes),
            socket,
            clock: Clock::new(),
            buffer: vec![0; 1 << 16],
            refresher,
            refreshed: Timestamp(0),
        })
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Sends what is to be sent, waits for answers until `wake` at the latest, and takes them.
    pub fn turn(&mut self, wake: Timestamp) -> Result<(), ClientError> {
        let mut now = self.now();
        self.requests.on_timer(now);
        self.refresh(now);
        self.send()?;
        let wake = self
            .requests
            .next_deadline()
            .map_or(wake, |at| wake.min(at));
        now = self.now();
        if wake > now {
            let wait = wake.since(now).0;
            let timeout = Timespec {
                tv_sec: (wait / 1_000_000_000) as i64,
                tv_nsec: (wait % 1_000_000_000) as _,
            };
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    return Err(ClientError::Io {
                        what: "wait for answers",
                        source: e.into(),
                    });
                }
            }
        }
        for _ in 0..DATAGRAMS_PER_TURN {
            match self.socket.recv_from(&mut self.buffer) {
                Ok((len, _)) => {
                    let now = self.clock.now();
                    self.requests.on_datagram(now, &self.buffer[..len]);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // A node that is gone, told by an ICMP message: the request is repeated.
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(ClientError::Io {
                        what: "take an answer",
                        source,
                    });
                }
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), ClientError> {
        while let Some((to, bytes)) = self.requests.poll_transmit() {
            match self.socket.send_to(&bytes, socket_address(to)) {
                Ok(_) => {}
                // Lost on the way out is lost on the way: repeated by its timer.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::WouldBlock
                            | ErrorKind::ConnectionRefused
                            | ErrorKind::Interrupted
                    ) => {}
                Err(source) => {
                    return Err(ClientError::Io {
                        what: "send a request",
                        source,
                    });
                }
            }
        }
        Ok(())
    }

    fn refresh(&mut self, now: Timestamp) {
        let Some((ask, answers)) = &self.refresher else {
            return;
        };
        // A view with an address that cannot be used is no better than the one at hand.
        if let Some(routes) = answers
            .try_iter()
            .last()
            .and_then(|view| routes(&view).ok())
        {
            self.requests.set_routes(now, routes);
        }
        if now >= self.refreshed + REFRESH_INTERVAL && self.requests.wants_routes() {
            self.refreshed = now;
            // Full: it is being asked already.
            let _ = ask.try_send(());
        }
    }
}

pub(crate) fn loopback_socket() -> Result<UdpSocket, ClientError> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|source| ClientError::Io {
        what: "bind a UDP socket",
        source,
    })
}

fn start_refresher(
    mut refresh: Refresh,
) -> std::io::Result<(SyncSender<()>, Receiver<EndpointsView>)> {
    let (ask, asked) = sync_channel::<()>(1);
    let (tell, told) = sync_channel(16);
    std::thread::Builder::new()
        .name("e3-client-routes".into())
        .spawn(move || {
            while asked.recv().is_ok() {
                if let Some(view) = refresh()
                    && tell.send(view).is_err()
                {
                    break;
                }
            }
        })?;
    Ok((ask, told))
}

fn routes(view: &EndpointsView) -> Result<Routes, ClientError> {
    let parse = |text: &String| -> Result<Option<Address>, ClientError> {
        if text.is_empty() {
            return Ok(None);
        }
        let address: SocketAddr = text.parse().map_err(|_| ClientError::Address {
            address: text.clone(),
        })?;
        if !address.ip().is_loopback() {
            return Err(ClientError::NotLoopback { address });
        }
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        Ok(Some(Address {
            ip,
            port: address.port(),
        }))
    };
    let nodes: Result<Vec<_>, _> = view.nodes.iter().map(parse).collect();
    Ok(Routes {
        app: AppId(view.app),
        shards: view.shards.iter().map(parse).collect::<Result<_, _>>()?,
        nodes: nodes?.into_iter().flatten().collect(),
    })
}

fn socket_address(address: Address) -> SocketAddr {
    let ip = Ipv6Addr::from(address.ip);
    let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
    SocketAddr::new(ip, address.port)
}

/// A number that nobody else has: for client ids, and for seeds that nobody chose.
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
