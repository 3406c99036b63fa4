//! The workflow of docs/workflows.md on real processes: a node is killed at each step, and each order
//! ends completed or compensated, with stock and payments that agree.

use crate::common::http::Http;
use crate::common::running::{kill, primary};
use crate::common::{E3, PATIENCE};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const BYTES: [(&str, &str); 1] = [("content-type", "application/octet-stream")];
const SUPPLY: u32 = 1000;
/// Apples of an order.
const QUANTITY: u32 = 3;
/// An amount that the payment server declines.
const DECLINED: u32 = 402;
/// An amount that it charges without an answer.
const LOST: u32 = 999;

/// What the payment server knows of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Charge {
    Charged(u32),
    Void,
}

/// A request that the payment server holds until the test lets it go on.
struct Held {
    method: String,
    go_on: Sender<()>,
}

/// A payment server that charges once and voids for good.
struct Payments {
    address: String,
    held: Receiver<Held>,
    charges: Arc<Mutex<BTreeMap<String, Charge>>>,
}

impl Payments {
    fn start() -> Payments {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, held) = mpsc::channel();
        let charges = Arc::new(Mutex::new(BTreeMap::new()));
        let known = charges.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (sender, known) = (sender.clone(), known.clone());
                // A node that is killed leaves a request unfinished.
                thread::spawn(move || serve(&stream.ok()?, &sender, &known));
            }
        });
        Payments {
            address,
            held,
            charges,
        }
    }

    fn charge(&self, order: &str) -> Option<Charge> {
        self.charges.lock().unwrap().get(order).copied()
    }
}

fn serve(
    stream: &TcpStream,
    held: &Sender<Held>,
    charges: &Mutex<BTreeMap<String, Charge>>,
) -> Option<()> {
    let (method, order, amount) = read(stream)?;
    let (go_on, wait) = mpsc::channel();
    held.send(Held {
        method: method.clone(),
        go_on,
    })
    .ok()?;
    // The test drops what it lets go on.
    let _ = wait.recv();
    let status = {
        let mut charges = charges.lock().unwrap();
        match (method.as_str(), charges.get(&order)) {
            ("PUT", Some(Charge::Void)) => "410 Gone",
            ("PUT", _) if amount == DECLINED => "402 Declined",
            ("PUT", _) => {
                charges.insert(order, Charge::Charged(amount));
                "201 Created"
            }
            _ => {
                charges.insert(order, Charge::Void);
                "200 OK"
            }
        }
    };
    if amount != LOST {
        let mut stream = stream;
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).ok()?;
    }
    Some(())
}

/// Method, order and amount of a request.
fn read(stream: &TcpStream) -> Option<(String, String, u32)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let (method, rest) = line.split_once(" /charges/")?;
    let order = rest.split(' ').next()?.to_string();
    let (mut len, mut has_key) = (0, false);
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        let Some((name, value)) = field.trim().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => len = value.parse().ok()?,
            "idempotency-key" => has_key = true,
            _ => {}
        }
    }
    assert!(has_key, "every request has an idempotency key");
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    let amount = String::from_utf8(body).ok()?.parse().unwrap_or(0);
    Some((method.to_string(), order, amount))
}

/// What the application answers.
#[track_caller]
fn told(http: &Http, key: &str, text: &str) -> String {
    let path = format!("/v1/apps/order?key={key}");
    let begin = Instant::now();
    loop {
        let mut answers = http.answers(&path, &BYTES, text.as_bytes());
        if let Some(answer) = answers.find(|answer| answer.status == 200) {
            return String::from_utf8(answer.body).unwrap();
        }
        assert!(begin.elapsed() < PATIENCE, "no answer to {text:?}");
    }
}

fn deploy(e3: &E3, payments: &Payments) {
    let manifest = include_str!("../../../docs/examples/order.yaml")
        .replace("127.0.0.1:8099", &payments.address)
        .replace("shards: 2", "shards: 1")
        .replace("timeout-ms: \"10000\"", "timeout-ms: \"5000\"")
        .replace("retry-ms: \"1000\"", "retry-ms: \"100\"");
    e3.good(&["deploy", &e3.file("order.yaml", &manifest), "--wait"]);
}

/// Places an order and serves its payments. Before the first request of this method is answered, the
/// primary of this shard is killed; without a method, before the order is placed. How it ended.
fn run(e3: &E3, payments: &Payments, order: &str, cents: u32, at: &str, victim: &str) -> String {
    // Nodes that were killed have other ports.
    e3.until("the application is complete", |e3| {
        e3.json(&["describe", "app", "order"])["ready"] == true
    });
    let http = Http::new(e3);
    let mut is_due = !victim.is_empty();
    if at.is_empty() && is_due {
        kill(e3, &primary(e3, victim));
        is_due = false;
    }
    told(&http, order, &format!("place apples {QUANTITY} {cents}"));
    let begin = Instant::now();
    loop {
        while let Ok(held) = payments.held.recv_timeout(Duration::from_millis(20)) {
            if is_due && held.method == at {
                kill(e3, &primary(e3, victim));
                is_due = false;
            }
            drop(held.go_on);
        }
        let status = told(&http, order, "status");
        if status == "completed" || status.starts_with("compensated") {
            assert!(!is_due, "{order}: no request {at:?} came");
            return status;
        }
        assert!(begin.elapsed() < PATIENCE, "{order}: {status}");
    }
}

#[test]
fn an_owner_sees_the_attempts_at_a_server_that_does_not_answer() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    // Nobody listens there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let manifest = include_str!("../../../docs/examples/order.yaml")
        .replace("127.0.0.1:8099", &address)
        .replace("timeout-ms: \"10000\"", "timeout-ms: \"120000\"");
    e3.good(&["deploy", &e3.file("order.yaml", &manifest), "--wait"]);
    let http = Http::new(&e3);
    told(&http, "shop", "supply stock apples 10");
    told(&http, "o-1", "place apples 3 250");
    e3.until("it was asked three times", |e3| {
        let shards = e3.json(&["get", "timers", "order"]);
        let all = shards.as_array().unwrap().iter();
        let mut pending = all.flat_map(|shard| shard["pending"].as_array().unwrap());
        pending.any(|p| {
            let is_next = p["attempts"].as_u64() >= Some(3) && p["nextAttemptUnixMs"].is_u64();
            is_next
                && p["lastError"]
                    .as_str()
                    .is_some_and(|e| e.contains("refused"))
        })
    });
}

#[test]
fn each_order_ends_in_one_of_two_states_though_a_node_is_killed_at_each_step() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let payments = Payments::start();
    e3.up();
    deploy(&e3, &payments);
    let http = Http::new(&e3);
    for (service, goods) in [("stock", "apples"), ("shipping", "parcels")] {
        let supply = format!("supply {service} {goods} {SUPPLY}");
        assert_eq!(told(&http, "shop", &supply), SUPPLY.to_string());
    }
    let (order, stock, shipping) = ("order/order/0", "order/stock/0", "order/shipping/0");
    let rounds = [
        (250, "", "", "completed"),
        (DECLINED, "", "", "compensated"),
        (LOST, "", "", "compensated"),
        // The step is held, charged, shipped while its service, or the workflow, fails over.
        (250, "", stock, "completed"),
        (250, "PUT", order, "completed"),
        (250, "PUT", shipping, "completed"),
        (DECLINED, "PUT", order, "compensated"),
        (DECLINED, "DELETE", order, "compensated"),
        (DECLINED, "DELETE", stock, "compensated"),
        (LOST, "PUT", order, "compensated"),
    ];
    let mut completed = 0;
    for (number, (cents, at, victim, expected)) in rounds.into_iter().enumerate() {
        let name = format!("o-{number}");
        let end = run(&e3, &payments, &name, cents, at, victim);
        let round = format!("{name}, {cents} cents, {victim:?} killed at {at:?}: {end}");
        println!("{round}");
        // A step that a fail-over takes beyond its time-out is compensated.
        let is_completed = end == "completed";
        if victim.is_empty() || expected == "compensated" {
            assert_eq!(is_completed, expected == "completed", "{round}");
        }
        completed += u32::from(is_completed);
        let charge = payments.charge(&name);
        if is_completed {
            assert_eq!(charge, Some(Charge::Charged(cents)), "{round}");
        } else {
            // Where the goods were not even held, nobody asked for a charge.
            assert!(matches!(charge, Some(Charge::Void) | None), "{round}");
        }
        let http = Http::new(&e3);
        let left = |service: &str, goods: &str| {
            let left = told(&http, "shop", &format!("left {service} {goods}"));
            left.parse::<u32>().unwrap()
        };
        assert_eq!(
            left("stock", "apples"),
            SUPPLY - QUANTITY * completed,
            "{round}"
        );
        assert_eq!(left("shipping", "parcels"), SUPPLY - completed, "{round}");
        assert_eq!(told(&http, &name, "status"), end, "{round}");
    }
    assert!(completed > 0);
}

#[test]
fn the_documented_commands_work() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/workflows.md")).unwrap();
    let (_, script) = page.split_once("```sh\n").unwrap();
    let (script, _) = script.split_once("```").unwrap();
    let manifest = root.join("docs/examples/order.yaml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    let port = free_port();
    let manifest = e3.file("order.yaml", &manifest.replace("8099", &port));
    let python = root.join("docs/examples/payments.py");
    let Ok(payments) = Command::new("python3").arg(python).arg(&port).spawn() else {
        println!("SKIPPED: python3 is missing");
        return;
    };
    let _stopped = Stopped(payments);
    let commands = script.lines().filter_map(|line| {
        let (command, said) = line.split_once('#').unwrap_or((line, ""));
        Some((command.trim().strip_prefix("e3 ")?, said.trim()))
    });
    for (command, said) in commands {
        let mut words = words(command);
        match words[0].as_str() {
            "up" => words.extend(["--port", "0"].map(String::from)),
            "deploy" => words[1] = manifest.clone(),
            _ => {}
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        e3.until(command, |e3| {
            let out = e3.good(&words);
            // An order takes a moment.
            assert!(!said.is_empty() || !out.contains("must be"), "{out}");
            out.contains(said)
        });
    }
}

/// A port that nobody uses now.
fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Words of a command; a quoted text is one word.
fn words(command: &str) -> Vec<String> {
    let parts = command.split('"').enumerate();
    let mut words = Vec::new();
    for (number, part) in parts {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(String::from)),
            _ => words.push(part.to_string()),
        }
    }
    words
}

/// A process that ends with the test.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
