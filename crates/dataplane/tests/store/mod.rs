//! A shard that keeps what requests write, on so many nodes, and nodes that join it.

use crate::common::{Cluster, shard};
use e3_collections::Txn;
use e3_invocation::{Effects, Reply};
use e3_model::plan::{BackupReport, ChannelReport, NodeEvent};
use e3_model::{DropReason, Nanos, NodeId, ShardKey};
use e3_wire::client::Request;
use std::cell::Cell;
use std::rc::Rc;

const APP: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: store}
spec:
  objective: {latency: 50ms}
  deadline: 20s
  admittedMax: 20000
  ingress: store
  services:
    - name: store
      module: s.wasm
      stateful: true
      replicas: 3
      resources: {cpu: 0.1, memory: 512Mi}
      collections:
        - {name: count, kind: counter}
        - {name: sorted, kind: ordered-map}
";

pub fn key() -> ShardKey {
    shard(0, 0)
}

pub struct Store {
    pub c: Cluster,
    /// Requests so far.
    pub sent: u64,
    /// Bytes of what each of them writes.
    pub value_len: Rc<Cell<usize>>,
}

impl Store {
    /// So many nodes; the first ones are primary and backups of a shard with values of so many bytes
    /// that were written long ago.
    pub fn new(nodes: u32, members: u32, values: &[usize]) -> Store {
        let mut c = Cluster::new(APP, nodes, |_| (0..members).collect());
        let value_len = Rc::new(Cell::new(100));
        let len = value_len.clone();
        c.handler = Box::new(move |_, invocation, state| {
            let request = invocation.id.request;
            let mut txn = Txn::new();
            txn.begin(invocation.slot.0);
            let id = [request.client.to_le_bytes(), request.seq.to_le_bytes()].concat();
            txn.counter_add(state, 0, &id, 1).unwrap();
            // Behind all that is there.
            let at = (1 << 63 | request.seq).to_be_bytes();
            txn.put(state, 1, &at, &vec![1; len.get()]).unwrap();
            let writes = txn.finish();
            state.apply(&writes).unwrap();
            Ok(Effects {
                timers: Vec::new(),
                writes,
                outputs: Vec::new(),
                reply: Some(Reply {
                    status: 0,
                    payload: Vec::new(),
                }),
            })
        });
        for node in 0..members {
            let state = c.nodes[&node].worker.state(key()).unwrap();
            for (n, len) in (0u64..).zip(values) {
                let mut state = state.borrow_mut();
                let mut txn = Txn::new();
                txn.begin(0);
                txn.put(&state, 1, &n.to_be_bytes(), &vec![2; *len])
                    .unwrap();
                let batch = txn.finish();
                state.apply(&batch).unwrap();
            }
        }
        Store {
            c,
            sent: 0,
            value_len,
        }
    }

    /// Sends a request to a node.
    pub fn request(&mut self, to: u32) -> u64 {
        self.sent += 1;
        let deadline = self.c.now + Nanos::from_secs(15);
        // The client has had the answers to most of those before.
        let oldest_seq = self.sent.saturating_sub(20).max(1);
        let request = self.c.request_of(self.sent, 0, b"k", deadline);
        self.c.send_request(
            to,
            Request {
                oldest_seq,
                ..request
            },
        );
        self.sent
    }

    /// Lets time pass, with so many requests each millisecond.
    pub fn load(&mut self, to: u32, ms: u64, each: u64) {
        for _ in 0..ms {
            for _ in 0..each {
                self.request(to);
            }
            self.c.pass(1);
        }
    }

    /// Has a node join.
    pub fn join(&mut self, node: u32) {
        let shard = self.c.shard(key());
        shard.view += 1;
        shard.joining.push(NodeId(node));
        self.c.publish();
    }

    /// The primary has told the controller that this node has everything.
    pub fn is_synced(&self, primary: u32, node: u32) -> bool {
        let events = self.c.nodes[&primary].worker.events();
        let synced =
            |e: &NodeEvent| matches!(e, NodeEvent::Synced { backup, .. } if backup.0 == node);
        events.iter().any(synced)
    }

    /// Lets time pass, with so many requests each millisecond, until the node has everything.
    pub fn until_synced(&mut self, primary: u32, node: u32, each: u64) {
        let begin = self.c.now;
        while !self.is_synced(primary, node) {
            self.load(primary, 1, each);
            let for_ms = begin.until(self.c.now).as_millis();
            assert!(for_ms < 5_000, "{:?}", self.c.report(primary, key()));
        }
    }

    /// What a primary says of a backup.
    pub fn backup(&self, primary: u32, node: u32) -> BackupReport {
        let report = self.c.report(primary, key());
        let mut backups = report.backups.into_iter();
        backups.find(|b| b.node.0 == node).unwrap()
    }

    /// What a node dropped for this reason.
    pub fn dropped(&self, node: u32, reason: DropReason) -> u64 {
        let report = self.c.nodes[&node].worker.report();
        report.stats.dropped.get(&reason).copied().unwrap_or(0)
    }

    /// A primary's only stream.
    pub fn stream(&self, primary: u32) -> ChannelReport {
        let report = self.c.nodes[&primary].worker.report();
        let mut channels = report.stats.channels.into_iter();
        channels.find(|ch| ch.name == "replication").unwrap()
    }

    /// Items of a primary's only stream that its backup has not confirmed.
    pub fn open(&self, primary: u32) -> u64 {
        let stream = self.stream(primary);
        stream.sent - stream.durable + u64::from(stream.waiting)
    }

    /// Digest of a node's copy.
    pub fn digest(&self, node: u32) -> u64 {
        let state = self.c.nodes[&node].worker.state(key()).unwrap();
        state.borrow().digest()
    }

    /// The clock of a node is hours behind, so that it refuses what comes.
    pub fn set_behind(&mut self, node: u32, is_behind: bool) {
        let behind = Nanos::from_secs(if is_behind { 7_200 } else { 0 });
        self.c.nodes.get_mut(&node).unwrap().behind = behind;
    }
}
