//! The sending end: keeps every message until it is durable at the receiver.

use crate::limits::*;
use e3_model::Nanos;
use e3_wire::frame::Ack;
use std::collections::VecDeque;
use std::rc::Rc;

/// Sending end of a channel. `T` is what the owner wants back when the message is durable.
#[derive(Debug)]
pub struct Sender<T> {
    /// Messages that are not durable yet, in order; the first has number `durable + 1`.
    items: VecDeque<Item<T>>,
    durable: u64,
    /// Highest number sent at least once.
    sent: u64,
    /// Invariant: never goes back.
    limit: u64,
    /// Smoothed round-trip time; 0 = not measured.
    srtt_ns: u64,
    backoff: u32,
    /// When the oldest unanswered message is due again; None if nothing is unanswered.
    deadline: Option<Nanos>,
    retransmitted: u64,
}

#[derive(Debug)]
struct Item<T> {
    body: Rc<[u8]>,
    tag: T,
    sent_at: Nanos,
    transmissions: u32,
    received: bool,
    /// Must go out again at the next opportunity.
    lost: bool,
}

impl<T> Default for Sender<T> {
    fn default() -> Self {
        Sender {
            items: VecDeque::new(),
            durable: 0,
            sent: 0,
            limit: WINDOW_MESSAGES,
            srtt_ns: 0,
            backoff: 0,
            deadline: None,
            retransmitted: 0,
        }
    }
}

impl<T> Sender<T> {
    /// Queues a message; returns its number.
    pub fn push(&mut self, body: Rc<[u8]>, tag: T) -> u64 {
        self.items.push_back(Item {
            body,
            tag,
            sent_at: Nanos(0),
            transmissions: 0,
            received: false,
            lost: false,
        });
        self.durable + self.items.len() as u64
    }

    /// The next message to put on the wire: what was lost first, then what has credit.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<(u64, Rc<[u8]>)> {
        let lost = self
            .has_lost()
            .then(|| self.items.iter().position(|i| i.lost))
            .flatten();
        let at = match lost {
            Some(at) => at,
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
        let found = (self.durable + 1 + at as u64, item.body.clone());
        if self.deadline.is_none() {
            self.deadline = Some(Nanos(now.0 + self.timeout().0));
        }
        Some(found)
    }

    /// Takes an acknowledgement; gives the tags of the messages that became durable to `freed`.
    /// Acknowledgements of what was never sent are ignored.
    pub fn on_ack(&mut self, now: Nanos, ack: &Ack, mut freed: impl FnMut(T)) {
        if ack.received > self.sent || ack.durable > ack.received {
            return;
        }
        self.limit = self.limit.max(ack.limit);
        let mut progress = false;
        let first = self.durable + 1;
        let mark = |item: &mut Item<T>, srtt: &mut u64| {
            if item.received {
                return false;
            }
            item.received = true;
            item.lost = false;
            // Karn's rule: a repeated message says nothing about the round trip.
            if item.transmissions == 1 {
                let sample = now.0.saturating_sub(item.sent_at.0).max(1);
                *srtt = if *srtt == 0 {
                    sample
                } else {
                    (*srtt * 7 + sample) / 8
                };
            }
            true
        };
        for seq in first..=ack.received.max(self.durable) {
            progress |= mark(&mut self.items[(seq - first) as usize], &mut self.srtt_ns);
        }
        if ack.selective != 0 {
            for bit in 0..64u64 {
                let seq = ack.received + 2 + bit;
                if ack.selective >> bit & 1 == 1 && seq >= first && seq <= self.sent {
                    progress |= mark(&mut self.items[(seq - first) as usize], &mut self.srtt_ns);
                }
            }
            self.mark_lost_before_holes(ack);
        }
        while self.durable < ack.durable {
            let item = self
                .items
                .pop_front()
                .expect("durable never passes what was sent");
            self.durable += 1;
            progress = true;
            freed(item.tag);
        }
        if progress {
            self.backoff = 0;
            let open = self.sent > self.durable;
            self.deadline = open.then(|| Nanos(now.0 + self.timeout().0));
        }
    }

    /// What several later ones have overtaken is lost, without waiting for the timer.
    fn mark_lost_before_holes(&mut self, ack: &Ack) {
        let first = self.durable + 1;
        let highest = ack.received + 2 + (63 - u64::from(ack.selective.leading_zeros()));
        if highest > self.sent || ack.selective.count_ones() < REORDER_MAX {
            return;
        }
        for seq in first.max(ack.received + 1)..highest {
            let item = &mut self.items[(seq - first) as usize];
            // Once only: later repeats are the timer's business.
            if !item.received && item.transmissions == 1 {
                item.lost = true;
            }
        }
    }

    /// Marks what is due for repetition at `now`. Of what has arrived but is not durable, one
    /// message is repeated as a probe: its acknowledgement may have been lost.
    pub fn on_timeout(&mut self, now: Nanos) {
        if self.deadline.is_none_or(|d| now < d) {
            return;
        }
        let sent = (self.sent - self.durable) as usize;
        let mut any = false;
        for item in self.items.iter_mut().take(sent) {
            if !item.received {
                item.lost = true;
                any = true;
            }
        }
        if !any && sent > 0 {
            self.items[0].lost = true;
        }
        self.backoff = (self.backoff + 1).min(8);
        self.deadline = (sent > 0).then(|| Nanos(now.0 + self.timeout().0));
    }

    /// When [`Sender::on_timeout`] wants to be called.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    /// Begins anew towards another incarnation: all that is not durable will be sent again, in
    /// order, numbered from 1.
    pub fn restart(&mut self) {
        for item in &mut self.items {
            item.transmissions = 0;
            item.received = false;
            item.lost = false;
        }
        self.durable = 0;
        self.sent = 0;
        self.limit = WINDOW_MESSAGES;
        self.backoff = 0;
        self.deadline = None;
    }

    /// Messages that are not durable.
    pub fn outstanding(&self) -> usize {
        self.items.len()
    }

    /// Messages never sent, for want of credit or of an opportunity.
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

    fn has_lost(&self) -> bool {
        self.items
            .iter()
            .take((self.sent - self.durable) as usize)
            .any(|i| i.lost)
    }

    fn timeout(&self) -> Nanos {
        let base = if self.srtt_ns == 0 {
            RTO_INITIAL.0
        } else {
            (self.srtt_ns * 4).clamp(RTO_MIN.0, RTO_MAX.0)
        };
        Nanos((base << self.backoff).min(RTO_MAX.0))
    }

    /// Panics if an invariant is broken.
    pub fn validate(&self) {
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
