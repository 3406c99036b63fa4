//! The sending end: keeps every message until it is durable at the receiver.

use crate::is_after;
use crate::limits::*;
use e3_model::{Nanos, Timestamp};
use e3_wire::frame::{Ack, SELECTIVE_WORDS};
use std::collections::VecDeque;
use std::rc::Rc;

/// Which messages beyond a gap have arrived: bit `i` is the `i`th after the gap's first.
type Selective = [u64; SELECTIVE_WORDS];

/// The bits that are set.
fn bits(selective: &Selective) -> impl DoubleEndedIterator<Item = u64> + use<> {
    let selective = *selective;
    (0..64 * SELECTIVE_WORDS as u64).filter(move |bit| is_set(&selective, *bit))
}

fn is_set(selective: &Selective, bit: u64) -> bool {
    let word = selective.get((bit / 64) as usize);
    word.is_some_and(|word| word >> (bit % 64) & 1 == 1)
}

/// Sending end of a channel. `T` is what the owner wants back when the message is durable.
#[derive(Debug)]
pub struct Sender<T> {
    epoch: u32,
    /// Messages that are not durable yet, in order; the first has number `durable + 1`.
    items: VecDeque<Item<T>>,
    durable: u64,
    /// Highest number sent at least once.
    sent: u64,
    /// Invariant: never goes back.
    limit: u64,
    /// Smoothed round-trip time, once it was measured.
    srtt: Option<Nanos>,
    backoff: u32,
    /// When the oldest unanswered message is due again; None if nothing is unanswered.
    deadline: Option<Timestamp>,
    retransmitted: u64,
    /// Items that are marked lost.
    lost: usize,
    /// Late messages are dropped when so many wait that were never sent.
    waiting_max: usize,
    /// `received` and `selective` of the latest acknowledgement.
    acked: (u64, Selective),
    /// Time since which no further message has arrived.
    progress_at: Timestamp,
    /// Acknowledgements since then.
    quiet_acks: u32,
}

/// A message to put on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Epoch of the channel.
    pub epoch: u32,
    /// Number within the epoch.
    pub seq: u64,
    /// Earlier messages that are kept.
    pub behind: u32,
    /// The message.
    pub body: Rc<[u8]>,
}

/// Result of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acked {
    /// Taken.
    Taken,
    /// Of an epoch that is over; ignored.
    Late,
    /// Contradicts itself; ignored.
    Invalid,
    /// Acknowledges what this end never sent: the owner restarts the channel with this epoch.
    Confused(u32),
}

#[derive(Debug)]
struct Item<T> {
    body: Rc<[u8]>,
    tag: T,
    /// It is of no use after that, unless it was sent.
    until: Timestamp,
    sent_at: Timestamp,
    transmissions: u32,
    received: bool,
    /// Must go out again at the next opportunity.
    lost: bool,
}

impl<T> Default for Sender<T> {
    fn default() -> Self {
        Sender {
            epoch: 0,
            items: VecDeque::new(),
            durable: 0,
            sent: 0,
            limit: WINDOW_MESSAGES,
            srtt: None,
            backoff: 0,
            deadline: None,
            retransmitted: 0,
            lost: 0,
            waiting_max: 0,
            acked: (0, [0; SELECTIVE_WORDS]),
            progress_at: Timestamp(0),
            quiet_acks: 0,
        }
    }
}

impl<T> Sender<T> {
    /// An end that begins with this epoch.
    pub fn new(epoch: u32) -> Sender<T> {
        Sender {
            epoch,
            ..Sender::default()
        }
    }

    /// Queues a message.
    pub fn push(&mut self, body: Rc<[u8]>, tag: T) {
        self.add(body, tag, Timestamp::MAX);
    }

    /// Queues a message that is dropped some time after `until` if it was not sent in this epoch.
    /// Otherwise messages would accumulate while the receiver is unavailable. The tag of a dropped
    /// message is not given back.
    pub fn push_until(&mut self, now: Timestamp, until: Timestamp, body: Rc<[u8]>, tag: T) {
        if self.waiting() >= self.waiting_max {
            self.drop_late(now);
        }
        self.add(body, tag, until);
    }

    /// A message that was not sent in this epoch has no number that the receiver knows, so it may be
    /// removed. The queue must double before the next pass, so that the cost of a message is constant.
    fn drop_late(&mut self, now: Timestamp) {
        let mut sent = self.sent - self.durable;
        self.items.retain(|item| {
            let was_sent = sent > 0;
            sent = sent.saturating_sub(1);
            was_sent || item.until > now
        });
        self.waiting_max = (2 * self.waiting()).max(WINDOW_MESSAGES as usize);
    }

    fn add(&mut self, body: Rc<[u8]>, tag: T, until: Timestamp) {
        self.items.push_back(Item {
            body,
            tag,
            until,
            sent_at: Timestamp(0),
            transmissions: 0,
            received: false,
            lost: false,
        });
    }

    /// The messages that are not durable yet, in order, for another channel.
    pub fn into_messages(self) -> impl Iterator<Item = (Rc<[u8]>, T)> {
        self.items.into_iter().map(|item| (item.body, item.tag))
    }

    /// The next message to put on the wire: what was lost first, then what has credit.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Transmit> {
        let lost = (self.lost > 0).then(|| self.items.iter().position(|i| i.lost));
        let at = match lost.flatten() {
            Some(at) => {
                self.lost -= 1;
                at
            }
            None => {
                let next = self.sent + 1;
                let at = (next - self.durable - 1) as usize;
                if at >= self.items.len() || next > self.limit {
                    return None;
                }
                self.sent = next;
                at
            }
        };
        let item = &mut self.items[at];
        item.lost = false;
        item.sent_at = now;
        item.transmissions += 1;
        if item.transmissions > 1 {
            self.retransmitted += 1;
        }
        let found = Transmit {
            epoch: self.epoch,
            seq: self.durable + 1 + at as u64,
            behind: at as u32,
            body: item.body.clone(),
        };
        if self.deadline.is_none() {
            self.deadline = Some(now + self.timeout());
            self.progress_at = now;
            self.quiet_acks = 0;
        }
        Some(found)
    }

    /// Whether a receiver that took what this end sent can be in this state.
    fn check(&self, ack: &Ack) -> Acked {
        if ack.epoch != self.epoch {
            return if is_after(self.epoch, ack.epoch) {
                Acked::Late
            } else {
                Acked::Confused(ack.epoch.wrapping_add(1))
            };
        }
        let credit = ack.limit.checked_sub(WINDOW_MESSAGES);
        let taken = ack.durable..=ack.received;
        if credit.is_none_or(|credit| !taken.contains(&credit)) {
            return Acked::Invalid;
        }
        let highest = match bits(&ack.selective).next_back() {
            None => ack.received,
            Some(bit) => ack.received.saturating_add(2 + bit),
        };
        if highest > self.sent {
            return Acked::Confused(self.epoch.wrapping_add(1));
        }
        Acked::Taken
    }

    /// Takes an acknowledgement; gives the tags of the messages that became durable to `freed`.
    /// Nothing changes unless it is [`Acked::Taken`].
    pub fn on_ack(&mut self, now: Timestamp, ack: &Ack, mut freed: impl FnMut(T)) -> Acked {
        let acked = self.check(ack);
        if acked != Acked::Taken {
            return acked;
        }
        self.acked = (ack.received, ack.selective);
        self.limit = self.limit.max(ack.limit);
        let mut progress = false;
        let first = self.durable + 1;
        let lost = &mut self.lost;
        let mut mark = |item: &mut Item<T>, srtt: &mut Option<Nanos>| {
            if item.received {
                return false;
            }
            item.received = true;
            *lost -= usize::from(std::mem::take(&mut item.lost));
            // Karn's rule: a retransmitted message says nothing about the round trip.
            if item.transmissions == 1 {
                let sample = now.since(item.sent_at);
                *srtt = Some(srtt.map_or(sample, |srtt| (srtt * 7 + sample) / 8));
            }
            true
        };
        for seq in first..=ack.received.max(self.durable) {
            progress |= mark(&mut self.items[(seq - first) as usize], &mut self.srtt);
        }
        if ack.selective != [0; SELECTIVE_WORDS] {
            for bit in bits(&ack.selective) {
                let seq = ack.received + 2 + bit;
                if seq >= first {
                    progress |= mark(&mut self.items[(seq - first) as usize], &mut self.srtt);
                }
            }
            self.mark_lost_before_holes(ack);
        }
        self.quiet_acks = self.quiet_acks.saturating_add(1);
        if progress {
            self.quiet_acks = 0;
            self.progress_at = now;
        }
        while self.durable < ack.durable {
            let item = self
                .items
                .pop_front()
                .expect("durable never passes what was sent");
            self.durable += 1;
            progress = true;
            self.lost -= usize::from(item.lost);
            freed(item.tag);
        }
        if progress {
            self.backoff = 0;
            let open = self.sent > self.durable;
            self.deadline = open.then(|| now + self.timeout());
        }
        Acked::Taken
    }

    /// What several later ones have overtaken is lost, without waiting for the timer.
    fn mark_lost_before_holes(&mut self, ack: &Ack) {
        let first = self.durable + 1;
        let Some(highest) = bits(&ack.selective).next_back() else {
            return;
        };
        let highest = ack.received + 2 + highest;
        let overtaken: u32 = ack.selective.iter().map(|word| word.count_ones()).sum();
        if overtaken < REORDER_MAX {
            return;
        }
        for seq in first.max(ack.received + 1)..highest {
            let item = &mut self.items[(seq - first) as usize];
            // Once only: later repeats are the timer's business.
            if !item.received && item.transmissions == 1 && !item.lost {
                item.lost = true;
                self.lost += 1;
            }
        }
    }

    /// Marks what is due for retransmission at `now`: all that the latest acknowledgement does not
    /// have, whatever an earlier one said. If it has everything, one message is sent again as a
    /// probe: the acknowledgement that it is durable may have been lost. True if the channel is
    /// stalled: the owner restarts it.
    pub fn on_timeout(&mut self, now: Timestamp) -> bool {
        if self.deadline.is_none_or(|d| now < d) {
            return false;
        }
        let sent = (self.sent - self.durable) as usize;
        let (received, selective) = self.acked;
        let has = |seq: u64| {
            let bit = seq.checked_sub(received.saturating_add(2));
            seq <= received || bit.is_some_and(|bit| is_set(&selective, bit))
        };
        let mut any = false;
        for (seq, item) in (self.durable + 1..).zip(self.items.iter_mut().take(sent)) {
            item.received = has(seq);
            if !item.received {
                self.lost += usize::from(!std::mem::replace(&mut item.lost, true));
                any = true;
            }
        }
        if !any && sent > 0 && !std::mem::replace(&mut self.items[0].lost, true) {
            self.lost += 1;
        }
        self.backoff = (self.backoff + 1).min(8);
        self.deadline = (sent > 0).then(|| now + self.timeout());
        any && self.quiet_acks >= STALL_ACKS && now >= self.progress_at + STALL_AFTER
    }

    /// When [`Sender::on_timeout`] wants to be called.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Begins an epoch: all that is not durable will be sent again, in order, numbered from 1.
    pub fn restart(&mut self, epoch: u32) {
        self.restart_with(epoch, |_| true);
    }

    /// The same, only with messages that are still needed. The tags of the others are not given back.
    pub fn restart_with(&mut self, epoch: u32, mut is_needed: impl FnMut(&T) -> bool) {
        self.epoch = epoch;
        self.items.retain(|item| is_needed(&item.tag));
        for item in &mut self.items {
            item.transmissions = 0;
            item.received = false;
            item.lost = false;
        }
        self.lost = 0;
        self.durable = 0;
        self.sent = 0;
        self.limit = WINDOW_MESSAGES;
        self.backoff = 0;
        self.deadline = None;
        self.acked = (0, [0; SELECTIVE_WORDS]);
        self.quiet_acks = 0;
    }

    /// The epoch that a restart for a reason of this end's own begins.
    pub fn next_epoch(&self) -> u32 {
        self.epoch.wrapping_add(1)
    }

    /// Messages that are not durable.
    pub fn outstanding(&self) -> usize {
        self.items.len()
    }

    /// Messages that were never sent, for lack of credit or of an opportunity.
    pub fn waiting(&self) -> usize {
        self.items.len() - (self.sent - self.durable) as usize
    }

    /// Messages that are durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Repetitions so far.
    pub fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    fn timeout(&self) -> Nanos {
        let measured = self.srtt.map(|srtt| (srtt * 4).clamp(RTO_MIN, RTO_MAX));
        let base = measured.unwrap_or(RTO_INITIAL);
        (base * (1 << self.backoff)).min(RTO_MAX)
    }

    /// Panics if an invariant is broken.
    pub fn validate(&self) {
        let lost = self.items.iter().filter(|i| i.lost).count();
        assert_eq!(self.lost, lost, "lost messages are counted");
        assert!(self.sent >= self.durable);
        assert!(self.sent - self.durable <= self.items.len() as u64);
        assert!(
            self.sent <= self.limit,
            "sent {} beyond the limit {}",
            self.sent,
            self.limit
        );
    }
}
