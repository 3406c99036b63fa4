//! What the supervisor hears from the controller, and tells it, beside its own work.

use crate::cluster::client::Client;
use crate::limits::{EXIT_REPORT_TIME, POLL_INTERVAL, WATCH_INTERVAL};
use crate::ui::failure::{Exit, Failure};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

/// What the supervisor waits for.
pub enum Event {
    /// A signal came.
    Signal(i32),
    /// The nodes of the cluster are others now: all their names.
    Nodes(Vec<String>),
}

/// Asks the controller which nodes there are, whenever its plan has changed, and passes on what is new.
pub fn watch_nodes(
    client: Client,
    mut known: Vec<String>,
    events: Sender<Event>,
) -> Result<(), Failure> {
    let watch = move || {
        let mut version = 0;
        loop {
            thread::sleep(WATCH_INTERVAL);
            let Ok(cluster) = client.cluster() else {
                continue;
            };
            // An earlier version is that of a log that lacks decisions: the nodes that it lacks are not gone.
            if cluster.plan_version <= version {
                continue;
            }
            let Ok(nodes) = client.nodes() else { continue };
            version = cluster.plan_version;
            let names: Vec<String> = nodes.into_iter().map(|n| n.name).collect();
            if names != known {
                known.clone_from(&names);
                if events.send(Event::Nodes(names)).is_err() {
                    return;
                }
            }
        }
    };
    let started = thread::Builder::new().name("e3-watch".into()).spawn(watch);
    started
        .map(drop)
        .map_err(|e| Failure::new(Exit::Unexpected, format!("start the thread e3-watch: {e}")))
}

/// Tells the controller that a node's process has ended, so that it need not wait for it. A controller
/// that is away is asked again for a while; later it learns it from the process that joins next.
pub fn report_exit(client: Client, node: String, pid: u32) {
    let name = node.clone();
    let report = move || {
        let deadline = Instant::now() + EXIT_REPORT_TIME;
        while let Err(failure) = client.exited(&node, pid) {
            // The node was removed, and with it its process.
            if failure.exit == Exit::NotFound {
                return;
            }
            if Instant::now() >= deadline {
                tracing::warn!("the end of {node} is not reported: {}", failure.message);
                return;
            }
            thread::sleep(POLL_INTERVAL);
        }
    };
    let thread = thread::Builder::new().name("e3-report-exit".into());
    if let Err(e) = thread.spawn(report) {
        // The controller learns it from the process that joins next.
        tracing::warn!("the end of {name} is not reported: no thread: {e}");
    }
}
