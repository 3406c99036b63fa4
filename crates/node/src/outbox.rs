//! Delivers reports to the controller, in a thread of its own.

use crate::agent::{Answer, Api, is_no_connection};
use crate::complaints::Complaints;
use crate::config::NodeError;
use crate::essential;
use crate::limits::OUTBOX_WAIT;
use e3_model::api::{PendingAsked, ReportResponse};
use e3_model::plan::NodeReport;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The latest report that has not been delivered; older ones are of no use.
#[derive(Default)]
pub(crate) struct Outbox {
    slot: Mutex<Option<NodeReport>>,
    filled: Condvar,
    /// What the controller wants the next report to say of pending timers.
    asked: Mutex<Option<PendingAsked>>,
}

impl Outbox {
    pub(crate) fn put(&self, report: NodeReport) {
        *self
            .slot
            .lock()
            .expect("never poisoned: no code panics under it") = Some(report);
        self.filled.notify_one();
    }

    fn asked(&self) -> MutexGuard<'_, Option<PendingAsked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the controller waits for a report.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked().is_some()
    }

    /// What the report that is made now is to say of pending timers.
    pub(crate) fn take_asked(&self) -> Option<PendingAsked> {
        self.asked().take()
    }
}

/// Starts the thread that delivers reports.
pub(crate) fn deliver_reports(
    api: Api,
    outbox: Arc<Outbox>,
    stop: Arc<AtomicBool>,
) -> Result<(), NodeError> {
    let deliver = move || {
        let mut complaints = Complaints::default();
        while !stop.load(Ordering::Relaxed) {
            let guard = outbox
                .slot
                .lock()
                .expect("never poisoned: no code panics under it");
            let (mut guard, _) = outbox
                .filled
                .wait_timeout_while(guard, OUTBOX_WAIT, |r| r.is_none())
                .expect("never poisoned: no code panics under it");
            let Some(report) = guard.take() else { continue };
            drop(guard);
            // What could not be delivered is part of the next report too.
            let path = format!("/v1/nodes/{}/report", report.node.0);
            match api.post(&path, &report) {
                Ok(Answer::Ok(ReportResponse { pending, .. })) => *outbox.asked() = pending,
                Ok(Answer::Refused(status, text)) => {
                    if complaints.is_new(&format!("{status}: {text}")) {
                        tracing::warn!(status, error = text, "controller refused a report");
                    }
                }
                Err(e) if !is_no_connection(&e) => {
                    if complaints.is_new(&e.to_string()) {
                        tracing::warn!(error = %e, "a report has no whole answer");
                    }
                }
                Ok(Answer::Empty) | Err(_) => {}
            }
        }
    };
    essential::spawn("e3-reports", deliver).map(drop)
}
