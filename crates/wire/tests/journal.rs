//! Records of a journal are read back as they were written; anything else is an error.

mod samples;

use e3_model::{Format, Formats};
use e3_testkit::{Random, seeds};
use e3_wire::WireError;
use e3_wire::journal::{Record, Step, seal};
use samples::{KEY, records};

/// As a worker writes it.
fn sealed(record: &Record) -> Vec<u8> {
    let mut bytes = record.encode();
    seal(Format::NEWEST, &mut bytes);
    bytes
}

#[test]
fn records_are_read_back() {
    for record in records() {
        let bytes = sealed(&record);
        assert_eq!(Record::decode(Formats::PROGRAM, &bytes), Ok(record.clone()));
        if let Step::Item(item) = &record.step {
            assert_eq!(Record::encode_item(KEY, item), record.encode());
        }
    }
}

#[test]
fn the_format_is_fixed() {
    // What is on disks must be read by later versions.
    let bytes = sealed(&Record {
        key: KEY,
        step: Step::Reign(5),
    });
    assert_eq!(bytes, [11, 3, 0, 2, 0, 1, 0, 5, 5, 0, 0, 0]);
}

#[test]
fn a_format_that_is_not_read_is_named_with_those_that_are() {
    let mut bytes = records()[4].encode();
    let mut error = |format| {
        seal(Format(format), &mut bytes);
        let error = Record::decode(Formats::PROGRAM, &bytes).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        error(12),
        "format is 12, this process reads 7 to 11; start a newer release of the program"
    );
    assert_eq!(
        error(6),
        "format is 6, this process reads 7 to 11; an older release wrote it: start that one, or one in between"
    );
}

#[test]
fn what_is_cut_short_or_random_is_an_error_or_another_record() {
    for record in records() {
        let bytes = sealed(&record);
        for len in 0..bytes.len() {
            // An item is as long as it is.
            let is_open = matches!(record.step, Step::Piece(_) | Step::Item(_)) && len >= 8;
            assert_eq!(
                Record::decode(Formats::PROGRAM, &bytes[..len]).is_ok(),
                is_open,
                "{len} bytes"
            );
        }
    }
    let mut too_long = Record::encode_item(KEY, &vec![0; 60_001]);
    seal(Format::NEWEST, &mut too_long);
    assert!(matches!(
        Record::decode(Formats::PROGRAM, &too_long),
        Err(WireError::TooLong { .. })
    ));
    for seed in seeds(200) {
        let mut random = Random::new(seed);
        let mut bytes: Vec<u8> = (0..random.index(200))
            .map(|_| random.next_u64() as u8)
            .collect();
        if let Some(version) = bytes.first_mut() {
            *version = Format::NEWEST.0;
        }
        let _ = Record::decode(Formats::PROGRAM, &bytes);
    }
}
