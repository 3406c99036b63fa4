//! A pair of ends joined by a network that loses, repeats and reorders.

use e3_channel::{Acked, Arrival, Number, Receiver, Sender, Transmit};
use e3_model::Timestamp;
use e3_testkit::{Random, seeds};
use e3_wire::frame::Ack;

enum Packet {
    Data(Transmit),
    Ack(Ack),
}

fn arrive(receiver: &mut Receiver, t: &Transmit) -> Arrival {
    let (epoch, seq) = (t.epoch, t.seq);
    receiver.on_data(Number { epoch, seq }, t.behind, &t.body)
}

/// Sends `count` messages, restarting the channel `restarts` times; returns what arrived.
fn run(seed: u64, count: u64, loss_percent: u64, restarts: u32) -> (Vec<u64>, u64) {
    let mut random = Random::new(seed);
    let (mut sender, mut receiver) = (Sender::<u64>::default(), Receiver::default());
    let mut wire: Vec<(u64, Packet)> = Vec::new();
    let (mut now, mut pushed, mut freed, mut got) = (0u64, 0, Vec::new(), Vec::new());
    let mut restarts_left = restarts;
    while (freed.len() as u64) < count {
        now += 1_000_000;
        assert!(
            now < 3_600_000_000_000,
            "seed {seed}: no end after an hour of virtual time"
        );
        for _ in 0..random.below(5) {
            if pushed < count {
                sender.push(pushed.to_le_bytes().to_vec().into(), pushed);
                pushed += 1;
            }
        }
        if restarts_left > 0 && random.below(200) == 0 {
            restarts_left -= 1;
            sender.restart(sender.next_epoch());
            receiver = Receiver::default();
            wire.clear();
        }
        assert!(!sender.on_timeout(Timestamp(now)), "seed {seed}: stalled");
        let mut sent = Vec::new();
        while let Some(transmit) = sender.poll_transmit(Timestamp(now)) {
            sent.push(Packet::Data(transmit));
        }
        if let Some(ack) = receiver.poll_ack() {
            sent.push(Packet::Ack(ack));
        }
        for packet in sent {
            if random.below(100) < loss_percent {
                continue;
            }
            let copies = 1 + u64::from(random.below(20) == 0);
            for _ in 0..copies {
                let copy = match &packet {
                    Packet::Data(t) => Packet::Data(t.clone()),
                    Packet::Ack(a) => Packet::Ack(*a),
                };
                wire.push((now + random.below(8_000_000), copy));
            }
        }
        wire.sort_by_key(|(at, _)| *at);
        while wire.first().is_some_and(|(at, _)| *at <= now) {
            match wire.remove(0).1 {
                Packet::Data(t) => {
                    let arrival = arrive(&mut receiver, &t);
                    assert!(!matches!(arrival, Arrival::Confused | Arrival::Invalid));
                }
                Packet::Ack(ack) => {
                    let acked = sender.on_ack(Timestamp(now), &ack, |tag| freed.push(tag));
                    assert!(matches!(acked, Acked::Taken | Acked::Late), "{acked:?}");
                }
            }
        }
        if random.below(3) > 0 {
            while let Some((number, body)) = receiver.pop() {
                got.push(u64::from_le_bytes(body.try_into().unwrap()));
                receiver.complete(number);
            }
        }
        sender.validate();
        receiver.validate();
    }
    assert_eq!(
        freed,
        (0..count).collect::<Vec<_>>(),
        "seed {seed}: freed in order, once"
    );
    (got, sender.retransmitted())
}

#[test]
fn every_message_arrives_once_and_in_order() {
    for seed in seeds(39) {
        let (got, _) = run(seed, 2_000, seed % 4 * 10, 0);
        assert_eq!(got, (0..2_000).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn nothing_is_sent_twice_without_loss_or_delay() {
    let mut sender = Sender::<()>::default();
    let mut receiver = Receiver::default();
    for i in 0..10_000u64 {
        sender.push(vec![0].into(), ());
        while let Some(t) = sender.poll_transmit(Timestamp(i)) {
            arrive(&mut receiver, &t);
        }
        while let Some((number, _)) = receiver.pop() {
            receiver.complete(number);
        }
        sender.on_ack(Timestamp(i), &receiver.poll_ack().unwrap(), |()| {});
    }
    assert_eq!((sender.retransmitted(), sender.outstanding()), (0, 0));
}

#[test]
fn a_restart_loses_nothing() {
    for seed in seeds(19) {
        let (got, _) = run(seed, 1_000, 10, 3);
        let mut once = got.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once, (0..1_000).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn credit_bounds_what_is_under_way() {
    let mut sender = Sender::<()>::default();
    for _ in 0..1_000 {
        sender.push(vec![1].into(), ());
    }
    let sent = std::iter::from_fn(|| sender.poll_transmit(Timestamp(1))).count() as u64;
    assert_eq!(sent, e3_channel::limits::WINDOW_MESSAGES);
    // A forged acknowledgement of what was never sent changes nothing, but shows that the ends do
    // not fit together.
    let forged = Ack {
        epoch: 0,
        received: 999,
        selective: [0; 4],
        durable: 999,
        limit: 999 + e3_channel::limits::WINDOW_MESSAGES,
    };
    let acked = sender.on_ack(Timestamp(2), &forged, |()| panic!("freed"));
    assert_eq!(acked, Acked::Confused(1));
    assert_eq!(sender.poll_transmit(Timestamp(3)), None);
}

#[test]
fn late_messages_are_dropped_unless_they_were_sent() {
    let window = e3_channel::limits::WINDOW_MESSAGES;
    let mut sender = Sender::<u64>::default();
    let mut most = 0;
    for i in 0..20_000 {
        let (now, until) = (Timestamp(i), Timestamp(i + 1_000));
        sender.push_until(now, until, i.to_le_bytes().to_vec().into(), i);
        if i == 1 {
            // This one is of use for ever.
            sender.push(5u64.to_le_bytes().to_vec().into(), 5);
        }
        if i == 10_000 {
            sender.restart(1);
        }
        if !(500..=15_000).contains(&i) {
            while sender.poll_transmit(now).is_some() {}
        }
        sender.validate();
        most = most.max(sender.outstanding() as u64);
    }
    assert!(most <= window + 2 * 1_000 + 1, "{most} messages");
    // What is left arrives in order, and once.
    let (mut receiver, mut got, mut freed) = (Receiver::new(1), Vec::new(), Vec::new());
    let left = sender.outstanding();
    for now in 0..1_000 {
        let now = Timestamp(1_000_000_000 * now);
        sender.on_timeout(now);
        while let Some(t) = sender.poll_transmit(now) {
            assert!(!matches!(
                arrive(&mut receiver, &t),
                Arrival::Confused | Arrival::Invalid
            ));
        }
        while let Some((taken, body)) = receiver.pop() {
            got.push(u64::from_le_bytes(body.try_into().unwrap()));
            receiver.complete(taken);
        }
        if let Some(ack) = receiver.poll_ack() {
            assert_eq!(
                sender.on_ack(now, &ack, |tag| freed.push(tag)),
                Acked::Taken
            );
        }
        sender.validate();
    }
    assert_eq!((sender.outstanding(), freed.len()), (0, left));
    assert_eq!(got, freed);
    assert_eq!(got[0], 5);
    let fresh: Vec<u64> = (19_000..20_000).collect();
    assert!(got.ends_with(&fresh));
    assert!(got[1..].is_sorted());
}

#[test]
fn what_is_not_needed_any_more_is_not_in_the_next_epoch() {
    let (mut sender, now) = (Sender::default(), Timestamp(1));
    for tag in 0..5u64 {
        sender.push(tag.to_le_bytes().to_vec().into(), tag);
    }
    // The first two are on their way, and the second was lost.
    let sent: Vec<_> = (0..2).filter_map(|_| sender.poll_transmit(now)).collect();
    assert_eq!(sent.len(), 2);
    sender.on_timeout(Timestamp(1_000_000_000_000));
    sender.restart_with(1, |tag| tag % 2 == 1);
    sender.validate();
    let mut receiver = Receiver::new(1);
    while let Some(t) = sender.poll_transmit(now) {
        assert_eq!(arrive(&mut receiver, &t), Arrival::New);
    }
    let got = std::iter::from_fn(|| receiver.pop()).map(|(_, body)| body);
    let got: Vec<u64> = got
        .map(|body| u64::from_le_bytes(body.try_into().unwrap()))
        .collect();
    assert_eq!(got, [1, 3]);
}
