//! Calls on real processes: a handler hears what was answered before, also when the node that serves the
//! called service is killed under traffic.

use crate::common::E3;
use crate::common::http::{Answer, Http};
use crate::common::running::{kill, primary};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

const MANIFEST: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata:
  name: shop
spec:
  objective: {latency: 100ms}
  ingress: front
  services:
    - name: front
      module: caller.wasm
      stateful: true
      shards: 2
      replicas: 2
      calls: [stock, prices]
      resources: {cpu: 0.1, memory: 16Mi}
      collections:
        - {name: count, kind: counter}
    - name: stock
      module: caller.wasm
      stateful: true
      shards: 2
      replicas: 2
      resources: {cpu: 0.1, memory: 16Mi}
      collections:
        - {name: count, kind: counter}
    - name: prices
      module: caller.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 16Mi}
      collections:
        - {name: count, kind: counter}
  channels:
    - {from: front, to: stock}
";

/// One request, repeated under its idempotency key until a node answers it.
fn request(http: &Http, app_key: &str, name: &str, payload: &[u8]) -> Answer {
    let path = format!("/v1/apps/shop?key={app_key}");
    let headers = [
        ("content-type", "application/octet-stream"),
        ("idempotency-key", name),
    ];
    let start = Instant::now();
    loop {
        for node in 0..http.nodes.len() {
            match http.post(node, &path, &headers, payload) {
                Ok(answer) if answer.status == 200 => return answer,
                Ok(answer) if answer.status < 429 => panic!("{name}: {answer:?}"),
                _ => {}
            }
        }
        assert!(
            start.elapsed() < crate::common::PATIENCE,
            "{name}: no answer"
        );
    }
}

fn count(answer: &Answer) -> i64 {
    let text = String::from_utf8_lossy(&answer.body);
    let bytes = answer.body.as_slice().try_into();
    i64::from_le_bytes(bytes.unwrap_or_else(|_| panic!("{text}: {answer:?}")))
}

/// Stops the writers when the test ends, however it does.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn up() -> Option<(E3, Http)> {
    let e3 = E3::with_services()?;
    e3.up();
    e3.good(&["deploy", &e3.file("shop.yaml", MANIFEST), "--wait"]);
    let http = Http::new(&e3);
    Some((e3, http))
}

#[test]
fn a_called_service_may_not_write_and_the_caller_hears_why() {
    let Some((e3, http)) = up() else { return };
    assert_eq!(count(&request(&http, "apple", "w1", b"")), 1);
    assert_eq!(count(&request(&http, "apple", "a1", b"ask")), 1);
    let failed = request(&http, "apple", "f1", b"write");
    let text = String::from_utf8_lossy(&failed.body);
    assert_eq!(
        (failed.header("e3-status"), &*text),
        ("1", "the called handler failed")
    );
    assert_eq!(count(&request(&http, "apple", "a2", b"ask")), 1);
    let told = e3.good(&["logs", "--lines", "200"]);
    assert!(
        told.contains("in a call it may only read and reply"),
        "{told}"
    );
}

#[test]
fn calls_hear_all_that_was_answered_though_the_called_primary_is_killed() {
    const WRITERS: usize = 4;
    let Some((e3, http)) = up() else { return };
    let (asked, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let written: Vec<i64> = std::thread::scope(|scope| {
        let writer = |at: usize| {
            let (http, asked, stop) = (http.clone(), &asked, &stop);
            scope.spawn(move || {
                let key = format!("k{at}");
                let mut written = 0;
                while !stop.load(Ordering::Relaxed) {
                    written += 1;
                    let wrote = request(&http, &key, &format!("w{at}-{written}"), b"");
                    assert_eq!(count(&wrote), written, "one effect each");
                    let heard = request(&http, &key, &format!("a{at}-{written}"), b"ask");
                    assert_eq!(heard.header("e3-status"), "0", "{heard:?}");
                    assert_eq!(count(&heard), written, "all that was answered before");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
                written
            })
        };
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        let more = |than: usize| {
            let begin = asked.load(Ordering::Relaxed);
            let done = || writers.iter().all(|w| w.is_finished());
            e3.until("calls are answered", |_| {
                done() || asked.load(Ordering::Relaxed) > begin + than
            });
        };
        let _stop = StopAtEnd(&stop);
        more(50);
        for shard in ["shop/stock/0", "shop/stock/1"] {
            let node = primary(&e3, shard);
            kill(&e3, &node);
            more(50);
            e3.until("all copies are back", |e3| {
                let nodes = e3.json(&["get", "nodes"]);
                let mut nodes = nodes.as_array().unwrap().iter();
                let app = e3.json(&["describe", "app", "shop"]);
                nodes.all(|n| n["up"] == true) && app["ready"] == true
            });
        }
        more(50);
        stop.store(true, Ordering::Relaxed);
        let ended = writers.into_iter().map(|w| w.join());
        ended
            .map(|w| w.expect("a writer that found no fault"))
            .collect()
    });
    for (at, written) in written.iter().enumerate() {
        let heard = request(&http, &format!("k{at}"), &format!("end{at}"), b"ask");
        assert_eq!(count(&heard), *written);
    }
    let letters = e3.json(&["get", "dead-letters"]);
    assert_eq!(letters.as_array().unwrap().len(), 0, "{letters}");
}
