//! Documents by name: a file, or one that is built into the program.

use crate::documents::files::{read_text, read_topology};
use crate::ui::failure::{Exit, Failure};
use e3_model::document::{
    API_VERSION, Document, Kind, Metadata, parse_application, parse_profile, parse_topology,
};
use e3_model::{Application, Profile, Topology};
use e3_placement::check_budgets;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Topology of `e3 up` and `e3 place`.
pub const TOPOLOGY_DEFAULT: &str = "3x-type1";

macro_rules! apps {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../../apps/", $name, ".yaml")))),*]
    };
}
const APPS: [(&str, &str); 10] = apps![
    "hello", "iot-dh", "iot-ts", "kvs", "nfv-din", "nfv-fin", "nfv-ifid", "rta-ptc", "rta-sf",
    "rta-shm"
];
macro_rules! topologies {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../../topologies/", $name, ".yaml")))),*]
    };
}
const TOPOLOGIES: [(&str, &str); 12] = topologies![
    "3x-type1",
    "3x-beefy",
    "1x-type1",
    "4x-beefy",
    "4x-wimpy",
    "2x-beefy-2x-wimpy",
    "2x-type2",
    "1x-superbeefy",
    "starvation",
    "day",
    "twin-host",
    "twin-smartnic"
];
macro_rules! assets {
    ($($name:literal),*) => {
        [$(($name, include_bytes!(concat!("../../../../data/", $name)) as &[u8])),*]
    };
}
/// The assets of the applications, by the name of their file.
const ASSETS: [(&str, &[u8]); 6] = assets![
    "iot-dh-points.csv",
    "nfv-routes.txt",
    "nids-rules.txt",
    "rta-ptc-points.csv",
    "runbooks.bm25",
    "spam-model.tsv"
];
/// The profiles of the paper's Table 1.
macro_rules! paper {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../../profiles/paper/", $name, ".yaml")))),*]
    };
}
const PROFILES: [(&str, &str); 16] = paper![
    "apigw",
    "bayes",
    "bm25",
    "count",
    "ddos",
    "ema",
    "flowmon",
    "ipsec",
    "knn",
    "kvs",
    "natv4",
    "nids",
    "recommend",
    "spike",
    "sql",
    "topranker"
];

/// The text of a document, with the name that errors give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The file as the user named it, or the name of the built-in document.
    pub file: String,
    /// Content.
    pub text: String,
    /// Directory of the file; None if it is built in.
    pub dir: Option<PathBuf>,
}

impl Text {
    /// The same manifest after a change of its application.
    pub fn with(&self, app: &Application) -> Text {
        let document = Document {
            api_version: API_VERSION.to_string(),
            kind: Kind::Application.name().to_string(),
            metadata: Metadata {
                name: app.name.clone(),
                description: None,
            },
            spec: app.spec.clone(),
        };
        Text {
            // JSON is YAML.
            text: serde_json::to_string(&document).expect("plain data"),
            ..self.clone()
        }
    }
}

/// The file of this name, else the built-in document.
fn find(
    name: &str,
    builtin: &[(&str, &str)],
    read: impl Fn(&Path) -> Result<String, Failure>,
) -> Result<Text, Failure> {
    let path = Path::new(name);
    if let Some((_, text)) = builtin.iter().find(|(n, _)| *n == name)
        && !path.is_file()
    {
        return Ok(Text {
            file: format!("{name} (built in)"),
            text: text.to_string(),
            dir: None,
        });
    }
    let text = read(path).map_err(|f| match f.exit {
        Exit::NotFound => {
            let names: Vec<&str> = builtin.iter().map(|(n, _)| *n).collect();
            f.hint(format!("built in: {}", names.join(", ")))
        }
        _ => f,
    })?;
    let dir = path.parent().map(Path::to_path_buf).unwrap_or_default();
    Ok(Text {
        file: name.to_string(),
        text,
        dir: Some(dir),
    })
}

/// Names of the built-in topologies.
pub fn topology_names() -> impl Iterator<Item = &'static str> {
    TOPOLOGIES.iter().map(|(name, _)| *name)
}

/// A topology by file or name, whatever the systems of its servers are.
pub fn any_topology(name: &str) -> Result<(Text, Topology), Failure> {
    let found = find(name, &TOPOLOGIES, read_topology)?;
    let topology = parse_topology(&found.file, &found.text)?;
    Ok((found, topology))
}

/// A topology by file or name.
pub fn topology(name: &str) -> Result<(Text, Topology), Failure> {
    let (found, topology) = any_topology(name)?;
    let power = e3_power::PowerModel::paper();
    let known: Vec<&str> = power.systems().keys().map(String::as_str).collect();
    e3_model::document::check_systems(&found.file, &found.text, &topology, &known)?;
    check_budgets(&topology, &power).map_err(|e| {
        let hint = "raise powerBudgetW, or leave it out";
        Failure::new(Exit::Input, format!("{}: {e}", found.file)).hint(hint)
    })?;
    Ok((found, topology))
}

/// An application by file or name.
pub fn application(name: &str) -> Result<(Text, Application), Failure> {
    let found = find(name, &APPS, read_text)?;
    let app = parse_application(&found.file, &found.text)?;
    Ok((found, app))
}

/// Names of the built-in applications.
pub fn app_names() -> impl Iterator<Item = &'static str> {
    APPS.iter().map(|(name, _)| *name)
}

/// Whether an application of this name is built in.
pub fn is_app(name: &str) -> bool {
    app_names().any(|app| app == name)
}

/// An asset of a built-in application.
pub fn asset(file: &str) -> Option<&'static [u8]> {
    let name = Path::new(file).file_name()?;
    let (_, content) = ASSETS.iter().find(|(n, _)| name == *n)?;
    Some(content)
}

/// A set of profiles.
pub struct Profiles {
    /// Their texts.
    pub texts: Vec<String>,
    /// By name.
    pub by_name: BTreeMap<String, Profile>,
}

/// The profiles of a directory (`*.yaml`), or the built-in ones.
pub fn profiles(dir: Option<&Path>) -> Result<Profiles, Failure> {
    let mut found = Vec::new();
    match dir {
        None => {
            let named = |(n, t): &(&str, &str)| (format!("{n} (built in)"), t.to_string());
            found.extend(PROFILES.iter().map(named));
        }
        Some(dir) => {
            let unreadable = |e: &std::io::Error| Failure::file("read", dir, e);
            for entry in std::fs::read_dir(dir).map_err(|e| unreadable(&e))? {
                let path = entry.map_err(|e| unreadable(&e))?.path();
                if path.extension().is_some_and(|e| e == "yaml") {
                    found.push((path.display().to_string(), read_text(&path)?));
                }
            }
            found.sort();
        }
    }
    let mut profiles = Profiles {
        texts: Vec::new(),
        by_name: BTreeMap::new(),
    };
    for (file, text) in found {
        let profile = parse_profile(&file, &text)?;
        profiles.by_name.insert(profile.name.clone(), profile);
        profiles.texts.push(text);
    }
    Ok(profiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_is_good() {
        for (name, _) in TOPOLOGIES {
            assert_eq!(topology(name).unwrap().1.name, name);
        }
        for (name, _) in APPS {
            let (_, app) = application(name).unwrap();
            assert_eq!(app.name, name);
            for asset in &app.spec.assets {
                assert!(
                    super::asset(&asset.file).is_some(),
                    "{name}: {}",
                    asset.file
                );
            }
        }
        let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps");
        let shipped = std::fs::read_dir(apps).unwrap().count();
        assert_eq!(shipped, APPS.len(), "an application is not built in");
        let profiles = profiles(None).unwrap();
        let names: Vec<&str> = profiles.by_name.keys().map(String::as_str).collect();
        assert_eq!(names, PROFILES.map(|(n, _)| n));
    }

    #[test]
    fn a_directory_does_not_hide_what_is_built_in() {
        // The tests run in the directory of this crate.
        let found = find("src", &[("src", "built in")], read_text).unwrap();
        assert_eq!(found.text, "built in");
        let found = find("Cargo.toml", &[("Cargo.toml", "built in")], read_text).unwrap();
        assert_ne!(found.text, "built in");
    }

    #[test]
    fn the_examples_of_the_manual_are_good() {
        let page = include_str!("../../../../docs/manifests.md");
        let mut kinds = Vec::new();
        for example in page.split("```yaml\n").skip(1) {
            let text = example.split("```").next().unwrap();
            let parsed = match text {
                t if t.contains("kind: Application") => parse_application("a", t).map(|a| a.name),
                t if t.contains("kind: Topology") => parse_topology("t", t).map(|t| t.name),
                t => parse_profile("p", t).map(|p| p.name),
            };
            kinds.push(parsed.unwrap());
        }
        assert_eq!(kinds, ["counter", "one-server", "ema"]);
    }

    #[test]
    fn each_topology_runs_an_application() {
        for (name, app) in [("1x-type1", "hello"), ("3x-beefy", "iot-ts")] {
            let (_, topology) = topology(name).unwrap();
            let (text, app) = application(app).unwrap();
            e3_model::document::check_fit(&text.file, &text.text, &app, &topology).unwrap();
        }
        let (_, topology) = topology("1x-type1").unwrap();
        let (text, app) = application("iot-ts").unwrap();
        let fit = e3_model::document::check_fit(&text.file, &text.text, &app, &topology);
        let why = fit.unwrap_err().to_string();
        assert!(
            why.contains("2 replicas need 2 fault domains (servers), usable: 1;"),
            "{why}"
        );
        assert!(why.contains("at most 1"), "{why}");
    }

    #[test]
    fn iot_ts_is_108_instances_and_fits() {
        let (text, app) = application("iot-ts").unwrap();
        assert_eq!(app.instances(), 108);
        let (_, topology) = topology(TOPOLOGY_DEFAULT).unwrap();
        e3_model::document::check_fit(&text.file, &text.text, &app, &topology).unwrap();
    }
}
