//! The HTTP/1.1 adapter: connections, routes, authorization.

use crate::answer;
use crate::calls::Call;
use crate::connections::{Connections, Place};
use crate::gate::{Gate, WorkerEvents};
use crate::head::{Form, Head};
use crate::limits::*;
use crate::openapi::openapi;
use crate::record::{self, RecordError};
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use e3_http::{Own, Refusal, as_json};
use e3_model::Token;
use e3_model::api::{ProcessStatus, StatusView};
use e3_model::limits::PAYLOAD_LEN_MAX;
use http_body_util::LengthLimitError;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
struct Server {
    gate: Arc<Gate>,
    token: Token,
    own: Own,
    limits: ClientLimits,
}

/// Serves HTTP on this thread until the worker's end of the gate closes.
pub fn serve(
    listener: TcpListener,
    gate: Arc<Gate>,
    events: WorkerEvents,
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
            own: Own { what: "node", port },
            limits,
        };
        let connections = Connections::default();
        let accept = connections.clone().accept(listener, router(server), limits);
        let accepting = tokio::spawn(accept);
        gate.run(events).await;
        // Clients that wait have their answers; let those leave.
        accepting.abort();
        let _ = tokio::time::timeout(CLOSE_GRACE, connections.closed()).await;
        Ok(())
    })
}

fn router(server: Server) -> Router {
    Router::new()
        .route(
            "/healthz",
            get(async || {
                Json(StatusView {
                    status: ProcessStatus::Ok,
                })
            }),
        )
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

/// Lets a request through to its handler, or refuses it.
async fn admit(State(server): State<Server>, request: Request, next: Next) -> Response {
    match server.check(&request) {
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
    fn check(&self, request: &Request) -> Result<(), Refusal> {
        self.own.check(request)?;
        if OPEN.contains(&request.uri().path()) {
            return Ok(());
        }
        self.check_token(request.headers())
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

async fn readyz(State(server): State<Server>) -> Response {
    if server.gate.is_ready() {
        return Json(StatusView {
            status: ProcessStatus::Ready,
        })
        .into_response();
    }
    answer::refused("", crate::calls::Refused::NotReady).into_response()
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
        Ok(Err(e)) => Err(if e.into_inner().is::<LengthLimitError>() {
            too_large(format!("the body has more than {BODY_LEN_MAX} bytes"))
        } else {
            Refusal::bad("the body is not complete")
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
