//! The HTTP/1.1 adapter: connections, routes, who may ask.

use crate::answer;
use crate::calls::Call;
use crate::connections::{Connections, Place};
use crate::gate::{Gate, Tidings};
use crate::head::{Form, Head};
use crate::limits::*;
use crate::openapi::openapi;
use crate::record::{self, RecordError};
use crate::refusal::{Refusal, as_json};
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use e3_model::Token;
use e3_model::limits::PAYLOAD_LEN_MAX;
use http_body_util::LengthLimitError;
use serde_json::json;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
struct Server {
    gate: Arc<Gate>,
    token: Token,
    port: u16,
    limits: ClientLimits,
}

/// Serves HTTP on this thread until the worker's end of the gate closes.
pub fn serve(
    listener: TcpListener,
    gate: Arc<Gate>,
    tidings: Tidings,
    token: Token,
    limits: ClientLimits,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let server = Server {
            gate: gate.clone(),
            token,
            port,
            limits,
        };
        let connections = Connections::default();
        let accept = connections.clone().accept(listener, router(server), limits);
        let accepting = tokio::spawn(accept);
        gate.run(tidings).await;
        // Clients that wait have their answers; let those leave.
        accepting.abort();
        let _ = tokio::time::timeout(CLOSE_GRACE, connections.closed()).await;
        Ok(())
    })
}

fn router(server: Server) -> Router {
    Router::new()
        .route("/healthz", get(async || Json(json!({ "status": "ok" }))))
        .route("/readyz", get(readyz))
        .route("/openapi.json", get(async || Json(openapi())))
        .route("/v1/apps/{app}", post(call))
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "no such path"))
        .layer(from_fn_with_state(server.clone(), admit))
        .layer(map_response(as_json))
        .with_state(server)
}

/// Paths that need no token.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];

/// Lets a request through to its handler, or refuses it. A page in a browser on this machine is no
/// client: the host must be a loopback name (against DNS rebinding), the origin this server's own.
async fn admit(State(server): State<Server>, request: Request, next: Next) -> Response {
    let checked = server
        .check_host(&request)
        .and_then(|()| server.check_origin(request.headers()))
        .and_then(|()| match OPEN.contains(&request.uri().path()) {
            true => Ok(()),
            false => server.check_token(request.headers()),
        });
    match checked {
        Ok(()) => {
            let busy = request.extensions().get().map(Place::busy);
            let response = next.run(request).await;
            drop(busy);
            response
        }
        Err(refusal) => refusal.into_response(),
    }
}

impl Server {
    fn check_host(&self, request: &Request) -> Result<(), Refusal> {
        let mut hosts = request.headers().get_all(HOST).iter();
        let wanted = format!("must be 127.0.0.1:{0} or localhost:{0}", self.port);
        let misdirected = |error: String| Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, error));
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return misdirected(format!("there must be one Host header, and it {wanted}"));
        };
        let host = String::from_utf8_lossy(host.as_bytes());
        let target = request.uri().authority().map(Authority::as_str);
        let mut named = std::iter::once(&*host).chain(target);
        match named.find(|name| !is_own(name, self.port)) {
            None => Ok(()),
            Some(other) => misdirected(format!("host {other:?} is not this node, {wanted}")),
        }
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        for origin in headers.get_all(ORIGIN) {
            let origin = String::from_utf8_lossy(origin.as_bytes());
            let own = origin.strip_prefix("http://");
            if !own.is_some_and(|authority| is_own(authority, self.port)) {
                let error = format!("origin {origin:?} is not this node's own");
                return Err(Refusal::new(StatusCode::FORBIDDEN, error));
            }
        }
        Ok(())
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (Some(value), None) if self.token.is_presented(value.as_bytes()) => Ok(()),
            (None, _) => Err(Refusal::unauthorized("a token is missing")),
            _ => Err(Refusal::unauthorized("the token is not this cluster's")),
        }
    }
}

/// Whether `host:port` is a loopback name or address with this port.
fn is_own(authority: &str, port: u16) -> bool {
    let Ok(parsed) = authority.parse::<Authority>() else {
        return false;
    };
    let host = parsed.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|a| a.is_loopback());
    // A URL's default port is left out.
    loopback && parsed.port_u16().unwrap_or(80) == port && !authority.contains('@')
}

async fn readyz(State(server): State<Server>) -> Response {
    match server.gate.is_ready() {
        true => Json(json!({ "status": "ready" })).into_response(),
        false => answer::refused("", crate::calls::Refused::NotReady).into_response(),
    }
}

async fn call(
    State(server): State<Server>,
    Path(app): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let gate = &server.gate;
    gate.check(&app).map_err(|r| answer::refused(&app, r))?;
    let (parts, body) = request.into_parts();
    let head = Head::parse(&parts)?;
    let body = read(body, server.limits.body_timeout).await?;
    let call = Call {
        app: app.clone(),
        key: head.key,
        payload: payload(head.form, body)?,
        idempotency_key: head.idempotency_key,
        timeout: head.timeout,
    };
    let given = gate.call(call).await;
    let given = given.map_err(|r| answer::refused(&app, r))?;
    Ok(answer::given(&app, given, head.wants))
}

fn too_large(error: String) -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error)
}

/// Reads a body within bounded time and length.
async fn read(body: Body, longest: Duration) -> Result<Bytes, Refusal> {
    let read = axum::body::to_bytes(body, BODY_LEN_MAX);
    match tokio::time::timeout(longest, read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(e)) => Err(match e.into_inner().is::<LengthLimitError>() {
            true => too_large(format!("the body has more than {BODY_LEN_MAX} bytes")),
            false => Refusal::bad("the body is not complete"),
        }),
        Err(_) => {
            let seconds = longest.as_secs_f64();
            let error = format!("the body was not complete within {seconds} s");
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, error))
        }
    }
}

/// The payload that a body stands for.
fn payload(form: Form, body: Bytes) -> Result<Vec<u8>, Refusal> {
    let (payload, what) = match form {
        Form::Json => {
            let record = record::parse(&body).map_err(|e| match e {
                RecordError::Syntax(_) => Refusal::bad(format!("the body is {e}")),
                RecordError::NotObject => {
                    let error = format!("the body {e}");
                    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error)
                        .hint("a record is an object such as {\"op\": \"get\"}; for plain bytes use Content-Type: application/octet-stream")
                }
            })?;
            (record::to_cbor(&record), "the record, as CBOR,")
        }
        Form::Cbor | Form::Bytes => (body.to_vec(), "the body"),
    };
    match payload.len() {
        0..=PAYLOAD_LEN_MAX => Ok(payload),
        len => Err(too_large(format!(
            "{what} has {len} bytes, at most {PAYLOAD_LEN_MAX} are allowed"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_with_the_own_port_are_own() {
        for own in ["127.0.0.1:7300", "LocalHost:7300", "[::1]:7300"] {
            assert!(is_own(own, 7300), "{own}");
        }
        for other in [
            "",
            "127.0.0.1",
            "localhost:7301",
            "evil.example:7300",
            "127.0.0.1.evil.example:7300",
            "evil@127.0.0.1:7300",
            "0.0.0.0:7300",
            "null",
        ] {
            assert!(!is_own(other, 7300), "{other}");
        }
        assert!(is_own("localhost", 80));
    }
}
