//! Sensors with one report in flight each; a few reports carry a bad token first.

use super::oracle::Hub;
use super::sensors::{Fleet, KINDS, Report, SITES, topic_name};
use super::{Sensor, messages};
use crate::load::Generator;
use crate::tokens::{Token, TokenKey};
use e3_loadgen::ledger::Meaning;
use e3_loadgen::workload::{Call, Judged};
use e3_random::Random;
use std::collections::VecDeque;
use std::rc::Rc;

/// One report in so many carries a bad token.
const BAD_TOKEN_ONE_IN: u64 = 100;

/// A report of a sensor, by the sensor's number.
pub(crate) struct Sent {
    pub(super) number: u32,
    pub(super) report: Report,
    pub(super) bad_token: bool,
}

/// The reports of a seed.
pub(crate) struct Senders {
    fleet: Fleet,
    sensors: Rc<[Sensor]>,
    randoms: Vec<Random>,
    token_key: TokenKey,
    /// Reports that were refused for their bad token: they are sent again with a good one.
    resend: VecDeque<Report>,
}

impl Senders {
    pub(super) fn new(
        seed: u64,
        fleet: Fleet,
        sensors: Rc<[Sensor]>,
        token_key: TokenKey,
    ) -> Senders {
        let mut random = Random::new(seed);
        let randoms = sensors.iter().map(|_| Random::new(random.next_u64()));
        Senders {
            fleet,
            randoms: randoms.collect(),
            sensors,
            token_key,
            resend: VecDeque::new(),
        }
    }

    /// A token that must be refused: forged, or another's.
    fn bad_token(&mut self, number: u32) -> Token {
        let Sensor { user, token, .. } = &self.sensors[number as usize];
        let random = &mut self.randoms[number as usize];
        if random.one_in(2) {
            return self.token_key.mint(&format!("{user}x"), token.expiry);
        }
        let mut token = token.clone();
        token.tag[random.below(32) as usize] ^= 1 << random.below(8);
        token
    }
}

impl Generator<Hub> for Senders {
    fn describe(&self) -> String {
        let (sensors, topics) = (self.sensors.len(), SITES * KINDS.len());
        format!("{sensors} sensors on {topics} topics, periodic reports and episodes of trouble")
    }

    fn next(&mut self, _: &mut Hub) -> Option<(Call, Sent)> {
        let again = self.resend.pop_front();
        let is_new = again.is_none();
        let report = again.or_else(|| self.fleet.next_report())?;
        let number = report.device;
        let bad_token = is_new && self.randoms[number as usize].one_in(BAD_TOKEN_ONE_IN);
        let token = if bad_token {
            self.bad_token(number)
        } else {
            self.sensors[number as usize].token.clone()
        };
        let sensor = &self.sensors[number as usize];
        let call = messages::report(&sensor.user, &token, &topic_name(sensor.topic), &report);
        let sent = Sent {
            number,
            report,
            bad_token,
        };
        Some((call, sent))
    }

    fn on_outcome(&mut self, sent: &Sent, judged: Judged) {
        if sent.bad_token && judged.meaning == Some(Meaning::Unauthorized) {
            self.resend.push_back(sent.report.clone());
        } else {
            self.fleet.on_arrived(sent.number);
        }
    }
}
