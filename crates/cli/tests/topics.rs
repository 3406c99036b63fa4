//! Topics on real processes: two subscribers, one of another application, get each publication once and
//! in order, though a node is killed.

use crate::common::E3;
use crate::common::http::Http;
use crate::common::running::{kill, primary};
use serde_json::json;

const KEYS: usize = 4;

const SHOP: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: shop
spec:
  objective: {latency: 100ms}
  ingress: front
  topics: [events]
  subscriptions:
    - {topic: events, service: copy}
  services:
    - name: front
      module: feed.wasm
      stateful: true
      replicas: 2
      publishes: [events]
      resources: {cpu: 0.1, memory: 16Mi}
      collections: [{name: got, kind: array}]
    - name: copy
      module: feed.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 16Mi}
      collections: [{name: got, kind: array}]
  channels:
    - {from: front, to: copy}
";

const BOOKS: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: books
spec:
  objective: {latency: 100ms}
  ingress: audit
  subscriptions:
    - {topic: shop/events, service: audit}
  services:
    - name: audit
      module: feed.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 16Mi}
      collections: [{name: got, kind: array}]
";

fn deploy(e3: &E3, name: &str, manifest: &str) {
    let file = e3.file(&format!("{name}.yaml"), manifest);
    e3.good(&["deploy", &file, "--wait"]);
}

/// What an application answers to a command, for one of few keys. Commands with the same idempotency
/// key are one request, whichever node gets them.
fn told(http: &Http, (app, key): (&str, usize), command: &str, once: &str) -> Option<String> {
    let path = format!("/v1/apps/{app}?key=k{key}");
    let mut headers = vec![("content-type", "application/octet-stream")];
    if !once.is_empty() {
        headers.push(("idempotency-key", once));
    }
    let mut answers = http.answers(&path, &headers, command.as_bytes());
    let answer = answers.find(|answer| answer.status == 200)?;
    String::from_utf8(answer.body).ok()
}

/// What both subscribers got under a key.
fn got(http: &Http, key: usize) -> [String; 2] {
    let copy = told(http, ("shop", key), "pass read", "").unwrap_or_default();
    let audit = told(http, ("books", key), "read", "").unwrap_or_default();
    [copy, audit]
}

#[test]
fn both_subscribers_get_each_publication_once_and_in_order_though_nodes_are_killed() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    deploy(&e3, "shop", SHOP);
    deploy(&e3, "books", BOOKS);
    let described = e3.json(&["describe", "app", "shop"]);
    let topic = json!([{"name": "events", "publishers": ["front"],
                        "subscribers": ["shop/copy", "books/audit"]}]);
    assert_eq!(described["topics"], topic);
    let text = e3.good(&["describe", "app", "shop"]);
    assert!(text.contains("shop/copy, books/audit"), "{text}");
    let http = Http::new(&e3);
    let mut published = vec![Vec::new(); KEYS];
    for n in 0..200 {
        if n == 60 {
            kill(&e3, &primary(&e3, "shop/front/0"));
        }
        if n == 120 {
            kill(&e3, &primary(&e3, "books/audit/0"));
        }
        let (key, command) = (n % KEYS, format!("publish {n}"));
        e3.until("it is published", |_| {
            told(&http, ("shop", key), &command, &format!("publish-{n}")).is_some()
        });
        published[key].push(format!("shop:{n}"));
    }
    for (key, published) in published.iter().enumerate() {
        let all = published.join(" ");
        e3.until("both have them all", |_| {
            got(&http, key).iter().all(|got| got.len() >= all.len())
        });
    }
    e3.until("nothing is kept", |e3| {
        e3.json(&["describe", "app", "shop"])["services"][0]["timers"] == 0
    });
    for (key, published) in published.iter().enumerate() {
        let all = published.join(" ");
        assert_eq!(got(&http, key), [all.clone(), all], "key {key}");
    }
    let letters = e3.json(&["get", "dead-letters"]);
    assert_eq!(letters.as_array().unwrap().len(), 0, "{letters}");
}
