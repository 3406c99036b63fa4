//! What is admitted on a cluster and what is not, and what is said of it.

use e3_model::document::{parse_application, parse_topology};
use e3_model::plan::Role;
use e3_model::{Application, NodeId, ServiceId};
use e3_placement::{AdmitError, Cluster, Request, admit, by_name};
use std::collections::BTreeMap;

const TOPOLOGY: &str = include_str!("../../../topologies/3x-type1.yaml");
const APP: &str = include_str!("../../model/tests/two-services.yaml");

fn app(from: &str, to: &str) -> Application {
    assert!(APP.contains(from), "{from:?}");
    parse_application("a.yaml", &APP.replace(from, to)).unwrap()
}

fn refused(app: &Application, cluster: &Cluster, overcommit: bool) -> Option<AdmitError> {
    let profiles = BTreeMap::new();
    let request = Request::new(app, &profiles);
    admit(
        &*by_name("hcm-kind").unwrap(),
        &request,
        &mut cluster.clone(),
        overcommit,
    )
    .err()
}

fn empty() -> Cluster {
    Cluster::new(&parse_topology("t.yaml", TOPOLOGY).unwrap())
}

#[test]
fn an_instance_that_no_node_can_hold_is_refused_always() {
    let app = app("cpu: 0.5", "cpu: 1000");
    for overcommit in [false, true] {
        let error = refused(&app, &empty(), overcommit).unwrap();
        assert!(matches!(error, AdmitError::TooLarge(_)), "{error:?}");
        assert_eq!(
            error.to_string(),
            "instance front/0 primary fits on no node: it asks for 1000.00 cores, the most that one \
             node has free is 12.00 cores (s1-host); s1-host comes closest: needs 1000.00 cores, \
             12.00 free; 6 of 6 instances do not fit, and no node it may run on is large enough"
        );
    }
    let memory = self::app("memory: 64Mi", "memory: 100Gi");
    let error = refused(&memory, &empty(), true).unwrap();
    assert!(matches!(error, AdmitError::TooLarge(_)), "{error:?}");
    assert!(
        error.to_string().contains("asks for 100Gi of memory"),
        "{error}"
    );
}

#[test]
fn more_than_the_nodes_have_together_is_refused_unless_it_is_accepted() {
    let many = app("shards: 2", "shards: 40");
    let many = Application {
        spec: {
            let mut spec = many.spec.clone();
            spec.services[1].resources.cpu = 6.0;
            spec
        },
        ..many
    };
    let error = refused(&many, &empty(), false).unwrap();
    assert!(matches!(error, AdmitError::NoRoom(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("instance back/"), "{text}");
    assert!(
        text.contains("asks for 6.00 cores, the most that one node has free"),
        "{text}"
    );
    assert!(text.contains(" of 82 instances do not fit"), "{text}");
    assert!(error.hint().contains("--overcommit"), "{}", error.hint());
    assert_eq!(refused(&many, &empty(), true), None);
}

#[test]
fn what_runs_already_and_nodes_that_are_down_count() {
    let large = app("cpu: 0.5", "cpu: 8");
    assert_eq!(refused(&large, &empty(), false), None);
    let profiles = BTreeMap::new();
    let request = Request::new(&large, &profiles);
    let mut cluster = empty();
    for node in (0..6).map(NodeId) {
        cluster.add(&request, ServiceId(0), Role::Primary, node);
    }
    let error = refused(&large, &cluster, false).unwrap();
    assert!(
        error.to_string().contains("has free is 4.00 cores"),
        "{error}"
    );
    let mut cluster = empty();
    for node in (2..6).map(NodeId) {
        cluster.set_member(node, false);
    }
    let error = refused(&large, &cluster, true).unwrap();
    assert!(matches!(error, AdmitError::Place(_)), "{error:?}");
}
