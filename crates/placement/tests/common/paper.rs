//! The paper's applications, clusters and profiles, as the repository has them. The tests of the solver
//! share this file.

#![allow(dead_code, reason = "each test uses a part")]

use e3_model::document::{parse_application, parse_profile, parse_topology};
use e3_model::{Application, Profile, Topology};
use std::collections::BTreeMap;

/// Names with the text of the file of that name.
type Texts = &'static [(&'static str, &'static str)];

macro_rules! texts {
    ($dir:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../", $dir, "/", $name, ".yaml")))),*]
    };
}

/// The eight applications.
pub const APPS: Texts = texts!("apps":
    "nfv-fin" "nfv-din" "nfv-ifid" "rta-ptc" "rta-sf" "rta-shm" "iot-dh" "iot-ts");

/// The five clusters of Table 4.
pub const CLUSTERS: Texts = texts!("topologies":
    "4x-beefy" "4x-wimpy" "2x-beefy-2x-wimpy" "2x-type2" "1x-superbeefy");

/// The cluster of the demo.
const DEMO: Texts = texts!("topologies": "3x-type1");

const PROFILES: Texts = texts!("profiles/paper":
    "apigw" "bayes" "bm25" "count" "ddos" "ema" "flowmon" "ipsec" "knn" "kvs" "natv4" "nids"
    "recommend" "spike" "sql" "topranker");

fn text(texts: Texts, name: &str) -> &'static str {
    let found = texts.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no {name:?} here")).1
}

/// An application of the paper.
pub fn app(name: &str) -> Application {
    parse_application(name, text(APPS, name)).unwrap()
}

/// A cluster of the paper or of the demo.
pub fn topology(name: &str) -> Topology {
    let all = [CLUSTERS, DEMO].concat();
    let (_, text) = all.iter().find(|(known, _)| *known == name).unwrap();
    parse_topology(name, text).unwrap()
}

/// The profiles of all services.
pub fn profiles() -> BTreeMap<String, Profile> {
    let parse = |(name, text): &(&str, &str)| parse_profile(name, text).unwrap();
    let profiles = PROFILES.iter().map(parse);
    profiles.map(|p| (p.name.clone(), p)).collect()
}
