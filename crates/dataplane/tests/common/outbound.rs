//! An application whose services ask: three stateful services with a backup each, of which the front
//! asks, and the back and the end answer.

use super::{Cluster, Handler, shard};
use e3_collections::{State, Txn};
use e3_invocation::{Effects, HandlerError, Invocation, Output, Reply};
use e3_model::outbound::{Answer, Destination, HttpMethod, HttpRequest, Outbound};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{Nanos, ServiceId, ShardKey, Timestamp};
use e3_wire::entry::Outcome;
use std::cell::RefCell;
use std::rc::Rc;

pub const FLOW: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: flow}
spec:
  objective: {latency: 50ms}
  deadline: 60s
  admittedMax: 64
  ingress: front
  services:
    - name: front
      module: s.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
    - name: back
      module: s.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
    - name: end
      module: s.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
  channels:
    - {from: front, to: back}
    - {from: back, to: end}
";

/// What the front handled: name, answer and its content.
pub type Answers = Rc<RefCell<Vec<(String, Answer, Vec<u8>)>>>;

pub const DONE: Answer = Answer {
    outcome: Outcome::Done,
    status: 7,
};

pub fn nobody(outcome: Outcome) -> Answer {
    Answer { outcome, status: 0 }
}

/// The front asks from nodes 0 and 1, the back is on nodes 2 and 3, the end on 3 and 2.
pub fn cluster() -> Cluster {
    Cluster::new(FLOW, 5, |key| match key.service.0 {
        0 => vec![0, 1],
        1 => vec![2, 3],
        _ => vec![3, 2],
    })
}

pub fn to(service: &str) -> Destination {
    Destination::Service {
        service: service.into(),
        key: b"asked".to_vec(),
    }
}

pub fn http() -> HttpRequest {
    HttpRequest {
        method: HttpMethod::Post,
        url: "https://pay.example/charge".into(),
        headers: Vec::new(),
    }
}

pub fn ask(name: &str, to: Destination, deadline: Timestamp, payload: &[u8]) -> TimerChange {
    TimerChange {
        name: name.into(),
        key: b"k".to_vec(),
        set: Some(TimerSet {
            when: When::Answered(Box::new(Outbound { to, deadline })),
            payload: payload.to_vec(),
        }),
    }
}

pub fn cancel(name: &str) -> TimerChange {
    TimerChange {
        name: name.into(),
        key: b"k".to_vec(),
        set: None,
    }
}

/// Adds to a counter of collection 0.
pub fn count(invocation: &Invocation, state: &mut State, name: &[u8]) -> Effects {
    let mut txn = Txn::new();
    txn.begin(invocation.slot.0);
    txn.counter_add(state, 0, name, 1).unwrap();
    let writes = txn.finish();
    state.apply(&writes).unwrap();
    Effects {
        writes,
        ..Effects::default()
    }
}

pub fn reply(status: u32, payload: Vec<u8>) -> Option<Reply> {
    Some(Reply { status, payload })
}

/// The back counts what it is asked, and answers or leaves that to the end; the end answers.
pub fn serve(
    service: ServiceId,
    invocation: &Invocation,
    state: &mut State,
) -> Result<Effects, HandlerError> {
    let mut effects = count(invocation, state, &invocation.payload);
    let payload = invocation.payload.clone();
    if service == ServiceId(1) && payload.starts_with(b"on") {
        effects.outputs.push(Output {
            channel: 0,
            key: invocation.key.clone(),
            payload,
        });
    } else {
        effects.reply = reply(7, [b"re ", payload.as_slice()].concat());
    }
    Ok(effects)
}

/// The front counts each answer under its name. Each request of a client asks as `asks` says of its
/// number.
pub fn handler(asks: impl Fn(u64) -> Vec<TimerChange> + 'static) -> (Handler, Answers) {
    let answers = Answers::default();
    let noted = answers.clone();
    let handler: Handler = Box::new(move |service, invocation, state| {
        if service != ServiceId(0) {
            return serve(service, invocation, state);
        }
        let Some(name) = &invocation.timer else {
            let mut effects = count(invocation, state, b"requests");
            effects.timers = asks(invocation.id.request.seq);
            return Ok(effects);
        };
        let answer = invocation.answer.expect("it is no mere timer");
        let content = invocation.payload.clone();
        noted.borrow_mut().push((name.clone(), answer, content));
        Ok(count(invocation, state, name.as_bytes()))
    });
    (handler, answers)
}

pub fn handle(c: &mut Cluster, asks: impl Fn(u64) -> Vec<TimerChange> + 'static) -> Answers {
    let (handler, answers) = handler(asks);
    c.handler = handler;
    answers
}

/// The client asks at a node that is not otherwise involved.
pub fn request(c: &mut Cluster, seq: u64) {
    let deadline = c.now + Nanos::from_secs(50);
    c.request(4, seq, 0, b"k", deadline);
}

pub fn after(c: &Cluster, ms: u64) -> Timestamp {
    c.now + Nanos::from_millis(ms)
}

pub fn counted(c: &Cluster, node: u32, key: ShardKey, name: &[u8]) -> i64 {
    let state = c.nodes[&node].worker.state(key).unwrap();
    state.borrow().counter_get(0, name)
}

pub fn open(c: &Cluster, node: u32) -> u64 {
    c.report(node, shard(0, 0)).timers
}

pub fn one(name: &str, answer: Answer, content: &[u8]) -> [(String, Answer, Vec<u8>); 1] {
    [(name.to_string(), answer, content.to_vec())]
}

/// All HTTP requests so far are answered.
pub fn answer_http(c: &mut Cluster, status: u32, payload: &[u8]) {
    let outcome = Outcome::Done;
    for (node, ask) in std::mem::take(&mut c.http) {
        let now = c.clock(node);
        let Some(node) = c.nodes.get_mut(&node) else {
            continue;
        };
        let answer = Answer { outcome, status };
        let payload = payload.to_vec();
        node.worker.on_http_answer(now, ask.ticket, answer, payload);
    }
}
