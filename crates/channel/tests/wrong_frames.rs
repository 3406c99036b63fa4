//! A pair of ends joined by a network that changes the numbers in frames, in ways that no checksum
//! finds. While it does, messages may get lost; afterwards every new one arrives, once and in order,
//! within a bounded time.

use e3_channel::limits::WINDOW_MESSAGES;
use e3_channel::{Acked, Number, Receiver, Sender, Transmit};
use e3_model::Timestamp;
use e3_wire::frame::Ack;

/// Virtual time in which a healed channel must have delivered everything.
const HEALED_WITHIN_MS: u64 = 60_000;

struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.bits() >> 11) % n
    }

    fn other(&mut self, old: u64) -> u64 {
        match self.below(7) {
            0 => old ^ (1 << self.below(64)),
            1 => old.wrapping_add(1 + self.below(2 * WINDOW_MESSAGES)),
            2 => old.wrapping_sub(1 + self.below(2 * WINDOW_MESSAGES)),
            3 => 0,
            4 => u64::MAX - self.below(2),
            5 => 1 << 31,
            _ => self.bits(),
        }
    }

    fn ack(&mut self, mut a: Ack) -> Ack {
        let lie = 1 + self.below(300);
        match self.below(8) {
            0 => a.epoch = self.other(a.epoch.into()) as u32,
            1 => a.received = self.other(a.received),
            2 => {
                let word = self.below(4) as usize;
                a.selective[word] = self.other(a.selective[word]);
            }
            3 => a.durable = self.other(a.durable),
            4 => a.limit = self.other(a.limit),
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

    fn data(&mut self, t: &mut Transmit) {
        match self.below(4) {
            0 => t.epoch = self.other(t.epoch.into()) as u32,
            1 => t.seq = self.other(t.seq),
            2 => t.behind = self.other(t.behind.into()) as u32,
            _ => {
                t.seq += self.below(WINDOW_MESSAGES);
                t.behind = self.below(t.seq) as u32;
            }
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
                self.random.data(&mut t);
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
                ack = self.random.ack(ack);
            }
            self.on_ack(&ack);
        }
        self.sender.validate();
        self.receiver.validate();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test's seeds come from whoever runs it"
)]
fn seeds() -> std::ops::RangeInclusive<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|v| v.parse().expect("a number"))
    };
    match number("E3_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("E3_SEEDS").unwrap_or(300),
    }
}

#[test]
fn a_channel_recovers_from_any_numbers() {
    let mut restarts = 0;
    for seed in seeds() {
        let mut pair = Pair {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
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
                random: Random(1),
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
