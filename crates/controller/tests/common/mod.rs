//! A controller as a process, with simulated clients and nodes.

use e3_controller::{ClientTimeouts, ControllerConfig, RATE_LIMIT, RateLimit};
use e3_model::api::*;
use e3_model::application::Durability;
use e3_model::document::parse_topology;
use e3_model::plan::{
    BackupReport, InstanceReport, NodeHello, NodePlan, NodeReport, NodeWelcome, Role, ShardPlan,
};
use e3_model::plan_change::{PLAN_SOURCE_HEADER, PLAN_VERSION_HEADER};
use e3_model::{Address, Format, Formats, Nanos, Token};
use e3_wire::heartbeat::{self, Heartbeat};
use e3_wire::{HEARTBEAT_KEY_HEADER, HeartbeatKey};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const TOPOLOGY: &str = include_str!("../../../../topologies/3x-type1.yaml");
pub const APP: &str = include_str!("../../../model/tests/two-services.yaml");
/// Base64 of an empty module.
pub const WASM: &str = "AGFzbQEAAAA=";

/// The token of the owner of the controllers under test.
pub fn owner_token() -> Token {
    Token::new([1; 32])
}

/// The token of their nodes.
pub fn node_token() -> Token {
    Token::new([2; 32])
}

/// The token that a path accepts.
pub fn token_for(path: &str) -> Token {
    let parts: Vec<&str> = path.split(['/', '?']).collect();
    match parts[..] {
        [_, "v1", "blobs", ..]
        | [_, "v1", "nodes", "hello", ..]
        | [
            _,
            "v1",
            "nodes",
            _,
            "plan" | "report" | "backups" | "restores" | "secrets",
            ..,
        ] => node_token(),
        _ => owner_token(),
    }
}

pub fn config(dir: &Path, listen: SocketAddr) -> ControllerConfig {
    ControllerConfig {
        formats: Formats::PROGRAM,
        listen,
        dir: dir.to_path_buf(),
        topology: parse_topology("t.yaml", TOPOLOGY).unwrap(),
        durability: Durability::Memory,
        heartbeat_timeout: Nanos::from_secs(1),
        owner_token: owner_token(),
        node_token: node_token(),
        secret_key_file: dir.join("secret-key"),
        makes_secret_key: true,
        heartbeat_shards: 3,
        highs: "highs".into(),
        rate_limit: RATE_LIMIT,
        client_timeouts: ClientTimeouts::default(),
    }
}

/// A controller in a process of its own, so that it can be killed.
pub struct Controller {
    pub address: SocketAddr,
    child: std::process::Child,
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What [`Controller::start`] runs as a process; as a test among others it does nothing.
#[test]
fn controller_process() {
    if let (Ok(dir), Ok(listen)) = (
        std::env::var("E3_TEST_DIR"),
        std::env::var("E3_TEST_LISTEN"),
    ) {
        let mut config = config(Path::new(&dir), listen.parse().unwrap());
        if let Ok(timeout) = std::env::var("E3_TEST_TIMEOUT_MS") {
            let timeout = Duration::from_millis(timeout.parse().unwrap());
            config.client_timeouts = ClientTimeouts {
                header: timeout,
                body: timeout,
            };
        }
        if let Ok(highs) = std::env::var("E3_TEST_HIGHS") {
            config.highs = highs.into();
        }
        if let Ok(burst) = std::env::var("E3_TEST_BURST") {
            let burst = burst.parse().unwrap();
            let per_second = 1;
            config.rate_limit = RateLimit { per_second, burst };
        }
        e3_controller::run(config).unwrap();
    }
}

/// An address that nothing uses. Its port is outside the range from which the system takes ports, so
/// that no other test gets it while a controller is down.
pub fn free_port() -> SocketAddr {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() * 97 + TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + number % COUNT) as u16;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

impl Controller {
    pub fn start(dir: &Path, address: SocketAddr) -> Controller {
        Controller::start_with(dir, address, None)
    }

    /// Starts one with these timeouts for clients.
    pub fn start_with(dir: &Path, address: SocketAddr, timeout_ms: Option<u64>) -> Controller {
        let timeout = timeout_ms.map(|ms| ("E3_TEST_TIMEOUT_MS", ms.to_string()));
        Controller::start_in(dir, address, timeout)
    }

    /// Starts one whose tokens have so many requests, and one more each second.
    pub fn start_slow(dir: &Path, address: SocketAddr, burst: u32) -> Controller {
        Controller::start_in(dir, address, Some(("E3_TEST_BURST", burst.to_string())))
    }

    /// Starts one whose placer `ilp` runs this program.
    pub fn start_solving(dir: &Path, address: SocketAddr, highs: &Path) -> Controller {
        let highs = highs.to_str().unwrap().to_string();
        Controller::start_in(dir, address, Some(("E3_TEST_HIGHS", highs)))
    }

    fn start_in(dir: &Path, address: SocketAddr, env: Option<(&str, String)>) -> Controller {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "common::controller_process",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("E3_TEST_DIR", dir)
            .env("E3_TEST_LISTEN", address.to_string())
            .stdout(std::process::Stdio::null());
        command.envs(env);
        let child = command.spawn().unwrap();
        let controller = Controller { address, child };
        controller.until("/v1/cluster");
        controller
    }

    /// Waits until the answer to a path has status 200.
    #[track_caller]
    pub fn until(&self, path: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.get(path).0 != 200 {
            assert!(Instant::now() < until, "{path} is not answered with 200");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn agent() -> ureq::Agent {
        ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(20)))
            .proxy(None)
            .build()
            .into()
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        match Self::agent()
            .get(format!("http://{}{path}", self.address))
            .header("Authorization", token_for(path).authorization())
            .call()
        {
            Ok(mut r) => (
                r.status().as_u16(),
                r.body_mut().read_to_string().unwrap_or_default(),
            ),
            Err(_) => (0, String::new()),
        }
    }

    pub fn post(&self, path: &str, body: &impl serde::Serialize) -> (u16, String) {
        let mut r = Self::agent()
            .post(format!("http://{}{path}", self.address))
            .header("Authorization", token_for(path).authorization())
            .send_json(body)
            .unwrap();
        (r.status().as_u16(), r.body_mut().read_to_string().unwrap())
    }

    /// The answer to a request with this token, if any.
    pub fn send(&self, method: &str, path: &str, token: Option<&str>, body: &[u8]) -> Answer {
        let mut request = ureq::http::Request::builder()
            .method(method.to_ascii_uppercase().as_str())
            .uri(format!("http://{}{path}", self.address));
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        // It does not matter for routes that take bytes.
        request = request.header("Content-Type", "application/json");
        let sent = Self::agent().run(request.body(body.to_vec()).unwrap());
        let mut answer = sent.unwrap();
        let retry_after = answer.headers().get("retry-after");
        Answer {
            status: answer.status().as_u16(),
            retry_after: retry_after.map(|v| v.to_str().unwrap().to_string()),
            body: answer.body_mut().read_to_string().unwrap(),
        }
    }

    /// Creates a token with the owner's.
    #[track_caller]
    pub fn create_token(&self, name: &str, role: &str) -> String {
        let request = serde_json::json!({"name": name, "role": role});
        let (status, body) = self.post("/v1/tokens", &request);
        assert_eq!(status, 200, "{body}");
        let created: TokenResponse = serde_json::from_str(&body).unwrap();
        created.token
    }

    pub fn join(&self, name: &str, process: u64) -> NodeWelcome {
        let hello = NodeHello {
            name: name.into(),
            address: Address::default(),
            process,
            on_disk: None,
            formats: Formats::PROGRAM,
            ..NodeHello::default()
        };
        let (status, body) = self.post("/v1/nodes/hello", &hello);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Starts again with members whose nodes are up: each asks for its plan.
    pub fn start_again(dir: &Path, address: SocketAddr, nodes: &[NodeWelcome]) -> Controller {
        let controller = Controller::start(dir, address);
        for node in nodes {
            controller.plan(node);
        }
        controller
    }

    pub fn plan(&self, w: &NodeWelcome) -> NodePlan {
        let path = format!("/v1/nodes/{}/plan?incarnation={}", w.node.0, w.incarnation);
        serde_json::from_str(&self.get(&path).1).unwrap()
    }

    /// The answer to a node that has a plan: status, who sent it, and the body.
    pub fn plan_after(
        &self,
        w: &NodeWelcome,
        after: u64,
        source: Option<&str>,
    ) -> (u16, Option<String>, String) {
        let source = source.map_or_else(String::new, |source| format!("&source={source}"));
        let path = format!(
            "/v1/nodes/{}/plan?incarnation={}&after={after}{source}",
            w.node.0, w.incarnation
        );
        let request = Self::agent().get(format!("http://{}{path}", self.address));
        let token = token_for(&path).authorization();
        let mut answer = request.header("Authorization", token).call().unwrap();
        let source = answer.headers().get(PLAN_SOURCE_HEADER);
        let source = source.map(|value| value.to_str().unwrap().to_string());
        let body = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), source, body)
    }

    /// The answer to a node that says which applications it has, and which it is asked for: status, the
    /// version of an empty answer, and the body.
    pub fn plan_for(
        &self,
        w: &NodeWelcome,
        (after, source): (u64, &str),
        (has, wants): (&str, &str),
    ) -> (u16, Option<u64>, String) {
        let path = format!(
            "/v1/nodes/{}/plan?incarnation={}&after={after}&source={source}&has={has}&wants={wants}",
            w.node.0, w.incarnation
        );
        let request = Self::agent().get(format!("http://{}{path}", self.address));
        let token = token_for(&path).authorization();
        let mut answer = request.header("Authorization", token).call().unwrap();
        let version = answer.headers().get(PLAN_VERSION_HEADER);
        let version = version.map(|v| v.to_str().unwrap().parse().unwrap());
        let body = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), version, body)
    }

    pub fn deploy(&self, manifest: &str) -> (u16, String) {
        self.post("/v1/apps", &deployment(manifest))
    }

    /// The answer to a path, parsed.
    pub fn view<T: serde::de::DeserializeOwned>(&self, path: &str) -> T {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Sends the report of a node.
    #[track_caller]
    pub fn report(&self, report: &NodeReport) {
        let (status, body) = self.post(&format!("/v1/nodes/{}/report", report.node.0), report);
        assert_eq!(status, 200, "{body}");
    }

    /// The value of a metric, with its labels in the order of their names.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        line.trim().parse().unwrap()
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub retry_after: Option<String>,
    pub body: String,
}

impl Answer {
    /// It is a refusal with this status, whose error has this text.
    #[track_caller]
    pub fn refused(&self, status: u16, text: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let error: ErrorView = serde_json::from_str(&self.body).unwrap();
        assert!(error.error.contains(text), "{self:?}");
    }
}

/// The files below a directory that hold these bytes.
pub fn files_with(dir: &Path, bytes: &[u8]) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if std::fs::read(&path)
            .unwrap()
            .windows(bytes.len())
            .any(|w| w == bytes)
        {
            found.push(path);
        }
    }
    found
}

/// The request that deploys the sample.
pub fn deployment(manifest: &str) -> DeployRequest {
    let modules = [("front.wasm", WASM), ("back.wasm", WASM)];
    DeployRequest {
        file: "app.yaml".into(),
        manifest: manifest.into(),
        modules: modules.map(|(p, m)| (p.to_string(), m.to_string())).into(),
        ..DeployRequest::default()
    }
}

/// The report of a node that has carried out its whole plan.
pub fn good_report(plan: &NodePlan, node: &NodeWelcome) -> NodeReport {
    let app = &plan.apps[0];
    let mine = app.shards.iter().filter(|s| s.role(node.node).is_some());
    let instance = |s: &ShardPlan| {
        let role = s.role(node.node).unwrap();
        let primary = role == Role::Primary;
        let backups = s.backups.iter().filter(|_| primary);
        InstanceReport {
            key: app.key(s),
            role,
            view: s.view,
            op: 0,
            commit: 0,
            queue: 0,
            dead_letters: 0,
            timers: 0,
            preemptions: 0,
            serving: primary,
            clock_off: false,
            stalled: Nanos(0),
            backups: backups
                .map(|node| BackupReport {
                    node: *node,
                    acked: 0,
                    synced: true,
                    required: true,
                    leased: true,
                })
                .collect(),
            memory_bytes: 0,
            code_version: u32::from(primary),
            error: None,
            last_failure: None,
        }
    };
    NodeReport {
        node: node.node,
        incarnation: node.incarnation,
        plan_version: plan.version,
        instances: mine.map(instance).collect(),
        ..NodeReport::default()
    }
}

pub const NODES: [&str; 6] = [
    "s1-host", "s1-nic0", "s2-host", "s2-nic0", "s3-host", "s3-nic0",
];

/// The key of a process's heartbeats; none if the controller does not count it as a member any more.
pub fn heartbeat_key(controller: SocketAddr, w: &NodeWelcome) -> Option<HeartbeatKey> {
    let path = format!("/v1/nodes/{}/plan?incarnation={}", w.node.0, w.incarnation);
    let request = Controller::agent().get(format!("http://{controller}{path}"));
    let answer = request.header("Authorization", token_for(&path).authorization());
    let answer = answer.call().unwrap();
    let key = answer.headers().get(HEARTBEAT_KEY_HEADER)?;
    Some(key.to_str().unwrap().parse().unwrap())
}

/// The next heartbeat of a node's process, with its tag.
pub fn tagged(w: &NodeWelcome, key: &HeartbeatKey, beat: &Heartbeat) -> Vec<u8> {
    /// Of all processes: several threads may speak for one.
    static SENT: AtomicU32 = AtomicU32::new(0);
    let sequence = SENT.fetch_add(1, Ordering::Relaxed) + 1;
    let format = Format::NEWEST;
    let mut bytes = heartbeat::encode(format, w.cluster, w.node, w.incarnation, beat);
    heartbeat::authenticate(format, &mut bytes, key, sequence);
    bytes
}

/// Sends heartbeats of these nodes until the flag is dropped.
pub fn beat(controller: SocketAddr, nodes: Vec<NodeWelcome>) -> std::sync::Arc<()> {
    beat_with(controller, nodes, std::sync::Arc::default())
}

/// The same; they say that the nodes have applied this version of the plan.
pub fn beat_with(
    controller: SocketAddr,
    nodes: Vec<NodeWelcome>,
    applied: std::sync::Arc<AtomicU32>,
) -> std::sync::Arc<()> {
    let alive = std::sync::Arc::new(());
    let watch = std::sync::Arc::downgrade(&alive);
    let keyed = nodes.into_iter().filter_map(|w| {
        let key = heartbeat_key(controller, &w)?;
        Some((w, key))
    });
    let keyed: Vec<_> = keyed.collect();
    std::thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        while watch.upgrade().is_some() {
            let beat = Heartbeat {
                plan_version_low: applied.load(Ordering::Relaxed),
                ..Heartbeat::default()
            };
            for (w, key) in &keyed {
                let bytes = tagged(w, key, &beat);
                let _ = socket.send_to(&bytes, controller);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    alive
}
