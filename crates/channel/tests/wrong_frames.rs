//! A pair of ends joined by a network that changes the numbers in frames, in ways that no checksum
//! finds. While it does, messages may get lost; afterwards every new one arrives, once and in order,
//! within a bounded time.

use e3_channel::limits::WINDOW_MESSAGES;
use e3_channel::{Acked, Arrival, Number, Receiver, Sender, Transmit};
use e3_model::Timestamp;
use e3_testkit::{Random, seeds};
use e3_wire::frame::Ack;

/// Virtual time in which a healed channel must have delivered everything.
const HEALED_WITHIN_MS: u64 = 60_000;

/// Another number, near the old one or far from it.
fn other(random: &mut Random, old: u64) -> u64 {
    match random.below(7) {
        0 => old ^ (1 << random.below(64)),
        1 => old.wrapping_add(1 + random.below(2 * WINDOW_MESSAGES)),
        2 => old.wrapping_sub(1 + random.below(2 * WINDOW_MESSAGES)),
        3 => 0,
        4 => u64::MAX - random.below(2),
        5 => 1 << 31,
        _ => random.next_u64(),
    }
}

/// The acknowledgement with one field or state changed.
fn ack_of(random: &mut Random, mut a: Ack) -> Ack {
    let lie = 1 + random.below(300);
    match random.below(8) {
        0 => a.epoch = other(random, a.epoch.into()) as u32,
        1 => a.received = other(random, a.received),
        2 => {
            let word = random.below(4) as usize;
            a.selective[word] = other(random, a.selective[word]);
        }
        3 => a.durable = other(random, a.durable),
        4 => a.limit = other(random, a.limit),
        5 => a.limit = a.received + WINDOW_MESSAGES,
        6 => {
            a.received += lie;
            a.selective = [0; 4];
        }
        // A state that could be.
        _ => {
            a.durable = a.received + lie;
            a.received = a.durable;
            a.selective = [0; 4];
            a.limit = a.durable + WINDOW_MESSAGES;
        }
    }
    a
}

/// Changes one number of a data frame.
fn data(random: &mut Random, t: &mut Transmit) {
    match random.below(4) {
        0 => t.epoch = other(random, t.epoch.into()) as u32,
        1 => t.seq = other(random, t.seq),
        2 => t.behind = other(random, t.behind.into()) as u32,
        _ => {
            t.seq += random.below(WINDOW_MESSAGES);
            t.behind = random.below(t.seq) as u32;
        }
    }
}

struct Pair {
    random: Random,
    now: Timestamp,
    sender: Sender<u64>,
    receiver: Receiver,
    freed: Vec<u64>,
    got: Vec<u64>,
    pushed: u64,
    restarts: u64,
}

impl Pair {
    fn push(&mut self) {
        let body = self.pushed.to_le_bytes().to_vec().into();
        self.sender.push(body, self.pushed);
        self.pushed += 1;
    }

    fn on_ack(&mut self, ack: &Ack) {
        let freed = &mut self.freed;
        let acked = self.sender.on_ack(self.now, ack, |tag| freed.push(tag));
        if let Acked::Confused(epoch) = acked {
            self.sender.restart(epoch);
            self.restarts += 1;
        }
    }

    /// Runs without wrong frames until everything is durable.
    fn settle(&mut self, seed: u64) {
        let begin = self.now;
        while self.sender.outstanding() > 0 {
            self.step(0);
            let waited_ms = (self.now.0 - begin.0) / 1_000_000;
            assert!(
                waited_ms < HEALED_WITHIN_MS,
                "E3_SEED={seed}: stalled: {:?}",
                self.receiver
            );
        }
    }

    /// A millisecond, in which `wrong` of a hundred frames are changed.
    fn step(&mut self, wrong: u64) {
        self.now.0 += 1_000_000;
        if self.sender.on_timeout(self.now) {
            self.sender.restart(self.sender.next_epoch());
            self.restarts += 1;
        }
        while let Some(mut t) = self.sender.poll_transmit(self.now) {
            if self.random.below(100) < wrong {
                data(&mut self.random, &mut t);
            }
            let (epoch, seq) = (t.epoch, t.seq);
            self.receiver
                .on_data(Number { epoch, seq }, t.behind, &t.body);
        }
        while let Some((number, body)) = self.receiver.pop() {
            self.got.push(u64::from_le_bytes(body.try_into().unwrap()));
            self.receiver.complete(number);
        }
        if let Some(mut ack) = self.receiver.poll_ack() {
            if self.random.below(100) < wrong {
                ack = ack_of(&mut self.random, ack);
            }
            self.on_ack(&ack);
        }
        self.sender.validate();
        self.receiver.validate();
    }
}

#[test]
fn a_channel_recovers_from_any_numbers() {
    let mut restarts = 0;
    for seed in seeds(300) {
        let mut pair = Pair {
            random: Random::new(seed),
            now: Timestamp(1),
            sender: Sender::new(seed as u32),
            receiver: Receiver::new(seed as u32),
            freed: Vec::new(),
            got: Vec::new(),
            pushed: 0,
            restarts: 0,
        };
        for _ in 0..200 {
            for _ in 0..pair.random.below(8) {
                pair.push();
            }
            let wrong = pair.random.below(60);
            pair.step(wrong);
        }
        // What is in flight when the last wrong frame comes may get lost with it.
        pair.push();
        pair.settle(seed);
        pair.got.clear();
        pair.freed.clear();
        let (first, before) = (pair.pushed, pair.restarts);
        for _ in 0..2_000 {
            pair.push();
        }
        pair.settle(seed);
        let new: Vec<u64> = (first..pair.pushed).collect();
        assert_eq!(pair.got, new, "E3_SEED={seed}");
        assert_eq!(pair.freed, new, "E3_SEED={seed}");
        assert_eq!(pair.restarts, before, "E3_SEED={seed}");
        restarts += pair.restarts;
    }
    assert!(restarts > 100, "{restarts} restarts");
}

/// Every single epoch that the other end could believe in, near the own one and at the far side of
/// the circle of numbers, is overcome.
#[test]
fn no_epoch_is_out_of_reach() {
    for ours in [0, 1, u32::MAX] {
        for distance in [
            1,
            2,
            255,
            1 << 30,
            (1 << 31) - 1,
            1 << 31,
            (1 << 31) + 1,
            u32::MAX,
        ] {
            let mut pair = Pair {
                random: Random::new(1),
                now: Timestamp(1),
                sender: Sender::new(ours),
                receiver: Receiver::new(ours.wrapping_add(distance)),
                freed: Vec::new(),
                got: Vec::new(),
                pushed: 0,
                restarts: 0,
            };
            for _ in 0..10 {
                pair.push();
            }
            for _ in 0..10 {
                pair.step(0);
            }
            assert_eq!(
                pair.got,
                (0..10).collect::<Vec<_>>(),
                "{ours} and {distance}"
            );
            assert_eq!(pair.sender.outstanding(), 0);
        }
    }
}

/// What was taken before everything was forgotten is not durable in an epoch that has come back.
#[test]
fn an_epoch_that_comes_back_begins_empty() {
    let mut receiver = Receiver::new(1);
    let first = |epoch| Number { epoch, seq: 1 };
    receiver.on_data(first(1), 0, b"old");
    let (taken, _) = receiver.pop().unwrap();
    // Each is after the one before, and so is the last.
    for epoch in [1 << 30, 2 << 30, 3 << 30, 1] {
        assert_eq!(receiver.on_data(first(epoch), 0, b"new"), Arrival::New);
    }
    receiver.complete(taken);
    receiver.validate();
    assert_eq!(receiver.poll_ack().unwrap().durable, 0);
}
