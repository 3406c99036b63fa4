//! Outbound requests against the in-memory host.

use e3_sdk::outbound::{HttpRequest, Outbound, Outcome};
use e3_sdk::testing::{Call, Host, To};
use e3_sdk::{Error, Request, Service, timers};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Runs a function as a handler.
struct Handler<F>(F);

impl<F: FnMut(&Request<'_>) -> Result<(), Error>> Service for Handler<F> {
    fn init() -> Result<Self, Error> {
        Err(Error::Code(1))
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        (self.0)(request)
    }
}

fn host() -> Host {
    Host::new()
        .asks("stock")
        .http_host("127.0.0.1:8080")
        .http_host("*.example.com")
}

/// How asking ends.
fn refusal(ask: impl FnMut(&Request<'_>) -> Result<(), Error>) -> Option<Error> {
    let outcome = host().call(&mut Handler(ask), &Call::default());
    assert_eq!(outcome.outbound.is_empty(), outcome.result.is_err());
    outcome.result.err()
}

#[test]
fn requests_and_answers_have_what_the_service_said() {
    let mut asks = Handler(|_: &Request<'_>| {
        let outbound = Outbound::new("name", SECOND);
        outbound.to_service("stock", b"sku", b"payload")?;
        outbound.to_application("other", b"key", b"")?;
        let http = HttpRequest::get("http://127.0.0.1:8080/x").header("a", "b");
        outbound.over_http(&http, b"")
    });
    let host = host();
    let asked = host.call(&mut asks, &Call::default()).outbound;
    let service = To::Service {
        service: "stock".into(),
        key: b"sku".to_vec(),
    };
    assert_eq!(asked[0].to, service);
    assert_eq!(
        (&asked[0].payload[..], asked[0].timeout),
        (&b"payload"[..], 1_000_000_000)
    );
    assert!(matches!(&asked[1].to, To::Application { application, .. } if application == "other"));
    let http = To::Http {
        method: "GET".into(),
        url: "http://127.0.0.1:8080/x".into(),
        headers: vec![("a".into(), "b".into())],
    };
    assert_eq!(asked[2].to, http);

    let mut seen = None;
    let mut answers = Handler(|request: &Request<'_>| {
        seen = Some((request.answer(), request.timer(), request.edge()));
        Ok(())
    });
    let answer = asked[0].answered(Outcome::Unknown, 503, b"reason");
    assert_eq!(host.call(&mut answers, &answer).result, Ok(()));
    let (answer, timer, edge) = seen.unwrap();
    let answer = answer.unwrap();
    assert_eq!(
        (answer.name.as_str(), answer.outcome, answer.status),
        ("name", Outcome::Unknown, 503)
    );
    assert!(!answer.is_ok() && !answer.is_http_ok());
    assert_eq!((timer, edge), (None, None));
}

#[test]
fn a_request_that_brings_no_answer_has_none() {
    for edge in [-1, -2, 0] {
        let call = Call {
            edge,
            timer: "name".into(),
            ..Call::default()
        };
        let mut handler = Handler(|request: &Request<'_>| {
            assert_eq!(request.answer(), None);
            Ok(())
        });
        assert_eq!(host().call(&mut handler, &call).result, Ok(()));
    }
}

#[test]
fn each_refusal_is_told() {
    let outbound = Outbound::new("name", SECOND);
    let ask = |name, timeout, key| {
        refusal(move |_| {
            Outbound::new(name, timeout)
                .with_key(key)
                .to_service("stock", b"k", b"")
        })
    };
    assert_eq!(ask("name", SECOND, b""), None);
    assert_eq!(ask("", SECOND, b""), Some(Error::Length));
    assert_eq!(ask("name", Duration::ZERO, b""), Some(Error::TooFarAhead));
    let day = Duration::from_secs(24 * 3600);
    assert_eq!(ask("name", day + SECOND, b""), Some(Error::TooFarAhead));
    assert_eq!(ask("name", SECOND, b"other"), Some(Error::OtherSlot));
    let not_allowed = Some(Error::NotAllowed);
    assert_eq!(
        refusal(|_| outbound.to_service("shop", b"k", b"")),
        not_allowed
    );
    let get = |url: &'static str| refusal(move |_| outbound.over_http(&HttpRequest::get(url), b""));
    assert_eq!(get("https://api.example.com/"), None);
    assert_eq!(get("https://example.com/"), not_allowed);
    assert_eq!(get("http://127.0.0.1/"), not_allowed);
    assert_eq!(get("ftp://127.0.0.1:8080/"), Some(Error::Url));
    let too_many = refusal(|_| (0..65).try_for_each(|_| outbound.to_service("stock", b"k", b"")));
    assert_eq!(too_many, Some(Error::Bound));
    let long = vec![0; 32 * 1024 + 1];
    let too_long = refusal(|_| outbound.to_service("stock", b"k", &long));
    assert_eq!(too_long, Some(Error::Bound));
}

#[test]
fn a_failed_handler_asks_nobody() {
    let mut handler = Handler(|_: &Request<'_>| {
        Outbound::new("name", SECOND).to_service("stock", b"k", b"")?;
        timers::cancel("other", b"")?;
        Err(Error::Code(1))
    });
    let outcome = host().call(&mut handler, &Call::default());
    assert!(outcome.outbound.is_empty() && outcome.timers.is_empty());
}
