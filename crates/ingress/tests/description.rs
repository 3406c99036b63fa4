//! The description of the API is the one that is in the documentation.

use e3_ingress::openapi::openapi;
use std::path::Path;

#[test]
fn the_description_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi-ingress.json");
    let text = serde_json::to_string_pretty(&openapi()).unwrap() + "\n";
    if std::env::var_os("E3_UPDATE").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == text,
        "docs/openapi-ingress.json is old: E3_UPDATE=1 cargo test -p e3-ingress --test description"
    );
}
