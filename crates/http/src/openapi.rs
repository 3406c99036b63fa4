//! The beginning of every description of an API (OpenAPI 3.1).

use serde_json::{Value, json};

/// A document with version and licence, and without paths.
pub fn document(title: &str, description: &str) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": env!("CARGO_PKG_VERSION"),
            "description": description,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
    })
}
