//! Bytes that a release wrote are read by this one, and written by it in the same way while the
//! cluster's format is that release's.
//!
//! `recorded/FORMAT/` holds the bytes. When a format changes, those of the one before stay, and
//! `E3_UPDATE=1 cargo test -p e3-wire --test recorded` records those of the new one.

#![allow(clippy::disallowed_methods, reason = "the recorded bytes are files")]

mod samples;

use e3_model::{Format, Formats, NodeId};
use e3_wire::HeartbeatKeys;
use e3_wire::client::ClientFrame;
use e3_wire::codec::Reader;
use e3_wire::datagram::{Header, Kind, open, seal};
use e3_wire::frame::Frame;
use e3_wire::heartbeat::{self, Heartbeat};
use e3_wire::journal::{self, Record};
use e3_wire::message::Message;
use e3_wire::replicated::Replicated;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;

/// The recorded bytes of one format.
struct Recorded {
    dir: PathBuf,
    seen: BTreeSet<String>,
}

impl Recorded {
    fn of(format: Format) -> Recorded {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/recorded")
            .join(format.to_string());
        let seen = BTreeSet::new();
        Recorded { dir, seen }
    }

    /// The recorded bytes are what is written today, and are read as the value.
    #[track_caller]
    fn check<T: PartialEq + Debug>(
        &mut self,
        name: &str,
        written: &[u8],
        value: &T,
        read: impl for<'a> FnOnce(&'a [u8]) -> T,
    ) {
        let name = format!("{name}.bin");
        let path = self.dir.join(&name);
        if std::env::var_os("E3_UPDATE").is_some() && !path.exists() {
            std::fs::create_dir_all(&self.dir).unwrap();
            std::fs::write(&path, written).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(&read(&bytes), value, "{name}");
        assert!(bytes == written, "{name}: other bytes are written");
        assert!(self.seen.insert(name), "two are named so");
    }

    /// Nothing else is recorded.
    fn check_all(&self) {
        let files = std::fs::read_dir(&self.dir).unwrap();
        let names = files.map(|f| f.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.collect::<BTreeSet<_>>(), self.seen);
    }
}

fn header(kind: Kind) -> Header {
    Header {
        kind,
        from: NodeId(3),
        cluster: 1 << 63 | 9,
        incarnation: 4,
        to_incarnation: 5,
    }
}

/// A whole datagram, and what is behind its header.
fn datagram(format: Format, header: &Header, frame: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    frame(&mut bytes);
    seal(format, &mut bytes);
    bytes
}

/// Opens a datagram; gives its header and what `read` makes of the rest, which it reads to its end.
fn opened<'a, T>(bytes: &'a [u8], read: impl FnOnce(&mut Reader<'a>) -> T) -> (Header, T) {
    let (header, mut reader) = open(Formats::PROGRAM, bytes).unwrap();
    let value = read(&mut reader);
    assert!(reader.is_empty());
    (header, value)
}

/// The name of a variant, from how it is printed.
fn variant(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_lowercase()
}

#[test]
fn what_format_7_wrote_is_read_and_written_in_the_same_way() {
    check_format(Format(7));
}

#[test]
fn what_format_8_wrote_is_read_and_written_in_the_same_way() {
    check_format(Format(8));
}

#[test]
fn what_format_9_wrote_is_read_and_written_in_the_same_way() {
    check_format(Format(9));
}

#[test]
fn what_format_10_wrote_is_read_and_written_in_the_same_way() {
    check_format(Format(10));
}

#[test]
fn what_format_11_wrote_is_read_and_written_in_the_same_way() {
    check_format(Format(11));
}

fn check_format(format: Format) {
    let mut recorded = Recorded::of(format);
    let body = samples::message().encode();
    recorded.check("message", &body, &samples::message(), |bytes| {
        Message::decode(bytes).unwrap()
    });
    for (i, frame) in samples::frames(&body).iter().enumerate() {
        let name = format!("peer-{i:02}-{}", variant(frame));
        let written = datagram(format, &header(Kind::Peer), |out| frame.encode(out));
        let value = format!("{:?}", (header(Kind::Peer), frame));
        recorded.check(&name, &written, &value, |bytes| {
            let read = opened(bytes, |r| format!("{:?}", Frame::decode(r).unwrap()));
            format!("({:?}, {})", read.0, read.1)
        });
    }
    for (i, frame) in samples::client_frames().into_iter().enumerate() {
        let name = format!("client-{i:02}-{}", variant(&frame));
        let written = frame.to_datagram(format);
        recorded.check(&name, &written, &(Header::CLIENT, frame), |bytes| {
            opened(bytes, |r| ClientFrame::decode(r).unwrap())
        });
    }
    let beat = Heartbeat {
        queue_len: 1,
        service_time_ns: 2,
        busy_permille: 3,
        port_permille: 0,
        plan_version_low: 4,
    };
    let keys = HeartbeatKeys::new(&[5; 16]);
    let mut written = heartbeat::encode(format, 9, NodeId(3), 2, &beat);
    if format >= Format::HEARTBEAT_TAGS {
        heartbeat::authenticate(format, &mut written, &keys.of(NodeId(3), 2), 6);
    }
    recorded.check("heartbeat", &written, &beat, |bytes| {
        let read = heartbeat::decode(Formats::PROGRAM, &keys, bytes);
        read.unwrap().heartbeat
    });
    for (i, item) in samples::replicated().into_iter().enumerate() {
        let name = format!("replicated-{i:02}-{}", variant(&item));
        recorded.check(&name, &item.encode(), &item, |bytes| {
            Replicated::decode(bytes).unwrap()
        });
    }
    if format >= Format::STREAM_VIEWS {
        for item in samples::beginnings() {
            let name = format!("stream-{}", variant(&item));
            recorded.check(&name, &item.encode(), &item, |bytes| {
                Replicated::decode(bytes).unwrap()
            });
        }
    }
    for (i, record) in samples::records().into_iter().enumerate() {
        let name = format!("journal-{i:02}-{}", variant(&record.step));
        let mut written = record.encode();
        journal::seal(format, &mut written);
        recorded.check(&name, &written, &record, |bytes| {
            Record::decode(Formats::PROGRAM, bytes).unwrap()
        });
    }
    recorded.check_all();
}

#[test]
fn every_format_of_the_program_is_recorded() {
    for format in Format::OLDEST.0..=Format::NEWEST.0 {
        let dir = Recorded::of(Format(format)).dir;
        assert!(dir.is_dir(), "{} is missing", dir.display());
    }
}
