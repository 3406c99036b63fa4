//! The lock of a state directory, and what is left in it.

use super::*;

#[test]
fn only_one_supervisor_gets_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path());
    state.create().unwrap();
    let lock = state.lock().unwrap();
    let refused = state.lock().unwrap_err();
    assert_eq!(refused.exit, Exit::Conflict);
    let pid = format!("(process {})", std::process::id());
    assert!(refused.message.ends_with(&pid), "{}", refused.message);
    drop(lock);
    state.lock().unwrap();
}

#[test]
fn a_lock_notices_that_its_directory_is_gone_or_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(&dir.path().join("state"));
    state.create().unwrap();
    let lock = state.lock().unwrap();
    lock.check().unwrap();
    std::fs::rename(state.root(), dir.path().join("elsewhere")).unwrap();
    let gone = lock.check().unwrap_err().message;
    assert!(gone.ends_with("/state is gone"), "{gone}");
    state.create().unwrap();
    let _other = state.lock().unwrap();
    let replaced = lock.check().unwrap_err().message;
    assert!(replaced.ends_with("/state was replaced"), "{replaced}");
}

#[test]
fn a_stale_record_is_no_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::new(dir.path());
    state.create().unwrap();
    assert_eq!(state.running().unwrap(), None);
    let mut cluster = RunningCluster {
        supervisor: Process::this().unwrap(),
        port: 1,
        topology: "t".into(),
        nodes: vec!["n".into()],
        ready: true,
        not_started: Vec::new(),
        no_restart: false,
    };
    state.write_cluster(&cluster).unwrap();
    assert_eq!(state.running().unwrap(), Some(cluster.clone()));
    cluster.supervisor.start_ticks += 1;
    state.write_cluster(&cluster).unwrap();
    assert_eq!(state.running().unwrap(), None);
    let upgrading = Upgrading {
        node: "n".into(),
        cordoned: false,
    };
    state.write_upgrading(Some(&upgrading)).unwrap();
    state.clear_run().unwrap();
    assert_eq!(state.recorded().unwrap(), None);
    // The node stays drained in a cluster that is stopped.
    assert_eq!(state.upgrading().unwrap().unwrap().node, "n");
}
