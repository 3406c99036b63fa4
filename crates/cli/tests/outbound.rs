//! Outbound requests on real processes: a service that is reached by them alone, and another application,
//! handle each once, though their nodes are killed.

use crate::common::E3;
use crate::common::http::Http;
use crate::common::running::{kill, primary};

const ROUNDS: usize = 40;

/// No channel leads to the vault.
const DESK: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: desk
spec:
  objective: {latency: 100ms}
  ingress: front
  services:
    - name: front
      module: feed.wasm
      stateful: true
      replicas: 2
      asks: [vault]
      resources: {cpu: 0.1, memory: 16Mi}
      collections: [{name: got, kind: array}]
    - name: vault
      module: feed.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 16Mi}
      collections: [{name: got, kind: array}]
";

const BOOKS: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: books
spec:
  objective: {latency: 100ms}
  ingress: ledger
  services:
    - name: ledger
      module: feed.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 16Mi}
      collections: [{name: got, kind: array}]
";

fn up_with_both(e3: &E3) -> Http {
    e3.up();
    for (name, manifest) in [("desk", DESK), ("books", BOOKS)] {
        let file = e3.file(&format!("{name}.yaml"), manifest);
        e3.good(&["deploy", &file, "--wait"]);
    }
    Http::new(e3)
}

/// What an application answers to a command. Commands with the same idempotency key are one request,
/// whichever node gets them.
fn told(http: &Http, app: &str, command: &str, once: &str) -> Option<String> {
    let path = format!("/v1/apps/{app}?key=k");
    let mut headers = vec![("content-type", "application/octet-stream")];
    if !once.is_empty() {
        headers.push(("idempotency-key", once));
    }
    let mut answers = http.answers(&path, &headers, command.as_bytes());
    let answer = answers.find(|answer| answer.status == 200)?;
    String::from_utf8(answer.body).ok()
}

/// The front asks so many times; half-way, the primaries of these shards are killed. What it got at the
/// end, when all answers are there.
fn ask(e3: &E3, http: &Http, whom: &str, victims: [&str; 2]) -> String {
    for n in 0..ROUNDS {
        if let Some(at) = [ROUNDS / 3, 2 * ROUNDS / 3].iter().position(|at| *at == n) {
            kill(e3, &primary(e3, victims[at]));
        }
        let command = format!("{whom} keep {n}");
        e3.until("it is asked", |_| {
            told(http, "desk", &command, &format!("{whom} {n}")).is_some()
        });
    }
    let done = "Done:kept".len() + 1;
    let mut got = String::new();
    e3.until("all answers are there", |_| {
        got = told(http, "desk", "read", "").unwrap_or_default();
        got.len() >= done * ROUNDS - 1
    });
    got
}

fn numbers(texts: &str) -> Vec<usize> {
    let mut numbers: Vec<usize> = texts.split(' ').map(|n| n.parse().unwrap()).collect();
    // No order is promised between outbound requests.
    numbers.sort();
    numbers
}

#[test]
fn a_service_that_is_reached_by_outbound_requests_alone_handles_each_once() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let http = up_with_both(&e3);
    let got = ask(&e3, &http, "ask vault", ["desk/vault/0", "desk/front/0"]);
    assert_eq!(got, ["Done:kept"; ROUNDS].join(" "));
    // Nobody else can read it.
    told(&http, "desk", "ask vault read", "read the vault");
    let mut kept = String::new();
    e3.until("the vault is read", |_| {
        let all = told(&http, "desk", "read", "").unwrap_or_default();
        kept = all[got.len()..].trim_start().into();
        !kept.is_empty()
    });
    let kept = kept.strip_prefix("Done:").expect("it answered");
    assert_eq!(numbers(kept), Vec::from_iter(0..ROUNDS));
}

#[test]
fn another_application_handles_each_outbound_request_once() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let http = up_with_both(&e3);
    let got = ask(
        &e3,
        &http,
        "ask-app books",
        ["books/ledger/0", "desk/front/0"],
    );
    assert_eq!(got, ["Done:kept"; ROUNDS].join(" "));
    let mut kept = String::new();
    e3.until("the books are read", |_| {
        kept = told(&http, "books", "read", "").unwrap_or_default();
        !kept.is_empty()
    });
    assert_eq!(numbers(&kept), Vec::from_iter(0..ROUNDS));
}

#[test]
fn an_application_that_is_not_deployed_rejects_what_it_is_asked() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let http = up_with_both(&e3);
    e3.until("it is asked", |_| {
        told(&http, "desk", "ask-app attic keep 1", "attic").is_some()
    });
    let mut got = String::new();
    e3.until("the answer is there", |_| {
        got = told(&http, "desk", "read", "").unwrap_or_default();
        !got.is_empty()
    });
    assert_eq!(got, "Rejected:application \"attic\" does not run here");
}
