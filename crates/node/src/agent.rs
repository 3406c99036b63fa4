//! The agent: acts for the controller on this node. It joins and asks for plans, in threads of its own,
//! so that a slow or absent controller never holds up requests.

use crate::complaints::Complaints;
use crate::config::NodeError;
use crate::limits::{
    ANSWER_LEN_MAX, API_TIMEOUT, BLOB_LEN_MAX, CONNECT_TIMEOUT, HELLO_LATE_MAX, HELLO_PROMPT,
    IDLE_MAX, PLAN_APPS_MAX, RETRY_INTERVAL,
};
use crate::resolver::AddressResolver;
use crate::supplies::Supplies;
use e3_clock::Clock;
use e3_model::api::ErrorView;
use e3_model::plan::{NodeHello, NodePlan, NodeWelcome};
use e3_model::plan_change::{PLAN_SOURCE_HEADER, PLAN_VERSION_HEADER, PlanChange};
use e3_model::{AppId, Timestamp, Token};
use e3_wire::{HEARTBEAT_KEY_HEADER, HeartbeatKey};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use ureq::http::StatusCode;
use ureq::unversioned::transport::DefaultConnector;

/// What reaches the driver from the agent.
pub(crate) enum AgentEvent {
    /// A newer plan.
    Plan(Arc<NodePlan>),
    /// What is here by now of what plans name.
    Supplies(Supplies),
    /// The controller does not count this process as a member any more.
    Expelled,
}

/// HTTP to the controller.
#[derive(Clone)]
pub(crate) struct Api {
    base: String,
    http: ureq::Agent,
    token: Token,
}

/// The key of heartbeats that the controller sent last to a member.
pub(crate) type LatestKey = Arc<Mutex<Option<HeartbeatKey>>>;

pub(crate) enum Answer<T> {
    Ok(T),
    /// Nothing new.
    Empty,
    /// Refused: status and text.
    Refused(u16, String),
}

/// Why bytes were not fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoBytes {
    /// The controller answered otherwise, or with bytes that are not what was asked for.
    #[error("GET {path}: status {status}: {text}")]
    Refused {
        path: String,
        status: u16,
        text: String,
    },
    /// No whole answer came.
    #[error("GET {path}: {source}")]
    Lost { path: String, source: ureq::Error },
}

impl<T> Answer<T> {
    fn map<U>(self, to: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Answer::Ok(value) => Answer::Ok(to(value)),
            Answer::Empty => Answer::Empty,
            Answer::Refused(status, text) => Answer::Refused(status, text),
        }
    }
}

/// A plan that was sent.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) plan: Arc<NodePlan>,
    /// The controller process that sent it, if it says so.
    source: Option<u64>,
}

impl Sent {
    /// Its version, and who sent it.
    pub(crate) fn version(&self) -> (u64, Option<u64>) {
        (self.plan.version, self.source)
    }
}

impl Api {
    pub(crate) fn new(base: &str, token: Token) -> Api {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(API_TIMEOUT))
            .max_idle_age(IDLE_MAX)
            .proxy(None)
            .build();
        Api {
            base: base.trim_end_matches('/').to_string(),
            http: ureq::Agent::with_parts(
                config,
                DefaultConnector::default(),
                AddressResolver::default(),
            ),
            token,
        }
    }

    fn fetch(&self, path: &str) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
        let request = self.http.get(format!("{}{path}", self.base));
        request
            .header("Authorization", self.token.authorization())
            .call()
    }

    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer<T>, ureq::Error> {
        answer(
            self.http
                .post(format!("{}{path}", self.base))
                .header("Authorization", self.token.authorization())
                .send_json(body)?,
        )
    }

    /// The plan, once it differs from the one that the node has; none if it does not in time. Notes the key
    /// that comes with the answer.
    pub(crate) fn plan(
        &self,
        welcome: &NodeWelcome,
        (old, newest): (Option<&Sent>, (u64, Option<u64>)),
        wants: &BTreeSet<AppId>,
        wait: Duration,
        key: &LatestKey,
    ) -> Result<Answer<Sent>, ureq::Error> {
        let (id, incarnation) = (welcome.node.0, welcome.incarnation);
        let cluster = welcome.cluster;
        // Also if a whole plan is wanted: a controller that has lost this version must hear of it.
        let (after, sent_by) = newest;
        let wait_ms = wait.as_millis();
        let field = match old {
            Some(_) => "source",
            None => "applied_source",
        };
        let source = sent_by.map_or_else(String::new, |source| format!("&{field}={source}"));
        let has: Vec<AppId> = old.iter().flat_map(|old| old.plan.routed()).collect();
        let interest = if has.len().max(wants.len()) <= PLAN_APPS_MAX {
            format!("&has={}&wants={}", ids(&has), ids(wants))
        } else {
            // The lists would be too long for a request: the node is sent all applications.
            String::new()
        };
        let response = self.fetch(&format!(
            "/v1/nodes/{id}/plan?cluster={cluster}&after={after}&incarnation={incarnation}&wait_ms={wait_ms}{interest}{source}"
        ))?;
        let header = |name| response.headers().get(name)?.to_str().ok();
        let number = |name| header(name)?.parse().ok();
        // Before the plan whose format may need it.
        if let Some(Ok(sent)) = header(HEARTBEAT_KEY_HEADER).map(str::parse) {
            *key.lock().unwrap_or_else(PoisonError::into_inner) = Some(sent);
        }
        let (source, version) = (number(PLAN_SOURCE_HEADER), number(PLAN_VERSION_HEADER));
        let sent = |plan| Sent {
            plan: Arc::new(plan),
            source,
        };
        if response.status() != StatusCode::IM_USED {
            let answer = answer(response)?.map(sent);
            return Ok(match (answer, old, version) {
                (Answer::Empty, Some(old), Some(version)) if version > after => {
                    let plan = NodePlan::clone(&old.plan);
                    let plan = NodePlan { version, ..plan }.into();
                    let source = old.source;
                    Answer::Ok(Sent { plan, source })
                }
                (answer, ..) => answer,
            });
        }
        let answer = answer::<PlanChange>(response)?;
        let base = old.map(|old| &*old.plan);
        Ok(match answer.map(|change| base?.changed(change)) {
            Answer::Ok(Some(plan)) => Answer::Ok(sent(plan)),
            Answer::Ok(None) => {
                let error = format!("the response is not a change of plan {after}");
                Answer::Refused(StatusCode::IM_USED.as_u16(), error)
            }
            Answer::Empty => Answer::Empty,
            Answer::Refused(status, text) => Answer::Refused(status, text),
        })
    }

    /// Sends bytes; gives the status.
    pub(crate) fn send_bytes(&self, path: &str, bytes: &[u8]) -> Result<u16, ureq::Error> {
        let request = self.http.post(format!("{}{path}", self.base));
        let mut response = request
            .header("Authorization", self.token.authorization())
            .send(bytes)?;
        // What is read to its end leaves the connection for the next request.
        let _ = response.body_mut().read_to_vec();
        Ok(response.status().as_u16())
    }

    pub(crate) fn bytes(&self, path: &str) -> Result<Vec<u8>, NoBytes> {
        let lost = |source| NoBytes::Lost {
            path: path.into(),
            source,
        };
        let mut response = self.fetch(path).map_err(lost)?;
        let status = response.status().as_u16();
        if status != 200 {
            let text = response.body_mut().read_to_string().unwrap_or_default();
            let view: Result<ErrorView, _> = serde_json::from_str(&text);
            return Err(NoBytes::Refused {
                path: path.into(),
                status,
                text: view.map_or(text, |view| view.error),
            });
        }
        let body = response.body_mut().with_config().limit(BLOB_LEN_MAX);
        body.read_to_vec().map_err(lost)
    }

    /// A module or an asset, with the digest that it is named by.
    pub(crate) fn blob(&self, digest: &str) -> Result<Arc<[u8]>, NoBytes> {
        let path = format!("/v1/blobs/{digest}");
        let bytes = self.bytes(&path)?;
        let found = e3_engine::sha256(&bytes);
        if found != digest {
            let text = format!(
                "the bytes have the SHA-256 {found}; if this goes on, deploy the application again"
            );
            let status = 200;
            return Err(NoBytes::Refused { path, status, text });
        }
        Ok(bytes.into())
    }
}

/// Ids with commas between them.
fn ids<'a>(apps: impl IntoIterator<Item = &'a AppId>) -> String {
    let ids: Vec<String> = apps.into_iter().map(|app| app.0.to_string()).collect();
    ids.join(",")
}

fn answer<T: DeserializeOwned>(
    mut response: ureq::http::Response<ureq::Body>,
) -> Result<Answer<T>, ureq::Error> {
    let status = response.status().as_u16();
    match status {
        204 => Ok(Answer::Empty),
        200..=299 => {
            let body = response
                .body_mut()
                .with_config()
                .limit(ANSWER_LEN_MAX)
                .read_to_vec()?;
            match serde_json::from_slice(&body) {
                Ok(value) => Ok(Answer::Ok(value)),
                Err(e) => Ok(Answer::Refused(
                    status,
                    format!("answer cannot be read: {e}"),
                )),
            }
        }
        _ => Ok(Answer::Refused(
            status,
            response.body_mut().read_to_string().unwrap_or_default(),
        )),
    }
}

/// Whether the controller is down or cannot be reached, which a member need not say.
pub(crate) fn is_no_connection(error: &ureq::Error) -> bool {
    use ureq::Error::{ConnectionFailed, HostNotFound, Io};
    matches!(error, Io(_) | HostNotFound | ConnectionFailed)
}

/// A process that the controller has made a member.
pub(crate) struct Joined {
    pub(crate) welcome: NodeWelcome,
    /// When it asked.
    pub(crate) asked: Timestamp,
    /// When it was answered.
    pub(crate) answered: Timestamp,
}

/// Joins the cluster; waits for the controller as long as it takes. A controller that has just started may
/// answer late, and the time of its answer says little of this node's clock then: it is asked once more.
pub(crate) fn join(
    api: &Api,
    hello: &NodeHello,
    clock: &Clock,
    stop: &AtomicBool,
) -> Result<Option<Joined>, NodeError> {
    let mut complaints = Complaints::default();
    let mut late = 0;
    while !stop.load(Ordering::Relaxed) {
        let asked = clock.now();
        match api.post("/v1/nodes/hello", hello) {
            Ok(Answer::Ok(welcome)) => {
                let answered = clock.now();
                if answered.since(asked) > HELLO_PROMPT && late < HELLO_LATE_MAX {
                    late += 1;
                    continue;
                }
                return Ok(Some(Joined {
                    welcome,
                    asked,
                    answered,
                }));
            }
            Ok(Answer::Refused(status @ 400..=499, text)) => {
                return Err(NodeError::Refused {
                    name: hello.name.clone(),
                    status,
                    text,
                });
            }
            Ok(Answer::Refused(status, text)) => {
                if complaints.is_new(&format!("{status}: {text}")) {
                    tracing::warn!(status, error = text, "controller lets no node join yet");
                }
            }
            Ok(Answer::Empty) => {}
            Err(e) => {
                if complaints.is_new(&e.to_string()) {
                    tracing::warn!(error = %e, "controller does not answer yet");
                }
            }
        }
        thread::sleep(RETRY_INTERVAL);
    }
    Ok(None)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use e3_model::{Nanos, NodeKind};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    /// A controller that answers each request with the next of these.
    pub(crate) fn controller(answers: Vec<String>) -> Api {
        heard_controller(answers).0
    }

    /// The same, with the headers of the requests.
    pub(crate) fn heard_controller(answers: Vec<String>) -> (Api, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (heard, requests) = channel();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") {
                    stream.read_exact(&mut byte).unwrap();
                    head.push(byte[0]);
                }
                let _ = heard.send(String::from_utf8(head).unwrap());
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        (Api::new(&url, Token::new([7; 32])), requests)
    }

    pub(crate) fn answer(status: &str, body: &str) -> String {
        let len = body.len();
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n{body}")
    }

    #[test]
    fn bytes_with_another_digest_are_refused() {
        let api = controller(vec![answer("200 OK", "modulf"), answer("200 OK", "module")]);
        let digest = e3_engine::sha256(b"module");
        let error = api.blob(&digest).unwrap_err().to_string();
        assert!(error.contains(&e3_engine::sha256(b"modulf")), "{error}");
        assert_eq!(&*api.blob(&digest).unwrap(), b"module");
    }

    #[test]
    fn the_time_of_an_answer_that_came_late_is_not_used() {
        let welcome = |at| {
            let welcome = serde_json::json!({
                "cluster": 1, "node": 1, "incarnation": 1, "now": Timestamp(at),
                "kind": NodeKind::Host, "emulated": false, "link_latency": Nanos::ZERO,
            });
            serde_json::from_value::<NodeWelcome>(welcome.clone()).unwrap();
            answer("200 OK", &welcome.to_string())
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for (at, wait_ms) in [(1, 300), (2, 0), (2, 0), (2, 0)] {
                let (mut stream, _) = listener.accept().unwrap();
                stream
                    .set_read_timeout(Some(Duration::from_millis(20)))
                    .unwrap();
                while stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
                thread::sleep(Duration::from_millis(wait_ms));
                stream.write_all(welcome(at).as_bytes()).unwrap();
            }
        });
        let api = Api::new(&url, Token::new([7; 32]));
        let (clock, stop) = (Clock::new(), AtomicBool::new(false));
        let joined = join(&api, &NodeHello::default(), &clock, &stop);
        assert_eq!(joined.unwrap().unwrap().welcome.now, Timestamp(2));
    }

    #[test]
    fn bytes_that_are_gone_differ_from_those_that_cannot_be_read() {
        let api = controller(vec![
            answer("404 Not Found", r#"{"error":"there is no restore 3"}"#),
            answer("500 Internal Server Error", "what"),
        ]);
        let error = api.bytes("/part").unwrap_err();
        assert!(matches!(error, NoBytes::Refused { status: 404, .. }));
        assert_eq!(
            error.to_string(),
            "GET /part: status 404: there is no restore 3"
        );
        let error = api.bytes("/part").unwrap_err();
        assert!(matches!(error, NoBytes::Refused { status: 500, .. }));
    }
}
