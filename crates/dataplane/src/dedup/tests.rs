//! The dedup table recognises duplicates and stays within its bounds.

use super::*;
use e3_model::{EdgeId, NodeId, RequestId, TraceContext};
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::Reply;

/// As if so much was remembered.
pub(crate) fn of_bytes(bytes: usize) -> DedupTable {
    DedupTable {
        bytes,
        ..DedupTable::default()
    }
}

pub(crate) fn entry(seq: u64, via: Via, now: u64, oldest_seq: u64) -> Rc<Entry> {
    Rc::new(Entry {
        op: 0,
        id: MessageId {
            request: RequestId { client: 1, seq },
            via,
            index: 0,
        },
        attempt: 0,
        slot: Slot(5),
        code_version: 1,
        now: Timestamp(now),
        sent: Timestamp(now),
        deadline: Timestamp(now + 10),
        oldest_seq,
        reply_to: NodeId(0),
        reply_to_incarnation: 0,
        is_branch: false,
        is_expiry: false,
        trace: TraceContext::default(),
        batch: vec![],
        outputs: vec![],
        reply: None,
        dead: None,
        replays: None,
        fired: None,
        timers: Vec::new(),
        confirmed: Vec::new(),
    })
}

/// The same with an answer of 100 bytes.
fn replied(mut entry: Rc<Entry>) -> Rc<Entry> {
    Rc::make_mut(&mut entry).reply = Some(Reply {
        outcome: Outcome::Done,
        status: 0,
        payload: vec![0; 100],
    });
    entry
}

#[test]
fn answered_requests_are_forgotten_messages_between_shards_are_not() {
    let mut table = DedupTable::default();
    let edge = Via::Edge(EdgeId(0));
    for seq in 1..=3 {
        table.insert(entry(seq, Via::Ingress, 0, 1));
        table.insert(entry(seq, edge, 0, 1));
    }
    table.insert(entry(4, Via::Ingress, 0, 3));
    let known = |seq, via| {
        table.look_up(
            Slot(5),
            &MessageId {
                request: RequestId { client: 1, seq },
                via,
                index: 0,
            },
        )
    };
    assert!(matches!(known(2, Via::Ingress), Lookup::Stale));
    assert!(matches!(known(3, Via::Ingress), Lookup::Handled(_)));
    assert!(matches!(known(1, edge), Lookup::Handled(_)));
    assert!(matches!(known(5, Via::Ingress), Lookup::New));
}

/// What the table says it holds is what its entries hold.
fn check_bytes(table: &DedupTable) {
    let held = table.clients.values().flat_map(Client::entries).map(bytes);
    assert_eq!(table.bytes(), held.sum::<usize>());
}

#[test]
fn what_is_forgotten_frees_its_bytes() {
    let mut table = DedupTable::default();
    for seq in 1..=3 {
        table.insert(replied(entry(seq, Via::Ingress, seq * 1_000, 1)));
        check_bytes(&table);
    }
    // It is forgotten before the second and the third request are, and says that they are answered.
    table.insert(entry(4, Via::Ingress, 1_500, 4));
    assert_eq!(table.len(), 3);
    check_bytes(&table);
    let id = entry(2, Via::Ingress, 0, 1).id;
    table.remove(Slot(5), &id);
    assert_eq!(table.len(), 2);
    check_bytes(&table);
    table.remove(Slot(5), &id);
    check_bytes(&table);
}

#[test]
fn what_the_later_of_two_shards_would_have_forgotten_is_forgotten_when_they_are_merged() {
    let late = DEDUP_GRACE.0 + 1_000;
    let tables = [(5, 0), (6, late)].map(|(slot, now)| {
        let mut table = DedupTable::default();
        let mut entry = (*entry(1, Via::Edge(EdgeId(0)), now, 1)).clone();
        entry.slot = Slot(slot);
        table.insert(Rc::new(entry));
        table
    });
    let merged = DedupTable::reshard(tables.into(), 1, Timestamp(late), |_| 0);
    let id = entry(1, Via::Edge(EdgeId(0)), 0, 1).id;
    assert!(matches!(merged[0].look_up(Slot(5), &id), Lookup::New));
    assert!(matches!(
        merged[0].look_up(Slot(6), &id),
        Lookup::Handled(_)
    ));
    check_bytes(&merged[0]);
}

#[test]
fn an_idempotency_key_is_remembered_longer_and_holds_nothing_else_up() {
    let mut table = DedupTable::default();
    let second = 1_000_000_000;
    table.insert(entry(7, Via::Ingress, 0, 0));
    let request = |seq| RequestId { client: 1, seq };
    assert!(table.has_other(Slot(5), request(8)));
    assert!(!table.has_other(Slot(5), request(7)));
    assert!(!table.has_other(Slot(6), request(8)));
    for seq in 0..200 {
        let mut other = (*entry(seq, Via::Ingress, seq * second, 1)).clone();
        other.id.request.client = 2;
        other.op = seq + 1;
        table.insert(Rc::new(other));
        assert!(table.len() < 10, "{}", table.len());
    }
    assert!(table.has_other(Slot(5), request(8)), "200 s later");
    let late = KEYED_GRACE.0 + second;
    table.insert(entry(9, Via::Edge(EdgeId(0)), late, 1));
    assert!(!table.has_other(Slot(5), request(8)), "forgotten");
}

#[test]
fn what_replaces_an_entry_is_remembered_for_its_own_time() {
    let mut table = DedupTable::default();
    table.insert(entry(7, Via::Ingress, 0, 0));
    let mut again = (*entry(7, Via::Ingress, 100_000_000_000, 0)).clone();
    again.op = 1;
    let id = again.id;
    table.insert(Rc::new(again));
    assert_eq!(table.len(), 1);
    let late = KEYED_GRACE.0 + 50_000_000_000;
    table.insert(entry(1, Via::Edge(EdgeId(0)), late, 1));
    assert!(matches!(table.look_up(Slot(5), &id), Lookup::Handled(e) if e.op == 1));
}

#[test]
fn every_copy_with_an_idempotency_key_is_answered_and_any_other_once_for_each_attempt() {
    let mut table = DedupTable::default();
    table.insert(entry(1, Via::Ingress, 0, 0));
    table.insert(entry(1, Via::Edge(EdgeId(0)), 0, 0));
    let mut next = |via, attempt| {
        let request = RequestId { client: 1, seq: 1 };
        let id = MessageId {
            request,
            via,
            index: 0,
        };
        table.next_attempt(Slot(5), &id, attempt)
    };
    assert_eq!(next(Via::Ingress, 0), Some(1));
    assert_eq!(next(Via::Ingress, 0), Some(2));
    assert_eq!(next(Via::Ingress, 9), Some(9));
    assert_eq!(next(Via::Ingress, 0), Some(10));
    let edge = Via::Edge(EdgeId(0));
    assert_eq!(next(edge, 5), Some(5));
    // The shard before has another primary, which counts from what the log says.
    assert_eq!(next(edge, 1), Some(6));
    for via in [Via::Ingress, edge] {
        table.insert(entry(2, via, 0, 1));
        let id = entry(2, via, 0, 1).id;
        assert_eq!(table.next_attempt(Slot(5), &id, 0), None);
        assert_eq!(table.next_attempt(Slot(5), &id, 2), Some(2));
        assert_eq!(table.next_attempt(Slot(5), &id, 2), None);
    }
}

/// An entry whose message expired before it was handled.
fn expired(deadline: u64) -> Entry {
    let mut expired = (*entry(1, Via::Ingress, 0, 0)).clone();
    expired.deadline = Timestamp(deadline);
    expired.reply = Some(Reply {
        outcome: Outcome::Expired,
        status: 0,
        payload: vec![],
    });
    expired.dead = Some(DeadLetter {
        at: Timestamp(0),
        outcome: Outcome::Expired,
        reason: String::new(),
        key: vec![],
        payload: vec![7; 100],
        timer: String::new(),
        answer: None,
        topic: None,
    });
    expired
}

#[test]
fn only_a_keyed_retry_of_an_expired_message_with_time_left_is_handled_now() {
    let retry = |oldest_seq, deadline| Message {
        id: entry(1, Via::Ingress, 0, 0).id,
        attempt: 1,
        slot: Slot(5),
        reply_to: NodeId(0),
        reply_to_incarnation: 0,
        is_branch: false,
        deadline: Timestamp(deadline),
        sent: Timestamp(0),
        oldest_seq,
        trace: TraceContext::default(),
        code_version: 1,
        topic: None,
        key: vec![],
        payload: vec![],
    };
    let now = Timestamp(20);
    let revives = |entry: &Entry, oldest_seq, deadline| {
        super::revives(entry, &retry(oldest_seq, deadline), now, true)
    };
    assert!(revives(&expired(10), 0, 21));
    assert!(!revives(&expired(10), 0, 20), "no time is left");
    assert!(revives(&expired(30), 0, 31));
    assert!(!revives(&expired(30), 0, 30), "the same deadline");
    assert!(!revives(&expired(10), 1, 21), "no idempotency key");
    let replayed = Entry {
        dead: None,
        ..expired(10)
    };
    assert!(!revives(&replayed, 0, 21), "its letter was replayed");
    let mut failed = expired(10);
    failed.reply.as_mut().unwrap().outcome = Outcome::Failed;
    assert!(!revives(&failed, 0, 21));
    let unknown = |deadline, handled_at| {
        let mut unknown = expired(deadline);
        unknown.reply.as_mut().unwrap().outcome = Outcome::Unknown;
        unknown.now = Timestamp(handled_at);
        unknown
    };
    let late = unknown(10, 11);
    assert!(!revives(&late, 0, 21), "the state may have its effect");
    let comes_again = |entry: &Entry| super::revives(entry, &retry(0, 21), now, false);
    assert!(comes_again(&late));
    assert!(!comes_again(&unknown(10, 10)), "its handler has run");
    assert!(!comes_again(&Entry { dead: None, ..late }));
    assert!(!comes_again(&failed));
}

#[test]
fn a_letter_that_was_replayed_leaves_its_entry() {
    let mut table = DedupTable::default();
    let dead = Rc::new(expired(10));
    table.insert(dead.clone());
    table.insert(entry(2, Via::Ingress, 0, 0));
    assert!(matches!(table.look_up(Slot(5), &dead.id), Lookup::Handled(e) if e.dead.is_some()));
    table.on_replayed(Slot(5), &dead.id);
    let Lookup::Handled(found) = table.look_up(Slot(5), &dead.id) else {
        panic!("it is forgotten");
    };
    assert_eq!(found.dead, None);
    assert_eq!(found.reply.as_ref().unwrap().outcome, Outcome::Unknown);
    let others = bytes(&entry(2, Via::Ingress, 0, 0));
    assert_eq!(table.bytes(), bytes(&found) + others);
}

#[test]
fn a_message_is_remembered_to_the_end_of_its_time() {
    let mut table = DedupTable::default();
    let first = entry(1, Via::Edge(EdgeId(0)), 0, 1);
    let until = until(&first);
    table.insert(first.clone());
    for (seq, now, is_known) in [(2, until.0, true), (3, until.0 + 1, false)] {
        table.insert(entry(seq, Via::Edge(EdgeId(0)), now, 1));
        let found = table.look_up(Slot(5), &first.id);
        assert_eq!(matches!(found, Lookup::Handled(_)), is_known);
    }
}

#[test]
fn a_walk_over_the_table_finds_everything_wherever_it_stops() {
    let mut table = DedupTable::default();
    let mut expected = Vec::new();
    for client in 1..=3 {
        for via in [Via::Ingress, Via::Edge(EdgeId(0)), Via::Edge(EdgeId(1))] {
            for seq in 1..=3 {
                let mut entry = (*entry(seq, via, 0, 1)).clone();
                entry.id.request.client = client;
                expected.push(entry.id);
                table.insert(Rc::new(entry));
            }
        }
    }
    for step in 1..=10 {
        let (mut place, mut found) = (None, Vec::new());
        loop {
            let entries = table.entries_after(place).take(step);
            let ids: Vec<MessageId> = entries.map(|e| e.id).collect();
            let Some(last) = ids.last() else {
                break;
            };
            place = Some((Slot(5), *last));
            found.extend(ids);
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{step} at a time");
    }
}

#[test]
fn an_answered_request_is_known_as_such_as_long_as_a_copy_may_come() {
    let mut table = DedupTable::default();
    let hour = 3_600_000_000_000;
    let mut first = (*entry(1, Via::Ingress, 0, 1)).clone();
    first.deadline = Timestamp(hour);
    table.insert(Rc::new(first.clone()));
    table.insert(entry(2, Via::Ingress, 1, 2));
    // A snapshot has only what is remembered.
    let copy_of = |table: &DedupTable| {
        let mut copy = DedupTable::default();
        table
            .entries_after(None)
            .for_each(|e| copy.insert(e.clone()));
        copy
    };
    let copies = [copy_of(&table)];
    let mut other = (*entry(1, Via::Ingress, hour / 2, 1)).clone();
    other.id.request.client = 2;
    table.insert(Rc::new(other.clone()));
    let look_up = |table: &DedupTable| table.look_up(Slot(5), &first.id);
    assert!(matches!(look_up(&table), Lookup::Stale));
    for mut copy in copies.into_iter().chain([copy_of(&table)]) {
        copy.insert(Rc::new(other.clone()));
        assert!(!matches!(look_up(&copy), Lookup::New));
    }
    other.now = Timestamp(2 * hour);
    other.deadline = Timestamp(3 * hour);
    other.id.request.seq = 2;
    other.op = 1;
    table.insert(Rc::new(other));
    assert_eq!(table.clients.len(), 1, "forgotten with its last deadline");
}

/// A shard that began empty handles what was answered before; a later request of the client may come first.
#[test]
fn of_a_request_that_was_answered_before_it_came_nothing_is_kept_for_its_client() {
    let mut table = DedupTable::default();
    table.insert(entry(2, Via::Ingress, 1, 2));
    let edge = Via::Edge(EdgeId(0));
    for via in [Via::Ingress, edge] {
        table.insert(replied(entry(1, via, 2, 1)));
        check_bytes(&table);
    }
    let kept = table.entries_after(None);
    let kept: Vec<_> = kept.map(|e| (e.id.via, e.reply.is_some())).collect();
    let expected = [(Via::Ingress, false), (Via::Ingress, false), (edge, true)];
    assert_eq!(kept, expected);
}

#[test]
fn what_is_remembered_is_counted() {
    let mut table = DedupTable::default();
    for seq in 1..=100 {
        table.insert(entry(seq, Via::Ingress, 0, 1));
        table.insert(entry(seq, Via::Edge(EdgeId(0)), 0, 1));
    }
    let all = table.bytes();
    let one = entry(1, Via::Ingress, 0, 1).len_estimate();
    assert_eq!(all, 200 * (REMEMBERED_OVERHEAD_BYTES + one));
    assert_eq!((table.len(), table.places()), (200, 200));
    table.insert(entry(100, Via::Ingress, 0, 1));
    assert_eq!(table.bytes(), all, "replaced");
    table.insert(entry(101, Via::Ingress, 0, 101));
    assert!(table.bytes() < all * 6 / 10, "answered");
    table.insert(entry(102, Via::Edge(EdgeId(0)), 1_000_000_000_000, 1));
    table.insert(entry(103, Via::Ingress, 2_000_000_000_000, 1));
    assert_eq!(table.bytes(), bytes(&entry(103, Via::Ingress, 0, 1)));
}

#[test]
fn time_bounds_what_is_remembered() {
    let mut table = DedupTable::default();
    for seq in 0..10_000 {
        table.insert(entry(seq, Via::Edge(EdgeId(1)), seq * 1_000_000_000, 1));
    }
    assert!(table.len() < 10, "{}", table.len());
}
