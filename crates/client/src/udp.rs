//! The client of one application: one thread, many requests in flight.

use crate::ClientError;
use crate::limits::{REFRESH_INTERVAL, WAIT_MAX};
use crate::socket::{Socket, address, unique};
use e3_client_core::{Call, Completed, Event, Requests, Routes};
use e3_model::api::EndpointsView;
use e3_model::{Address, AppId, Nanos, Timestamp};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Asks the controller where the application's requests go now; None if it does not answer. Runs on
/// a thread of its own.
pub type Refresh = Box<dyn FnMut() -> Option<EndpointsView> + Send>;

/// A client of one application.
pub struct Client {
    /// Its requests.
    pub requests: Requests,
    socket: Socket,
    refresher: Option<(SyncSender<()>, Receiver<EndpointsView>)>,
    refreshed: Timestamp,
}

impl Client {
    /// A client on a socket of its own. With `refresh`, it asks for new endpoints when requests go
    /// unanswered.
    pub fn new(endpoints: &EndpointsView, refresh: Option<Refresh>) -> Result<Client, ClientError> {
        let routes = routes(endpoints)?;
        if routes.nodes.is_empty() {
            return Err(ClientError::NoNodes {
                app: AppId(endpoints.app).to_string(),
            });
        }
        let refresher = refresh.map(start_refresher).transpose();
        Ok(Client {
            requests: Requests::new(unique()?, routes),
            socket: Socket::bind()?,
            refresher: refresher.map_err(|source| ClientError::Io {
                what: "start a thread",
                source,
            })?,
            refreshed: Timestamp::ZERO,
        })
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.socket.now()
    }

    /// Sends a request and waits for its outcome. Events of other requests are dropped.
    pub fn call(
        &mut self,
        key: &[u8],
        payload: &[u8],
        timeout: Nanos,
    ) -> Result<Completed, ClientError> {
        let call = Call {
            tag: 0,
            key: key.to_vec(),
            payload: payload.to_vec(),
        };
        let now = self.now();
        let seq = self.requests.submit(now, now, now + timeout, call);
        loop {
            self.turn(self.now() + WAIT_MAX)?;
            while let Some(event) = self.requests.poll_event() {
                match event {
                    Event::Completed(completed) if completed.seq == seq => return Ok(completed),
                    _ => {}
                }
            }
        }
    }

    /// Sends what is due, waits for replies until `wake` at the latest, and takes them.
    pub fn turn(&mut self, wake: Timestamp) -> Result<(), ClientError> {
        self.refresh(self.now());
        self.socket.drive(&mut self.requests, wake)
    }

    fn refresh(&mut self, now: Timestamp) {
        let Some((ask, answers)) = &self.refresher else {
            return;
        };
        // A view with an address that cannot be used is no better than the routes at hand.
        let latest = answers.try_iter().last();
        if let Some(routes) = latest.and_then(|view| routes(&view).ok()) {
            self.requests.set_routes(now, routes);
        }
        if now >= self.refreshed + REFRESH_INTERVAL && self.requests.wants_routes() {
            self.refreshed = now;
            // Full: the controller is being asked already.
            let _ = ask.try_send(());
        }
    }
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
        let parsed: SocketAddr = text.parse().map_err(|_| ClientError::Address {
            address: text.clone(),
        })?;
        address(parsed).map(Some)
    };
    let nodes: Result<Vec<_>, _> = view.nodes.iter().map(parse).collect();
    Ok(Routes {
        app: AppId(view.app),
        shards: view.shards.iter().map(parse).collect::<Result<_, _>>()?,
        nodes: nodes?.into_iter().flatten().collect(),
        ..Routes::default()
    })
}
