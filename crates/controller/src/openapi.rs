//! The OpenAPI 3.1 description of the API, made from the table of routes and the types of the model.

use crate::access::Access;
use crate::limits::{EVENTS_WAIT_MAX, PLAN_WAIT_MAX};
use crate::route::{Answer, QueryOf, Route, SchemaOf};
use crate::routes::ROUTES;
use axum::http::StatusCode;
use e3_http::openapi::document;
use e3_model::api::ErrorView;
use e3_model::limits::NAME_LEN_MAX;
use e3_model::plan_change::PlanChange;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::RecursiveTransform;
use schemars::{Schema, json_schema};
use serde_json::{Map, Value, json};

/// Where other parts of the document find a schema.
const SCHEMAS: &str = "/components/schemas";

/// The OpenAPI description of the routes.
pub fn openapi() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = SCHEMAS.into();
    // A description of its own for each type; the dialect is that of the document.
    settings.meta_schema = None;
    settings
        .transforms
        .push(Box::new(RecursiveTransform(bound)));
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(route, &mut schemas);
    }
    let token = |whose: &str| json!({ "type": "http", "scheme": "bearer", "description": whose });
    let mut document = document("E3 controller", "See docs/api.md.");
    document["servers"] = json!([{
        "url": "http://127.0.0.1:7300",
        "description": "the default port",
    }]);
    document["paths"] = paths.into();
    document["components"] = json!({
        "schemas": schemas.take_definitions(true),
        "securitySchemes": {
            "token": token("A token with the role that the operation names, or one that includes it: read, deploy, admin. The owner's, in the file `token` of the state directory, has the role admin."),
            "node": token("The nodes' token: the file `node-token` of the state directory."),
        },
    });
    document
}

/// Writes the bounds of Rust's integers into a schema that only names their format.
fn bound(schema: &mut Schema) {
    let maximum = match schema.get("format").and_then(Value::as_str) {
        Some("uint8") => u64::from(u8::MAX),
        Some("uint16") => u64::from(u16::MAX),
        Some("uint32") => u64::from(u32::MAX),
        Some("uint64") => u64::MAX,
        _ => return,
    };
    if schema.get("maximum").is_none() {
        schema.insert("maximum".into(), maximum.into());
    }
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = route.path_parameters().map(path_parameter).collect();
    match route.query {
        QueryOf::None => {}
        QueryOf::Deploy => parameters.push(dry_run()),
        QueryOf::Plan => parameters.extend(plan_parameters()),
        QueryOf::Offset => parameters.push(offset()),
        QueryOf::Service => parameters.push(service()),
        QueryOf::Process => parameters.push(incarnation()),
        QueryOf::Audit => parameters.extend(audit_parameters()),
        QueryOf::Events => parameters.extend(events_parameters()),
    }
    let security = match route.access {
        Access::Open => json!([]),
        // Names of roles that are required (OpenAPI 3.1, section 4.8.30).
        Access::Role(role) => json!([{ "token": [role.name()] }]),
        Access::Node => json!([{ "node": [] }]),
    };
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "security": security,
        "parameters": parameters,
        "responses": responses(route, schemas),
    });
    if let Some(body) = &route.body {
        let description = format!("At most {} bytes.", body.len_max);
        let content = match body.schema {
            Some(schema) => json_content(schema, schemas),
            None => {
                let some = json!({
                    "type": "string",
                    "format": "binary",
                    "minLength": 1,
                    "maxLength": body.len_max,
                });
                json!({ "application/octet-stream": { "schema": some } })
            }
        };
        operation["requestBody"] = json!({
            "required": true,
            "description": description,
            "content": content,
        });
    }
    operation
}

fn json_content(of: SchemaOf, schemas: &mut SchemaGenerator) -> Value {
    json!({ "application/json": { "schema": of(schemas) } })
}

fn path_parameter(name: &str) -> Value {
    let (what, schema) = match name {
        "id" => (
            "a node's id",
            json_schema!({ "type": "integer", "minimum": 0, "maximum": u16::MAX }),
        ),
        "backup" | "restore" => (
            "its number",
            json_schema!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
        ),
        "part" => (
            "numbers of service and shard",
            json_schema!({ "type": "string", "pattern": "^[0-9]+-[0-9]+$" }),
        ),
        "file" => (
            "numbers of service and shard, or SHA-256 in hexadecimal",
            json_schema!({ "type": "string", "pattern": "^([0-9]+-[0-9]+|[0-9a-f]{64})$" }),
        ),
        "digest" => (
            "SHA-256 in hexadecimal",
            json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" }),
        ),
        _ => (
            "a name: lower-case letters, digits and hyphens",
            json_schema!({
                "type": "string",
                "pattern": "^[a-z0-9][a-z0-9-]*$",
                "minLength": 1,
                "maxLength": NAME_LEN_MAX,
            }),
        ),
    };
    json!({ "name": name, "in": "path", "required": true, "description": what, "schema": schema })
}

fn dry_run() -> Value {
    json!({
        "name": "dryRun",
        "in": "query",
        "required": false,
        "description": "check only: the same answer, and nothing changes",
        "schema": { "type": "boolean", "default": false },
    })
}

fn offset() -> Value {
    json!({
        "name": "offset",
        "in": "query",
        "required": false,
        "description": "place of the first byte in the file",
        "schema": { "type": "integer", "minimum": 0, "maximum": u64::MAX, "default": 0 },
    })
}

fn service() -> Value {
    json!({
        "name": "service",
        "in": "query",
        "required": false,
        "description": "only this service of the application",
        "schema": { "type": "string", "maxLength": NAME_LEN_MAX },
    })
}

/// A number in the query; 0 if it is not required and not there.
fn number(name: &str, required: bool, what: &str, maximum: u64) -> Value {
    let mut schema = json!({ "type": "integer", "minimum": 0, "maximum": maximum });
    if !required {
        schema["default"] = 0.into();
    }
    json!({
        "name": name,
        "in": "query",
        "required": required,
        "description": what,
        "schema": schema,
    })
}

fn incarnation() -> Value {
    let what = "the process's incarnation";
    number("incarnation", true, what, u32::MAX.into())
}

/// Ids of applications in the query, with commas between them.
fn app_ids(name: &str, what: &str) -> Value {
    json!({
        "name": name,
        "in": "query",
        "required": false,
        "description": what,
        "schema": { "type": "string", "pattern": "^([0-9]{1,5}(,[0-9]{1,5})*)?$" },
    })
}

fn plan_parameters() -> [Value; 8] {
    let after = "version of the plan that it has";
    let wait = "longest wait for a newer plan in milliseconds";
    let wait_max = PLAN_WAIT_MAX.as_millis() as u64;
    let source = "the header e3-plan-source of the answer with the plan that it has";
    let cluster = "number of the cluster that it has joined";
    let applied_source = "the same of a node that wants a whole plan";
    let has = "ids of the applications that its plan has; without it the plan has all";
    let wants = "ids of those that it is asked for";
    [
        incarnation(),
        number("after", false, after, u64::MAX),
        number("wait_ms", false, wait, wait_max),
        number("source", false, source, u64::MAX),
        number("applied_source", false, applied_source, u64::MAX),
        number("cluster", false, cluster, u64::MAX),
        app_ids("has", has),
        app_ids("wants", wants),
    ]
}

fn audit_parameters() -> [Value; 2] {
    let after = "only records with greater numbers";
    let since = "only records from then on, in milliseconds since the Unix epoch";
    [
        number("after", false, after, u64::MAX),
        number("sinceUnixMs", false, since, u64::MAX),
    ]
}

fn events_parameters() -> [Value; 2] {
    let since = "number of the last event that is known; only later ones are listed";
    let wait = "longest wait for a later event in seconds";
    [
        number("since", false, since, u64::MAX),
        number("wait", false, wait, EVENTS_WAIT_MAX.as_secs()),
    ]
}

fn responses(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    let done = match route.answer {
        Answer::Json(of) => json_content(of, schemas),
        Answer::Text(media) => json!({ media: { "schema": { "type": "string" } } }),
        // Raw bytes have no schema (OpenAPI 3.1, section 4.8.14.1).
        Answer::Bytes => json!({ "application/octet-stream": {} }),
    };
    let ok = json!({ "description": "done", "content": done });
    responses.insert("200".into(), ok);
    if route.query == QueryOf::Plan {
        let nothing = json!({ "description": "there was no newer plan in time, or only the version differs, which the header e3-plan-version has" });
        responses.insert("204".into(), nothing);
        let change = json!({
            "description": "what has changed since the plan that it has (RFC 3229)",
            "content": json_content(|s| s.subschema_for::<PlanChange>(), schemas),
        });
        responses.insert("226".into(), change);
    }
    for status in route.statuses() {
        let reason = StatusCode::from_u16(status)
            .ok()
            .and_then(|s| s.canonical_reason());
        let mut refused = json!({
            "description": reason.unwrap_or("refused").to_lowercase(),
            "content": json_content(|s| s.subschema_for::<ErrorView>(), schemas),
        });
        if status == StatusCode::TOO_MANY_REQUESTS {
            let seconds = json!({ "schema": { "type": "integer", "minimum": 1 } });
            refused["headers"] = json!({ "Retry-After": seconds });
        }
        if status == StatusCode::UNAUTHORIZED {
            let challenge = json!({ "schema": { "type": "string", "const": "Bearer" } });
            refused["headers"] = json!({ "WWW-Authenticate": challenge });
        }
        responses.insert(status.to_string(), refused);
    }
    responses.into()
}
