//! A program of a user: requests to applications over HTTP.

use super::E3;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Talks to the nodes of a cluster.
#[derive(Clone)]
pub struct Http {
    /// Base URLs of the nodes by name.
    pub nodes: Vec<(String, String)>,
    /// The cluster's token.
    pub token: String,
    agent: ureq::Agent,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// Status of HTTP.
    pub status: u16,
    headers: ureq::http::HeaderMap,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value, or nothing.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |v| v.to_str().unwrap())
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {text} {self:?}"))
    }

    /// Expects a refusal with this status, whose text says these words.
    #[track_caller]
    pub fn refused(&self, status: u16, words: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let body = self.json();
        let error = body["error"].as_str().unwrap();
        assert!(error.contains(words), "{error:?} does not say {words:?}");
        assert!(!error.contains('\n'));
    }
}

impl Http {
    /// To the cluster that is up.
    pub fn new(e3: &E3) -> Http {
        let mut nodes = Value::Null;
        e3.until("every node is up", |e3| {
            nodes = e3.json(&["get", "nodes"]);
            let mut all = nodes.as_array().unwrap().iter();
            all.all(|n| n["url"].is_string())
        });
        let text = |value: &Value| value.as_str().unwrap().to_string();
        let nodes = nodes.as_array().unwrap().iter();
        let nodes = nodes.map(|n| (text(&n["name"]), text(&n["url"]))).collect();
        let token = std::fs::read_to_string(e3.dir.path().join("state/token")).unwrap();
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .max_idle_connections(0)
            .proxy(None)
            .build();
        Http {
            nodes,
            token: token.trim().to_string(),
            agent: agent.into(),
        }
    }

    /// `POST path` at a node, with these headers beside the token. An error also if the node has ended and
    /// its port is now that of another test's node, which refuses the token.
    pub fn post(
        &self,
        node: usize,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, ureq::Error> {
        match self.send(node, path, headers, body)? {
            Answer { status: 401, .. } => Err(ureq::Error::StatusCode(401)),
            answer => Ok(answer),
        }
    }

    fn send(
        &self,
        node: usize,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, ureq::Error> {
        let authorization = format!("Bearer {}", self.token);
        let url = format!("{}{path}", self.nodes[node].1);
        let mut request = self.agent.post(url);
        request = request.header("authorization", authorization);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request.send(body))
    }

    /// What the nodes answer, asked in turn. Those that have ended are left out.
    pub fn answers(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> impl Iterator<Item = Answer> {
        let ask = move |node| self.post(node, path, headers, body).ok();
        (0..self.nodes.len()).filter_map(ask)
    }

    /// The same at the first node, which must answer, a refused token included.
    #[track_caller]
    pub fn ask(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.send(0, path, headers, body).unwrap()
    }

    /// `GET path` at the first node, without a token.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        let url = format!("{}{path}", self.nodes[0].1);
        answer(self.agent.get(url).call()).unwrap()
    }

    /// Writes bytes to a new connection with the first node, closes or holds the sending half, and
    /// reads until the node closes.
    pub fn raw(&self, bytes: &[u8], hold: bool) -> String {
        let address = self.nodes[0].1.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let longest = Duration::from_secs(60);
        stream.set_read_timeout(Some(longest)).unwrap();
        // The node may have refused and closed before it has read everything.
        let _ = stream.write_all(bytes);
        if !hold {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let mut text = Vec::new();
        match stream.read_to_end(&mut text) {
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(e) => panic!("the node holds the connection: {e}"),
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The head of a request to the first node, without the empty line at its end.
    pub fn head(&self, path: &str, more: &str) -> String {
        let address = self.nodes[0].1.strip_prefix("http://").unwrap();
        let token = &self.token;
        format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{more}"
        )
    }
}

fn answer(
    response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Answer, ureq::Error> {
    let mut response = response?;
    Ok(Answer {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.body_mut().read_to_vec()?,
    })
}
