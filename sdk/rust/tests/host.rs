//! The wrappers against the in-memory host.

use e3_sdk::testing::{Call, Host, Kind};
use e3_sdk::{
    Array, Asset, Channel, Counter, Error, HashMap, Level, OrderedMap, Request, RequestId, Service,
    config_or, log, reply, secret,
};

/// Counts its requests, forwards them, and fails on an empty payload after having written.
struct Probe {
    seen: Counter,
    next: Channel,
}

impl Service for Probe {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            seen: Counter::open("seen")?,
            next: Channel::open("next")?,
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let mut key = [0; 8];
        let key = request.key(&mut key)?;
        self.seen.fetch_add(key, 1);
        self.next.send(key, request.payload())?;
        log!(Level::Info, "{:?} by {:?}", request.id(), request.edge());
        if request.payload().is_empty() {
            return Err(Error::Code(7));
        }
        reply(3, request.payload())
    }
}

#[test]
fn a_request_commits_together_or_not_at_all() {
    let host = Host::new()
        .channel("next")
        .collection("seen", Kind::Counter);
    let mut probe = Probe::init().unwrap();
    let mut call = Call {
        id: RequestId {
            client: 5,
            sequence: 9,
        },
        key: b"k".to_vec(),
        payload: b"hello".to_vec(),
        edge: 2,
        ..Call::default()
    };
    let outcome = host.call(&mut probe, &call);
    assert_eq!(outcome.result, Ok(()));
    assert_eq!(outcome.replies, [(3, b"hello".to_vec())]);
    assert_eq!(outcome.sent.len(), 1);
    assert_eq!(
        outcome.logs,
        [(3, "RequestId { client: 5, sequence: 9 } by Some(2)".into())]
    );

    let before = host.state();
    call.payload.clear();
    let outcome = host.call(&mut probe, &call);
    assert_eq!(outcome.result, Err(Error::Code(7)));
    assert!(outcome.sent.is_empty());
    assert_eq!(host.state(), before);
    assert_eq!(probe.seen.get(b"k"), 1);
}

#[test]
fn what_the_manifest_lacks_is_named() {
    let _host = Host::new().config("rate", "fast");
    assert_eq!(Channel::open("next").unwrap_err(), Error::NoChannel("next"));
    assert_eq!(HashMap::open("m").unwrap_err(), Error::NoCollection("m"));
    assert_eq!(secret("key"), Err(Error::NoSecret("key")));
    assert_eq!(config_or("burst", 4.5), Ok(4.5));
    let error = config_or("rate", 1.0).unwrap_err();
    assert_eq!(error.to_string(), "config \"rate\": invalid value \"fast\"");
}

#[test]
fn maps_read_what_they_wrote() {
    let _host = Host::new().collection("m", Kind::Hash);
    let map = HashMap::open("m").unwrap();
    let mut buffer = [0; 4];
    assert_eq!(map.get(b"a", &mut buffer), Ok(None));
    map.put(b"a", b"12345").unwrap();
    assert_eq!(
        map.get(b"a", &mut buffer),
        Err(Error::Short { len: 5, cap: 4 })
    );
    let long = vec![7; 1000];
    map.put(b"a", &long).unwrap();
    assert_eq!(map.get_vec(b"a"), Some(long));
    assert_eq!(map.delete(b"a"), Ok(true));
    assert_eq!(map.delete(b"a"), Ok(false));
    assert_eq!(map.put(b"", b"1"), Err(Error::Bound));
    assert_eq!(
        Array::open("m").unwrap().push(b"a", b"1"),
        Err(Error::WrongKind)
    );
}

fn keys(mut scan: e3_sdk::Scan) -> Vec<u32> {
    let mut keys = Vec::new();
    while let Some((key, value)) = scan.next().unwrap() {
        assert_eq!(key, &value[..4]);
        keys.push(u32::from_be_bytes(key.try_into().unwrap()));
    }
    keys
}

#[test]
fn scans_walk_ranges_chunk_by_chunk() {
    let _host = Host::new().collection("m", Kind::Ordered);
    let map = OrderedMap::open("m").unwrap();
    for n in 0..40_u32 {
        // Of very different lengths, one longer than a chunk.
        let mut value = n.to_be_bytes().to_vec();
        value.resize(4 + n as usize * 20 + usize::from(n == 11) * 6000, 0);
        // One request may write only 40 KiB; this is not within a request.
        map.put(&n.to_be_bytes(), &value).unwrap();
    }
    let all: Vec<u32> = (0..40).collect();
    let back: Vec<u32> = (0..40).rev().collect();
    assert_eq!(keys(map.scan(&[], &[])), all);
    assert_eq!(keys(map.scan_reverse(&[], &[])), back);
    assert_eq!(keys(map.scan(&[], &[]).chunk(3)), all);
    assert_eq!(keys(map.scan_reverse(&[], &[]).chunk(1)), back);
    let (from, to) = (5_u32.to_be_bytes(), 9_u32.to_be_bytes());
    assert_eq!(keys(map.scan(&from, &to)), [5, 6, 7, 8]);
    assert_eq!(keys(map.scan_reverse(&from, &to).chunk(2)), [8, 7, 6, 5]);
}

#[test]
fn arrays_and_counters() {
    let _host = Host::new()
        .collection("a", Kind::Array)
        .collection("c", Kind::Counter);
    let array = Array::open("a").unwrap();
    let mut buffer = [0; 8];
    assert!(array.is_empty(b"k"));
    for n in 0..3_u8 {
        array.push(b"k", &[n]).unwrap();
    }
    assert_eq!(array.pop_front(b"k"), Ok(true));
    assert_eq!(array.get(b"k", 0, &mut buffer), Ok(Some(&[1][..])));
    array.put(b"k", 1, &[9]).unwrap();
    assert_eq!(array.get(b"k", 1, &mut buffer), Ok(Some(&[9][..])));
    assert_eq!(array.put(b"k", 2, &[9]), Err(Error::Index));
    assert_eq!(array.len(b"k"), 2);
    assert_eq!(array.delete(b"k"), Ok(true));
    let counter = Counter::open("c").unwrap();
    assert_eq!(counter.fetch_add(b"k", 5), 0);
    assert_eq!(counter.fetch_add(b"k", -2), 5);
    assert_eq!(counter.get(b"k"), 3);
}

#[test]
fn arrays_are_walked_whatever_their_elements_lengths() {
    let _host = Host::new().collection("a", Kind::Array);
    let array = Array::open("a").unwrap();
    let element = |n: usize| vec![n as u8; [0, 1, 300, 504, 2000, 7][n % 6]];
    for n in 0..50 {
        array.push(b"k", &element(n)).unwrap();
    }
    for from in [0, 1, 4, 49, 50, 60] {
        let mut seen = Vec::new();
        let see = |e: &[u8]| {
            seen.push(e.to_vec());
            Ok(())
        };
        array.for_each(b"k", from as u64, see).unwrap();
        assert_eq!(seen, (from..50).map(element).collect::<Vec<_>>());
    }
    let stopped = array.for_each(b"k", 0, |_| Err(Error::Code(3)));
    assert_eq!(stopped, Err(Error::Code(3)));
    array.for_each(b"other", 0, |_| Err(Error::Index)).unwrap();
}

#[test]
fn assets_are_read_in_pieces() {
    let _host = Host::new().asset("table", b"0123456789");
    let asset = Asset::open("table").unwrap();
    assert!(Asset::open("other").is_none());
    let mut buffer = [0; 4];
    assert_eq!(asset.len(), 10);
    assert_eq!(asset.read(8, &mut buffer), Ok(2));
    assert_eq!(&buffer[..2], b"89");
    assert_eq!(asset.read(11, &mut buffer), Ok(0));
}
