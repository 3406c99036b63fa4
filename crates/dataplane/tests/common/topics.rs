//! An application whose front publishes, and two that are subscribed: its own back, and the service of
//! another application.

use super::{Cluster, Handler, shard};
use e3_collections::{State, Txn};
use e3_invocation::{Effects, HandlerError, Invocation, Reply};
use e3_model::backup::Restored;
use e3_model::plan::AppPlan;
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::topic::Publication;
use e3_model::{AppId, Nanos, ServiceId, ShardKey};
use std::cell::RefCell;
use std::rc::Rc;

const SHOP: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: shop}
spec:
  objective: {latency: 50ms}
  deadline: 10s
  ingress: front
  topics: [orders, refunds, sales, nobody]
  subscriptions:
    - {topic: orders, service: back}
    - {topic: refunds, service: back}
  services:
    - name: front
      module: s.wasm
      stateful: true
      replicas: 2
      durability: DURABILITY
      publishes: [orders, refunds, sales, nobody]
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
    - name: back
      module: s.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
";

pub const AUDIT: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: books}
spec:
  objective: {latency: 50ms}
  deadline: 10s
  ingress: audit
  subscriptions:
    - {topic: shop/orders, service: audit}
    - {topic: shop/sales, service: audit}
  services:
    - name: audit
      module: s.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
";

const COPY: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: copy}
spec:
  objective: {latency: 50ms}
  deadline: 10s
  ingress: entry
  subscriptions:
    - {topic: shop/orders, service: copied}
  services:
    - {name: entry, module: s.wasm, stateful: true, replicas: 1, resources: {cpu: 0.1, memory: 64Mi}}
    - name: copied
      module: s.wasm
      stateful: true
      replicas: 1
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
";

/// Services that are subscribed to orders.
pub const SUBSCRIBERS: [&str; 2] = ["back", "audit"];

/// The front is on nodes 0 and 1, the back on 2 and 3, the audit on 3 and 2.
pub fn cluster() -> Cluster {
    cluster_of("memory")
}

/// The same; the front is on disk.
pub fn disk_cluster() -> Cluster {
    cluster_of("disk")
}

fn cluster_of(durability: &str) -> Cluster {
    let shop = SHOP.replace("DURABILITY", durability);
    let mut c = Cluster::new(&shop, 5, |key| match key.service.0 {
        0 => vec![0, 1],
        _ => vec![2, 3],
    });
    c.handler = handler();
    c.other = Some((audit("shop", 4, &[3, 2]), handler()));
    c.publish();
    c.pass(500);
    c
}

/// An application that is subscribed to topics of another one; its service is on these nodes.
pub fn audit(of: &str, nodes: u32, copies: &[u32]) -> AppPlan {
    let manifest = AUDIT
        .replace("shop/", &format!("{of}/"))
        .replace("replicas: 2", &format!("replicas: {}", copies.len()));
    let mut plan = Cluster::new(&manifest, nodes, |_| copies.to_vec()).plan;
    plan.id = AppId(2);
    plan
}

/// Has an application run at node 3 that began with the state of the shop, beside it. Its second service
/// is subscribed to orders, as the back is.
pub fn restore_beside(c: &mut Cluster) {
    let mut plan = Cluster::new(COPY, 5, |_| vec![3]).plan;
    plan.id = AppId(2);
    plan.restored = Some(Restored {
        number: 1,
        identity: AppId(1),
        shift: Nanos::from_secs(1),
        at: c.now,
        parts: Vec::new(),
    });
    c.other = Some((plan, handler()));
    c.publish();
    c.pass(500);
}

/// Numbers of the publications that the subscriber of [`restore_beside`] handled, each once.
pub fn handled_beside(c: &Cluster) -> Vec<u64> {
    let app = AppId(2);
    counted(c, 3, ShardKey { app, ..shard(1, 0) })
}

/// The front publishes what its request says; the others count what they get, and check its order.
pub fn handler() -> Handler {
    Box::new(|service, invocation, state| {
        if invocation.topic.is_some() {
            return Ok(count(invocation, state));
        }
        assert_eq!(service, ServiceId(0));
        let mut effects = count(invocation, state);
        let text = str::from_utf8(&invocation.payload).unwrap();
        let (topic, _) = text.split_once(' ').unwrap();
        effects
            .timers
            .push(publication(topic, invocation, &invocation.payload));
        Ok(effects)
    })
}

/// What a handler does to publish under the key of its request.
pub fn publication(topic: &str, invocation: &Invocation, payload: &[u8]) -> TimerChange {
    let publication = Publication {
        topic: topic.into(),
        key: invocation.key.clone(),
    };
    TimerChange {
        name: String::new(),
        key: invocation.key.clone(),
        set: Some(TimerSet {
            when: When::Published(Box::new(publication)),
            payload: payload.to_vec(),
        }),
    }
}

/// Counts the request under its number. Those of a key must come in ascending order.
pub fn count(invocation: &Invocation, state: &mut State) -> Effects {
    let text = str::from_utf8(&invocation.payload).unwrap();
    let seq: i64 = text.split_once(' ').unwrap().1.parse().unwrap();
    let last = [b"last ", &*invocation.key].concat();
    let before = state.counter_get(0, &last);
    let is_next = invocation.topic.is_none() || seq > before;
    assert!(is_next, "{seq} of {:?} after {before}", invocation.key);
    let mut txn = Txn::new();
    txn.begin(invocation.slot.0);
    txn.counter_add(state, 0, &last, seq - before).unwrap();
    txn.counter_add(state, 0, &seq.to_le_bytes(), 1).unwrap();
    let writes = txn.finish();
    state.apply(&writes).unwrap();
    Effects {
        writes,
        reply: Some(Reply {
            status: 0,
            payload: Vec::new(),
        }),
        ..Effects::default()
    }
}

/// The client has something published on the topic of orders, by a node that is not otherwise involved.
pub fn publish(c: &mut Cluster, seq: u64, key: &[u8]) {
    publish_on(c, "orders", seq, key);
}

pub fn publish_on(c: &mut Cluster, topic: &str, seq: u64, key: &[u8]) {
    let deadline = c.now + Nanos::from_secs(10);
    let mut request = c.request_of(seq, 0, key, deadline);
    request.payload = format!("{topic} {seq}").into_bytes();
    c.send_request(4, request);
}

/// The audit confirms a publication, and remembers that no more. The back is away meanwhile.
pub fn back_is_away_until_the_audit_forgets(c: &mut Cluster) {
    c.cut
        .extend([(0, 2), (2, 0), (1, 2), (2, 1), (4, 2), (2, 4)]);
    publish(c, 1, b"k");
    c.pass_coarsely(330);
    // It forgets when it handles another.
    publish_on(c, "sales", 2, b"other");
    c.pass_coarsely(5);
    assert_eq!(handled(c, "audit"), [1, 2]);
    assert!(handled(c, "back").is_empty());
}

/// The back gets what it missed.
pub fn back_returns(c: &mut Cluster) {
    c.cut.clear();
    c.publish();
    c.pass(10_000);
}

/// One of few keys.
pub fn key(seq: u64) -> &'static [u8] {
    [&b"a"[..], b"b", b"c", b"d"][seq as usize % 4]
}

/// Numbers of the requests that the front handled at a node.
pub fn published(c: &Cluster, node: u32) -> Vec<u64> {
    counted(c, node, shard(0, 0))
}

/// Numbers of the publications that a subscriber handled, each once.
pub fn handled(c: &Cluster, subscriber: &str) -> Vec<u64> {
    let key = match subscriber {
        "back" => shard(1, 0),
        _ => ShardKey {
            app: AppId(2),
            ..shard(0, 0)
        },
    };
    let is_served = |node: &u32| {
        let report = c.nodes[node].worker.report();
        let mut instances = report.instances.iter();
        instances.any(|i| i.key == key && i.role == e3_model::plan::Role::Primary)
    };
    let node = [2, 3].into_iter().filter(|n| c.nodes.contains_key(n));
    let node = node.into_iter().find(is_served).expect("it is served");
    counted(c, node, key)
}

fn counted(c: &Cluster, node: u32, key: ShardKey) -> Vec<u64> {
    let state = c.nodes[&node].worker.state(key).unwrap();
    let state = state.borrow();
    let times = |seq: &u64| state.counter_get(0, &seq.to_le_bytes());
    let seqs: Vec<u64> = (1..=400).filter(|seq| times(seq) > 0).collect();
    assert!(seqs.iter().all(|seq| times(seq) == 1), "handled twice");
    seqs
}

/// Publications in the table of a node.
pub fn open(c: &Cluster, node: u32) -> u64 {
    c.report(node, shard(0, 0)).timers
}

/// Notes the topics of the publications that are handled from now on.
pub fn note_topics(c: &mut Cluster) -> Rc<RefCell<Vec<String>>> {
    let topics = Rc::new(RefCell::new(Vec::new()));
    let noting = |mut inner: Handler| -> Handler {
        let topics = topics.clone();
        Box::new(move |service, invocation, state| {
            let topic = invocation.topic.as_ref();
            topics.borrow_mut().extend(topic.map(ToString::to_string));
            inner(service, invocation, state)
        })
    };
    c.handler = noting(handler());
    let (plan, _) = c.other.take().unwrap();
    c.other = Some((plan, noting(handler())));
    topics
}

/// The back fails on each publication.
pub fn fail_at_back(c: &mut Cluster) {
    let mut inner = handler();
    c.handler = Box::new(move |service, invocation, state| match service.0 {
        0 => inner(service, invocation, state),
        _ => Err(HandlerError::Code(1)),
    });
}

/// The back's subscription is deleted.
pub fn subscribe_only_audit(c: &mut Cluster) {
    let mut app = (*c.plan.app).clone();
    app.spec.subscriptions.clear();
    app.spec.services[0].asks = vec!["back".into()];
    c.plan.app = app.into();
    c.publish();
}

/// Notes the room that each request of the front finds.
pub fn room_found(c: &mut Cluster) -> Rc<RefCell<Vec<u64>>> {
    let room = Rc::new(RefCell::new(Vec::new()));
    let (noted, mut inner) = (room.clone(), handler());
    c.handler = Box::new(move |service, invocation, state| {
        if service.0 == 0 {
            noted.borrow_mut().push(invocation.state_bytes_max);
        }
        inner(service, invocation, state)
    });
    room
}

/// Gives the audit no state; what it handles is noted.
pub fn without_state(c: &mut Cluster) -> Rc<RefCell<Vec<u64>>> {
    let handled = Rc::new(RefCell::new(Vec::new()));
    let noted = handled.clone();
    let (mut plan, _) = c.other.take().unwrap();
    c.publish();
    plan.id = AppId(3);
    let mut app = (*plan.app).clone();
    let service = &mut app.spec.services[0];
    (service.stateful, service.replicas) = (false, 1);
    service.collections.clear();
    plan.app = app.into();
    plan.shards[0].backups.clear();
    let handler: Handler = Box::new(move |_, invocation, _| {
        let text = str::from_utf8(&invocation.payload).unwrap();
        let (_, seq) = text.split_once(' ').unwrap();
        noted.borrow_mut().push(seq.parse().unwrap());
        Ok(Effects::default())
    });
    c.other = Some((plan, handler));
    c.publish();
    c.pass(500);
    handled
}
