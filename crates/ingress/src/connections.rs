//! The TCP connections of the ingress: how many there are, and which one is closed for a new one.
//!
//! A local process may open connections and send nothing, or little. A connection is idle unless a
//! request of it was admitted and is not answered yet. When there are too many, the one that has
//! been idle for longest is closed, so that idle clients do not block others.

use crate::limits::*;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tower_service::Service;

/// The connections that are open.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Default)]
struct Shared {
    open: Mutex<Open>,
    /// A connection was closed, or has become idle.
    changed: Notify,
}

#[derive(Default)]
struct Open {
    count: usize,
    next: u64,
    /// In the order in which they became idle. Dropping an entry closes its connection.
    idle: BTreeMap<u64, oneshot::Sender<()>>,
}

/// The place of one connection, known to its requests.
#[derive(Clone)]
pub(crate) struct Place {
    /// Key of its entry among the idle ones.
    id: Arc<AtomicU64>,
    connections: Connections,
}

/// Keeps a connection from being closed while a request of it is handled.
pub(crate) struct Busy {
    place: Place,
    close: Option<oneshot::Sender<()>>,
}

impl Place {
    /// A request was admitted; the connection is idle again when the result is dropped.
    pub(crate) fn busy(&self) -> Busy {
        let close = self.connections.lock().remove(self);
        let place = self.clone();
        Busy { place, close }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Without an entry it was being closed.
        if let Some(close) = self.close.take() {
            let connections = &self.place.connections;
            let id = connections.lock().insert(close);
            self.place.id.store(id, Relaxed);
            connections.0.changed.notify_one();
        }
    }
}

impl Open {
    fn insert(&mut self, close: oneshot::Sender<()>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.idle.insert(id, close);
        id
    }

    fn remove(&mut self, place: &Place) -> Option<oneshot::Sender<()>> {
        self.idle.remove(&place.id.load(Relaxed))
    }
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection. If there is none, the oldest idle connection is closed.
    async fn admit(&self, connections_max: usize) -> (Place, oneshot::Receiver<()>) {
        let mut made_room = false;
        loop {
            {
                let mut open = self.lock();
                if open.count < connections_max {
                    open.count += 1;
                    let (close, closed) = oneshot::channel();
                    let id = Arc::new(AtomicU64::new(open.insert(close)));
                    let connections = self.clone();
                    return (Place { id, connections }, closed);
                }
                made_room = made_room || open.idle.pop_first().is_some();
            }
            self.0.changed.notified().await;
        }
    }

    fn remove(&self, place: &Place) {
        let mut open = self.lock();
        open.remove(place);
        open.count -= 1;
        self.0.changed.notify_one();
    }

    /// Waits until all are closed.
    pub(crate) async fn closed(&self) {
        while self.lock().count > 0 {
            self.0.changed.notified().await;
        }
    }

    /// Accepts connections for ever.
    pub(crate) async fn accept(self, listener: TcpListener, router: Router, limits: ClientLimits) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                self.lock().idle.pop_first();
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (place, closed) = self.admit(limits.connections_max).await;
            tokio::spawn(serve(stream, router.clone(), place, closed, limits));
            // The request that has come with it is read before the next one is accepted.
            tokio::task::yield_now().await;
        }
    }
}

async fn serve(
    stream: TcpStream,
    router: Router,
    place: Place,
    closed: oneshot::Receiver<()>,
    limits: ClientLimits,
) {
    let _ = stream.set_nodelay(true);
    let write_ms = limits.write_timeout.as_millis() as u32;
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, write_ms);
    let of = place.clone();
    let service = hyper::service::service_fn(move |request| {
        let mut request: Request<Body> = Request::map(request, Body::new);
        request.extensions_mut().insert(of.clone());
        let mut router = router.clone();
        async move {
            let response = router.call(request).await;
            Ok::<_, Infallible>(response.unwrap_or_else(|e| match e {}))
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(HEAD_LEN_MAX)
        .max_headers(HEADERS_MAX);
    tokio::select! {
        // A client's protocol error concerns that client alone.
        _ = http.serve_connection(TokioIo::new(stream), service) => {}
        _ = closed => {}
    }
    place.connections.remove(&place);
}
