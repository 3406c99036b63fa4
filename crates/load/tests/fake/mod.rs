//! A fake cluster: two ingresses over one thermostat application in memory, with faults on order.

use e3_iot_messages::{ClientMessage, Query, Reply as AppReply, Spike, TokenKey, Value};
use e3_model::RequestId;
use e3_model::api::EndpointsView;
use e3_wire::client::{ClientFrame, Request};
use e3_wire::codec::Reader;
use e3_wire::datagram::Header;
use e3_wire::entry::{Outcome, Reply};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub const TOKEN_KEY: &[u8] = b"the fake cluster's own token key";

/// What goes wrong; `one_in` of 0 is never. Questions about the state are spared, but for losses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Requests and answers that get lost.
    pub drop_one_in: u64,
    /// Every answer is sent twice.
    pub twice: bool,
    /// A second answer says something else.
    pub contradict_one_in: u64,
    /// Updates that are stored and never answered.
    pub mute_one_in: u64,
    /// Updates that are answered and not stored.
    pub forget_one_in: u64,
    /// Updates that are stored twice.
    pub double_one_in: u64,
    /// Updates that are not admitted.
    pub overload_one_in: u64,
    /// They are stored all the same.
    pub store_refused: bool,
    /// Bad tokens are taken.
    pub trust_everybody: bool,
    /// The node that clients are sent to first does not answer after the first request.
    pub silent_node: bool,
    /// The application is not there.
    pub reject: bool,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<u32, Vec<(i64, f64)>>,
    answered: BTreeMap<RequestId, Reply>,
}

pub struct Cluster {
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

impl Cluster {
    pub fn start(faults: Faults) -> Cluster {
        let state = Arc::new(Mutex::new(State::default()));
        let (mut addresses, mut threads) = (vec![], vec![]);
        for node in 0..2 {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            addresses.push(socket.local_addr().unwrap());
            let state = state.clone();
            threads.push(std::thread::spawn(move || {
                serve(&socket, node, faults, &state)
            }));
        }
        Cluster { addresses, threads }
    }

    pub fn endpoints(&self) -> EndpointsView {
        let nodes: Vec<String> = self.addresses.iter().map(|a| a.to_string()).collect();
        EndpointsView {
            app: 3,
            shards: vec![nodes[0].clone(); 6],
            nodes,
        }
    }

    /// When the controller has noticed that the first node is gone.
    pub fn endpoints_after(&self) -> EndpointsView {
        let nodes = vec![self.addresses[1].to_string()];
        EndpointsView {
            app: 3,
            shards: vec![nodes[0].clone(); 6],
            nodes,
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (address, thread) in self.addresses.iter().zip(self.threads.drain(..)) {
            socket.send_to(b"stop", address).unwrap();
            // A panic there has failed the test by its missing answers already.
            let _ = thread.join();
        }
    }
}

/// True for one in `n` values of `x`, always the same ones.
fn hit(x: u64, n: u64) -> bool {
    n > 0 && (x.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33).is_multiple_of(n)
}

fn serve(socket: &UdpSocket, node: u64, faults: Faults, state: &Mutex<State>) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        if &buffer[..len] == b"stop" {
            return;
        }
        let mut r = Reader(&buffer[..len]);
        Header::decode(&mut r).unwrap();
        while !r.is_empty() {
            let ClientFrame::Request(q) = ClientFrame::decode(&mut r).unwrap() else {
                panic!("clients send requests");
            };
            assert!(q.oldest_seq <= q.id.seq);
            if faults.silent_node && node == 0 && q.id.seq > 500 {
                continue;
            }
            // Requests and answers are lost by different dice.
            let dice = q.id.seq * 64 + u64::from(q.attempt) * 2;
            if hit(dice, faults.drop_one_in) {
                continue;
            }
            let replies = answer(&q, faults, &mut state.lock().unwrap());
            if hit(dice + 1, faults.drop_one_in) {
                continue;
            }
            for reply in replies {
                let mut bytes = vec![];
                ClientFrame::start(&mut bytes);
                ClientFrame::Reply { id: q.id, reply }.encode(&mut bytes);
                socket.send_to(&bytes, from).unwrap();
            }
        }
    }
}

fn answer(q: &Request, faults: Faults, state: &mut State) -> Vec<Reply> {
    if faults.reject {
        let payload = b"application a3 is not on this node".to_vec();
        return vec![Reply {
            outcome: Outcome::Rejected,
            status: 0,
            payload,
        }];
    }
    let update = matches!(
        ClientMessage::decode(&q.payload),
        Ok(ClientMessage::Update { .. })
    );
    if update && hit(q.id.seq, faults.overload_one_in) {
        if faults.store_refused {
            handle(q, faults, state);
        }
        return vec![Reply {
            outcome: Outcome::Overloaded,
            status: 0,
            payload: vec![],
        }];
    }
    let reply = match state.answered.get(&q.id) {
        Some(reply) => reply.clone(),
        None => {
            let reply = handle(q, faults, state);
            state.answered.insert(q.id, reply.clone());
            reply
        }
    };
    if update && hit(q.id.seq, faults.mute_one_in) {
        return vec![];
    }
    let mut replies = vec![reply.clone()];
    if faults.twice {
        replies.push(reply.clone());
    }
    if update && hit(q.id.seq, faults.contradict_one_in) {
        replies.push(Reply {
            status: reply.status + 1,
            ..reply
        });
    }
    replies
}

fn handle(q: &Request, faults: Faults, state: &mut State) -> Reply {
    let key = TokenKey::new(TOKEN_KEY);
    let now_s = (q.deadline.0 / 1_000_000_000) as i64 - 3600;
    let reply = match ClientMessage::decode(&q.payload).unwrap() {
        ClientMessage::Update { token, reading } => {
            let good = token.thermostat == reading.thermostat && key.verify(&token, now_s).is_ok();
            // A token that expired a second ago is past: judged by the tag and the day.
            let good = good && token.expires_s > now_s + 86_400;
            if good || faults.trust_everybody {
                let rows = state.rows.entry(reading.thermostat).or_default();
                let times = match q.id.seq {
                    seq if hit(seq, faults.forget_one_in) => 0,
                    seq if hit(seq, faults.double_one_in) => 2,
                    _ => 1,
                };
                rows.extend(vec![(reading.reading_time_s, reading.temperature_c); times]);
                AppReply::Stored {
                    row_id: rows.len() as u64,
                }
            } else {
                AppReply::Unauthorized("token".into())
            }
        }
        ClientMessage::Query { token, query } => {
            let none = vec![];
            let rows = state.rows.get(&token.thermostat).unwrap_or(&none);
            match query {
                Query::Sql { text, parameters } => select(rows, text, &parameters),
                Query::Spikes { from_time_s } => AppReply::Spikes {
                    spikes: spikes(rows)
                        .filter(|s| s.reading_time_s >= from_time_s)
                        .collect(),
                    more: false,
                },
                _ => AppReply::NotFound("not asked here".into()),
            }
        }
    };
    let mut payload = vec![];
    reply.encode(&mut payload);
    Reply {
        outcome: Outcome::Done,
        status: reply.status(),
        payload,
    }
}

fn select(rows: &[(i64, f64)], text: &str, parameters: &[Value]) -> AppReply {
    if text.starts_with("SELECT count(*)") {
        let rows = vec![vec![Value::Integer(rows.len() as i64)]];
        return AppReply::Rows {
            columns: vec!["count(*)".into()],
            rows,
            more: false,
        };
    }
    let &[Value::Integer(_), Value::Integer(from), Value::Integer(to)] = parameters else {
        panic!("three numbers, not {parameters:?}");
    };
    let found = rows.iter().filter(|(time, _)| (from..to).contains(time));
    // Small replies, so that questions must be split.
    let more = found.clone().count() > 30;
    let rows = found
        .take(30)
        .map(|(t, c)| vec![Value::Integer(*t), Value::Real(*c)])
        .collect();
    AppReply::Rows {
        columns: vec!["reading_time_s".into(), "temperature_c".into()],
        rows,
        more,
    }
}

fn spikes(rows: &[(i64, f64)]) -> impl Iterator<Item = Spike> {
    let mut level = rows.first().map_or(0.0, |(_, c)| *c);
    rows.iter()
        .filter_map(move |&(reading_time_s, temperature_c)| {
            let change = temperature_c - level;
            if change.abs() > 6.0 {
                return Some(Spike {
                    reading_time_s,
                    temperature_c,
                    z: change,
                });
            }
            level = temperature_c;
            None
        })
}
