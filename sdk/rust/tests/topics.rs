//! Publications on the testing host.

use e3_sdk::testing::{Call, Host};
use e3_sdk::topics::Topic;
use e3_sdk::{Error, Request, Service, publish};

/// Publishes, and notes what it gets.
struct Fan(fn() -> Result<(), Error>, Vec<(Option<Topic>, Vec<u8>)>);

impl Service for Fan {
    fn init() -> Result<Self, Error> {
        Ok(Fan(|| Ok(()), Vec::new()))
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        if request.topic().is_some() {
            assert_eq!(request.edge(), None);
            let payload = request.payload().to_vec();
            self.1.push((request.topic(), payload));
            return Ok(());
        }
        (self.0)()
    }
}

#[test]
fn what_is_published_can_be_delivered() {
    let host = Host::new().publishes("orders");
    let mut fan = Fan(
        || {
            publish("orders", b"c7", b"one")?;
            publish("orders", b"c8", b"two")
        },
        Vec::new(),
    );
    let outcome = host.call(&mut fan, &Call::default());
    assert_eq!(outcome.result, Ok(()));
    let keys = outcome.published.iter().map(|p| p.key.as_slice());
    assert!(keys.eq([b"c7", b"c8"]));
    for published in &outcome.published {
        let delivered = host.call(&mut fan, &published.delivered("shop"));
        assert!(delivered.published.is_empty());
    }
    let topic = Topic {
        application: "shop".into(),
        name: "orders".into(),
    };
    let expected = [b"one", b"two"].map(|payload| (Some(topic.clone()), payload.to_vec()));
    assert_eq!(fan.1, expected);
}

#[test]
fn what_the_manifest_or_a_bound_forbids_is_refused() {
    let refusal = |publishes: fn() -> Result<(), Error>| {
        let outcome = Host::new()
            .publishes("orders")
            .call(&mut Fan(publishes, Vec::new()), &Call::default());
        assert!(outcome.published.is_empty());
        outcome.result.unwrap_err()
    };
    assert_eq!(refusal(|| publish("sales", b"k", b"")), Error::NotAllowed);
    assert_eq!(refusal(|| publish("orders", b"", b"")), Error::Length);
    let long = || publish("orders", b"k", &[0; 40_000]);
    assert_eq!(refusal(long), Error::Bound);
    let many = || (0..65).try_for_each(|_| publish("orders", b"k", b""));
    assert_eq!(refusal(many), Error::Bound);
}
