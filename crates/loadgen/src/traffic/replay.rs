//! Requests of a file, sent at the times of the file or at a rate. The right answers are not known, and
//! no state is read back.

use super::items::{Item, Traffic};
use crate::workload::{Call, Judged, Workload};
use e3_model::Nanos;
use e3_wire::entry::Reply;
use std::sync::Arc;

/// The requests of a file.
#[derive(Debug)]
pub struct Replay {
    items: std::vec::IntoIter<Item>,
    times: Arc<[Nanos]>,
    description: String,
}

impl Replay {
    /// Those that have a time, in order; `file` is what they come from.
    pub fn new(traffic: Traffic, times: Vec<Nanos>, file: &str) -> Replay {
        let mut items = traffic.items;
        items.truncate(times.len());
        let mut description = format!("{} {} of {file}", items.len(), traffic.what);
        if traffic.left_out > 0 {
            let left_out = traffic.left_out;
            description += &format!(" ({left_out} frames that are not IPv4 left out)");
        }
        Replay {
            items: items.into_iter(),
            times: times.into(),
            description,
        }
    }
}

impl Workload for Replay {
    fn name(&self) -> &'static str {
        "file"
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    /// Neither a packet nor a record: every service refuses it and changes nothing.
    fn probe(&mut self) -> Call {
        Call {
            tag: 0,
            key: vec![0],
            payload: vec![0],
        }
    }

    fn on_probe(&mut self, _: &Reply) -> Result<(), String> {
        Ok(())
    }

    fn schedule(&self) -> Option<Arc<[Nanos]>> {
        Some(self.times.clone())
    }

    fn next(&mut self) -> Option<Call> {
        let Item { key, payload, .. } = self.items.next()?;
        Some(Call {
            tag: 0,
            key,
            payload,
        })
    }

    fn on_outcome(&mut self, _: u64, reply: Option<&Reply>) -> Judged {
        Judged::by_status(reply)
    }
}
