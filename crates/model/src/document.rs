//! Documents: `apiVersion`, `kind`, `metadata`, `spec`, in YAML. Errors are one line each, with
//! file, line, field, value and bound.

use crate::application::{Application, ApplicationSpec};
use crate::bounds;
use crate::limits::{DOCUMENT_LEN_MAX, TOPOLOGY_LEN_MAX};
use crate::profile::{Profile, ProfileSpec};
use crate::topology::{Topology, TopologySpec};
use crate::validate::{self, Fault};
use crate::validate_topology;
use saphyr::{LoadableYamlNode, MarkedYaml, YamlData};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of the documents that this program reads.
pub const API_VERSION: &str = "e3.dev/v1alpha1";

/// A document's frame.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Document<S> {
    /// `e3.dev/v1alpha1`.
    pub api_version: String,
    /// Kind of document.
    pub kind: String,
    /// Name and the like.
    pub metadata: Metadata,
    /// Content.
    pub spec: S,
}

/// What distinguishes documents.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Heading {
    api_version: Option<String>,
    kind: Option<String>,
}

/// `metadata` of a document.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// Name: lower-case letters, digits and hyphens, at most 63.
    pub name: String,
    /// Free words for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Kinds of documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// [`Application`].
    Application,
    /// [`Topology`].
    Topology,
    /// [`Profile`].
    Profile,
}

/// What is wrong with a document, where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ManifestError {
    /// Name of the file as the user gave it.
    pub file: String,
    /// Line, from 1; 0 if unknown.
    pub line: usize,
    /// Path of the field, such as `spec.services[2].shards`; empty for the whole document.
    pub field: String,
    /// What is wrong, with value and bound.
    pub message: String,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Reads and checks an application's manifest. `file` is only named in errors.
pub fn parse_application(file: &str, text: &str) -> Result<Application, ManifestError> {
    let document: Document<ApplicationSpec> = parse(file, text, Kind::Application)?;
    let app = Application {
        name: document.metadata.name,
        spec: document.spec,
    };
    validate::application(&app).map_err(|f| f.locate(file, text))?;
    Ok(app)
}

/// Reads and checks a topology. `file` is only named in errors.
pub fn parse_topology(file: &str, text: &str) -> Result<Topology, ManifestError> {
    let document: Document<TopologySpec> = parse(file, text, Kind::Topology)?;
    let topology = Topology::new(document.metadata.name, document.spec);
    validate_topology::topology(&topology).map_err(|f| f.locate(file, text))?;
    Ok(topology)
}

/// Reads and checks a profile. `file` is only named in errors.
pub fn parse_profile(file: &str, text: &str) -> Result<Profile, ManifestError> {
    let document: Document<ProfileSpec> = parse(file, text, Kind::Profile)?;
    let profile = Profile {
        name: document.metadata.name,
        spec: document.spec,
    };
    validate::profile(&profile).map_err(|f| f.locate(file, text))?;
    Ok(profile)
}

/// Checks that the application can live on this topology at all: memory, fault domains, pins.
/// `file` and `text` are the application's.
pub fn check_fit(
    file: &str,
    text: &str,
    app: &Application,
    topology: &Topology,
) -> Result<(), ManifestError> {
    validate::fit(app, topology).map_err(|f| f.locate(file, text))
}

/// Checks that there is a power model of every server's system. `file` and `text` are the
/// topology's, `known` the systems that there are models of.
pub fn check_systems(
    file: &str,
    text: &str,
    topology: &Topology,
    known: &[&str],
) -> Result<(), ManifestError> {
    validate_topology::systems(topology, known).map_err(|f| f.locate(file, text))
}

/// JSON schema of a kind of document.
pub fn json_schema(kind: Kind) -> schemars::Schema {
    match kind {
        Kind::Application => schemars::schema_for!(Document<ApplicationSpec>),
        Kind::Topology => schemars::schema_for!(Document<TopologySpec>),
        Kind::Profile => schemars::schema_for!(Document<ProfileSpec>),
    }
}

impl Kind {
    /// As written in `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Application => "Application",
            Kind::Topology => "Topology",
            Kind::Profile => "Profile",
        }
    }

    /// Bytes that a document of this kind may have.
    fn len_max(self) -> usize {
        match self {
            Kind::Topology => TOPOLOGY_LEN_MAX,
            Kind::Application | Kind::Profile => DOCUMENT_LEN_MAX,
        }
    }
}

fn parse<S: DeserializeOwned>(
    file: &str,
    text: &str,
    kind: Kind,
) -> Result<Document<S>, ManifestError> {
    let text = without_bom(text);
    check_bounds(file, text, kind.len_max())?;
    let fault = |field: &str, message: String| Fault::new(field, message).locate(file, text);
    // First, since another version or kind has other fields; what is missing is reported below.
    if let Ok(heading) = serde_norway::from_str::<Heading>(text) {
        let (version, name) = (heading.api_version, heading.kind);
        if let Some(version) = version.filter(|v| v != API_VERSION) {
            let message = format!("{version:?} is not known, must be {API_VERSION:?}");
            return Err(fault("apiVersion", message));
        }
        if let Some(name) = name.filter(|n| n != kind.name()) {
            let (found, expected) = (article(&name), article(kind.name()));
            let message = format!("this is {found}, expected {expected}");
            return Err(fault("kind", message));
        }
    }
    let document: Document<S> = serde_norway::from_str(text).map_err(|e| unreadable(file, &e))?;
    validate::name("metadata.name", &document.metadata.name).map_err(|f| f.locate(file, text))?;
    Ok(document)
}

/// Reads a file of settings, which has no frame. `file` is only named in errors.
pub fn parse_settings<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, ManifestError> {
    let text = without_bom(text);
    check_bounds(file, text, DOCUMENT_LEN_MAX)?;
    let kind = serde_norway::from_str::<Heading>(text).ok();
    if let Some(kind) = kind.and_then(|heading| heading.kind) {
        let message = format!("this is {}, expected settings", article(&kind));
        return Err(Fault::new("kind", message).locate(file, text));
    }
    serde_norway::from_str(text).map_err(|e| unreadable(file, &e))
}

fn article(kind: &str) -> String {
    if kind.starts_with(['A', 'E', 'I', 'O', 'U']) {
        format!("an {kind}")
    } else {
        format!("a {kind}")
    }
}

/// The text without the byte order mark that some editors put before it.
fn without_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn check_bounds(file: &str, text: &str, len_max: usize) -> Result<(), ManifestError> {
    bounds::check(text, len_max).map_err(|(line, message)| ManifestError {
        file: file.to_string(),
        line,
        field: String::new(),
        message,
    })
}

fn unreadable(file: &str, e: &serde_norway::Error) -> ManifestError {
    let line = e.location().map_or(0, |l| l.line());
    // The library appends the position and prepends the path; both are separated here.
    let message = e.to_string();
    let message = message
        .split(" at line ")
        .next()
        .unwrap_or_default()
        .to_string();
    let (field, message) = match message.split_once(": ") {
        Some((path, rest)) if !path.contains(' ') => (path.to_string(), rest.to_string()),
        _ => (String::new(), message),
    };
    ManifestError {
        file: file.to_string(),
        line,
        field,
        message,
    }
}

impl Fault {
    fn locate(self, file: &str, text: &str) -> ManifestError {
        ManifestError {
            file: file.to_string(),
            line: line_of(text, &self.field).unwrap_or(0),
            field: self.field,
            message: self.message,
        }
    }
}

/// Line of a field such as `spec.services[2].shards`, or of the closest one above it that is there.
fn line_of(text: &str, field: &str) -> Option<usize> {
    let documents = MarkedYaml::load_from_str(without_bom(text)).ok()?;
    let mut node = documents.first()?;
    let mut line = node.span.start.line();
    for part in field.split(['.', '[']) {
        let found = match (&node.data, part.strip_suffix(']')) {
            (YamlData::Sequence(items), Some(index)) => items
                .get(index.parse::<usize>().ok()?)
                .map(|n| (n, n.span.start.line())),
            (YamlData::Mapping(map), None) => map
                .iter()
                .find(|(k, _)| k.data.as_str() == Some(part))
                .map(|(k, v)| (v, k.span.start.line())),
            _ => None,
        };
        let Some((next, at)) = found else { break };
        node = next;
        line = at;
    }
    Some(line)
}

#[cfg(test)]
pub(crate) mod tests;
