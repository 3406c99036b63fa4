//! The description of a node's HTTP API (OpenAPI 3.1).

use crate::answer::OUTCOMES;
use crate::limits::*;
use e3_http::openapi::document;
use e3_model::api::ErrorView;
use e3_model::limits::{DEADLINE_ALLOWED, KEY_LEN_MAX};
use schemars::schema_for;
use serde_json::{Value, json};

/// The document that every node serves at `/openapi.json`.
pub fn openapi() -> Value {
    let description = "Requests to applications. Every node takes requests for every application.";
    let mut document = document("E3 node", description);
    document["servers"] =
        json!([{ "url": "/", "description": "the node that serves this document" }]);
    document["tags"] = json!([
        { "name": "requests", "description": "for programs that use applications" },
        { "name": "health", "description": "for operators and monitoring" },
    ]);
    document["security"] = json!([{ "token": [] }]);
    document["paths"] = json!({
        "/healthz": { "get": open("health", "getHealth", "the process works", status_body("ok")) },
        "/readyz": { "get": readyz() },
        "/openapi.json": { "get": open("health", "getOpenapi", "this description", json!({ "type": "object" })) },
        "/v1/apps/{app}": { "post": call() },
    });
    document["components"] = json!({
        "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        "schemas": { "ErrorView": schema_for!(ErrorView) },
    });
    document
}

fn status_body(status: &str) -> Value {
    json!({
        "type": "object",
        "required": ["status"],
        "properties": { "status": { "const": status } },
    })
}

fn open(tag: &str, id: &str, summary: &str, schema: Value) -> Value {
    json!({
        "operationId": id,
        "tags": [tag],
        "summary": summary,
        "security": [],
        "responses": {
            "200": { "description": summary, "content": { "application/json": { "schema": schema } } },
            "default": error("refused", json!({})),
        },
    })
}

fn readyz() -> Value {
    let mut get = open(
        "health",
        "getReadiness",
        "the node takes requests",
        status_body("ready"),
    );
    get["responses"]["503"] = error("the node takes no requests", json!({}));
    get
}

fn error(description: &str, headers: Value) -> Value {
    let schema = json!({ "$ref": "#/components/schemas/ErrorView" });
    json!({
        "description": description,
        "headers": headers,
        "content": { "application/json": { "schema": schema } },
    })
}

/// Headers of every answer of the platform.
fn answered() -> Value {
    let header = |text: &str, schema: Value| json!({ "description": text, "schema": schema });
    json!({
        "E3-Outcome": header("what became of the request", json!({ "enum": OUTCOMES })),
        "E3-Attempts": header("attempts that the node made", json!({ "type": "integer" })),
        "E3-Request-Id": header("identity of the request", json!({ "type": "string" })),
    })
}

fn retry_after() -> Value {
    let header = json!({
        "description": "seconds to wait before the next attempt",
        "schema": { "type": "integer", "minimum": 1 },
    });
    json!({ "Retry-After": header })
}

fn call() -> Value {
    let name = json!({ "type": "string", "minLength": 1 });
    let key = json!({ "type": "string", "minLength": 1, "maxLength": KEY_LEN_MAX });
    let deadline = json!({
        "type": "integer",
        "minimum": 1,
        // What every application allows. A client that is made from this document cannot know more.
        "maximum": DEADLINE_ALLOWED.as_millis(),
        "default": DEADLINE_MS,
    });
    let idempotency = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": IDEMPOTENCY_KEY_LEN_MAX,
        "pattern": "^[!-~]+$",
    });
    let parameter = |name: &str, place: &str, text: &str, schema: Value| {
        json!({
            "name": name,
            "in": place,
            "required": place == "path" || name == "key",
            "description": text,
            "schema": schema,
        })
    };
    let bytes = json!({ "schema": { "type": "string", "format": "binary" } });
    let mut done = answered();
    done["E3-Status"] = json!({
        "description": "the service's own status; 0 = ok",
        "schema": { "type": "integer", "minimum": 0 },
    });
    json!({
        "operationId": "callApplication",
        "tags": ["requests"],
        "summary": "have a request handled by an application",
        "parameters": [
            parameter("app", "path", "name of the application", name),
            parameter("key", "query", "routing key: requests with the same key are handled by the same shard, in order. It may be in the header E3-Key instead", key),
            parameter("Idempotency-Key", "header", "with it a repeated request takes effect once and gets the stored answer, at every node", idempotency),
            parameter("E3-Deadline-Ms", "header", "milliseconds after which the request is not handled any more. An application whose manifest states a longer deadline than a minute also accepts values up to that deadline", deadline),
        ],
        "requestBody": {
            "description": "JSON becomes a record; any other type is passed to the service as bytes",
            "content": {
                "application/json": { "schema": { "type": "object" } },
                "application/octet-stream": bytes,
            },
        },
        "responses": {
            "200": {
                "description": "handled; the service's status is in E3-Status. A record comes as JSON, or as CBOR if the client prefers it; anything else as bytes",
                "headers": done,
                "content": {
                    "application/json": { "schema": { "type": "object" } },
                    "application/cbor": bytes,
                    "application/octet-stream": bytes,
                },
            },
            "400": error("a header, the query or the JSON cannot be read, or a value is out of bounds", json!({})),
            "401": error("the token is missing or wrong", json!({ "WWW-Authenticate": { "schema": { "type": "string" } } })),
            "403": error("the request comes from a page of another origin", json!({})),
            "404": error("there is no such application", json!({})),
            "408": error("the body was not complete in time", json!({})),
            "413": error("the body or the record is too large", json!({})),
            "415": error("the body's coding or character set is not supported", json!({})),
            "421": error("the host is not this node", json!({})),
            "422": error("the JSON is no object, or the Idempotency-Key was used for another request", json!({})),
            "429": error("overloaded: nothing was done", retry_after()),
            "431": error("the headers are too large", json!({})),
            "500": error("every attempt failed; the request is a dead letter", answered()),
            "501": error("the transfer coding is not supported", json!({})),
            "503": error("the node takes no requests now", retry_after()),
            "504": error("E3-Outcome expired: not handled before its deadline, a dead letter. unknown: no answer before the deadline", answered()),
        },
    })
}
