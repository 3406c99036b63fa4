//! The workload of the spam filter (RTA-SF): the rate of a mail's sender is judged, its mails are counted,
//! the mail is classified, and the verdict is stored.
//!
//! A sender sends its next mail when the last one is answered, as a mail client does over one connection.
//! So the number of its mails and the verdict on the last one are known, and compared with each answer. A
//! mail without an answer may or may not have been counted; later answers to its sender are not judged.
//! Senders have new names in each load. Recipients, whose slots learn, are the same in all loads, so what
//! was learned before the load is read first.

mod generator;
pub mod mails;
mod messages;
mod oracle;
#[cfg(test)]
mod tests;

use crate::error::WorkloadError;
use crate::inputs::Inputs;
use crate::load::Load;
use generator::Senders;
use oracle::Filter;

fn sender_name(run: &str, sender: u32) -> String {
    format!("sender{run}-{sender:03}")
}

fn recipient_name(recipient: u32) -> String {
    format!("recipient{recipient:03}")
}

/// The mails of a seed.
pub(crate) fn load(inputs: &Inputs) -> Result<Load<Senders, Filter>, WorkloadError> {
    Ok(Load::new(Senders::new(inputs)?, Filter::new(inputs)))
}
