//! What a backup refuses of its primary's stream. The primary is this file.

use crate::common::{APP, Cluster, address, shard};
use e3_collections::{PieceMax, State, Txn, Walk};
use e3_dataplane::limits::{PIECE_ENTRIES_MAX, PIECE_LEN, SNAPSHOT_OVER_MAX};
use e3_model::{
    Format, MessageId, NodeId, RequestId, ServiceId, ShardId, Slot, Timestamp, TraceContext,
};
use e3_wire::datagram::{Header, Kind, seal};
use e3_wire::entry::Entry;
use e3_wire::frame::{Ends, Frame, Link};
use e3_wire::replicated::Replicated;

const ONE: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: one}
spec:
  objective: {latency: 50ms}
  deadline: 60s
  ingress: only
  services:
    - name: only
      module: only.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 64Ki}
      collections: [{name: map, kind: hash-map}]
";

/// A backup on node 1, whose primary on node 0 says what a test has it say.
struct Backup {
    c: Cluster,
    epoch: u32,
}

impl Backup {
    fn new() -> Backup {
        let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
        c.nodes.remove(&0);
        Backup { c, epoch: 1 }
    }

    /// Begins a stream with these items. Why it stopped, if it did.
    fn stream(&mut self, items: impl IntoIterator<Item = Replicated>) -> Option<String> {
        self.epoch += 100;
        let worker = &mut self.c.nodes.get_mut(&1).unwrap().worker;
        let header = Header {
            kind: Kind::Peer,
            from: NodeId(0),
            cluster: worker.plan().cluster,
            incarnation: 1,
            to_incarnation: 1,
        };
        let link = Link {
            app: APP,
            ends: Ends::Replication {
                service: ServiceId(0),
                shard: ShardId(0),
                backup: NodeId(1),
            },
            from_incarnation: 1,
            to_incarnation: 1,
        };
        for (seq, item) in (1..).zip(items) {
            let mut bytes = Vec::new();
            header.encode(&mut bytes);
            let frame = Frame::Data {
                link,
                epoch: self.epoch,
                seq,
                behind: seq as u32 - 1,
                body: &item.encode(),
            };
            frame.encode(&mut bytes);
            seal(Format::NEWEST, &mut bytes);
            worker.handle_datagram(self.c.now, address(0), &bytes);
        }
        self.c.pass(1);
        self.c.report(1, shard(0, 0)).error
    }

    fn op(&self) -> u64 {
        self.c.report(1, shard(0, 0)).op
    }

    fn begin(&self, op: u64, released: u64) -> Replicated {
        Replicated::SnapshotBegin {
            view: None,
            op,
            now: self.c.now,
            since: Timestamp::ZERO,
            released,
            reigns: Vec::new(),
        }
    }

    fn entry(&self, op: u64) -> Entry {
        let now = self.c.now;
        Entry {
            op,
            id: MessageId::ingress(RequestId { client: 1, seq: op }),
            attempt: 0,
            slot: Slot::of(b"k"),
            code_version: 1,
            now,
            sent: now,
            deadline: now,
            oldest_seq: 1,
            reply_to: NodeId(0),
            reply_to_incarnation: 1,
            is_branch: false,
            is_expiry: false,
            trace: TraceContext::default(),
            batch: Vec::new(),
            outputs: Vec::new(),
            reply: None,
            dead: None,
            replays: None,
            fired: None,
            timers: Vec::new(),
            confirmed: Vec::new(),
        }
    }
}

#[test]
fn a_snapshot_that_contradicts_itself_is_refused() {
    let mut b = Backup::new();
    let (first, second, third) = (b.entry(1), b.entry(2), b.entry(3));
    let outgoing = Replicated::SnapshotOutgoing;
    let seen = Replicated::SnapshotSeen;
    let end = |op| Replicated::SnapshotEnd { op };
    let writes = Entry {
        batch: vec![1, 2, 3],
        ..first.clone()
    };
    let (beside, after) = (
        "writes beside a snapshot",
        "an entry of after the snapshot's begin",
    );
    let gap = "the snapshot's outbox has a gap";
    let wrong = [
        (beside, vec![b.begin(2, 2), seen(writes.clone()), end(2)]),
        (beside, vec![b.begin(2, 0), outgoing(writes), end(2)]),
        (after, vec![b.begin(2, 2), seen(third.clone()), end(2)]),
        (after, vec![b.begin(2, 2), outgoing(third.clone()), end(3)]),
        (gap, vec![b.begin(2, 0), outgoing(second.clone()), end(2)]),
        (gap, vec![b.begin(2, 1), end(2)]),
        (gap, vec![b.begin(2, 2), end(3)]),
    ];
    for (reason, items) in wrong {
        let what = format!("{items:?}");
        let error = b.stream(items);
        assert_eq!(error, Some(format!("replication: {reason}")), "{what}");
        assert_eq!(b.op(), 0, "{what}");
    }
    let right = vec![
        b.begin(2, 1),
        outgoing(second.clone()),
        seen(first),
        seen(second),
        Replicated::Entry(third),
        end(3),
    ];
    assert_eq!(b.stream(right), None);
    assert_eq!(b.op(), 3);
}

/// A snapshot with so many values of the greatest length.
fn large(b: &Backup, values: u32) -> Vec<Replicated> {
    let specs = b.c.nodes[&1].worker.state(shard(0, 0)).unwrap();
    let mut state = State::new(specs.borrow().specs());
    for n in 0..values {
        let mut txn = Txn::new();
        txn.begin(0);
        let value = vec![0; VALUE_LEN];
        txn.put(&state, 0, &n.to_be_bytes(), &value).unwrap();
        let batch = txn.finish();
        state.apply(&batch).unwrap();
    }
    let max = PieceMax {
        bytes: PIECE_LEN,
        entries: PIECE_ENTRIES_MAX,
    };
    let mut walk = Walk::default();
    let pieces = std::iter::from_fn(|| state.next_piece(&mut walk, max));
    let pieces = pieces.map(|piece| Replicated::SnapshotState { op: 0, piece });
    let begin = std::iter::once(b.begin(0, 0));
    let end = std::iter::once(Replicated::SnapshotEnd { op: 0 });
    begin.chain(pieces).chain(end).collect()
}

const VALUE_LEN: usize = 32 * 1024;

#[test]
fn a_snapshot_may_be_larger_than_the_memory_of_its_service_but_not_by_far() {
    let mut b = Backup::new();
    let fit = SNAPSHOT_OVER_MAX as u32 / VALUE_LEN as u32;
    let items = large(&b, fit - 50);
    assert_eq!(b.stream(items), None);
    let items = large(&b, fit + 50);
    let reason = "replication: the snapshot is larger than the service's memory";
    assert_eq!(b.stream(items).as_deref(), Some(reason));
}
