//! Senders with one mail in flight each.

use super::mails::{Mail, Mails, RECIPIENTS, SENDERS};
use super::messages::Message;
use super::oracle::Filter;
use super::{recipient_name, sender_name};
use crate::error::WorkloadError;
use crate::inputs::Inputs;
use crate::load::Generator;
use crate::readback::queries::record;
use e3_loadgen::workload::{Call, Judged};
use e3_model::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A mail with its serial number.
pub(crate) struct Sent {
    pub(super) mail: Mail,
    pub(super) serial: i64,
}

/// The mails of a seed.
pub(crate) struct Senders {
    run: String,
    stream: Mails,
    first_serial: i64,
    /// Mails of each sender.
    sent: BTreeMap<u32, i64>,
    pub(super) busy: BTreeSet<u32>,
}

impl Senders {
    pub(super) fn new(inputs: &Inputs) -> Result<Senders, WorkloadError> {
        Ok(Senders {
            run: inputs.run_name(),
            stream: Mails::new(inputs.seed)?,
            first_serial: inputs.now.since(Timestamp::ZERO).as_millis() as i64,
            sent: BTreeMap::new(),
            busy: BTreeSet::new(),
        })
    }
}

impl Generator<Filter> for Senders {
    fn describe(&self) -> String {
        format!("{SENDERS} senders by Zipf's law, in bursts, to {RECIPIENTS} recipients")
    }

    fn next(&mut self, _: &mut Filter) -> Option<(Call, Sent)> {
        let mail = self.stream.next_mail(&self.busy)?;
        let name = sender_name(&self.run, mail.sender);
        let sent = self.sent.entry(mail.sender).or_default();
        *sent += 1;
        let serial = self.first_serial + *sent;
        let told = if mail.spam { "spam" } else { "ham" };
        let payload = record(&Message {
            sender: &name,
            recipient: &recipient_name(mail.recipient),
            serial,
            rate: mail.rate,
            bytes: mail.bytes,
            text: &mail.text,
            told: mail.told.then_some(told),
        });
        self.busy.insert(mail.sender);
        let call = Call {
            tag: 0,
            key: name.into_bytes(),
            payload,
        };
        Some((call, Sent { mail, serial }))
    }

    fn on_outcome(&mut self, sent: &Sent, _: Judged) {
        self.busy.remove(&sent.mail.sender);
    }
}
