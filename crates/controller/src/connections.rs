//! The TCP connections of the API.
//!
//! A local process may open connections and send little or nothing. Connections that have presented no
//! valid token therefore share a small number of places, and the oldest makes room for a new one: a
//! client that presents a token at once is served, however many others only keep connections open. A
//! connection that presents a token leaves these places (see [`crate::access`]).

use crate::limits::{ACCEPT_PAUSE, ANONYMOUS_AGE_MAX, ANONYMOUS_MAX, LOOK_INTERVAL, TRUSTED_MAX};
use axum::Router;
use axum::extract::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot::{self, Receiver, Sender};
use tower_service::Service;

/// The open connections. Dropping an entry's sender closes its connection.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    next: u64,
    /// In the order of arrival.
    anonymous: BTreeMap<u64, (Instant, Sender<()>)>,
    trusted: BTreeMap<u64, Sender<()>>,
}

/// The place of one connection, known to its requests.
#[derive(Clone)]
pub(crate) struct Place {
    id: u64,
    places: Places,
}

impl Place {
    /// Records that the connection has presented a valid token; false if too many have.
    pub(crate) fn trust(&self) -> bool {
        let mut open = self.places.lock();
        if open.trusted.contains_key(&self.id) {
            return true;
        }
        if open.trusted.len() >= TRUSTED_MAX {
            return false;
        }
        if let Some((_, close)) = open.anonymous.remove(&self.id) {
            open.trusted.insert(self.id, close);
        }
        true
    }

    /// Whether the connection has presented a valid token.
    pub(crate) fn is_trusted(&self) -> bool {
        self.places.lock().trusted.contains_key(&self.id)
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a new connection a place; the oldest one without a token is closed if necessary.
    fn admit(&self, now: Instant) -> (Place, Receiver<()>) {
        let mut open = self.lock();
        if open.anonymous.len() >= ANONYMOUS_MAX {
            open.anonymous.pop_first();
        }
        let (close, closed) = oneshot::channel();
        let id = open.next;
        open.next += 1;
        open.anonymous.insert(id, (now, close));
        let places = self.clone();
        (Place { id, places }, closed)
    }

    /// Closes connections that have presented no token for too long.
    fn close_old(&self, now: Instant) {
        let young = |since: Instant| now.saturating_duration_since(since) < ANONYMOUS_AGE_MAX;
        self.lock().anonymous.retain(|_, (since, _)| young(*since));
    }

    fn remove(&self, id: u64) {
        let mut open = self.lock();
        open.anonymous.remove(&id);
        open.trusted.remove(&id);
    }
}

/// Serves the API on a listener; never returns.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    header_timeout: Duration,
) -> io::Result<()> {
    let places = Places::default();
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (place, closed) = places.admit(Instant::now());
                    tokio::spawn(serve_one(stream, app.clone(), place, closed, header_timeout));
                    // Reads the request that came with it before the next connection is accepted.
                    tokio::task::yield_now().await;
                }
                Err(e) if is_of_the_client(&e) => {}
                Err(e) => {
                    tracing::warn!(error = %e, "no connection can be accepted");
                    places.lock().anonymous.pop_first();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = look.tick() => places.close_old(Instant::now()),
        }
    }
}

fn is_of_the_client(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        e.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

async fn serve_one(
    stream: TcpStream,
    app: Router,
    place: Place,
    closed: Receiver<()>,
    header_timeout: Duration,
) {
    let of = place.clone();
    let service = hyper::service::service_fn(move |request| {
        let mut request: Request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(of.clone());
        let mut app = app.clone();
        async move { Ok::<_, Infallible>(app.call(request).await.unwrap_or_else(|e| match e {})) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(header_timeout);
    tokio::select! {
        // An error of a client concerns this client only.
        _ = http.serve_connection(TokioIo::new(stream), service) => {}
        _ = closed => {}
    }
    place.places.remove(place.id);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_without_a_token_makes_room() {
        let (places, begin) = (Places::default(), Instant::now());
        let (trusted, mut trusted_closed) = places.admit(begin);
        assert!(trusted.trust() && trusted.is_trusted());
        let mut others: Vec<_> = (0..ANONYMOUS_MAX).map(|_| places.admit(begin)).collect();
        let is_closed = |closed: &mut Receiver<()>| {
            matches!(closed.try_recv(), Err(oneshot::error::TryRecvError::Closed))
        };
        assert!(others.iter_mut().all(|(_, closed)| !is_closed(closed)));
        let (newest, mut newest_closed) = places.admit(begin + LOOK_INTERVAL);
        assert!(is_closed(&mut others[0].1) && !is_closed(&mut others[1].1));
        places.close_old(begin + ANONYMOUS_AGE_MAX);
        assert!(others.iter_mut().all(|(_, closed)| is_closed(closed)));
        assert!(!is_closed(&mut newest_closed) && !is_closed(&mut trusted_closed));
        places.remove(newest.id);
        places.remove(trusted.id);
        assert!(is_closed(&mut newest_closed) && is_closed(&mut trusted_closed));
        assert!(!trusted.is_trusted());
    }
}
