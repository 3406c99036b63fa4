//! Host starvation on real processes: the traffic of a host passes its SmartNIC, and waits behind a
//! service that occupies the SmartNIC's cores. And what becomes of that traffic when the relay ends.

use crate::common::E3;
use crate::common::running::{handled, kill, primary, run_file, signal};
use e3_client::{Call, Client, Event};
use e3_model::Nanos;
use e3_model::api::EndpointsView;
use rustix::process::Signal;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Iterations of a heavy request, some 100 us on a host. On the SmartNIC it occupies a core two hundred
/// times as long: ten times for its profile, twenty times for the scale.
const ITERATIONS: u64 = 100_000;
/// Heavy requests in flight: several times as many as the SmartNIC has cores.
const HEAVY: usize = 120;
/// What the host's latency rises by at least: about twice as long as a heavy request takes.
const ALL_CORES: Duration = Duration::from_millis(20);
/// Light requests that are measured.
const LIGHT: usize = 30;

const PROFILE: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Profile
metadata: {name: misbehave}
spec:
  provenance: emulated
  source: made for a test
  nodes:
    host: {serviceTime: [{bytes: 512, time: 10us}], activePowerW: 20, activeCores: 1}
    smartnic: {serviceTime: [{bytes: 512, time: 100us}], activePowerW: 20, activeCores: 1}
";

fn manifest(name: &str, module: &str, node: &str) -> String {
    format!(
        "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {{name: {name}}}
spec:
  objective: {{latency: 1s}}
  deadline: 10s
  ingress: only
  services:
    - name: only
      module: {module}.wasm
      profile: {module}
      pin: {{node: {node}}}
      resources: {{cpu: 0.01, memory: 16Mi}}
"
    )
}

/// The cluster on the shipped topology, with a light service on the first host and a heavy one on its
/// SmartNIC.
fn start() -> Option<E3> {
    let e3 = E3::with_services()?;
    e3.good(&["up", "--detach", "--port", "0", "--topology", "starvation"]);
    let profiles = e3.dir.path().join("profiles");
    std::fs::create_dir(&profiles).unwrap();
    std::fs::write(profiles.join("misbehave.yaml"), PROFILE).unwrap();
    let profiles = profiles.to_str().unwrap();
    for (name, module, node) in [
        ("light", "echo", "s1-host"),
        ("heavy", "misbehave", "s1-nic0"),
    ] {
        let file = e3.file(&format!("{name}.yaml"), &manifest(name, module, node));
        e3.good(&["deploy", &file, "--wait", "--profiles", profiles]);
    }
    Some(e3)
}

fn get<T: serde::de::DeserializeOwned>(e3: &E3, path: &str) -> T {
    let port = &run_file(e3, "cluster.json")["port"];
    let get = ureq::get(format!("http://127.0.0.1:{port}{path}"));
    let answer = get
        .header("Authorization", e3.authorization("token"))
        .call();
    let text = answer.unwrap().body_mut().read_to_string().unwrap();
    serde_json::from_str(&text).unwrap()
}

fn client(e3: &E3, app: &str) -> Client {
    let endpoints: EndpointsView = get(e3, &format!("/v1/apps/{app}/endpoints"));
    Client::new(&endpoints, None).unwrap()
}

/// A client that knows one node only.
fn client_of_node(e3: &E3, app: &str, name: &str) -> Client {
    let mut endpoints: EndpointsView = get(e3, &format!("/v1/apps/{app}/endpoints"));
    endpoints.shards.clear();
    endpoints.nodes = vec![node(e3, name)["address"].as_str().unwrap().to_string()];
    Client::new(&endpoints, None).unwrap()
}

fn node(e3: &E3, name: &str) -> Value {
    let nodes = e3.json(&["get", "nodes"]);
    let mut nodes = nodes.as_array().unwrap().iter();
    nodes.find(|n| n["name"] == name).unwrap().clone()
}

/// Requests of the heavy service, which may change while they are sent.
struct Load {
    iterations: AtomicU64,
    in_flight: AtomicUsize,
    stop: AtomicBool,
}

impl Load {
    fn new(iterations: u64, in_flight: usize) -> Load {
        Load {
            iterations: AtomicU64::new(iterations),
            in_flight: AtomicUsize::new(in_flight),
            stop: AtomicBool::new(false),
        }
    }
}

/// Keeps so many requests in flight until it is stopped; how many were handled.
fn keep_busy(mut client: Client, load: &Load) -> u64 {
    let mut handled = 0;
    while !load.stop.load(Ordering::Relaxed) {
        let now = client.now();
        let mut payload = vec![7];
        payload.extend(load.iterations.load(Ordering::Relaxed).to_le_bytes());
        while client.requests.in_flight() < load.in_flight.load(Ordering::Relaxed) {
            let call = Call {
                tag: 0,
                key: b"k".to_vec(),
                payload: payload.clone(),
            };
            let deadline = now + Nanos::from_secs(10);
            client.requests.submit(now, now, deadline, call);
        }
        client.turn(now + Nanos::from_millis(50)).unwrap();
        while let Some(event) = client.requests.poll_event() {
            handled += u64::from(matches!(event, Event::Completed(_)));
        }
    }
    handled
}

/// Stops the load, also when the test fails.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Median latency of light requests.
fn light_latency(client: &mut Client) -> Duration {
    let mut all: Vec<Duration> = (0..LIGHT)
        .map(|_| {
            let begin = Instant::now();
            let done = client.call(b"k", b"hello", Nanos::from_secs(10)).unwrap();
            assert!(done.reply.is_some(), "{done:?}");
            begin.elapsed()
        })
        .collect();
    all.sort();
    all[LIGHT / 2]
}

#[test]
fn a_service_that_computes_much_on_the_smartnic_starves_the_host_behind_it() {
    let Some(e3) = start() else {
        return;
    };
    let mut light = client(&e3, "light");
    let nic = node(&e3, "s1-nic0");
    assert_eq!((&nic["speed"], &nic["cores"]), (&0.05.into(), &12.into()));
    let before = light_latency(&mut light);
    assert_eq!(node(&e3, "s1-nic0")["queue"], 0);
    let load = Load::new(ITERATIONS, HEAVY);
    let (during, seen) = std::thread::scope(|scope| {
        let heavy = client(&e3, "heavy");
        let sender = scope.spawn(|| keep_busy(heavy, &load));
        let stopper = Stopper(&load.stop);
        // Where this machine is busy, the load may take a while to build up.
        let (mut during, mut seen) = (Duration::ZERO, Value::Null);
        e3.until("the queue stands, and the host starves", |e3| {
            during = light_latency(&mut light);
            seen = node(e3, "s1-nic0");
            let queue = seen["queue"].as_u64().unwrap();
            queue > HEAVY as u64 / 4 && during > before + ALL_CORES
        });
        drop(stopper);
        assert!(sender.join().unwrap() > 0);
        (during, seen)
    });
    println!("median latency: {before:?} before, {during:?} with the load");
    println!("queue {}, port {}", seen["queue"], seen["portUse"]);
    assert!(seen["portUse"].as_f64().unwrap() < 0.05, "{seen}");
    // The node itself is well: nothing was lost, and it was never taken for dead.
    assert_eq!(node(&e3, "s1-nic0")["incarnation"], 1);
    e3.until("the queue is worked off", |e3| {
        node(e3, "s1-nic0")["queue"] == 0
    });
    let after = light_latency(&mut light);
    assert!(
        after < during / 2,
        "{after:?} after, {during:?} with the load"
    );
}

/// The second fault of the paper: the same requests take longer, and the SmartNIC's cores do not suffice any more.
#[test]
fn a_service_that_takes_longer_than_it_did_is_moved_to_the_host() {
    let Some(e3) = start() else {
        return;
    };
    e3.good(&["delete", "heavy"]);
    let unpinned =
        manifest("heavy", "misbehave", "s1-nic0").replace("      pin: {node: s1-nic0}\n", "");
    let file = e3.file("unpinned.yaml", &unpinned);
    let profiles = e3.dir.path().join("profiles");
    let profiles = profiles.to_str().unwrap();
    e3.good(&[
        "deploy",
        &file,
        "--wait",
        "--placer",
        "nicfirst",
        "--profiles",
        profiles,
    ]);
    assert_eq!(primary(&e3, "heavy/only/0"), "s1-nic0");
    // Starvation is noticed earlier, since the port is hardly used.
    e3.good(&[
        "orchestrator",
        "on",
        "--starvation-heartbeats",
        "10000",
        "--overload-reports",
        "3",
    ]);
    let load = Load::new(ITERATIONS / 100, 4);
    std::thread::scope(|scope| {
        let heavy = client(&e3, "heavy");
        let sender = scope.spawn(|| keep_busy(heavy, &load));
        let stopper = Stopper(&load.stop);
        let started = Instant::now();
        // Ten reports, a second apart, make the average.
        e3.until("the average is known", |e3| {
            started.elapsed() > Duration::from_secs(13) && handled(e3, "heavy") > 0
        });
        let moves = |e3: &E3| {
            let events = e3.json(&["get", "events"]);
            let mut events = events.as_array().unwrap().clone();
            events.retain(|e| e["kind"] == "orchestrator-move");
            events
        };
        assert_eq!(moves(&e3), [] as [Value; 0]);
        load.iterations.store(ITERATIONS, Ordering::Relaxed);
        load.in_flight.store(HEAVY, Ordering::Relaxed);
        e3.until("the service is on the host", |e3| {
            primary(e3, "heavy/only/0") == "s1-host"
        });
        drop(stopper);
        assert!(sender.join().unwrap() > 0);
        let [moved] = &moves(&e3)[..] else {
            panic!("{:?}", moves(&e3))
        };
        println!("{moved}");
        assert_eq!(moved["node"], "s1-nic0");
        let figure = |name: &str| moved["figures"][name].as_u64().unwrap();
        assert!(
            figure("executionNs") > figure("averageNs") * 6 / 5,
            "{moved}"
        );
    });
}

#[test]
fn traffic_goes_another_way_when_the_relay_ends() {
    let Some(e3) = start() else {
        return;
    };
    let endpoint = |e3: &E3| -> String {
        let view: EndpointsView = get(e3, "/v1/apps/light/endpoints");
        view.shards[0].clone()
    };
    let (nic, host) = (node(&e3, "s1-nic0"), node(&e3, "s1-host"));
    assert_eq!(
        nic["relay"],
        endpoint(&e3).as_str(),
        "clients reach it by the relay"
    );
    // The other server reaches the host by the relay as well.
    let mut remote = client_of_node(&e3, "light", "s2-host");
    e3.until("the relay's port is used", |e3| {
        light_latency(&mut remote);
        node(e3, "s1-nic0")["portUse"].as_f64().unwrap() > 0.0
    });
    // It does not end, so that nobody starts it again: its silence is all that the controller notices.
    signal(&e3, "s1-nic0", Signal::STOP);
    let begin = Instant::now();
    e3.until("clients reach the host directly", |e3| {
        endpoint(e3) == host["address"].as_str().unwrap()
    });
    println!("direct after {:?}", begin.elapsed());
    light_latency(&mut client(&e3, "light"));
    light_latency(&mut remote);
    assert_eq!(node(&e3, "s1-host")["incarnation"], 1);
    signal(&e3, "s1-nic0", Signal::CONT);
    e3.until("the relay carries again", |e3| {
        let nic = node(e3, "s1-nic0");
        nic["up"] == true && nic["relay"] == endpoint(e3).as_str()
    });
    light_latency(&mut remote);
    let before = endpoint(&e3);
    kill(&e3, "s1-nic0");
    e3.until("another process relays", |e3| {
        let relay = node(e3, "s1-nic0")["relay"].clone();
        relay != before.as_str() && relay == endpoint(e3).as_str()
    });
    light_latency(&mut client(&e3, "light"));
    light_latency(&mut remote);
    assert_eq!(node(&e3, "s1-host")["incarnation"], 1);
}

#[test]
fn the_demonstration_shows_that_the_orchestrator_ends_the_starvation() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let report = e3.json(&["demo", "starvation", "--seconds", "2"]);
    let phases = report["phases"].as_array().unwrap();
    let of = |at: usize, name: &str| phases[at][name].as_f64().unwrap();
    assert_eq!(phases.len(), 4, "{report}");
    // The host answers few requests while the SmartNIC computes. After the move it recovers, and the
    // service is faster. The phases have the same length.
    assert!(5.0 * of(1, "light") < of(0, "light"), "{report}");
    assert!(of(3, "light") > 5.0 * of(1, "light"), "{report}");
    assert!(of(1, "queueMax") >= 64.0, "{report}");
    assert!(of(3, "heavyRps") > of(1, "heavyRps"), "{report}");
    let events = report["events"].as_array().unwrap();
    let moved = events.iter().find(|e| e["kind"] == "orchestrator-move");
    let moved = moved.expect("it has moved");
    assert_eq!(
        (&moved["node"], &moved["to"]),
        (&"s1-nic0".into(), &"s1-host".into())
    );
    assert!(
        moved["figures"]["queueLen"].as_u64().unwrap() >= 64,
        "{moved}"
    );
}
