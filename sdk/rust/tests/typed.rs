//! Typed collections against the in-memory host, and the order of encoded keys.

use e3_sdk::testing::{Call, Host, Kind};
use e3_sdk::typed::{Array, Counter, HashMap, Key, OrderedMap, Value};
use e3_sdk::{Error, Request, Service, reply};
use std::fmt::Debug;
use std::time::Duration;

fn bytes(key: &impl Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

/// The order of the bytes is that of the keys, and the bytes give the key back.
fn check_order<K: Key + Ord + Debug>(keys: &[K]) {
    for a in keys {
        let encoded = bytes(a);
        let mut rest = &encoded[..];
        assert_eq!(K::decode(&mut rest).as_ref(), Some(a));
        assert!(rest.is_empty());
        for len in 0..encoded.len() {
            assert_eq!(K::decode(&mut &encoded[..len]), None, "{a:?} cut off");
        }
        for b in keys {
            assert_eq!(encoded.cmp(&bytes(b)), a.cmp(b), "{a:?} {b:?}");
            let is_prefix = a != b && bytes(b).starts_with(&encoded);
            assert!(!is_prefix, "{a:?} begins {b:?}");
        }
    }
}

#[test]
fn keys_keep_their_order_as_bytes() {
    check_order(&[0u8, 1, 127, 128, 255]);
    check_order(&[0u32, 1, 255, 256, u32::MAX]);
    check_order(&[i64::MIN, -256, -1, 0, 1, 255, 256, i64::MAX]);
    check_order(&[i128::MIN, -1, 0, i128::MAX]);
    check_order(&[false, true]);
    check_order(&[[0u8, 1], [0, 2], [1, 0]]);
    let texts = [
        "", "\0", "\0\0", "\0a", "a", "a\0", "a\0b", "ab", "b", "\u{ff}",
    ];
    let texts = texts.map(String::from);
    check_order(&texts);
    check_order(&[vec![], vec![0], vec![0, 0xff], vec![0xff], vec![0xff, 0xff]]);
    let mut pairs = Vec::new();
    for text in &texts {
        for number in [i16::MIN, -1, 0, i16::MAX] {
            pairs.push((text.clone(), number));
        }
    }
    check_order(&pairs);
    let triple = |(text, number): &(String, i16)| (*number, text.clone(), text.len() as u8);
    check_order(&pairs.iter().map(triple).collect::<Vec<_>>());
}

#[test]
fn values_come_back() {
    fn check<V: Value + PartialEq + Debug>(value: V) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        let mut rest = &bytes[..];
        assert_eq!(V::decode(&mut rest), Some(value));
        assert!(rest.is_empty());
    }
    check(-7i32);
    check(f64::MIN_POSITIVE);
    check((1u8, String::from("text"), Some(vec![1u8, 2])));
    check((None::<u64>, true, [1u8, 2, 3], 1.5f32));
}

/// Keeps the last readings of a sensor.
struct Sensors {
    readings: OrderedMap<(u32, i64), f64>,
    names: HashMap<u32, String>,
    log: Array<u32, (i64, String)>,
    count: Counter<(u32, bool)>,
}

impl Service for Sensors {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            readings: OrderedMap::open("readings")?,
            names: HashMap::open("names")?,
            log: Array::open("log")?,
            count: Counter::open("count")?,
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let at = e3_sdk::now();
        let hour = Duration::from_nanos(100);
        self.readings.put_for(&(7, at), &20.5, hour)?;
        self.readings.put(&(8, at), &1.0)?;
        self.names.put(&7, &"roof".into())?;
        self.log.push(&7, &(at, "read".into()))?;
        self.count.fetch_add(&(7, true), 1)?;
        let mut answer = String::new();
        let mut scan = match request.payload() {
            b"all" => self.readings.range(..)?,
            b"reverse" => self.readings.range_reverse((7, i64::MIN)..=(7, at))?,
            b"none" => self.readings.range((9, 0)..(7, 0))?,
            _ => self.readings.prefix(&7u32)?,
        };
        while let Some(((sensor, at), _)) = scan.next()? {
            answer += &format!("{sensor}@{at} ");
        }
        reply(0, answer.as_bytes())
    }
}

fn host() -> Host {
    Host::new()
        .collection("readings", Kind::Ordered)
        .collection("names", Kind::Hash)
        .collection("log", Kind::Array)
        .ttl(Duration::from_nanos(100))
        .collection("count", Kind::Counter)
}

#[test]
fn a_service_with_typed_collections_and_times_to_live() {
    let host = host();
    let mut sensors = Sensors::init().unwrap();
    let mut ask = |now: i64, payload: &[u8]| {
        let call = Call {
            now,
            payload: payload.to_vec(),
            ..Call::default()
        };
        let outcome = host.call(&mut sensors, &call);
        assert_eq!(outcome.result, Ok(()));
        String::from_utf8(outcome.replies[0].1.clone()).unwrap()
    };
    assert_eq!(ask(10, b""), "7@10 ");
    assert_eq!(ask(20, b""), "7@10 7@20 ");
    assert_eq!(ask(109, b"reverse"), "7@109 7@20 7@10 ");
    assert_eq!(ask(110, b""), "7@20 7@109 7@110 ", "the first has expired");
    assert_eq!(ask(500, b"all"), "7@500 8@10 8@20 8@109 8@110 8@500 ");
    assert_eq!(ask(501, b"none"), "");
    let sensors = Sensors::init().unwrap();
    assert_eq!(sensors.names.get(&7), Ok(Some("roof".into())));
    assert_eq!(sensors.names.get(&9), Ok(None));
    assert_eq!(sensors.log.len(&7), 2, "since the array expired");
    assert_eq!(sensors.log.get(&7, 1), Ok(Some((501, "read".into()))));
    assert_eq!(sensors.log.get(&7, 2), Ok(None));
    let mut seen = Vec::new();
    let see = |(at, _)| {
        seen.push(at);
        Ok(())
    };
    sensors.log.for_each(&7, 0, see).unwrap();
    assert_eq!(seen, [500, 501]);
    assert_eq!(sensors.count.get(&(7, true)), Ok(6));
    assert_eq!(sensors.count.get(&(7, false)), Ok(0));
}

#[test]
fn what_does_not_fit_is_an_error() {
    let _host = host();
    let names: HashMap<u32, String> = HashMap::open("names").unwrap();
    let numbers: HashMap<u32, u16> = HashMap::open("names").unwrap();
    names.put(&1, &"one".into()).unwrap();
    assert_eq!(numbers.get(&1), Err(Error::Type("value")));
    let long: HashMap<String, u8> = HashMap::open("names").unwrap();
    assert_eq!(long.put(&"k".repeat(1025), &1), Err(Error::Bound));
    let count: Counter<String> = Counter::open("count").unwrap();
    assert_eq!(count.fetch_add(&"k".repeat(1025), 1), Err(Error::Bound));
    assert_eq!(
        names.put_for(&1, &"one".into(), Duration::ZERO),
        Err(Error::Bound)
    );
    assert!(HashMap::<u32, u32>::open("nosuch").is_err());
    // A handle of another kind.
    let wrong: HashMap<u32, u32> = HashMap::open("count").unwrap();
    assert_eq!(wrong.put(&1, &1), Err(Error::WrongKind));
}
