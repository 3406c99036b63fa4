//! Records in CBOR: round trips, bounds and refusals.

use super::*;
use crate::builder::Builder;
use e3_testkit::Random;

#[test]
fn what_is_written_is_read_back() {
    let mut b = Builder::new();
    b.field("i", Value::Int(-7))
        .field("f", Value::Float(1.5))
        .field("b", Value::Bool(true))
        .field("t", Value::Text("zwölf"))
        .field("y", Value::Bytes(&[0, 255]))
        .field("z", Value::Null)
        .array("n", 3, |a| {
            a.push(Value::Int(1));
            a.push(Value::Float(2.5));
            a.push(Value::Int(-3));
        })
        .array("w", 2, |a| {
            a.push(Value::Text("a"));
            a.push(Value::Text("b"));
        });
    let bytes = b.bytes().to_vec();
    let r = Record::parse(&bytes).unwrap();
    assert_eq!(r.int("i"), Ok(-7));
    assert_eq!((r.number("f"), r.number("i")), (Ok(1.5), Ok(-7.0)));
    assert_eq!((r.bool("b"), r.text("t")), (Ok(true), Ok("zwölf")));
    assert_eq!(r.bytes("y"), Ok(&[0, 255][..]));
    for (name, value) in [
        ("i", Value::Int(-7)),
        ("f", Value::Float(1.5)),
        ("b", Value::Bool(true)),
        ("t", Value::Text("zwölf")),
        ("y", Value::Bytes(&[0, 255])),
        ("z", Value::Null),
    ] {
        assert_eq!(r.value(name), Ok(value));
    }
    assert!(r.value("n").is_err());
    assert_eq!(r.numbers("n", 3), Ok(alloc::vec![1.0, 2.5, -3.0]));
    assert_eq!(r.texts("w", 9), Ok(alloc::vec!["a", "b"]));
    let mut copy = Builder::new();
    copy.copy(&r, &["i", "n"]).field("i", Value::Int(8));
    let bytes = copy.bytes().to_vec();
    let again = Record::parse(&bytes).unwrap();
    assert_eq!((again.int("i"), again.has("n")), (Ok(8), false));
    assert_eq!(again.text("t"), Ok("zwölf"));
}

#[test]
fn faults_name_field_value_and_bound() {
    let mut b = Builder::new();
    b.field("t", Value::Text("x"))
        .field("f", Value::Float(f64::NAN))
        .array("n", 2, |a| {
            a.push(Value::Int(1));
            a.push(Value::Int(2));
        });
    let bytes = b.bytes().to_vec();
    let r = Record::parse(&bytes).unwrap();
    let text = |error: RecordError| error.to_string();
    assert_eq!(text(r.int("q").unwrap_err()), "field \"q\": is missing");
    assert_eq!(
        text(r.int("t").unwrap_err()),
        "field \"t\": is string, must be a whole number"
    );
    assert_eq!(
        text(r.number("f").unwrap_err()),
        "field \"f\": is a number, must be a finite number"
    );
    assert_eq!(
        text(r.numbers("n", 1).unwrap_err()),
        "field \"n\": has 2 elements, must be at most 1"
    );
}

/// The fast path agrees with the decoder.
#[test]
fn values_end_where_the_decoder_ends() {
    let agree = |bytes: &[u8]| {
        let mut d = Decoder::new(bytes);
        let skipped = d.skip().map(|()| d.position());
        if let Ok(end) = end_of_definite(bytes, 0) {
            assert_eq!(skipped.ok(), Some(end), "{bytes:x?}");
        }
        end_of_definite(bytes, 0).is_ok()
    };
    for head in 0..=255u8 {
        for len in [0, 1, 2, 3, 5, 9, 24, 31, 300] {
            let mut bytes = alloc::vec![24; len];
            bytes.insert(0, head);
            agree(&bytes);
        }
    }
    let mut random = Random::new(1);
    let mut found = 0;
    for _ in 0..100_000 {
        let mut bytes = [0; 12];
        for byte in &mut bytes {
            // short lengths, so that elements come in it
            *byte = random.byte() & 0xe3 | random.byte() & 0x18;
        }
        found += u32::from(agree(&bytes));
    }
    assert!(found > 10_000, "{found}");
}

/// Wherever a text is: a value, an element, a key or value of a map within, behind a tag.
#[test]
fn every_text_is_utf8() {
    let bad: [&[u8]; 6] = [
        b"\x61\xff",
        b"\x62\xc3\x28",
        b"\x63\xed\xa0\x80", // a surrogate
        b"\x62\xc0\x80",     // overlong
        b"\x64\xf4\x90\x80\x80",
        b"\x78\x19aaaaaaaaaaaaaaaaaaaaaaaa\xe4",
    ];
    let around: [(&[u8], &[u8]); 6] = [
        (b"", b""),
        (b"\x81", b""),
        (b"\x82\x61x", b""),
        (b"\xa1\x61k", b""),
        (b"\xa1", b"\x00"),
        (b"\xc0", b""),
    ];
    for text in bad {
        for (before, after) in around {
            let bytes = [b"\xa2\x61a\x01\x61b", before, text, after].concat();
            let at = 6 + before.len();
            let why = Record::parse(&bytes).unwrap_err().to_string();
            assert_eq!(
                why,
                alloc::format!("record: expected UTF-8 text at byte {at}")
            );
            // the same as bytes is none of the record's business
            let mut bytes = bytes;
            bytes[at] &= !0x20;
            assert!(Record::parse(&bytes).is_ok(), "{bytes:x?}");
        }
        let name = [b"\xa1", text, b"\x01"].concat();
        assert!(Record::parse(&name).is_err());
    }
    for good in [
        "",
        "a",
        "zw\u{f6}lf",
        "\u{10ffff}",
        "zw\u{f6}lf Boxk\u{e4}mpfer jagen Eva",
    ] {
        let mut b = Builder::new();
        b.field("t", Value::Text(good));
        assert_eq!(Record::parse(b.bytes()).unwrap().text("t"), Ok(good));
    }
}

#[test]
fn a_byte_beyond_ascii_is_found_wherever_it_is() {
    for len in 0..=24 {
        let text = alloc::vec![b'~'; len];
        assert!(is_ascii(&text), "{len}");
        for at in 0..len {
            let mut text = text.clone();
            text[at] = 0x80;
            assert!(!is_ascii(&text), "{len}, {at}");
        }
    }
}

#[test]
fn names_are_told_apart() {
    let names = [
        "",
        "a",
        "aa",
        "aba",
        "aca",
        "adda",
        "abcdefgh_a",
        "abcdefhh_a",
        "ä",
        "zwölfundzwanzig_felder_x",
    ];
    let mut b = Builder::new();
    for (n, name) in names.into_iter().enumerate() {
        b.field(name, Value::Int(n as i64));
    }
    let bytes = b.bytes().to_vec();
    let record = Record::parse(&bytes).unwrap();
    for (n, name) in names.into_iter().enumerate() {
        assert_eq!(record.int(name), Ok(n as i64));
        let mut twice = Builder::new();
        twice.copy(&record, &[]).field(name, Value::Null);
        let twice = twice.bytes().to_vec();
        assert!(Record::parse(&twice).is_err(), "{name}");
    }
    assert!(!record.has("abba"));
}

#[test]
fn any_bytes_are_a_record_or_a_fault() {
    let mut good = Builder::new();
    good.field("a", Value::Int(1)).field("b", Value::Text("x"));
    let good = good.bytes().to_vec();
    for len in 0..good.len() {
        assert!(Record::parse(&good[..len]).is_err(), "{len}");
    }
    let longer = [&good[..], &[0]].concat();
    assert!(Record::parse(&longer).is_err());
    // a map that promises 2^64 - 1 fields, one of indefinite length, a name twice
    for bad in [
        &[0xbb, 255, 255, 255, 255, 255, 255, 255, 255][..],
        &[0xbf, 0x61, b'a', 1, 0xff],
        &[0xa2, 0x61, b'a', 1, 0x61, b'a', 2],
    ] {
        assert!(Record::parse(bad).is_err(), "{bad:?}");
    }
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..2 {
            let at = random.index(bytes.len());
            bytes[at] = random.byte();
        }
        if let Ok(r) = Record::parse(&bytes) {
            let _ = (r.int("a"), r.numbers("a", 4), r.texts("b", 4), r.bytes("b"));
        }
    }
}

/// The numbers of RFC 8949, appendix A, and others in all three sizes.
#[test]
fn numbers_have_three_sizes() {
    let number = |bytes: &[u8]| {
        let record = [&[0xa1, 0x61, b'n'], bytes].concat();
        Record::parse(&record).unwrap().number("n").ok()
    };
    for (bits, value) in [
        (0x0000u16, 0.0),
        (0x3c00, 1.0),
        (0x3e00, 1.5),
        (0x7bff, 65504.0),
        (0x0001, 5.960464477539063e-8),
        (0x0400, 0.00006103515625),
        (0xc400, -4.0),
        (0x4a40, 12.5),
    ] {
        let [a, b] = bits.to_be_bytes();
        assert_eq!(number(&[0xf9, a, b]), Some(value), "{bits:#x}");
        let single = (value as f32).to_be_bytes();
        assert_eq!(number(&[&[0xfa][..], &single].concat()), Some(value));
        let double = value.to_be_bytes();
        assert_eq!(number(&[&[0xfb][..], &double].concat()), Some(value));
    }
    for no_number in [0x7c00u16, 0xfc00, 0x7e00] {
        let [a, b] = no_number.to_be_bytes();
        assert_eq!(number(&[0xf9, a, b]), None);
    }
}
