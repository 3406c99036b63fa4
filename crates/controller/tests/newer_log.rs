//! A controller on the log of a newer release: it starts only if it has the cluster's format, and
//! otherwise says which release is needed.

use crate::common::{Controller, config, free_port};
use e3_control::{Command, Control, Genesis};
use e3_model::Format;
use e3_model::api::{ClusterView, FormatRequest, FormatResponse};
use e3_store::Store;

/// Starts a controller on a log that begins so; why it does not start.
fn refused(write: impl FnOnce(&mut Store, Genesis)) -> String {
    let tmp = tempfile::tempdir().unwrap();
    let config = config(tmp.path(), free_port());
    let genesis = Genesis::Init {
        cluster: 9,
        topology: config.topology.clone(),
        format: Format(7),
        release: "0.1.0".into(),
    };
    let (mut store, _) = Store::open(&tmp.path().join("log")).unwrap();
    write(&mut store, genesis);
    store.sync().unwrap();
    drop(store);
    e3_controller::run(config).unwrap_err().to_string()
}

fn append(store: &mut Store, value: &impl serde::Serialize) {
    store.append(&serde_json::to_vec(value).unwrap()).unwrap();
}

fn check(why: &str) {
    let expected = "the cluster writes format 12, this program (release 0.1.0) has formats 7 to 11; \
                    start release \"0.2.0\" or a newer one";
    assert!(why.ends_with(expected), "{why}");
}

#[test]
fn a_log_that_goes_on_to_a_newer_format_is_refused_with_the_release_that_is_needed() {
    check(&refused(|store, genesis| {
        append(store, &genesis);
        let (to, release) = (Format(12), "0.2.0".into());
        append(store, &Command::RaiseFormat { to, release });
        // Nothing that follows is read.
        store.append(b"a command of the future").unwrap();
    }));
}

#[test]
fn a_snapshot_in_a_newer_format_is_refused_whatever_else_it_holds() {
    check(&refused(|store, genesis| {
        append(store, &genesis);
        store.sync().unwrap();
        let mut snapshot = serde_json::to_value(Control::founded(genesis)).unwrap();
        snapshot["format"] = 12.into();
        snapshot["format_release"] = "0.2.0".into();
        snapshot["apps"] = "as a later release writes them".into();
        let bytes = serde_json::to_vec(&snapshot).unwrap();
        store.snapshot(&bytes).unwrap();
    }));
}

#[test]
fn a_new_cluster_begins_with_the_newest_format_and_stays_there() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    let cluster: ClusterView = controller.view("/v1/cluster");
    assert_eq!(cluster.format, Format::NEWEST);
    let raise = |format| controller.post("/v1/format", &FormatRequest { format });
    let (status, body) = raise(Format::NEWEST);
    assert_eq!(status, 200, "{body}");
    let raised: FormatResponse = serde_json::from_str(&body).unwrap();
    assert_eq!(raised.format, raised.format_before);
    for other in [6, 12] {
        let (status, body) = raise(Format(other));
        assert_eq!(status, 409, "{body}");
        let why = "it is 11 now, and the controller has formats 7 to 11";
        assert!(body.contains(why), "{body}");
    }
}
