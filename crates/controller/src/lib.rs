//! The controller program: drives [`e3_control::Control`], serves the HTTP API, receives the nodes'
//! heartbeats, and writes every decision to disk before anyone sees it.
//!
//! One thread serves everything but searches for a placement that have a time budget; others read and write what is
//! large, such as modules. A controller that is killed and restarted has lost nothing that it acknowledged; nodes and
//! applications continue meanwhile.

mod access;
mod app_view;
mod append;
mod apps;
mod at_start;
mod audit;
mod audit_route;
mod backups;
mod blobs;
mod config;
mod connections;
mod core;
mod counters;
mod deploy;
mod error;
mod events;
mod hardware;
mod hearing;
mod limits;
mod metering;
mod metrics;
mod node_plan;
mod nodes;
mod openapi;
mod operate;
mod orchestrator;
mod parts;
mod pending;
mod power;
mod progress;
mod rate;
mod refusal;
mod replay;
mod restores;
mod room;
mod route;
mod router;
mod routes;
mod seal;
mod secrets;
mod shared;
mod solve;
mod staging;
mod status;
mod taking;
mod tokens;
mod topics;
mod views;

pub use access::Access;
pub use config::ControllerConfig;
pub use error::ControllerError;
pub use limits::{ClientTimeouts, RATE_LIMIT};
pub use openapi::openapi;
pub use rate::RateLimit;
pub use route::Route;
pub use routes::ROUTES;
pub use seal::{SecretKey, SecretKeyError};

use crate::audit::AuditLog;
use crate::core::Core;
use crate::limits::{
    CLOSE_GRACE, DEPLOYMENTS_LEN_MAX, REFUSAL_INTERVAL, REFUSALS_MAX, SOLVERS_MAX,
};
use crate::rate::Buckets;
use crate::shared::Shared;
use e3_clock::Clock;
use e3_http::Own;
use std::io;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Semaphore, watch};

/// Runs a controller until SIGTERM or SIGINT.
pub fn run(config: ControllerConfig) -> Result<(), ControllerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(ControllerError::Runtime)?;
    let served = runtime.block_on(serve(config));
    // A disk that hangs must not hold up the next process.
    runtime.shutdown_background();
    served
}

async fn serve(config: ControllerConfig) -> Result<(), ControllerError> {
    let address = config.listen;
    if !address.ip().is_loopback() {
        return Err(ControllerError::NotLoopback(address));
    }
    let bind = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ControllerError::InUse(address),
        _ => ControllerError::Bind { address, source },
    };
    let listener = TcpListener::bind(address).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let heartbeats = UdpSocket::bind(address).await.map_err(bind)?;
    let (version_out, version) = watch::channel(0);
    let core = Core::open(&config, Clock::new(), version_out)?;
    let restart = core.restart.clone();
    let audit = AuditLog::open(config.dir.join("audit"))?;
    let shared = Shared {
        core: Arc::new(Mutex::new(core)),
        version,
        audit: Arc::new(Mutex::new(audit)),
        solvers: Arc::new(Semaphore::new(SOLVERS_MAX)),
        parts_writer: Arc::default(),
    };
    tracing::info!(%address, "controller serves HTTP");
    let mut hearing = tokio::spawn(hearing::hear(shared.clone(), heartbeats));
    let gate = access::Gate {
        owner: config.owner_token,
        node: config.node_token,
        own: Own {
            what: "controller",
            port: address.port(),
        },
        body_timeout: config.client_timeouts.body,
        buckets: Mutex::new(Buckets::new(config.rate_limit)),
        deployments: Arc::new(Semaphore::new(DEPLOYMENTS_LEN_MAX)),
        refusals: Mutex::new(Buckets::every(REFUSAL_INTERVAL, REFUSALS_MAX)),
        shared: shared.clone(),
    };
    let header_timeout = config.client_timeouts.header;
    let served = connections::serve(listener, router::router(shared, gate), header_timeout);
    // All decisions are on disk; answers that are being written get a short time.
    let result = tokio::select! {
        result = served => result,
        // Without heartbeats no lost node would be noticed, so the controller exits to be restarted.
        ended = &mut hearing => Err(io::Error::other(format!("receiving heartbeats ended: {ended:?}"))),
        // The process that follows knows what is on the disk, and decides again.
        () = restart.notified() => Err(io::Error::other("it is not known what is in the log")),
        () = async { stop_signal().await; tokio::time::sleep(CLOSE_GRACE).await } => Ok(()),
    };
    hearing.abort();
    result.map_err(ControllerError::Runtime)
}

async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
}
