//! Records of a journal are read back as they were written; anything else is an error.

use e3_model::application::{Collection, CollectionKind};
use e3_model::reshard::Split;
use e3_model::{AppId, Nanos, ServiceId, ShardId, ShardKey, Timestamp};
use e3_testkit::{Random, seeds};
use e3_wire::WireError;
use e3_wire::journal::{Origin, Record, Step};

const KEY: ShardKey = ShardKey {
    app: AppId(3),
    service: ServiceId(2),
    shard: ShardId(1),
};

fn records() -> Vec<Record> {
    let collection = |name: &str, kind| Collection {
        name: name.into(),
        kind,
        ttl: (name > "b").then(|| Nanos::from_secs(1)),
    };
    let origin = Origin {
        cluster: 7,
        era: 4,
        since: Timestamp(9),
        collections: vec![
            collection("a", CollectionKind::HashMap),
            collection("b", CollectionKind::OrderedMap),
            collection("c", CollectionKind::Array),
            collection("d", CollectionKind::Counter),
        ],
    };
    let steps = [
        Step::Begin(origin.clone()),
        Step::Checkpoint(origin),
        Step::Piece(vec![1; 300]),
        Step::Item(vec![2; 300]),
        Step::Reign(5),
        Step::Drop,
        Step::Reshard(Split::new(3, 12).unwrap(), 9),
    ];
    steps.map(|step| Record { key: KEY, step }).into()
}

#[test]
fn records_are_read_back() {
    for record in records() {
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Ok(record.clone()));
        if let Step::Item(item) = &record.step {
            assert_eq!(Record::encode_item(KEY, item), bytes);
        }
    }
}

#[test]
fn the_format_is_fixed() {
    // What is on disks must be read by later versions.
    let bytes = Record {
        key: KEY,
        step: Step::Reign(5),
    }
    .encode();
    assert_eq!(bytes, [3, 3, 0, 2, 0, 1, 0, 5, 5, 0, 0, 0]);
}

#[test]
fn another_version_is_named() {
    let mut bytes = records()[4].encode();
    bytes[0] = 4;
    let error = Record::decode(&bytes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "version of a journal's record is 4, which is not defined"
    );
}

#[test]
fn what_is_cut_short_or_random_is_an_error_or_another_record() {
    for record in records() {
        let bytes = record.encode();
        for len in 0..bytes.len() {
            // An item is as long as it is.
            let is_open = matches!(record.step, Step::Piece(_) | Step::Item(_)) && len >= 8;
            assert_eq!(
                Record::decode(&bytes[..len]).is_ok(),
                is_open,
                "{len} bytes"
            );
        }
    }
    let too_long = Record::encode_item(KEY, &vec![0; 60_001]);
    assert!(matches!(
        Record::decode(&too_long),
        Err(WireError::TooLong { .. })
    ));
    for seed in seeds(200) {
        let mut random = Random::new(seed);
        let mut bytes: Vec<u8> = (0..random.index(200))
            .map(|_| random.next_u64() as u8)
            .collect();
        if let Some(version) = bytes.first_mut() {
            *version = 2;
        }
        let _ = Record::decode(&bytes);
    }
}
