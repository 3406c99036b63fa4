//! Documents: `apiVersion`, `kind`, `metadata`, `spec`, in YAML. Errors are one line each, with
//! file, line, field, value and bound.

use crate::application::{Application, ApplicationSpec};
use crate::bounds;
use crate::profile::{Profile, ProfileSpec};
use crate::topology::{Topology, TopologySpec};
use crate::validate::{self, Fault};
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
    validate::topology(&topology).map_err(|f| f.locate(file, text))?;
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
    validate::systems(topology, known).map_err(|f| f.locate(file, text))
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
}

fn parse<S: DeserializeOwned>(
    file: &str,
    text: &str,
    kind: Kind,
) -> Result<Document<S>, ManifestError> {
    let text = without_bom(text);
    check_bounds(file, text)?;
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
    check_bounds(file, text)?;
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

fn check_bounds(file: &str, text: &str) -> Result<(), ManifestError> {
    bounds::check(text).map_err(|(line, message)| ManifestError {
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
pub(crate) mod tests {
    use super::*;
    use crate::topic::Topic;

    /// An application of stateless one-shard services joined by `(from, to, outputs)`.
    pub(crate) fn application(channels: &[(&str, &str, u32)]) -> Application {
        let mut names: Vec<&str> = Vec::new();
        for (from, to, _) in channels {
            for name in [from, to] {
                if !names.contains(name) {
                    names.push(name);
                }
            }
        }
        let services: String = names
            .iter()
            .map(|n| {
                format!("  - {{name: {n}, module: {n}.wasm, resources: {{cpu: 1, memory: 1Mi}}}}\n")
            })
            .collect();
        let list: String = channels
            .iter()
            .map(|(from, to, outputs)| {
                format!("  - {{from: {from}, to: {to}, outputs: {outputs}}}\n")
            })
            .collect();
        let text = format!(
            "objective: {{latency: 5ms}}\ningress: {}\nservices:\n{services}channels:\n{list}",
            names[0]
        );
        Application {
            name: "test".into(),
            spec: serde_norway::from_str(&text).unwrap(),
        }
    }

    const GOOD: &str = include_str!("../tests/two-services.yaml");

    fn error(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from:?} is not in the sample");
        parse_application("a.yaml", &GOOD.replacen(from, to, 1))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_sample_is_good() {
        let app = parse_application("a.yaml", GOOD).unwrap();
        assert_eq!(app.instances(), 2 + 4);
        assert_eq!(app.channels_from(ServiceId(0)).count(), 1);
    }

    #[test]
    fn topics_and_subscriptions_are_checked() {
        let with = |publishes: &str, end: &str| {
            let from = "    - name: back";
            let text = GOOD.replacen(from, &format!("      {publishes}\n{from}"), 1);
            parse_application("a.yaml", &format!("{text}\n  {end}\n"))
        };
        let error = |publishes, end| with(publishes, end).unwrap_err().to_string();
        let both = "topics: [orders]\n  subscriptions: [{topic: orders, service: back}, {topic: \
                    shop/orders, service: back}]";
        let app = with("publishes: [orders]", both).unwrap();
        let topic = |application: &str| Topic {
            application: application.into(),
            name: "orders".into(),
        };
        for application in [app.name.as_str(), "shop"] {
            let topic = topic(application);
            assert!(app.subscribers(&topic).eq([ServiceId(1)]), "{topic}");
        }
        assert_eq!(app.subscribers(&topic("other")).count(), 0);
        for (publishes, end, says) in [
            (
                "publishes: [orders]",
                "topics: [sales]",
                "service \"front\": there is no topic \"orders\" in spec.topics",
            ),
            (
                "publishes: [orders, orders]",
                "topics: [orders]",
                "names topic \"orders\" twice",
            ),
            ("asks: []", "topics: [a, a]", "names topic \"a\" twice"),
            (
                "asks: []",
                "subscriptions: [{topic: sales, service: back}]",
                "there is no topic \"sales\"; add it to spec.topics, or name one of another \
                 application as APPLICATION/TOPIC",
            ),
            (
                "asks: []",
                "subscriptions: [{topic: shop/sales, service: books}]",
                "there is no service \"books\"",
            ),
            (
                "asks: []",
                "subscriptions: [{topic: a/b, service: back}, {topic: a/b, service: back}]",
                "service \"back\" is subscribed to topic \"a/b\" twice",
            ),
        ] {
            let error = error(publishes, end);
            assert!(error.ends_with(says), "{error}");
        }
        assert!(
            error("asks: []", "subscriptions: [{topic: a/b/c, service: back}]").contains("b/c")
        );
    }

    #[test]
    fn whom_a_service_asks_is_checked() {
        let with = |text: &str| {
            let text = format!("    {text}\n    - name: back");
            let from = "    - name: back".to_string();
            parse_application("a.yaml", &GOOD.replacen(&from, &text, 1))
        };
        let error = |text: &str| with(text).unwrap_err().to_string();
        let app = with("  asks: [back, front]\n      http: {hosts: [api.example.com]}").unwrap();
        assert_eq!(app.spec.services[0].asks, ["back", "front"]);
        assert!(
            error("  asks: [stock]").ends_with("service \"front\": there is no service \"stock\"")
        );
        assert!(error("  asks: [back, back]").ends_with("names \"back\" twice"));
        assert!(error("  http: {hosts: []}").ends_with("0 hosts, must be 1..=64"));
        let url = error("  http: {hosts: [\"http://a.com\"]}");
        assert!(
            url.ends_with("host \"http://a.com\" must be a host without scheme and path"),
            "{url}"
        );
        let stateless = GOOD.replacen("stateful: true\n      replicas: 2", "stateful: false", 1);
        let stateless = stateless.replacen(
            "      collections:\n        - {name: seen, kind: counter}",
            "      asks: [back]",
            1,
        );
        let error = parse_application("a.yaml", &stateless)
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("a stateless service makes no outbound requests; set stateful: true"),
            "{error}"
        );
    }

    #[test]
    fn errors_name_file_line_field_value_and_bound() {
        assert_eq!(
            error("shards: 2", "shards: 0"),
            "a.yaml:19: spec.services[1].shards: service \"back\": shards is 0, must be 1..=4096"
        );
        let unknown = error("ingress: front", "ingres: front");
        assert!(unknown.starts_with("a.yaml:"), "{unknown}");
        assert!(unknown.contains("unknown field `ingres`"), "{unknown}");
        let twice = error("name: back", "name: front");
        assert!(
            twice.contains("two services are named \"front\""),
            "{twice}"
        );
        let nowhere = error("to: back", "to: nowhere");
        assert!(
            nowhere.contains("a.yaml:26: spec.channels[0].to"),
            "{nowhere}"
        );
        let cycle = error("channels:", "channels:\n    - {from: back, to: front}");
        assert!(cycle.contains("cycle"), "{cycle}");
        let quantity = error("latency: 5ms", "latency: 5");
        assert!(
            quantity.starts_with("a.yaml:6: spec.objective"),
            "{quantity}"
        );
        for (state, shown) in [("0Mi", "0"), ("65Mi", "65Mi")] {
            let quota = error("memory: 64Mi}", &format!("memory: 64Mi, state: {state}}}"));
            let expected = format!(
                "a.yaml:13: spec.services[0].resources.state: service \"front\": state is {shown}, must be more than 0 and at most memory, 64Mi"
            );
            assert_eq!(quota, expected);
        }
        let ttl = error("kind: counter}", "kind: counter, ttl: 0s}");
        assert_eq!(
            ttl,
            "a.yaml:15: spec.services[0].collections[0].ttl: service \"front\": ttl of collection \"seen\" is 0, must be more than 0"
        );
        for (calls, expected) in [
            (
                "gone",
                "a.yaml:12: spec.services[0].calls[0]: service \"front\": calls \"gone\": there is no service \"gone\"",
            ),
            (
                "front",
                "a.yaml:12: spec.services[0].calls[0]: service \"front\": calls itself, must name another service",
            ),
        ] {
            let calls = format!("stateful: true\n      calls: [{calls}]");
            let said = error("stateful: true", &calls);
            assert_eq!(said, expected);
        }
        let cycle = error(
            "stateful: true\n      shards",
            "stateful: true\n      calls: [front]\n      shards",
        );
        assert!(
            cycle.contains("spec.services[1].calls: calls and channels form a cycle"),
            "{cycle}"
        );
        let kind = error("kind: Application", "kind: Pod");
        assert_eq!(
            kind,
            "a.yaml:2: kind: this is a Pod, expected an Application"
        );
    }

    #[test]
    fn a_pin_is_a_kind_or_a_node() {
        let pinned = |pin: &str| {
            let text = GOOD.replacen(
                "stateful: true",
                &format!("stateful: true\n      pin: {pin}"),
                1,
            );
            parse_application("a.yaml", &text)
        };
        let app = pinned("{kind: smartnic}").unwrap();
        let pin = app.spec.services[0].pin.clone();
        assert_eq!(pin, Some(Pin::Kind(NodeKind::SmartNic)));
        let json = serde_json::to_string(&app).unwrap();
        assert!(json.contains(r#""pin":{"kind":"smartnic"}"#), "{json}");
        assert_eq!(serde_json::from_str::<Application>(&json).unwrap(), app);
        let error = pinned("{kind: host, node: n}").unwrap_err().to_string();
        assert!(error.contains("either kind or node"), "{error}");
        let schema = serde_json::to_string(&json_schema(Kind::Application)).unwrap();
        assert!(
            schema.contains("On this node (one shard, one replica)"),
            "{schema}"
        );
    }

    #[test]
    fn garbage_is_an_error_not_a_panic() {
        let laughs = format!(
            "{}*a9",
            (1..10).fold("a0: &a0 [1, 1]\n".to_string(), |text, i| {
                let items = vec![format!("*a{}", i - 1); 9].join(", ");
                text + &format!("a{i}: &a{i} [{items}]\n")
            })
        );
        let deep = "[".repeat(100_000);
        for text in [
            &laughs,
            &deep,
            "",
            "\u{0}",
            "a: [",
            "- 1",
            "&a [*a]",
            "{}",
            "apiVersion: 1",
        ] {
            assert!(parse_application("a.yaml", text).is_err(), "{text:?}");
            assert!(parse_topology("a.yaml", text).is_err(), "{text:?}");
        }
    }

    use crate::application::Pin;
    use crate::ids::ServiceId;
    use crate::topology::NodeKind;
}
