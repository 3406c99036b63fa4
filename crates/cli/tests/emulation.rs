//! What an emulated node promises, measured on real processes: service time, link latency, memory.

use crate::common::E3;
use serde_json::{Value, json};
use std::time::Duration;

/// How many times slower than the host the SmartNIC is for `misbehave`.
const SLOWDOWN: f64 = 52.0;
/// Iterations of a request, some 100 us on the host.
const ITERATIONS: u64 = 100_000;
const REQUESTS: usize = 20;
const LINK_LATENCY: Duration = Duration::from_millis(30);
/// Memory of the emulated node in the test of memory.
const MEMORY_MIB: u64 = 96;
/// Bytes of a request in the test of the port.
const REQUEST_LEN: usize = 25_000;
/// Bytes of a value in the test of memory.
const VALUE_LEN: usize = 28_000;

fn topology(nic: &str) -> String {
    format!(
        "\
apiVersion: e3.dev/v1alpha1
kind: Topology
metadata: {{name: one}}
spec:
  racks:
    - name: r
      servers:
        - name: s1
          system: Type1-SmartNIC
          nodes:
            - {{name: s1-host, kind: host, cores: 12, memory: 4Gi}}
            - {{name: s1-nic0, kind: smartnic, cores: 12, emulated: true, {nic}}}
"
    )
}

fn profile(host: &str, smartnic: &str) -> String {
    format!(
        "\
apiVersion: e3.dev/v1alpha1
kind: Profile
metadata: {{name: misbehave}}
spec:
  provenance: emulated
  source: made for a test
  nodes:
    host: {{serviceTime: [{{bytes: 512, time: {host}}}], activePowerW: 20, activeCores: 1}}
    smartnic: {{serviceTime: [{{bytes: 512, time: {smartnic}}}], activePowerW: 20, activeCores: 1}}
"
    )
}

fn manifest(name: &str, module: &str, kind: &str, memory: &str, collections: &str) -> String {
    format!(
        "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {{name: {name}}}
spec:
  objective: {{latency: 1s}}
  ingress: only
  services:
    - name: only
      module: {module}.wasm
      profile: {module}
      stateful: {}
      pin: {{kind: {kind}}}
      resources: {{cpu: 0.01, memory: {memory}}}
      {collections}
",
        !collections.is_empty(),
    )
}

/// Sends payloads one after another.
fn call(e3: &E3, app: &str, payloads: impl Iterator<Item = Vec<u8>>) -> Vec<Value> {
    use base64::Engine;
    let base64 = |bytes| base64::engine::general_purpose::STANDARD.encode(bytes);
    let line = |p| json!({"key": "k", "payloadBase64": base64(p)}).to_string() + "\n";
    let lines: String = payloads.map(line).collect();
    let input = e3.file("requests.jsonl", &lines);
    let said = e3.run(&["call", app, "--input", &input]);
    let answers: Vec<Value> = said
        .out
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(answers.len(), lines.lines().count(), "{}", said.err);
    answers
}

fn latency_us(answers: &[Value]) -> Vec<f64> {
    let mut all: Vec<f64> = answers
        .iter()
        .map(|a| {
            assert_eq!(a["outcome"], "done", "{a}");
            a["latencyUs"].as_f64().unwrap()
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Time that an application's handlers occupied cores, in microseconds.
fn busy_us(e3: &E3, app: &str, handled: usize) -> f64 {
    let mut busy = 0.0;
    e3.until("the report counts all requests", |e3| {
        let service = e3.json(&["describe", "app", app])["services"][0].clone();
        busy = service["busySeconds"].as_f64().unwrap() * 1e6;
        service["handled"] == handled
    });
    busy
}

#[test]
fn a_request_takes_as_much_longer_on_the_slower_kind_of_node_as_the_profile_says() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let topology = e3.file("topology.yaml", &topology("memory: 4Gi"));
    e3.good(&["up", "--detach", "--port", "0", "--topology", &topology]);
    let mut busy = 7_u64.to_le_bytes()[..1].to_vec();
    busy.extend(ITERATIONS.to_le_bytes());
    // The slower kind is slowed, whichever it is: some services are faster on a SmartNIC.
    for (slow, fast) in [("smartnic", "host"), ("host", "smartnic")] {
        let profiles = e3.dir.path().join(format!("profiles-{slow}"));
        std::fs::create_dir(&profiles).unwrap();
        let (host, nic) = match slow {
            "host" => ("520us", "10us"),
            _ => ("10us", "520us"),
        };
        std::fs::write(profiles.join("misbehave.yaml"), profile(host, nic)).unwrap();
        let mut services = Vec::new();
        for kind in [slow, fast] {
            let app = format!("{slow}-slow-on-{kind}");
            let text = manifest(&app, "misbehave", kind, "16Mi", "");
            let file = e3.file("app.yaml", &text);
            let profiles = profiles.to_str().unwrap();
            e3.good(&["deploy", &file, "--wait", "--profiles", profiles]);
            let answers = call(&e3, &app, std::iter::repeat_n(busy.clone(), REQUESTS));
            let latency = latency_us(&answers);
            let mean = latency.iter().sum::<f64>() / REQUESTS as f64;
            let service = busy_us(&e3, &app, REQUESTS) / REQUESTS as f64;
            println!("{app}: {service:.0} us on a core, latency {mean:.0} us on average");
            services.push(service);
            assert!(
                mean >= service,
                "{app}: {mean} us is less than {service} us on a core"
            );
            // Half of the requests are answered soon after the emulated core is done.
            let median = latency[REQUESTS / 2];
            assert!(
                median < 2.0 * service + 20_000.0,
                "{app}: {median} us is much more than {service} us"
            );
        }
        let factor = services[0] / services[1];
        assert!(
            factor > SLOWDOWN / 3.0 && factor < SLOWDOWN * 3.0,
            "a core of a {slow} is occupied {factor} times as long"
        );
    }
}

#[test]
fn a_datagram_takes_the_link_latency_in_each_direction() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let nic = format!("memory: 4Gi, linkLatency: {}ms", LINK_LATENCY.as_millis());
    let topology = e3.file("topology.yaml", &topology(&nic));
    e3.good(&["up", "--detach", "--port", "0", "--topology", &topology]);
    let mut medians = [0.0; 2];
    for (kind, median) in ["host", "smartnic"].into_iter().zip(&mut medians) {
        let app = format!("on-{kind}");
        let file = e3.file("app.yaml", &manifest(&app, "echo", kind, "16Mi", ""));
        e3.good(&["deploy", &file, "--wait"]);
        let latency = latency_us(&call(
            &e3,
            &app,
            std::iter::repeat_n(b"hello".to_vec(), REQUESTS),
        ));
        *median = latency[REQUESTS / 2];
        println!("{app}: median latency {median:.0} us");
    }
    // The client speaks to the node that holds the shard: once to it, once back.
    let round_trip_us = 2.0 * LINK_LATENCY.as_secs_f64() * 1e6;
    assert!(medians[0] < round_trip_us, "host: {} us", medians[0]);
    assert!(medians[1] >= round_trip_us, "SmartNIC: {} us", medians[1]);
    assert!(
        medians[1] < 2.0 * round_trip_us,
        "SmartNIC: {} us",
        medians[1]
    );
}

#[test]
fn a_datagram_takes_as_long_as_the_port_needs_to_carry_it() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    // A tenth of 10 Mb/s.
    let nic = "memory: 4Gi, bandwidthGbps: 0.01, emulation: {speed: 0.1}";
    let topology = e3.file("topology.yaml", &topology(nic));
    e3.good(&["up", "--detach", "--port", "0", "--topology", &topology]);
    let file = e3.file(
        "app.yaml",
        &manifest("port", "echo", "smartnic", "16Mi", ""),
    );
    e3.good(&["deploy", &file, "--wait"]);
    let request = vec![7; REQUEST_LEN];
    let latency = latency_us(&call(&e3, "port", std::iter::repeat_n(request, 3)));
    // Once in and once out.
    let carried_us = 2.0 * REQUEST_LEN as f64 * 8.0;
    println!("{:.0} us to carry, latency {latency:.0?}", carried_us);
    assert!(latency[0] >= carried_us, "{latency:?}");
    assert!(latency[0] < 4.0 * carried_us, "{latency:?}");
}

#[test]
fn a_process_uses_no_more_memory_than_its_node_has() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let nic = format!("memory: {MEMORY_MIB}Mi");
    let topology = e3.file("topology.yaml", &topology(&nic));
    e3.good(&["up", "--detach", "--port", "0", "--topology", &topology]);
    let collections = "collections: [{name: items, kind: hash-map}, \
        {name: expiries, kind: ordered-map}, {name: versions, kind: counter}]";
    let memory = format!("{MEMORY_MIB}Mi");
    let text = manifest("store", "kvs", "smartnic", &memory, collections);
    let file = e3.file("app.yaml", &text);
    e3.good(&["deploy", &file, "--wait"]);
    let set = |n: u64| {
        let mut line = format!("set key{n} 0 0 {VALUE_LEN}\r\n").into_bytes();
        line.resize(line.len() + VALUE_LEN, b'v');
        line.extend(b"\r\n");
        line
    };
    // Twice of what fits.
    let sets = 2 * (MEMORY_MIB << 20) / VALUE_LEN as u64;
    let answers = call(&e3, "store", (0..sets).map(set));
    assert_eq!(answers[0]["reply"]["text"], "STORED\r\n", "{}", answers[0]);
    let refused = answers.iter().find(|a| a["outcome"] != "done");
    let refused = refused.expect("something was refused");
    let text = refused["reply"]["text"].as_str().unwrap_or_default();
    assert!(
        refused["outcome"] == "overloaded" || text.contains("memory is used up"),
        "{refused}"
    );
    let nodes = e3.json(&["get", "nodes"]);
    let mut nodes = nodes.as_array().unwrap().iter();
    let node = nodes.find(|n| n["name"] == "s1-nic0").unwrap();
    let resident = node["residentBytes"].as_u64().unwrap();
    println!("{} MiB of {MEMORY_MIB} MiB are resident", resident >> 20);
    assert!(resident <= (MEMORY_MIB << 20) * 9 / 8, "{resident} bytes");
    let log = e3.run(&["logs", "s1-nic0"]).out;
    assert!(
        !log.contains("memory is used up"),
        "the process ended: {log}"
    );
}
