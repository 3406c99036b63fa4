//! The gate: the interface between protocol adapters and the worker.
//!
//! Adapters call [`Gate::call`] on the ingress's thread; the worker's driver holds the [`Door`] at
//! the other end. Both ends are queues, so that neither waits for the other.

use crate::calls::{Call, Calls, Given, Refused, Result as Ending, Served};
use crate::limits::QUEUE_MAX;
use e3_model::plan::{ListedApp, NodePlan};
use e3_model::{AppId, RequestId, Timestamp};
use e3_wire::client::Request;
use e3_wire::entry::Reply;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};

/// The adapters' end.
pub struct Gate {
    shared: Mutex<Shared>,
    queue: SyncSender<Request>,
    ring: Box<dyn Fn() + Send + Sync>,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    /// The first timer may have changed.
    changed: Notify,
}

struct Shared {
    calls: Calls,
    waiters: BTreeMap<u64, oneshot::Sender<Given>>,
}

/// The worker's end.
pub struct Door {
    requests: Receiver<Request>,
    events: UnboundedSender<WorkerEvent>,
}

/// What the worker's end reports.
pub(crate) enum WorkerEvent {
    Answer(AppId, RequestId, Reply),
    Apps(Option<BTreeMap<String, Served>>),
    Close,
}

/// What [`Gate::run`] receives from the worker's end.
pub struct WorkerEvents(pub(crate) UnboundedReceiver<WorkerEvent>);

/// Both ends. `client` must never have been used before; `now` is the worker's clock, `ring` wakes
/// the worker.
pub fn pair(
    client: u64,
    now: impl Fn() -> Timestamp + Send + Sync + 'static,
    ring: impl Fn() + Send + Sync + 'static,
) -> (Arc<Gate>, WorkerEvents, Door) {
    let (queue, requests) = sync_channel(QUEUE_MAX);
    let (sender, receiver) = unbounded_channel();
    let gate = Gate {
        shared: Mutex::new(Shared {
            calls: Calls::new(client),
            waiters: BTreeMap::new(),
        }),
        queue,
        ring: Box::new(ring),
        now: Box::new(now),
        changed: Notify::new(),
    };
    (
        Arc::new(gate),
        WorkerEvents(receiver),
        Door {
            requests,
            events: sender,
        },
    )
}

impl Door {
    /// The next request for the worker, if there is one.
    pub fn next(&self) -> Option<Request> {
        self.requests.try_recv().ok()
    }

    /// Gives the worker's answer back.
    pub fn answer(&self, app: AppId, id: RequestId, reply: Reply) {
        self.post(WorkerEvent::Answer(app, id, reply));
    }

    /// States the plan that the worker has applied; None while it has none.
    pub fn set_plan(&self, plan: Option<&NodePlan>) {
        let served = |(id, app): (AppId, ListedApp)| {
            let (identity, timeout_max) = (app.identity, app.deadline_max);
            let served = Served {
                id,
                identity,
                timeout_max,
            };
            (app.name, served)
        };
        let apps = plan.map(|plan| plan.listed().into_iter().map(served).collect());
        self.post(WorkerEvent::Apps(apps));
    }

    /// Answers all clients that the node stops.
    pub fn close(&self) {
        self.post(WorkerEvent::Close);
    }

    fn post(&self, event: WorkerEvent) {
        // Without a gate nobody waits for it.
        let _ = self.events.send(event);
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic in one request must not end the others.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node takes requests.
    pub fn is_ready(&self) -> bool {
        self.lock().calls.is_ready()
    }

    /// Refuses what [`Gate::call`] would refuse for the application's name alone.
    pub fn check(&self, app: &str) -> Result<(), Refused> {
        self.lock().calls.app(app).map(drop)
    }

    /// Has a request handled, and waits for its outcome.
    pub async fn call(&self, call: Call) -> Result<Given, Refused> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut shared = self.lock();
            let ticket = shared.calls.submit((self.now)(), call)?;
            shared.waiters.insert(ticket, sender);
            self.drain(&mut shared);
        }
        self.changed.notify_one();
        let stopped = Given {
            id: RequestId::default(),
            attempts: 0,
            result: Ending::Stopped,
        };
        Ok(receiver.await.unwrap_or(stopped))
    }

    /// Passes on what the calls have for the worker and for the clients.
    fn drain(&self, shared: &mut Shared) {
        let mut sent = false;
        while let Some(request) = shared.calls.poll_request() {
            // Full: the attempt is lost; a retry follows.
            sent |= self.queue.try_send(request).is_ok();
        }
        if sent {
            (self.ring)();
        }
        while let Some((ticket, given)) = shared.calls.poll_given() {
            if let Some(waiter) = shared.waiters.remove(&ticket) {
                // The client may have gone.
                let _ = waiter.send(given);
            }
        }
    }

    /// Follows the worker and the clock; ends when the worker's end is gone or has closed.
    pub async fn run(&self, mut events: WorkerEvents) {
        loop {
            let next = self.lock().calls.next_deadline();
            let wait = next.map(|at| (self.now)().until(at));
            let timer = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait.into()).await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                biased;
                event = events.0.recv() => Some(event.unwrap_or(WorkerEvent::Close)),
                () = timer => None,
                () = self.changed.notified() => continue,
            };
            let mut shared = self.lock();
            let now = (self.now)();
            let mut closed = false;
            match event {
                Some(WorkerEvent::Answer(app, id, reply)) => {
                    shared.calls.on_answer(now, app, id, reply)
                }
                Some(WorkerEvent::Apps(apps)) => shared.calls.set_apps(apps),
                Some(WorkerEvent::Close) => {
                    shared.calls.close();
                    closed = true;
                }
                None => shared.calls.on_timer(now),
            }
            self.drain(&mut shared);
            if closed {
                return;
            }
        }
    }
}
