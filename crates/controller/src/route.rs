//! What the table of routes says of one route: who may use it, what it takes and what it answers.

use crate::access::Access;
use crate::limits::BODY_LEN_MAX;
use axum::http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::collections::BTreeSet;

/// Makes the schema of a type, and of the types that it refers to.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

pub(crate) fn schema<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// A body that a route takes: JSON, or bytes if it has no schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) schema: Option<SchemaOf>,
    pub(crate) len_max: usize,
}

/// What a route answers with status 200.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Json(SchemaOf),
    /// Text of this media type.
    Text(&'static str),
    Bytes,
}

/// Parameters in the query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueryOf {
    None,
    Deploy,
    Plan,
    Offset,
    Service,
    /// Which process of a node asks.
    Process,
    Audit,
    Events,
}

/// One route of the API.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Name of the operation.
    pub name: &'static str,
    /// Method.
    pub method: &'static str,
    /// Path with parameters in braces.
    pub path: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Who may use it.
    pub access: Access,
    pub(crate) body: Option<Body>,
    pub(crate) answer: Answer,
    pub(crate) query: QueryOf,
    /// Statuses of refusals, beside those that follow from access, parameters and body.
    refusals: &'static [u16],
}

pub(crate) const fn route(
    access: Access,
    (method, path): (&'static str, &'static str),
    name: &'static str,
    summary: &'static str,
    answer: Answer,
) -> Route {
    Route {
        name,
        method,
        path,
        summary,
        access,
        body: None,
        answer,
        query: QueryOf::None,
        refusals: &[],
    }
}

impl Route {
    pub(crate) const fn takes(mut self, schema: SchemaOf, len_max: usize) -> Route {
        let schema = Some(schema);
        self.body = Some(Body { schema, len_max });
        self
    }

    pub(crate) const fn takes_bytes(mut self, len_max: usize) -> Route {
        let schema = None;
        self.body = Some(Body { schema, len_max });
        self
    }

    pub(crate) const fn query(mut self, query: QueryOf) -> Route {
        self.query = query;
        self
    }

    pub(crate) const fn refuses(mut self, statuses: &'static [u16]) -> Route {
        self.refusals = statuses;
        self
    }

    /// Its method, as requests name it.
    pub(crate) fn method(&self) -> String {
        self.method.to_ascii_uppercase()
    }

    pub(crate) fn is(&self, method: &Method) -> bool {
        method.as_str() == self.method()
    }

    /// Bytes of its body, if it takes one.
    pub(crate) fn body_len_max(&self) -> Option<usize> {
        self.body.map(|b| b.len_max)
    }

    /// Whether it changes something, and so is written to the audit log. The many requests that upload
    /// a state are not: the deployment that uses it is.
    pub(crate) fn is_command(&self) -> bool {
        let uploads = self.query == QueryOf::Offset;
        self.method != "get" && matches!(self.access, Access::Role(_)) && !uploads
    }

    /// Whether its body goes to the audit log: short JSON, never bytes, which may be a secret.
    pub(crate) fn body_is_audited(&self) -> bool {
        let short = |b: Body| b.schema.is_some() && b.len_max <= BODY_LEN_MAX;
        self.body.is_some_and(short)
    }

    /// Names of the parameters in its path.
    pub(crate) fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        let parts = self.path.split('/');
        parts.filter_map(|p| p.strip_prefix('{')?.strip_suffix('}'))
    }

    /// All statuses of its refusals.
    pub(crate) fn statuses(&self) -> BTreeSet<u16> {
        // Any request: a foreign origin, another host, no place for the connection.
        let mut statuses = BTreeSet::from([403, 421, 503]);
        statuses.extend(self.refusals);
        match self.access {
            Access::Open => {}
            Access::Node => drop(statuses.insert(401)),
            Access::Role(_) => statuses.extend([401, 429]),
        }
        if self.path_parameters().next().is_some() {
            statuses.extend([400, 404]);
        }
        if self.query != QueryOf::None {
            statuses.insert(400);
        }
        if let Some(body) = &self.body {
            statuses.extend([400, 408, 413]);
            if body.schema.is_some() {
                statuses.extend([415, 422]);
            }
        }
        statuses
    }
}
