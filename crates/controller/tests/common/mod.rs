//! A controller as a process, and clients and nodes that only talk.

use e3_controller::ControllerConfig;
use e3_model::api::*;
use e3_model::document::parse_topology;
use e3_model::plan::{NodeHello, NodePlan, NodeWelcome};
use e3_model::{Address, Nanos, Token};
use e3_wire::heartbeat::{self, Heartbeat};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

const TOPOLOGY: &str = include_str!("../../../../topologies/3x-type1.yaml");
pub const APP: &str = include_str!("../../../model/tests/two-services.yaml");
/// Base64 of an empty module.
pub const WASM: &str = "AGFzbQEAAAA=";

/// What the owner of the controllers under test presents.
pub fn owner_token() -> Token {
    Token::new([1; 32])
}

/// What their nodes present.
pub fn node_token() -> Token {
    Token::new([2; 32])
}

/// The token that a path takes.
pub fn token_for(path: &str) -> Token {
    let parts: Vec<&str> = path.split(['/', '?']).collect();
    match parts[..] {
        [_, "v1", "blobs", ..]
        | [_, "v1", "nodes", "hello", ..]
        | [_, "v1", "nodes", _, "plan" | "report", ..]
        | [_, "v1", "apps", _, "secrets", ..] => node_token(),
        _ => owner_token(),
    }
}

pub fn config(dir: &Path, listen: SocketAddr) -> ControllerConfig {
    ControllerConfig {
        listen,
        dir: dir.to_path_buf(),
        topology: parse_topology("t.yaml", TOPOLOGY).unwrap(),
        heartbeat_timeout: Nanos::from_millis(1_000),
        owner_token: owner_token(),
        node_token: node_token(),
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

/// Body of the test that [`Controller::start`] runs as a process.
pub fn controller_process() {
    if let (Ok(dir), Ok(listen)) = (
        std::env::var("E3_TEST_DIR"),
        std::env::var("E3_TEST_LISTEN"),
    ) {
        e3_controller::run(config(Path::new(&dir), listen.parse().unwrap())).unwrap();
    }
}

pub fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

impl Controller {
    pub fn start(dir: &Path, address: SocketAddr) -> Controller {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "controller_process",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("E3_TEST_DIR", dir)
            .env("E3_TEST_LISTEN", address.to_string())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let controller = Controller { address, child };
        controller.until("/v1/cluster");
        controller
    }

    /// Waits until a path is answered with 200.
    #[track_caller]
    pub fn until(&self, path: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.get(path).0 != 200 {
            assert!(Instant::now() < until, "{path} does not become good");
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

    pub fn join(&self, name: &str, process: u64) -> NodeWelcome {
        let hello = NodeHello {
            name: name.into(),
            address: Address::default(),
            process,
        };
        let (status, body) = self.post("/v1/nodes/hello", &hello);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub fn plan(&self, w: &NodeWelcome) -> NodePlan {
        let path = format!("/v1/nodes/{}/plan?incarnation={}", w.node.0, w.incarnation);
        serde_json::from_str(&self.get(&path).1).unwrap()
    }

    pub fn deploy(&self, manifest: &str) -> (u16, String) {
        let modules = [("front.wasm", WASM), ("back.wasm", WASM)];
        let request = DeployRequest {
            file: "app.yaml".into(),
            manifest: manifest.into(),
            modules: modules.map(|(p, m)| (p.to_string(), m.to_string())).into(),
            ..DeployRequest::default()
        };
        self.post("/v1/apps", &request)
    }
}

pub const NODES: [&str; 6] = [
    "s1-host", "s1-nic0", "s2-host", "s2-nic0", "s3-host", "s3-nic0",
];

/// Heartbeats of all nodes until the flag is dropped.
pub fn beat(controller: SocketAddr, nodes: Vec<NodeWelcome>) -> std::sync::Arc<()> {
    let alive = std::sync::Arc::new(());
    let watch = std::sync::Arc::downgrade(&alive);
    std::thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        while watch.upgrade().is_some() {
            for w in &nodes {
                let bytes =
                    heartbeat::encode(w.cluster, w.node, w.incarnation, &Heartbeat::default());
                let _ = socket.send_to(&bytes, controller);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    alive
}
