//! A fake cluster: two ingresses over one thermostat application in memory, with faults on order.

use ciborium::Value;
use e3_model::RequestId;
use e3_model::api::EndpointsView;
use e3_model::{Format, Formats};
use e3_wire::client::{ClientFrame, Request};
use e3_wire::datagram::open;
use e3_wire::entry::{Outcome, Reply};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub const TOKEN_KEY: &[u8] = b"the fake cluster's own token key";

/// What goes wrong; `one_in` of 0 is never. Queries about the state are spared, but for losses.
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
    /// Updates that are dead-lettered.
    pub dead_letter_one_in: u64,
    /// Updates that expire.
    pub expire_one_in: u64,
    /// After so many updates, all state is gone; 0 = never.
    pub empty_after: usize,
    /// Updates that are stored and answered, but do not reach the services downstream.
    pub cut_off_one_in: u64,
    /// Another application: it answers whatever comes.
    pub echo: bool,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<String, Vec<(i64, f64)>>,
    /// What reached the services downstream.
    arrived: BTreeMap<String, Vec<(i64, f64)>>,
    updates: usize,
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
            urls: vec![],
        }
    }

    /// When the controller has noticed that the first node is gone.
    pub fn endpoints_after(&self) -> EndpointsView {
        let nodes = vec![self.addresses[1].to_string()];
        EndpointsView {
            app: 3,
            shards: vec![nodes[0].clone(); 6],
            nodes,
            urls: vec![],
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
        let (_, mut r) = open(Formats::PROGRAM, &buffer[..len]).unwrap();
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
                let (id, attempt) = (q.id, q.attempt);
                let frame = ClientFrame::Reply { id, attempt, reply };
                socket
                    .send_to(&frame.to_datagram(Format::NEWEST), from)
                    .unwrap();
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
    if faults.echo {
        return vec![done(0, q.payload.clone())];
    }
    let update = Record::read(&q.payload).get("time").is_some();
    let ended = [
        (faults.dead_letter_one_in, Outcome::Failed),
        (faults.expire_one_in, Outcome::Expired),
    ];
    let ended = ended
        .iter()
        .find(|(one_in, _)| update && hit(q.id.seq, *one_in));
    if let Some((_, outcome)) = ended {
        return vec![Reply {
            outcome: *outcome,
            status: 0,
            payload: vec![],
        }];
    }
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

/// A request or an answer: names and values.
struct Record(Vec<(Value, Value)>);

impl Record {
    fn read(bytes: &[u8]) -> Record {
        // of definite length, as services want them
        assert!((0xa0..0xb8).contains(&bytes[0]), "{bytes:?}");
        let value: Value = ciborium::from_reader(bytes).unwrap();
        Record(value.into_map().unwrap())
    }

    fn write(fields: Vec<(&str, Value)>) -> Vec<u8> {
        let fields = fields.into_iter().map(|(n, v)| (Value::from(n), v));
        let mut bytes = vec![];
        ciborium::into_writer(&Value::Map(fields.collect()), &mut bytes).unwrap();
        bytes
    }

    fn get(&self, name: &str) -> Option<&Value> {
        let found = self.0.iter().find(|(n, _)| n.as_text() == Some(name))?;
        Some(&found.1)
    }

    fn int(&self, name: &str) -> i64 {
        let value = self.get(name).and_then(Value::as_integer).unwrap();
        value.try_into().unwrap()
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_text()
    }
}

fn handle(q: &Request, faults: Faults, state: &mut State) -> Reply {
    let record = Record::read(&q.payload);
    let (user, expiry) = (record.text("user").unwrap(), record.int("expiry"));
    let mac = Hmac::<Sha256>::new_from_slice(TOKEN_KEY).unwrap();
    let mac = mac.chain_update(user).chain_update(expiry.to_be_bytes());
    let token = record.get("token").and_then(Value::as_bytes).unwrap();
    let now_s = (q.deadline.0 / 1_000_000_000) as i64 - 3600;
    // A token that expired a second ago is past: judged by the tag and the day.
    let good = mac.verify_slice(token).is_ok() && expiry > now_s + 86_400;
    assert_eq!(q.key, user.as_bytes());
    if !good && !faults.trust_everybody {
        return done(3, b"token: is not good".to_vec());
    }
    let Some(temperature) = record.get("temperature") else {
        let none = vec![];
        let rows = state.rows.get(user).unwrap_or(&none);
        let arrived = state.arrived.get(user).unwrap_or(&none);
        let fields = match (record.text("op"), record.text("at")) {
            (None, _) => Some(select(rows, &record)),
            (Some("spikes"), _) => Some(spikes(arrived, record.int("from"))),
            (Some("get"), Some("ema")) => average(arrived),
            (Some("get"), Some("recommend")) => {
                let item = record.get("item").map(|_| record.int("item"));
                item.and_then(|item| rating(arrived, item))
            }
            other => panic!("{other:?} is not asked here"),
        };
        return match fields {
            Some(fields) => done(0, Record::write(fields)),
            None => done(2, b"nothing there".to_vec()),
        };
    };
    state.updates += 1;
    if state.updates == faults.empty_after {
        state.rows.clear();
        state.arrived.clear();
    }
    let rows = state.rows.entry(user.to_owned()).or_default();
    let times = match q.id.seq {
        seq if hit(seq, faults.forget_one_in) => 0,
        seq if hit(seq, faults.double_one_in) => 2,
        _ => 1,
    };
    let reading = (record.int("time"), temperature.as_float().unwrap());
    rows.extend(vec![reading; times]);
    if times > 0 && !hit(q.id.seq, faults.cut_off_one_in) {
        state
            .arrived
            .entry(user.to_owned())
            .or_default()
            .push(reading);
    }
    // a forgotten update is answered as if it were stored
    let row = rows.len().max(1) as u64;
    done(0, Record::write(vec![("row", row.into())]))
}

fn done(status: u32, payload: Vec<u8>) -> Reply {
    Reply {
        outcome: Outcome::Done,
        status,
        payload,
    }
}

fn select(rows: &[(i64, f64)], record: &Record) -> Vec<(&'static str, Value)> {
    let times = record.int("since")..record.int("until");
    let found = rows.iter().filter(|(time, _)| times.contains(time));
    let sql = record.text("sql").unwrap();
    let (names, rows, more) = if sql.starts_with("SELECT count(*)") {
        (
            &["count(*)"][..],
            vec![Value::Array(vec![(found.count() as u64).into()])],
            false,
        )
    } else {
        // Small replies, so that queries must be split.
        let more = found.clone().count() > 30;
        let row = |(t, c): &(i64, f64)| Value::Array(vec![(*t).into(), (*c).into()]);
        let rows = found.take(30).map(row).collect();
        (&["time", "temperature"][..], rows, more)
    };
    let names = names.iter().map(|n| Value::from(*n)).collect();
    vec![
        ("columns", Value::Array(names)),
        ("rows", Value::Array(rows)),
        ("more", u8::from(more).into()),
    ]
}

/// Of the readings that differ by half a degree from the last one taken.
fn average(arrived: &[(i64, f64)]) -> Option<Vec<(&'static str, Value)>> {
    let (&(mut time, mut ema), rest) = arrived.split_first()?;
    let (mut passed, mut samples) = (ema, 1u64);
    for &(at, celsius) in rest {
        if (celsius - passed).abs() >= 0.5 {
            ema += (1.0 - (-((at - time) as f64) / 21_600.0).exp()) * (celsius - ema);
            (time, passed, samples) = (at, celsius, samples + 1);
        }
    }
    Some(vec![
        ("ema", ema.into()),
        ("time", time.into()),
        ("samples", samples.into()),
    ])
}

/// Of the readings at which the comfort band is left or entered: set-points 1.5 degrees apart in each
/// quarter of the day, rated by their distance from what is comfortable.
fn rating(arrived: &[(i64, f64)], item: i64) -> Option<Vec<(&'static str, Value)>> {
    let inside = |celsius: f64| (10.0..=18.0).contains(&celsius);
    let crossed = arrived
        .windows(2)
        .filter(|w| inside(w[0].1) != inside(w[1].1));
    let mut rating: Option<i64> = None;
    for &(time, celsius) in crossed.map(|w| &w[1]) {
        if time % 86_400 / 21_600 != item / 6 {
            continue;
        }
        let distance = (18.0 + 1.5 * (item % 6) as f64 - 17.8 - 0.31 * celsius).abs();
        let score = (10.0 - 4.0 * distance).round().max(0.0) as i64;
        rating = match rating {
            None => (score > 0).then_some(score),
            Some(before) => Some(((3 * before + score + 2) / 4).max(1)),
        };
    }
    let rating = rating? as f64;
    Some(vec![("rating", rating.into()), ("rated", 1.into())])
}

fn spikes(rows: &[(i64, f64)], from: i64) -> Vec<(&'static str, Value)> {
    let mut level = rows.first().map_or(0.0, |(_, c)| *c);
    let (mut times, mut values, mut z) = (vec![], vec![], vec![]);
    for &(time, celsius) in rows {
        let change = celsius - level;
        if change.abs() <= 6.0 {
            level = celsius;
        } else if time >= from {
            times.push(time.into());
            values.push(celsius.into());
            z.push(change.into());
        }
    }
    vec![
        ("times", Value::Array(times)),
        ("values", Value::Array(values)),
        ("z", Value::Array(z)),
        ("more", 0.into()),
    ]
}
