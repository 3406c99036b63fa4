//! Floods: when they are sent, which windows of time they fill, and which windows `ddos` must raise an
//! alarm for.
//!
//! Sources: most denial-of-service attacks are TCP floods from forged addresses that are evenly
//! distributed (Moore, Voelker, Savage: "Inferring Internet Denial-of-Service Activity", USENIX Security
//! 2001). There they last minutes; here seconds, enough to fill windows of two seconds.

use crate::limits::FLOOD_REPORT_INTERVAL;
use crate::oracles::flowmon::{Totals, Window};
use crate::readback::checks::{Ask, Checks, Facts, WithFacts};
use crate::readback::queries;
use crate::readback::queries::{answer, record};
use e3_loadgen::verdict::ServiceCheck;
use e3_loadgen::workload::{Call, Finding};
use e3_model::{Nanos, Slot, Timestamp};
use e3_wire::entry::Reply;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Shards of ddos, as the manifests have them.
pub(crate) const SHARDS: u16 = 6;
/// Length of its windows, as the manifests have it.
const WINDOW: Nanos = Nanos::from_secs(2);
/// Time after which the last window is over.
pub(crate) const SETTLE: Nanos = Nanos(WINDOW.0 + WINDOW.0 / 10);
/// Packets of a window below which ddos does not judge it, as the manifests have it.
const PACKETS_MIN: u64 = 32;
/// Seconds before the first flood, so that there are ordinary windows to compare with.
const QUIET_S: f64 = 10.0;
/// Seconds from one flood's begin to the next one's.
const EVERY_S: f64 = 12.0;
/// Length of a flood in seconds: two whole windows, or one and parts of two.
const LENGTH_S: f64 = 5.0;
/// While there is a flood, so many packets of 5 belong to it.
pub(crate) const FLOOD_OF_5: u64 = 2;
/// A window is one of attack if a flood is at least so much of its packets: one part in 2. With less
/// it may or may not raise an alarm.
const SHARE: u64 = 2;

/// Packets of a shard's window when they were sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    all: u64,
    flood: u64,
}

#[derive(Serialize)]
struct Query {
    op: &'static str,
    at: &'static str,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    #[serde(flatten)]
    current: Window,
    windows: Vec<u64>,
    windows_packets: Vec<u64>,
    windows_alarm: Vec<bool>,
}

/// What was sent, and what ddos reported about it.
#[derive(Clone, Debug)]
pub(crate) struct Floods {
    now: Timestamp,
    /// By shard and number of window.
    sent: BTreeMap<(u16, u64), Sent>,
    alarms: BTreeMap<(u16, u64), bool>,
    asked: Timestamp,
    to_ask: Vec<u16>,
    totals: Totals,
}

impl Default for Floods {
    fn default() -> Floods {
        Floods {
            now: Timestamp(0),
            sent: BTreeMap::new(),
            alarms: BTreeMap::new(),
            asked: Timestamp(0),
            to_ask: Vec::new(),
            totals: Totals::new(SHARDS),
        }
    }
}

/// A query to a shard of ddos.
pub(crate) fn query(shard: u16) -> Call {
    let (op, at) = ("report", "ddos");
    Call {
        tag: 0,
        key: queries::key_of_shard(shard, SHARDS),
        payload: record(&Query { op, at }),
    }
}

/// Whether there is a flood at that time since the begin of the load.
pub(crate) fn is_time(seconds: f64) -> bool {
    seconds >= QUIET_S && (seconds - QUIET_S) % EVERY_S < LENGTH_S
}

impl Floods {
    pub(crate) fn at(&mut self, now: Timestamp) {
        if self.asked == Timestamp::ZERO {
            self.asked = now;
        }
        // ddos forgets old windows, so a long load reads them while it runs.
        if now >= self.asked + FLOOD_REPORT_INTERVAL {
            self.asked = now;
            self.to_ask = (0..SHARDS).collect();
        }
        self.now = now;
    }

    /// A shard that is to be asked now.
    pub(crate) fn next_query(&mut self) -> Option<u16> {
        self.to_ask.pop()
    }

    /// Notes a packet that is sent now.
    pub(crate) fn on_sent(&mut self, key: &[u8], flood: bool) {
        let window = self.now.0 / WINDOW.0;
        let shard = Slot::of(key).shard(SHARDS).0;
        let sent = self.sent.entry((shard, window)).or_default();
        sent.all += 1;
        sent.flood += u64::from(flood);
    }

    /// Notes the outcome of a packet.
    pub(crate) fn on_outcome(&mut self, key: &[u8], handled: bool) {
        self.totals.on_packet(key, handled);
    }

    /// Takes what a shard has counted before the load.
    pub(crate) fn on_baseline(&mut self, shard: u16, reply: Option<&Reply>) -> Option<()> {
        let report: Report = answer(reply)?;
        self.totals.begin(shard, report.current);
        Some(())
    }

    /// Takes the report of a shard; its facts show when all have reported.
    pub(crate) fn on_check(&mut self, shard: u16, reply: Option<&Reply>) -> Option<Facts> {
        self.on_report(shard, &answer(reply)?);
        Some(Facts::default())
    }

    /// What was read back of ddos.
    pub(crate) fn service<Q: Ask>(&self, checks: &Checks<Q>) -> ServiceCheck {
        let what = "packets that each shard has counted in its windows";
        let check = checks.of("ddos", what, self.totals.unsure());
        check.with_facts(self.totals.facts())
    }

    fn on_report(&mut self, shard: u16, report: &Report) {
        let packets = report.windows.iter().zip(&report.windows_packets);
        for (window, packets) in packets {
            self.totals.on_window(shard, *window, *packets);
        }
        self.totals.on_report(shard, report.current);
        let windows = report.windows.iter().zip(&report.windows_alarm);
        self.alarms
            .extend(windows.map(|(window, alarm)| ((shard, *window), *alarm)));
    }

    /// Attack windows with an alarm, and alarms in attack windows.
    pub(crate) fn findings(&self) -> [Finding; 2] {
        // The load filled neither its first window nor its last: they differ from the others, flood or
        // not.
        let windows = || self.sent.keys().map(|(_, window)| *window);
        let (first, last) = (windows().min(), windows().max());
        let filled = |at: &(u16, u64)| Some(at.1) > first && Some(at.1) < last;
        let is_attack = |s: &Sent| s.all >= PACKETS_MIN && s.flood * SHARE >= s.all;
        let attacks = self.sent.iter();
        let attacks = attacks.filter(|(at, sent)| filled(at) && is_attack(sent));
        let attacks: Vec<_> = attacks.map(|(at, _)| *at).collect();
        let alarm = |at: &(u16, u64)| self.alarms.get(at) == Some(&true);
        let flood = |at: &(u16, u64)| self.sent.get(at).is_some_and(|s| s.flood > 0);
        // A packet of a window's last moment may be counted in the next one.
        let true_alarm = |at: &&(u16, u64)| flood(at) || flood(&(at.0, at.1.saturating_sub(1)));
        let known = |at: &&(u16, u64)| filled(at) && alarm(at);
        let raised: Vec<_> = self.alarms.keys().filter(known).collect();
        [
            Finding {
                what: "floods found",
                right: attacks.iter().filter(|at| alarm(at)).count() as u64,
                of: attacks.len() as u64,
                how: "windows of a shard in which half of the packets or more were a flood, with an alarm (recall)",
            },
            Finding {
                what: "alarms right",
                right: raised.iter().filter(|at| true_alarm(at)).count() as u64,
                of: raised.len() as u64,
                how: "alarms in windows with packets of a flood (precision)",
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_held_against_what_was_sent() {
        let key = queries::key_of_shard(2, SHARDS);
        let mut floods = Floods::default();
        for window in 99..107u64 {
            floods.at(Timestamp(window * WINDOW.0 + 5));
            for n in 0..100 {
                floods.on_sent(&key, (102..104).contains(&window) && n < 50);
            }
        }
        floods.on_report(
            2,
            &Report {
                current: Window {
                    window: 107,
                    packets: 0,
                },
                windows: (98..107).collect(),
                windows_packets: vec![100; 9],
                windows_alarm: vec![true, true, false, true, true, false, true, true, true],
            },
        );
        let [recall, precision] = floods.findings();
        // 102 has an alarm, 103 none
        assert_eq!((recall.right, recall.of), (1, 2));
        // 101 and 105 are false, 104 comes right after the flood; 98 was before the load, which began
        // in 99 and ended in 106
        assert_eq!((precision.right, precision.of), (2, 4));
    }

    #[test]
    fn floods_come_after_a_quiet_time_and_again() {
        let at: Vec<u32> = (0..30).filter(|s| is_time(f64::from(*s))).collect();
        assert_eq!(at, [10, 11, 12, 13, 14, 22, 23, 24, 25, 26]);
    }
}
