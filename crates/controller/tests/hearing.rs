//! What nodes send, however much it is.

use crate::common::{APP, Controller, NODES, free_port};
use e3_model::plan::{CopyOnDisk, NodeHello, OnDisk};
use e3_model::{Address, AppId, Formats, ServiceId, ShardId, ShardKey};

#[test]
fn a_node_with_thousands_of_copies_on_its_disk_joins() {
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path(), free_port());
    let nodes: Vec<_> = NODES.iter().map(|n| controller.join(n, 1)).collect();
    assert_eq!(controller.deploy(APP).0, 200);
    // An old copy changes nothing.
    let copy = CopyOnDisk {
        key: ShardKey {
            app: AppId(1),
            service: ServiceId(0),
            shard: ShardId(0),
        },
        era: 0,
        view: 0,
    };
    let hello = NodeHello {
        name: NODES[1].into(),
        address: Address::default(),
        process: 2,
        on_disk: Some(OnDisk {
            cluster: nodes[1].cluster,
            copies: vec![copy; 20_000],
        }),
        formats: Formats::PROGRAM,
        ..NodeHello::default()
    };
    let (status, body) = controller.post("/v1/nodes/hello", &hello);
    assert_eq!(status, 200, "{body}");
}
