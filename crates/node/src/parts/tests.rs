use super::*;
use crate::agent::tests::{answer, controller};
use e3_model::{AppId, ServiceId, ShardId};

fn way(answers: Vec<String>) -> Way {
    Way {
        api: controller(answers),
        node: NodeId(1),
        bell: Doorbell::new().unwrap(),
        left: Arc::default(),
    }
}

fn key() -> ShardKey {
    ShardKey {
        app: AppId(1),
        service: ServiceId(2),
        shard: ShardId(3),
    }
}

fn order(order: u64) -> Order {
    let key = key();
    Order::Fetch(Fetch {
        key,
        order,
        number: 7,
        part: Part {
            service: key.service,
            shard: key.shard,
            op: 1,
            len: 9,
            crc: 0,
        },
    })
}

#[test]
fn a_part_that_is_gone_or_cut_short_is_missing_and_others_may_come() {
    let way = way(vec![
        answer("404 Not Found", r#"{"error":"there is no restore 7"}"#),
        answer("200 OK", ""),
        answer("500 Internal Server Error", "what"),
        answer("200 OK", "state"),
    ]);
    let mut open = VecDeque::new();
    note(&mut open, order(1));
    let fetched = || way.fetch(&open[0]).map_err(|e| (e.why, e.is_missing));
    let gone = "status 404: there is no restore 7";
    assert_eq!(fetched(), Err((gone.into(), true)));
    assert_eq!(fetched(), Err(("its file is cut short".into(), true)));
    assert_eq!(fetched(), Err(("status 500: what".into(), false)));
    assert_eq!(fetched(), Ok(b"state".to_vec()));
}

#[test]
fn the_loop_hears_of_a_part_that_is_missing() {
    let way = way(vec![
        answer("200 OK", "st"),
        answer("404 Not Found", r#"{"error":"it is gone"}"#),
    ]);
    let (orders, to_fetch) = mpsc::channel();
    let (chunks, fetched) = mpsc::sync_channel(CHUNKS_AHEAD);
    let thread = thread::spawn(move || way.fetch_all(&to_fetch, &chunks));
    orders.send(order(5)).unwrap();
    let first = fetched.recv().unwrap();
    assert_eq!((first.key, first.order), (key(), 5));
    assert_eq!(first.bytes.unwrap(), b"st");
    let reason = fetched.recv().unwrap().bytes.unwrap_err();
    let what = "part 2-3 of restore 7 from byte 2 of 9 on: status 404: it is gone";
    assert!(reason.contains(what), "{reason}");
    // It waits to ask again, and ends with the loop.
    drop(orders);
    thread.join().unwrap();
}

#[test]
fn a_part_that_is_not_wanted_any_more_is_forgotten() {
    let mut open = VecDeque::new();
    note(&mut open, order(1));
    note(&mut open, order(2));
    assert_eq!(open.len(), 1);
    let forget = |order| Order::Forget { key: key(), order };
    note(&mut open, forget(1));
    assert_eq!(open.len(), 1);
    note(&mut open, forget(2));
    assert!(open.is_empty());
}

#[test]
fn bytes_of_a_backup_that_is_given_up_are_dropped() {
    let (exports, to_send) = mpsc::channel();
    let (exported, waiting) = (Mutex::default(), Waiting::default());
    for (offset, text) in [(0, "early"), (5, "late")] {
        let (key, bytes) = (key(), text.as_bytes().to_vec());
        assert!(waiting.add(1, bytes.len()));
        let export = Export {
            key,
            number: 1,
            offset,
            bytes,
        };
        exports.send(export).unwrap();
    }
    drop(exports);
    waiting.give_up(1);
    way(Vec::new()).send_all(&to_send, &exported, &waiting);
    assert!(exported.into_inner().unwrap().is_empty());
    assert_eq!(waiting.len(), 0);
}
