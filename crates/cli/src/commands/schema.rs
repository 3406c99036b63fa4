//! `e3 schema`: the JSON schemas of the documents, which are also in `docs/schema`.

use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use clap::{Args, ValueEnum};
use e3_model::Kind;
use e3_model::document::json_schema;

/// Kinds of documents.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DocumentKind {
    /// Application
    Application,
    /// Topology
    Topology,
    /// Profile
    Profile,
}

/// `e3 schema`.
#[derive(Args, Debug, Clone)]
pub struct Schema {
    /// Kind of the document
    #[arg(value_enum, ignore_case = true)]
    pub kind: DocumentKind,
}

impl DocumentKind {
    fn kind(self) -> Kind {
        match self {
            DocumentKind::Application => Kind::Application,
            DocumentKind::Topology => Kind::Topology,
            DocumentKind::Profile => Kind::Profile,
        }
    }
}

/// `e3 schema`.
pub fn run(args: &Schema) -> Result<(), Failure> {
    output::print(&text(args.kind)?)
}

fn text(kind: DocumentKind) -> Result<String, Failure> {
    let schema = serde_json::to_string_pretty(&json_schema(kind.kind()));
    let schema = schema.map_err(|e| Failure::new(Exit::Unexpected, format!("schema: {e}")))?;
    Ok(schema + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schemas_are_those_of_the_code() {
        for (kind, published) in [
            (
                DocumentKind::Application,
                include_str!("../../../../docs/schema/application.json"),
            ),
            (
                DocumentKind::Topology,
                include_str!("../../../../docs/schema/topology.json"),
            ),
            (
                DocumentKind::Profile,
                include_str!("../../../../docs/schema/profile.json"),
            ),
        ] {
            let name = kind.kind().name().to_lowercase();
            let same = text(kind).unwrap() == published;
            assert!(
                same,
                "update it with: e3 schema {name} > docs/schema/{name}.json"
            );
        }
    }
}
